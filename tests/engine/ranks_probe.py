"""Run by vLLM's Python: what ranks of data parallelism over two nodes hold open, as JSON on stdout.

Each node's command goes through vLLM's parser and configuration, then to what chooses the engine of
a rank, and from there to where its worker meets the others. No model is loaded.
"""

import json
import logging
import multiprocessing
import socket
import sys
from argparse import Namespace
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import init_distributed_environment
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine import core

from fathom_measure.start_probe import parser_module


class _ChosenError(Exception):
    """An engine was to be made from this configuration."""

    def __init__(self, config: VllmConfig) -> None:
        super().__init__()
        self.config = config


class _Engine:
    """In the place of both kinds of engines."""

    def __init__(self, vllm_config: VllmConfig, **_: object) -> None:
        raise _ChosenError(vllm_config)


def rank_of(command: list[str]) -> VllmConfig:
    """The configuration with which vLLM would start the engine of one node's rank."""
    parser = parser_module().make_arg_parser(FlexibleArgumentParser())
    parsed: Namespace = parser.parse_args(command)
    parsed.model = parsed.model_tag
    engine_args = AsyncEngineArgs.from_cli_args(parsed)
    config = engine_args.create_engine_config(headless=parsed.headless)
    run = core.EngineCoreProc.run_engine_core
    core.EngineCoreProc = core.DPEngineCoreProc = _Engine
    rank = config.parallel_config.data_parallel_rank
    try:
        run(vllm_config=config, dp_rank=rank, local_dp_rank=0)
    except _ChosenError as chosen:
        return chosen.config
    raise RuntimeError("no engine was made")


def meet(command: list[str], alone: str, told: Connection) -> None:
    """Join the other ranks, as the only worker of an engine does, and wait."""
    try:
        config = rank_of(command)
        told.send("")
        with set_current_vllm_config(config):
            init_distributed_environment(
                world_size=1, rank=0, distributed_init_method=alone, local_rank=0, backend="gloo"
            )
        told.send("")
        told.recv()
    except BaseException as error:  # noqa: BLE001 - whatever stops a rank is the answer
        told.send(f"{type(error).__name__}: {error}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def opened(commands: list[list[str]], master_port: int) -> bool:
    """Whether the port is open at which workers are probed, once all ranks are there."""
    forks = multiprocessing.get_context("fork")
    ranks = []
    for command in commands:
        ours, theirs = forks.Pipe()
        alone = f"tcp://127.0.0.1:{free_port()}"
        process = forks.Process(target=meet, args=(command, alone, theirs))
        process.start()
        ranks.append((process, ours))
    try:
        for _ in range(2):
            for _, ours in ranks:
                if failure := ours.recv():
                    raise RuntimeError(failure)
        with suppress(OSError), socket.create_connection(("127.0.0.1", master_port), 60):
            return True
        return False
    finally:
        for process, _ in ranks:
            process.kill()


def has_experts(model: str) -> bool:
    return bool(EngineArgs(model=model, skip_tokenizer_init=True).create_model_config().is_moe)


def main() -> None:
    logging.disable(logging.CRITICAL)
    asked: dict[str, Any] = json.load(sys.stdin)
    answer: dict[str, Any] = {"experts": {each: has_experts(each) for each in asked["models"]}}
    answer["opened"] = {}
    for model in asked["ranks"]:
        port = free_port()
        told = {"MODEL": model, "29501": str(port)}
        commands = [[told.get(word, word) for word in each] for each in asked["commands"]]
        answer["opened"][model] = opened(commands, port)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
