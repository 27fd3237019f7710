"""Checks of names and values against what the engine's release knows. Pure.

What a release knows is in `fathom.engine.known_options`. Nothing is said of releases that were not
asked, nor where the release is not known, nor of a value with `$(NAME)` in it: the kubelet puts
what a variable of the container holds in its place, which is not known here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from fathom.api.bounded_json import UnreadableJsonError, json_or_text
from fathom.api.problem import Problem, warning
from fathom.api.suggestions import VERY_NEAR, nearest
from fathom.engine.argument_parser import (
    MAX_NUM_BATCHED_TOKENS,
    MAX_NUM_SEQS,
    has_variable,
    whole_number,
)
from fathom.engine.flags import FIELDS_OF_OLD
from fathom.engine.known_options import (
    ATTENTION_BACKEND,
    CONNECTOR,
    DRAFT,
    KEYED,
    LOAD_FORMAT,
    REASONING_PARSER,
    TOOL_PARSER,
    Given,
    Names,
    ReleaseNames,
    Takes,
    fault_of,
    given_options,
    in_set,
    known_names,
    names_in,
    object_of,
    who_has,
)
from fathom.validation.argument_checks import SWITCHES
from fathom.validation.candidate import Candidate

_MOST_SHOWN: Final = 8
"""Values of a closed set that are named."""
_PLUGINS: Final[Mapping[str, str]] = MappingProxyType(
    {TOOL_PARSER: "--tool-parser-plugin", REASONING_PARSER: "--reasoning-parser-plugin"}
)
"""What may bring further parsers."""
_BY_OTHER_CHECKS: Final = frozenset({*_PLUGINS, LOAD_FORMAT, MAX_NUM_SEQS})
_PLAIN: Final = re.compile(r"[\w.-]{1,40}")
"""Values that are repeated: a secret has nothing to do where there is a closed set of values."""
_LONG_WORD: Final = 4
"""Letters of a word by which a value may be meant."""
_CHOOSES_TOOLS: Final = "--enable-auto-tool-choice"
_LORA: Final = "--enable-lora"
_Sizes = Mapping[str, int | None]
_RefusalOf = Callable[[Mapping[str, Given], _Sizes, str, str], str]


def unknown_names(candidate: Candidate) -> Iterator[Problem]:
    """Options and draft fields that the engine's release does not know."""
    spec, version = candidate.spec, candidate.engine.version
    names = names_in(version)
    if names is None:
        return
    unknown = f"vLLM {version} does not know"
    for option in candidate.engine.arguments.options:
        field, spelling = f"spec.engine.args[{option.index}]", option.spelling.partition(".")[0]
        meant = names.meant(option.name)
        if len(meant) > 1:
            message = (
                f"{spelling} may be {_listed(meant)} in vLLM {version}, which would not start: "
                "write the whole name."
            )
            yield Problem(field=field, message=message)
        elif not meant and not has_variable(option.name) and option.name != "--":
            advice = _advice(option.name, names.options, known_names().options)
            yield Problem(field=field, message=f"{unknown} {spelling} {advice}")
    for key in spec.draft.options if spec.drafts else ():
        if key not in names.draft:
            advice = _advice(key, names.draft, known_names().draft)
            yield Problem(field=f"spec.draft.options.{key}", message=f"{unknown} {key} {advice}")


def _advice(name: str, taken: Iterable[str], rows: Iterable[Names]) -> str:
    """What comes of a name that is not taken, and what to do instead."""
    if field := FIELDS_OF_OLD.get(name):
        return f"and would not start: set spec.{field} instead."
    if known := who_has(name, rows):
        return f"and would not start; {known}: remove it, or change spec.engine.image."
    near = nearest(name, taken, VERY_NEAR)
    return f"and would not start{f'. Did you mean {near}?' if near else ': remove it.'}"


