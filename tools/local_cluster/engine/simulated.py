"""A simulated engine that speaks vLLM's endpoints and metrics, for machines without real vLLM.

Run as `python -m local_cluster.engine.simulated [serve MODEL] --port PORT …` with the arguments of
`vllm serve`; those without a meaning here are ignored.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fathom_vllm.bundle import SCHEDULER_CLASS
from fathom_vllm.depth_document import DepthDocumentError, depth_table, parse_depth_document
from fathom_vllm.engine_report import LABELS
from fathom_vllm.exposition import FathomCollector
from fathom_vllm.hook import SchedulerHook
from local_cluster.engine.language import UNKNOWN, vocabulary
from local_cluster.engine.plant import Plant
from local_cluster.engine.simulated_core import SimulatedEngine, SimulatedRequest
from local_cluster.engine.simulated_group import Meeting, Rank, follow
from local_cluster.engine.simulated_metrics import EngineMetrics

VERSION = "0.32.0+simulated"
_MOST_SEQUENCES = 256


class CompletionBody(BaseModel):
    """The part of a completion request that is understood; the rest is ignored."""

    model_config = ConfigDict(frozen=True)

    prompt: str | list[int]
    max_tokens: int = Field(default=16, ge=1, le=4096)
    # Streaming is not simulated: refused, rather than answered in one piece.
    stream: Literal[False] = False
    return_token_ids: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    """What the command line says."""

    model: str
    host: str
    port: int
    max_batch: int
    depth: int
    table: list[int] | None
    method: str
    tensor_parallel: str
    cuts_drafts: bool
    """Adaptive verification is on."""
    hooked: bool
    shutdown_timeout_s: float
    rank: Rank
    headless: bool


def parse_arguments(arguments: Sequence[str]) -> SimulatedSettings:
    """Read `vllm serve`'s arguments, as far as they matter here.

    Raises:
        ValueError: the speculative config is not one that vLLM would take.
    """
    parser = argparse.ArgumentParser(prog="simulated", allow_abbrev=False)
    parser.add_argument("words", nargs="*", help="serve MODEL")
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - as vLLM does in a pod
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", default="")
    parser.add_argument("--max-num-seqs", type=int, default=_MOST_SEQUENCES)
    parser.add_argument("--speculative-config", default="")
    parser.add_argument("--num-speculative-tokens", type=int, default=0)
    parser.add_argument("--scheduler-cls", default="")
    parser.add_argument("--shutdown-timeout", type=float, default=0.0)
    parser.add_argument("--tensor-parallel-size", default="1")
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--master-addr", default="127.0.0.1")
    parser.add_argument("--master-port", type=int, default=29501)
    parser.add_argument("--headless", action="store_true")
    known, _ = parser.parse_known_args(list(arguments))
    words = [word for word in known.words if word != "serve"]
    config = json.loads(known.speculative_config) if known.speculative_config else {}
    cuts = bool(config.get("enable_adaptive_verification"))
    depth = int(config.get("num_speculative_tokens", known.num_speculative_tokens))
    schedule = config.get("num_speculative_tokens_per_batch_size")
    if known.num_speculative_tokens and not config:
        schedule = [[1, known.max_num_seqs, depth]]
    return SimulatedSettings(
        model=known.served_model_name or (words[0] if words else "pair"),
        host=known.host,
        port=known.port,
        max_batch=known.max_num_seqs,
        depth=depth,
        table=_startup_table(schedule, depth, known.max_num_seqs) if schedule else None,
        method=config.get("method", ""),
        tensor_parallel=known.tensor_parallel_size,
        cuts_drafts=cuts,
        hooked=known.scheduler_cls == SCHEDULER_CLASS or bool(known.num_speculative_tokens),
        shutdown_timeout_s=known.shutdown_timeout,
        rank=Rank(known.nnodes, known.node_rank, known.master_addr, known.master_port),
        headless=known.headless,
    )


def _startup_table(schedule: object, depth: int, max_batch: int) -> list[int]:
    document = json.dumps({"generation": 1, "schedule": schedule})
    try:
        parsed = parse_depth_document(document, pod="", max_depth=depth)
    except DepthDocumentError as error:
        raise ValueError(f"num_speculative_tokens_per_batch_size: {error}") from error
    return depth_table(parsed.schedule, max_batch)


def _told(settings: SimulatedSettings) -> Mapping[str, str]:
    """What it runs with, in the plugin's labels: it is no vLLM, so it has no version of one."""
    depths = {settings.depth} if settings.table is None else {*settings.table[1:]}
    return dict.fromkeys(LABELS, "") | {
        "device": "cpu",
        "graph_mode": "NONE",
        "depths": ",".join(map(str, sorted(depths))),
        "schedule": _ranges(settings.table or ()),
        "method": settings.method,
        "max_num_seqs": str(settings.max_batch),
        "asynchronous": "false",
        "tensor_parallel": settings.tensor_parallel,
    }


