"""Asks a vLLM which options its server takes, and what each of them takes.

With it: the fields of its speculative configuration, the keys of its other objects, and the closed
sets of values that there are. Run by the Python of an engine's environment, never by the
operator's. Writes JSON on the last line.
"""

import argparse
import ast
import dataclasses
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fathom_measure.start_probe import parser_module

UNKNOWN = "no_such_key"
NO_TEXT = frozenset({"hf_overrides", "additional_config"})
"""What the configuration takes as an object alone, where the parser takes a text as well."""


def known_names(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """What `generators.known_names` makes rows of."""
    config = importlib.import_module("vllm.config.speculative").SpeculativeConfig
    # As argparse looks them up: 0.33 takes some that none of its actions lists.
    actions = parser._option_string_actions  # noqa: SLF001 - there is no other way
    engine = importlib.import_module("vllm.engine.arg_utils")
    listed = {
        name: [str(each) for each in action.choices if each is not None]
        for name, action in actions.items()
        if action.choices is not None
    }
    keys = {
        name: closed_keys(action.type) for name, action in actions.items() if callable(action.type)
    }
    return {
        "options": {name: what_it_takes(action) for name, action in actions.items()},
        "draft": fields_of(config),
        "values": {
            name: sorted(values)
            for name, values in {
                **listed,
                **of_draft(engine.get_kwargs(config)),
                **registered(),
            }.items()
        },
        "keys": {name: sorted(found) for name, found in keys.items() if found},
        "aliases": {
            name: found for name, action in actions.items() if (found := others(name, action))
        },
    }


def others(name: str, action: argparse.Action) -> list[str]:
    """Further names of the same meaning, where the name is the first that its option has."""
    if name != next((each for each in action.option_strings if each.startswith("--")), ""):
        return []
    off = (
        f"--no-{name[2:]}",
        name.replace("--enable-", "--disable-"),
        name.replace("--disable-", "--enable-"),
    )
    return sorted(
        each for each in action.option_strings if each not in (name, *off) and each[:5] != "--no-"
    )


def what_it_takes(action: argparse.Action) -> dict[str, Any]:
    """What follows an option, by what its own conversion makes of samples."""
    if action.nargs == 0:
        return {"takes": "nothing"}
    convert = action.type if callable(action.type) else str
    found: dict[str, Any] = {"takes": kind_of(convert, text=action.dest not in NO_TEXT)}
    if action.nargs == "+":
        found["many"] = True
    if action.nargs == "?":
        found["bare"] = True
    if None in (action.choices or ()) or (convert is not str and is_none(convert)):
        found["none"] = True
    return found


def kind_of(convert: Callable[[str], object], *, text: bool) -> str:
    """One of `fathom.engine.known_options.Takes`."""
    if converts(convert, "no number"):
        if not converts(convert, "{no object}"):
            return "object or text" if text else "object"
        return "name" if convert("No-Name") == "no_name" else "text"
    whole = ("whole number", "size", "size or auto")
    if converts(convert, "1.5"):
        return "JSON" if converts(convert, "[1.5]") else "number"
    if not converts(convert, "1"):
        return "object"
    return whole[converts(convert, "1k") + converts(convert, "auto")]


def converts(convert: Callable[[str], object], sample: str) -> bool:
    """Whether argparse would take a value for the option."""
    try:
        convert(sample)
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        return False
    return True


def is_none(convert: Callable[[str], object]) -> bool:
    """Whether an option that takes no text may have no value."""
    return converts(convert, "None") and convert("None") is None and not converts(convert, "text")


def closed_keys(convert: Callable[[str], object]) -> list[str]:
    """The keys of an object that takes no others; none: it is no object, or takes any."""
    try:
        convert(json.dumps({UNKNOWN: 1}))
    except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
        if "unexpected_keyword_argument" not in str(error):
            return []
    else:
        return []
    return next((fields_of(each) for each in held(convert) if dataclasses.is_dataclass(each)), [])


def held(convert: Callable[[str], object]) -> Iterator[Any]:
    """What a function has beside its arguments, and the functions below it."""
    yield from getattr(convert, "__defaults__", None) or ()
    for cell in getattr(convert, "__closure__", None) or ():
        if callable(cell.cell_contents) and not isinstance(cell.cell_contents, type):
            yield from held(cell.cell_contents)


def fields_of(config: Any) -> list[str]:
    """What a configuration can be given."""
    return sorted(each.name for each in dataclasses.fields(config) if each.init)


def of_draft(arguments: Mapping[str, Mapping[str, Any]]) -> dict[str, Iterable[str]]:
    """Values of the speculative configuration's fields, below `draft`."""
    return {
        f"draft.{name}": [each for each in stated["choices"] if each is not None]
        for name, stated in arguments.items()
        if stated.get("choices")
    }


def registered() -> dict[str, Iterable[str]]:
    """Sets of values that argparse does not list: registries, and enumerations."""
    tools = importlib.import_module("vllm.tool_parsers").ToolParserManager
    reasoning = importlib.import_module("vllm.reasoning").ReasoningParserManager
    backends = importlib.import_module("vllm.v1.attention.backends.registry").AttentionBackendEnum
    connectors = importlib.import_module(
        "vllm.distributed.kv_transfer.kv_connector.factory"
    ).KVConnectorFactory
    # 0.33 lets others register their own, and so lists them nowhere in its parser.
    kv_cache = getattr(importlib.import_module("vllm.config.cache"), "KV_CACHE_DTYPES", None)
    return {
        **({"--kv-cache-dtype": kv_cache} if kv_cache else {}),
        "--tool-call-parser": tools.list_registered(),
        "--reasoning-parser": reasoning.list_registered(),
        "--load-format": load_formats(),
        "attention backend": ["auto", *(each.name for each in backends)],
        "KV connector": connectors._registry,  # noqa: SLF001 - no other way
    }


def load_formats() -> list[str]:
    """The formats that a loader is registered for, read from the source.

    Importing the loaders takes longer than all else here.
    """
    package = importlib.util.find_spec("vllm.model_executor.model_loader")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("this vLLM has its loaders elsewhere")
    for node in ast.walk(ast.parse(Path(package.origin).read_text(encoding="utf-8"))):
        match node:
            case ast.AnnAssign(ast.Name("_LOAD_FORMAT_TO_MODEL_LOADER"), value=ast.Dict(keys)):
                return [ast.literal_eval(key) for key in keys if key]
    raise AttributeError("this vLLM lists its loaders elsewhere")


def main() -> None:
    """Answer."""
    new_parser = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    parser = parser_module().make_arg_parser(new_parser())
    sys.stdout.write(json.dumps(known_names(parser)) + "\n")


if __name__ == "__main__":
    main()