def argument_values(candidate: Candidate) -> Iterator[Problem]:
    """Values that vLLM's parser refuses: of another type, not in a closed set, too many, none.

    Source: `_compute_kwargs` in vllm/engine/arg_utils.py, and argparse.
    """
    version = candidate.engine.version
    if (names := names_in(version)) is None:
        return
    for given in given_options(candidate.engine.arguments, names):
        if refusal := _refusal(given, names):
            yield _refused(given, refusal, version)


def _refused(given: Given, refusal: str, version: object) -> Problem:
    return Problem(
        field=f"spec.engine.args[{given.option.index}]",
        message=f"vLLM {version} would not start: {given.option.spelling} {refusal}",
    )


def _refusal(given: Given, names: ReleaseNames) -> str:
    """What is wrong with an option's value, and what to write; empty: nothing is known to be."""
    row, keys = given.row, given.option.keys
    if keys:
        if row.takes not in KEYED:
            return "has no keys: write its name without what comes behind the dot."
        return _refusal_of_keys(given.name, keys[:1], names)
    if row.takes is Takes.NOTHING:
        return _refusal_of_switch(given, names)
    if not given.values and not row.bare:
        # What has to be a number is told by `argument_checks.max_num_seqs`.
        return "" if given.name == MAX_NUM_SEQS else "needs a value: write one behind it."
    if len(given.values) > 1 and not row.many:
        return "takes one value: remove what comes behind the first."
    return "" if given.name in _BY_OTHER_CHECKS else _refusal_of_values(given, names)


def _refusal_of_values(given: Given, names: ReleaseNames) -> str:
    takes, values = given.row.takes, names.values.get(given.name, frozenset())
    for value in given.values:
        if not has_variable(value) and (fault := fault_of(given.row, values, value)):
            return _no_such_value(value, values) if values else f"{fault}."
    return _refusal_of_keys(given.name, _keys(takes, given.value), names)


def _refusal_of_switch(given: Given, names: ReleaseNames) -> str:
    by_beginning = not given.attached and given.name.startswith(SWITCHES)
    if not given.values or by_beginning:
        return ""
    off = f"--no-{given.name.removeprefix('--')}"
    also = f", or write {off} to have it off" if off in names.options else ""
    return f"takes no value: remove the value{also}."


def _refusal_of_keys(name: str, keys: Iterable[str], names: ReleaseNames) -> str:
    known = names.keys.get(name, frozenset())
    for key in (each.removesuffix("+") for each in keys if known):
        if key not in known and not has_variable(key):
            near = nearest(key, known, VERY_NEAR)
            return f"has no key {key}{f'. Did you mean {near}?' if near else ': remove it.'}"
    return ""


def _keys(takes: Takes, text: str) -> Iterable[str]:
    """The keys of an object; none: it is none."""
    try:
        found = object_of(takes, text)
    except UnreadableJsonError:
        return ()
    return found if isinstance(found, dict) else ()