def _ranges(table: Sequence[int]) -> str:
    """A startup table, by batch from 0, as the plugin tells it."""
    found, first = list[str](), 1
    for depth, batches in groupby(table[1:]):
        last = first + len([*batches]) - 1
        found.append(f"{first}-{last}:{depth}")
        first = last + 1
    return ",".join(found)


class Server:
    """The HTTP face of one simulated engine."""

    def __init__(
        self, settings: SimulatedSettings, environ: Mapping[str, str], plant: Plant
    ) -> None:
        self._settings = settings
        self._registry = CollectorRegistry()
        self._metrics = EngineMetrics(self._registry, settings.model, settings.depth)
        self._words = vocabulary()
        self._meeting = Meeting(settings.rank.nodes)
        hook = None
        if settings.hooked:
            hook = SchedulerHook.from_environment(
                environ,
                max_batch=settings.max_batch,
                max_depth=settings.depth,
                engine_table=settings.table,
            )
            self._registry.register(FathomCollector(environ, _told(settings)))
        self._engine = SimulatedEngine(
            max_batch=settings.max_batch,
            depth=settings.depth,
            table=settings.table,
            cuts_drafts=settings.cuts_drafts,
            hook=hook,
            observer=self._metrics,
            plant=plant,
            clock=time.perf_counter,
        )

    def application(self) -> web.Application:
        """The routes, and the engine's task beside them."""
        application = web.Application()
        application.cleanup_ctx.append(self._run_engine)
        if self._settings.rank.nodes > 1:
            application.cleanup_ctx.append(self._meet)
        application.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ping", self._health),
                web.get("/version", self._version),
                web.get("/load", self._load),
                web.get("/metrics", self._show_metrics),
                web.get("/v1/models", self._models),
                web.post("/v1/completions", self._complete),
            ]
        )
        return application

    async def _run_engine(self, _: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._engine.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _meet(self, _: web.Application) -> AsyncIterator[None]:
        async with self._meeting.held(self._settings.rank.port):
            yield

    async def _health(self, _: web.Request) -> web.Response:
        if not self._meeting.complete:
            raise web.HTTPServiceUnavailable
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _load(self, _: web.Request) -> web.Response:
        return web.json_response({"server_load": len(self._engine.running)})

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": self._settings.model, "object": "model", "owned_by": "fathom"}
        return web.json_response({"object": "list", "data": [model]})

    async def _show_metrics(self, _: web.Request) -> web.Response:
        running = len(self._engine.running)
        self._metrics.running.set(running)
        self._metrics.waiting.set(len(self._engine.waiting))
        self._metrics.cache_usage.set(running / self._settings.max_batch)
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def _complete(self, http: web.Request) -> web.Response:
        try:
            asked = CompletionBody.model_validate_json(await http.read())
            prompt = self._token_ids(asked.prompt)
            name = f"cmpl-{uuid.uuid4().hex[:16]}"
            request = self._engine.submit(name, prompt, asked.max_tokens)
        except (ValidationError, ValueError) as error:
            body = {"error": {"message": str(error), "type": "BadRequestError", "code": 400}}
            return web.json_response(body, status=400)
        try:
            await request.done.wait()
        finally:
            if not request.done.is_set():
                self._engine.abort(request)
        return web.json_response(self._answer(asked, request))

    def _token_ids(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, list):
            return prompt
        return [self._words.get(word, UNKNOWN) for word in prompt.split()]

    def _answer(self, asked: CompletionBody, request: SimulatedRequest) -> dict[str, object]:
        text = "".join(f" {request.traffic.word(token)}" for token in request.tokens)
        return {
            "id": request.req_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": self._settings.model,
            "choices": [
                {
                    "index": 0,
                    "text": text,
                    "finish_reason": "length",
                    "token_ids": request.tokens if asked.return_token_ids else None,
                }
            ],
            "usage": {
                "prompt_tokens": request.prompt_tokens,
                "completion_tokens": len(request.tokens),
                "total_tokens": request.prompt_tokens + len(request.tokens),
            },
        }


def main() -> None:
    """Serve until SIGTERM; requests in flight get `--shutdown-timeout` seconds to finish."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(asctime)s %(message)s")
    try:
        settings = parse_arguments(sys.argv[1:])
    except ValueError as error:
        sys.exit(f"simulated engine: {error}")
    if settings.headless:
        asyncio.run(follow(settings.rank))
    web.run_app(
        Server(settings, os.environ, Plant()).application(),
        host=settings.host,
        port=settings.port,
        shutdown_timeout=settings.shutdown_timeout_s,
        access_log=None,
        print=None,
    )


if __name__ == "__main__":
    main()
