"""Checks of `spec.engine.args`. Pure.

vLLM schedules at most so many tokens in a step, and a request with k drafts takes k + 1 of them
(`schedule` in vllm/v1/core/sched/scheduler.py, 0.32): at least, since with methods draft_model and
dflash it takes more (`max_num_new_slots_for_drafting`). Where `engine.args` do not say how many,
it is the engine's own number, which is not known here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Final

from fathom.api.bounded_json import (
    BeyondBoundsError,
    UnreadableJsonError,
    json_or_text,
    parsed_json,
)
from fathom.api.problem import Problem, warning
from fathom.engine.argument_parser import (
    MAX_NUM_SEQS,
    EngineArguments,
    EngineOption,
    has_adapters,
    has_variable,
    is_count,
    kv_cache_dtype,
)
from fathom.engine.depth import BUDGET_SHARE
from fathom.engine.flags import FLAGS, Flag
from fathom.text import counted
from fathom.validation.candidate import Candidate
from fathom.validation.model_input import was_read
from fathom_vllm.buckets import bucket_index, first_batch, last_batch

TOKENSPEED_MLA_KV_CACHE: Final = ("fp8", "fp8_e4m3")
"""`supported_kv_cache_dtypes` in vllm/v1/attention/backends/mla/tokenspeed_mla.py. `auto` becomes
one of them where the checkpoint says so, which the preflight looks at."""
SWITCHES: Final = ("--enable-", "--no-")
"""Options that begin so take no value; a test asks vLLM's parser."""
_DECIDE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "--max-num-seqs": "the depth schedule ends at vLLM's default",
        "--max-num-batched-tokens": "no depth is held back for the tokens of a step",
        "--max-model-len": "the model's own length is compared",
        "--gpu-memory-utilization": "memory is estimated with vLLM's default",
        "--kv-cache-dtype": "the type of the KV cache is not compared",
        "--load-format": "all weights are fetched and none are compared",
        "--performance-mode": "vLLM's default is taken for it",
        "--ubatch-size": "Model Runner V1 is expected",
        "--cudagraph-capture-sizes": "CUDA graphs are not counted",
        "--max-cudagraph-capture-size": "CUDA graphs are not counted",
        "--compilation-config": "CUDA graphs are not counted",
        "--kv-transfer-config": "the connector is not checked",
    }
)
"""What is done in place of reading a value."""
_TWO_IN_ONE: Final = re.compile(r"--?[A-Za-z][^\s=]*\s")
_OPTION: Final = "--max-num-batched-tokens"


def owned_flags(candidate: Candidate) -> Iterable[Problem]:
    engine = candidate.engine
    return owned_flag_problems(engine.arguments, plugin=engine.has_plugin)


def owned_flag_problems(arguments: EngineArguments, *, plugin: bool = True) -> tuple[Problem, ...]:
    """Arguments that repeat what the API owns, in any spelling that vLLM's parser takes.

    Refused whatever the value: of two, the last wins, and the pod would not be what its spec says.
    Excepted are the values of `Flag.but_for`: there the operator passes none of its own.

    Args:
        arguments: `spec.engine.args`.
        plugin: whether the pods get it, which forbids a little more.
    """
    problems = []
    for option in arguments.options:
        where = f"spec.engine.args[{option.index}]"
        if option.name == "--":
            problems.append(
                Problem(field=where, message="-- ends the options for vLLM: remove it.")
            )
        elif (owned := _owner(option, plugin=plugin)) is not None:
            meaning = f" (which vLLM reads as {owned.name})" if owned.name != option.name else ""
            problems.append(
                Problem(
                    field=where,
                    message=f"{option.spelling}{meaning} may not be set here: {owned.instead}.",
                )
            )
    return tuple(problems)


def lone_arguments(candidate: Candidate) -> Iterable[Problem]:
    return lone_argument_problems(candidate.engine.arguments)


def lone_argument_problems(arguments: EngineArguments) -> tuple[Problem, ...]:
    """Arguments that vLLM would take neither for an option nor for an option's value.

    Several values after one option are let through: some options take as many as there are. What an
    argument says is not repeated: it may be a secret.

    Args:
        arguments: `spec.engine.args`.
    """
    found = {option.index: option for option in arguments.options}
    problems = []
    refusal = "no option comes before this, and the model comes from spec.model.id"
    # Of an argument that is no option; empty: it may be a value of the one before.
    for index, argument in enumerate(arguments.words):
        where = f"spec.engine.args[{index}]"
        if _TWO_IN_ONE.match(argument):
            name = argument.split(maxsplit=1)[0]
            sentence = (
                f"{name} and its value are one argument here, which vLLM does not know: make them "
                f"two, or write {name}= before the value."
            )
            problems.append(Problem(field=where, message=sentence))
            refusal = f"{name} has its value already"
        elif index in found:
            refusal = _no_value_after(found[index], argument)
        elif refusal:
            sentence = f"{refusal}: remove this argument, or write its option before it."
            problems.append(Problem(field=where, message=sentence))
    return tuple(problems)