def registered_values(candidate: Candidate) -> Iterator[Problem]:
    """Values that the parser takes, and for which vLLM then has nothing.

    Source: `validate_api_server_args` below vllm/entrypoints (parsers), `get_model_loader` in
    vllm/model_executor/model_loader, `AttentionBackendEnum` in
    vllm/v1/attention/backends/registry.py, `KVConnectorFactory` in
    vllm/distributed/kv_transfer/kv_connector/factory.py, `SpeculativeConfig`.
    """
    spec, arguments, version = candidate.spec, candidate.engine.arguments, candidate.engine.version
    if (names := names_in(version)) is None:
        return
    given = {each.name: each for each in given_options(arguments, names)}
    for name in (*_PLUGINS, LOAD_FORMAT):
        found = given.get(name)
        if found is None or _may_be_there(found, given, names):
            continue
        if name == TOOL_PARSER and not _is_on(given, _CHOOSES_TOOLS):
            message = (
                f"vLLM {version} has no tool parser {found.value}, and uses none without "
                f"{_CHOOSES_TOOLS}{_instead(found.value, names.values[name])}"
            )
            yield warning(f"spec.engine.args[{found.option.index}]", message)
        else:
            yield _refused(found, _no_such_value(found.value, names.values[name]), version)
    transfer = arguments.object("--kv-transfer-config")
    connector = "" if "kv_connector_module_path" in transfer else transfer.get("kv_connector")
    stated = {
        "spec.engine.attentionBackend": (ATTENTION_BACKEND, spec.engine.attention_backend),
        "spec.engine.args": (CONNECTOR, connector),
        **{
            f"spec.draft.options.{key}": (_set_of_draft(key), json_or_text(text))
            for key, text in (spec.draft.options.items() if spec.drafts else ())
        },
    }
    for field, (kind, value) in stated.items():
        values = names.values.get(kind, frozenset())
        if not isinstance(value, str) or not value or not values or has_variable(value):
            continue
        if not in_set(Takes.NAME, values, value):
            what = field.rpartition(".")[2] if kind.startswith(DRAFT) else kind
            message = f"vLLM {version} would not start: it has no {what} {value}"
            yield Problem(field=field, message=f"{message}{_instead(value, values)}")


def _set_of_draft(key: str) -> str:
    return ATTENTION_BACKEND if key == "attention_backend" else f"{DRAFT}{key}"


def _may_be_there(found: Given, given: Mapping[str, Given], names: ReleaseNames) -> bool:
    """Whether a value is registered, or may be: a plugin brings more, and so may a variable."""
    plugin = given.get(_PLUGINS.get(found.name, ""))
    if found.value in ("", "None") or has_variable(found.value) or (plugin and plugin.value):
        return True
    # vLLM makes a format small letters, and parsers it takes as they are.
    takes = Takes.NAME if found.name == LOAD_FORMAT else Takes.TEXT
    return in_set(takes, names.values[found.name], found.value)


def _no_such_value(wrong: str, values: Iterable[str]) -> str:
    shown = wrong if _PLAIN.fullmatch(wrong) else "of this name"
    return f"has no value {shown}{_instead(wrong, values)}"


def _instead(wrong: str, values: Iterable[str]) -> str:
    """What to write for a value that a closed set lacks, to end a sentence."""
    # Numbers by size.
    named = sorted({*values} - {"None"}, key=lambda each: (each.isdecimal() and len(each), each))
    words = [word for word in re.split(r"[-_.]", wrong.lower()) if len(word) >= _LONG_WORD]
    longer = [each for each in named if wrong.lower() in each.lower()] if words else []
    if not longer and (near := nearest(wrong, named, VERY_NEAR)):
        return f". Did you mean {near}?"
    alike = longer or [each for each in named if any(word in each.lower() for word in words)]
    return f": write {_listed(sorted(alike, key=len) or named)}."


def _listed(names: Iterable[str]) -> str:
    every = [*names]
    if len(every) > _MOST_SHOWN:
        return f"{', '.join(every[:_MOST_SHOWN])}, or one of {len(every) - _MOST_SHOWN} others"
    return " or ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))


def option_pairs(candidate: Candidate) -> Iterator[Problem]:
    """Options that need another one, exclude it, or bound it.

    Source: `validate_parsed_serve_args` below vllm/entrypoints, `init_static_loras` there,
    `verify_max_model_len` in vllm/config/scheduler.py, vllm/config/parallel.py, cache.py, lora.py
    and kv_transfer.py: the same in 0.28 to 0.33.
    """
    version = candidate.engine.version
    if (names := names_in(version)) is None:
        return
    given = {each.name: each for each in given_options(candidate.engine.arguments, names)}
    sizes = {
        name: whole_number(each.value)
        for name, each in given.items()
        if each.row.takes in (Takes.WHOLE, Takes.SIZE, Takes.LENGTH) and not each.option.keys
    }
    sizes["tensorParallelSize"] = candidate.spec.engine.tensor_parallel_size
    for name, other, refusal_of in _PAIRS:
        if name in given and (refusal := refusal_of(given, sizes, name, other)):
            yield _refused(given[name], refusal, version)
    transfer = candidate.engine.arguments.object("--kv-transfer-config")
    if transfer.get("kv_connector") and not transfer.get("kv_role"):
        message = (
            f"vLLM {version} would not start: kv_connector in --kv-transfer-config needs kv_role"
        )
        yield Problem(
            field="spec.engine.args",
            message=f"{message}: set it to kv_producer, kv_consumer or kv_both.",
        )


