"""Asks a vLLM which options its server takes, and which fields its speculative configuration has.

Run by the Python of an engine's environment, never by the operator's. Writes JSON on the last line.
"""

import argparse
import contextlib
import dataclasses
import importlib
import json
import sys
from types import ModuleType

PARSER_MODULES = (
    "vllm.entrypoints.common.cli_args",  # since 0.33
    "vllm.entrypoints.launchers.cli_args",  # since 0.29
    "vllm.entrypoints.openai.cli_args",
)


def parser_module() -> ModuleType:
    """Where this vLLM has its parser.

    Raises:
        ModuleNotFoundError: in none of the places known.
    """
    for name in PARSER_MODULES:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    raise ModuleNotFoundError(f"this vLLM has its parser in none of {', '.join(PARSER_MODULES)}")


def known_names(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """The options of the parser, and the fields of a speculative configuration."""
    config = importlib.import_module("vllm.config.speculative").SpeculativeConfig
    return {
        # As argparse looks them up: 0.33 takes some that none of its actions lists.
        "options": sorted(
            each
            for each in parser._option_string_actions  # noqa: SLF001 - there is no other way
            if each.startswith("--")
        ),
        "draft": sorted(each.name for each in dataclasses.fields(config) if each.init),
    }


def main() -> None:
    """Answer."""
    new_parser = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    parser = parser_module().make_arg_parser(new_parser())
    sys.stdout.write(json.dumps(known_names(parser)) + "\n")


if __name__ == "__main__":
    main()