def _no_value_after(option: EngineOption, argument: str) -> str:
    """Why the next argument is no value of this option; empty: it may be one."""
    if "=" in argument:
        return f"{option.spelling} has its value already"
    return f"{option.spelling} takes no value" if option.name.startswith(SWITCHES) else ""


@dataclass(frozen=True, slots=True)
class _Owned:
    name: str
    """What vLLM takes the option for."""
    instead: str


def _owner(option: EngineOption, *, plugin: bool) -> _Owned | None:
    """The owned flag that an option means or may mean."""
    if option.name in ("--attention-config", "-ac"):
        return _attention_backend(option)
    flags = [flag for flag in FLAGS if flag.refusal and (plugin or not flag.plugin_only)]
    exact = (flag for flag in flags if option.name in flag.names)
    similar = (flag for flag in flags if any(_means(option.name, name) for name in flag.names))
    flag = next(exact, None) or next(similar, None)
    if flag is None or _may_stand(option, flag):
        return None
    # A name of its own needs no explanation, and neither does one of a whole family.
    own = option.name.startswith("--") and (option.name in flag.names or flag.name.endswith("-*"))
    return _Owned(option.name if own else flag.name, flag.refusal)


def _may_stand(option: EngineOption, flag: Flag) -> bool:
    return option.name == flag.name and not option.keys and option.value in flag.but_for


def _means(given: str, owned: str) -> bool:
    """Whether argparse may take `given` for `owned` though it is spelled otherwise."""
    if owned.endswith("-*"):
        family = owned.removesuffix("*")
        return given.startswith(family) or family.startswith(given)
    if len(owned) == len("-n"):
        # One letter takes its value attached: `-n2`.
        return given.startswith(owned) and not given.startswith("--")
    # Any beginning. One that is ambiguous stops vLLM, so nothing of use is lost.
    return owned.startswith(given)


def _attention_backend(option: EngineOption) -> _Owned | None:
    """The attention backend has a field; the rest of that option's keys have none."""
    name, key = "--attention-backend", "backend"
    try:
        document = parsed_json(option.value or "")
    except BeyondBoundsError:
        # What it holds is not known, so the key may be in it.
        document = {key: None}
    except UnreadableJsonError:
        document = None
    if option.keys[:1] == (key,) or (isinstance(document, dict) and key in document):
        return next(_Owned(name, flag.refusal) for flag in FLAGS if flag.name == name)
    return None


def max_num_seqs(candidate: Candidate) -> Iterator[Problem]:
    stated = candidate.engine.arguments.value(MAX_NUM_SEQS)
    if stated is None or has_variable(stated):
        return
    if not (is_count(stated) and int(stated) >= 1):
        yield Problem(
            field="spec.engine.args",
            message=f"--max-num-seqs needs a whole number of 1 or more, not {stated!r}.",
        )


def kv_cache_type(candidate: Candidate) -> Iterator[Problem]:
    engine = candidate.engine
    backend, stated = engine.spec.engine.attention_backend, kv_cache_dtype(engine.arguments)
    if backend.lower() == "tokenspeed_mla" and stated not in ("auto", *TOKENSPEED_MLA_KV_CACHE):
        yield Problem(
            field="spec.engine.args",
            message=f"attention backend {backend} reads an FP8 KV cache only, not --kv-cache-dtype "
            f"{stated}: set that to fp8, or choose another attentionBackend.",
        )


def unread_variables(candidate: Candidate) -> Iterator[Problem]:
    """Values that decide something here, and are what a variable of the container holds."""
    arguments = candidate.engine.arguments
    for name, taken in _DECIDE.items():
        for option in arguments.spelled(name):
            stated = option.value or ""
            # What an object says beside its variables is read.
            if has_variable(stated) and not isinstance(json_or_text(stated), dict):
                yield warning(
                    f"spec.engine.args[{option.index}]",
                    f"{option.spelling} takes its value from a variable, which is not known here, "
                    f"so {taken}: write the value itself.",
                )