def _is_on(given: Mapping[str, Given], name: str) -> bool:
    """Whether a switch is on, or an option has a value: of two spellings the last one counts."""
    plain = name.removeprefix("--")
    spellings = (name, f"--no-{plain}", f"--{plain.replace('enable-', 'disable-', 1)}")
    found = [given[each] for each in spellings if each in given]
    last = max(found, key=lambda each: each.option.index, default=None)
    return last is not None and last.name == name


def _needs(given: Mapping[str, Given], _sizes: _Sizes, name: str, other: str) -> str:
    if not _is_on(given, name) or _is_on(given, other):
        return ""
    return f"needs {other}: add that, or remove this."


def _excludes(given: Mapping[str, Given], _sizes: _Sizes, name: str, other: str) -> str:
    both = _is_on(given, name) and _is_on(given, other)
    return f"excludes {other}: remove one of them." if both else ""


def _at_least(_given: Mapping[str, Given], sizes: _Sizes, name: str, other: str) -> str:
    size, least = sizes.get(name), sizes.get(other)
    if size is None or least is None or size >= least:
        return ""
    return f"({size}) needs to be {other} ({least}) or more: raise the one, or lower the other."


def _holds_a_prompt(given: Mapping[str, Given], sizes: _Sizes, name: str, other: str) -> str:
    chunked = _is_on(given, "--no-enable-chunked-prefill") or "--disable-chunked-prefill" in given
    # `auto` and -1 stand for a length that is not known here.
    known = (sizes.get(other) or 0) > 0
    return _at_least(given, sizes, name, other) if chunked and known else ""


def _keeps_adapters(given: Mapping[str, Given], sizes: _Sizes, name: str, other: str) -> str:
    kept = sizes.get(name) or 0
    return _at_least(given, sizes, name, other) if _is_on(given, _LORA) and kept > 0 else ""


def _divides(_given: Mapping[str, Given], sizes: _Sizes, name: str, other: str) -> str:
    size, whole = sizes.get(name), sizes.get(other)
    if not size or not whole or size < 0 or whole % size == 0:
        return ""
    return f"({size}) needs to divide {other} ({whole}): choose a number that does."


def _is_a_part(given: Mapping[str, Given], _sizes: _Sizes, name: str, _other: str) -> str:
    try:
        part = float(given[name].value)
    except ValueError:
        return ""
    return "" if 0 < part <= 1 else "needs a part of the memory: above 0, and 1 at most."


_PAIRS: Final[tuple[tuple[str, str, _RefusalOf], ...]] = (
    (_CHOOSES_TOOLS, TOOL_PARSER, _needs),
    ("--enable-log-outputs", "--enable-log-requests", _needs),
    ("--enable-eplb", "--enable-expert-parallel", _needs),
    ("--enable-per-request-metrics", "--disable-log-stats", _excludes),
    (MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, _at_least),
    (MAX_NUM_BATCHED_TOKENS, "--max-model-len", _holds_a_prompt),
    ("--decode-context-parallel-size", "tensorParallelSize", _divides),
    ("--gpu-memory-utilization", "", _is_a_part),
    ("--lora-modules", _LORA, _needs),
    ("--max-cpu-loras", "--max-loras", _keeps_adapters),
)
