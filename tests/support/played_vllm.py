"""Plays vLLM for `fathom_measure.start_probe`: a parser of few options, and a configuration.

It lies on a container's PYTHONPATH as `vllm/__init__.py`; all its modules are this one.
"""

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

__version__ = "0.32.0"
__path__: list[str] = []
HAS_TRITON = False
_NAMES = (
    *("platforms", "platforms.cpu", "config", "config.vllm", "utils", "utils.argparse_utils"),
    *("entrypoints", "entrypoints.common", "entrypoints.common.cli_args"),
    *("engine", "engine.arg_utils"),
)


class CpuPlatform:
    """What a vLLM for CPUs runs on."""

    check_and_update_config = support_static_graph_mode = classmethod(lambda _cls: None)


current_platform = CpuPlatform()
FlexibleArgumentParser = ArgumentParser


def make_arg_parser(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument("model_tag")
    for name in ("tensor-parallel-size", "scheduler-cls", "max-num-seqs", "speculative-config"):
        parser.add_argument(f"--{name}")
    for name in ("host", "port", "shutdown-timeout"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--enforce-eager", action="store_true")
    return parser


def validate_parsed_serve_args(_parsed: Namespace) -> None:
    """It takes all."""


class AsyncEngineArgs:
    """Refuses more requests than tokens."""

    def __init__(self, parsed: Namespace) -> None:
        self._parsed = parsed

    from_cli_args = classmethod(lambda cls, parsed: cls(parsed))

    def create_engine_config(self) -> Any:
        if int(self._parsed.max_num_seqs) > 1000:
            raise ValueError("max_num_seqs is too high")


for name in _NAMES:
    sys.modules[f"vllm.{name}"] = sys.modules[__name__]