def token_budget_warnings(candidate: Candidate) -> Iterator[Problem]:
    """What the tokens of a step leave too little room for: `tokens` itself, and deeper depths."""
    spec, engine = candidate.spec, candidate.engine
    budget = engine.start.token_budget
    if budget is None or budget < 1 or not spec.drafts:
        return
    most, tokens = engine.max_num_seqs, spec.speculation.tokens
    holds = f"{_OPTION} lets a step hold {counted(budget, 'token')}, and"
    needed = tokens + 1
    if most * needed > budget:
        # Of the last one vLLM takes fewer drafts rather than none.
        scheduled = max(1, budget // needed)
        yield warning(
            "spec.engine.args",
            f"{holds} at speculation.tokens ({tokens}) a request takes {needed} of them: vLLM "
            f"schedules {counted(scheduled, 'request')} in a step at most, and the "
            f"others of up to {most} wait: raise it to {most * needed} or more.",
        )
    deeper = [depth for depth in engine.depths if depth > tokens] if engine.live else []
    reach = {depth: _whole_buckets(int(BUDGET_SHARE * budget) // (depth + 1)) for depth in deeper}
    restricted = {depth: batch for depth, batch in reach.items() if batch < most}
    if restricted:
        used = (f"depth {depth} is used {_up_to(batch)}" for depth, batch in restricted.items())
        # The tuner decides by buckets of batches, and for each by its largest.
        enough = ceil(last_batch(bucket_index(most)) * (max(restricted) + 1) / BUDGET_SHARE)
        yield warning(
            "spec.engine.args",
            f"{holds} a request with k drafts takes k + 1 of them. Fathom leaves half of them to "
            f"prompts, so that of batches up to {most} {', '.join(used)}: raise it to {enough} to "
            "have all of them at every batch.",
        )


def named_depths(candidate: Candidate) -> Iterator[Problem]:
    """Depths that find no place in the startup schedule, which has a batch for each at least.

    vLLM captures full graphs for the depths that it names alone (`startup_schedule`).
    """
    engine, most = candidate.engine, candidate.engine.max_num_seqs
    if not engine.live or not engine.start.captures_graphs or most >= len(engine.depths):
        return
    graphs, least = engine.graphs, candidate.spec.speculation.min_tokens
    left_out = {*engine.depths} - graphs.depths
    without = [each for each in sorted(left_out) if each >= least and graphs.missed(each)]
    if without and not engine.start.graph_mode.without_full:
        listed = ", ".join(map(str, without))
        yield warning(
            "spec.engine.args",
            f"{MAX_NUM_SEQS} {most} leaves the startup schedule no place for "
            f"depth{'s' if len(without) > 1 else ''} {listed}, so that the steps there run without "
            f"full CUDA graphs: raise it to {len(engine.depths)}, name fewer speculation.depths, "
            "or set tuning.mode to Static.",
        )


def lora_budget(candidate: Candidate) -> Iterator[Problem]:
    """The tokens of a step where adapters are on: vLLM wants them for all drafts of all requests.

    Source: the end of `create_engine_config` in vllm/engine/arg_utils.py. What it takes for a
    budget that nobody states depends on the GPU, and is not judged.
    """
    spec, engine = candidate.spec, candidate.engine
    budget, most = engine.start.token_budget, engine.max_num_seqs
    needed = most * (engine.deepest + 1)
    on = has_adapters(engine.arguments) and spec.drafts and was_read(engine.version)
    if not on or budget is None or budget >= needed:
        return
    fits = budget // most - 1
    lower = (
        f", or speculation.maxTokens to {fits}"
        if engine.live and fits >= spec.speculation.tokens
        else ""
    )
    yield Problem(
        field="spec.engine.args",
        message=f"with --enable-lora vLLM stops at start where a step does not hold the drafts of "
        f"all requests: {counted(most, 'request')} with up to {engine.deepest} take "
        f"{counted(needed, 'token')}, and "
        f"{_OPTION} is {budget}: set it to {needed}{lower}.",
    )


def asynchronous_method(candidate: Candidate) -> Iterator[Problem]:
    """Asynchronous scheduling that is asked for, and that the method cannot have.

    Source: `__post_init__` in vllm/config/vllm.py, which raises where it is stated and turns it off
    where it is not.
    """
    engine = candidate.engine
    stated = engine.arguments.beginning("--async-s", "--no-async-s")
    # Without GPUs vLLM passes over it.
    judged = candidate.spec.drafts and engine.layout.on_gpus
    if not judged or not stated or stated[-1].name.startswith("--no-"):
        return
    if was_read(engine.version) and (why := engine.start.synchronous):
        yield Problem(
            field=f"spec.engine.args[{stated[-1].index}]",
            message=f"vLLM stops at start: {why} excludes {stated[-1].spelling}. Remove it, and "
            "vLLM schedules each step by itself.",
        )


def _whole_buckets(batch: int) -> int:
    """The largest batch up to which no bucket goes beyond this one; 0: the first one does."""
    return first_batch(bucket_index(batch + 1)) - 1


def _up_to(batch: int) -> str:
    return f"up to {batch}" if batch else "at none"
