"""A watch that fails is begun anew; only one that keeps failing ends the operator."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from fathom.core.kinds import SPECULATIVE_DEPLOYMENT, Kind
from fathom.runtime.handlers import (
    GIVES_UP_AFTER,
    LONGEST_BACKOFF_S,
    WATCHED_CHILDREN,
    again_and_again,
    kopf_settings,
    watch,
)
from fathom.runtime.loops import Loops


class Run:
    """Kopf, as far as this is about: it ends by itself, or with an error."""

    def __init__(self, *outcomes: Exception | None, lasts_s: float = 0.0) -> None:
        self._outcomes = list(outcomes)
        self._lasts_s = lasts_s
        self._at_s = 0.0
        self.slept: list[float] = []

    async def operate(self) -> None:
        self._at_s += self._lasts_s
        outcome = self._outcomes.pop(0)
        if outcome is not None:
            raise outcome

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._at_s += seconds

    async def again_and_again(self) -> None:
        await again_and_again(self.operate, sleep=self.sleep, now_s=lambda: self._at_s)


async def test_what_fails_is_begun_anew_later_each_time() -> None:
    run = Run(RuntimeError("500"), RuntimeError("500"), RuntimeError("500"), None)
    await run.again_and_again()
    assert run.slept == [1, 2, 4]


async def test_what_lasted_is_begun_anew_at_once_and_for_ever() -> None:
    failures = [RuntimeError("500")] * (3 * GIVES_UP_AFTER)
    run = Run(*failures, None, lasts_s=LONGEST_BACKOFF_S + 1)
    await run.again_and_again()
    assert run.slept == [1] * len(failures)


async def test_what_keeps_failing_ends_with_its_error() -> None:
    run = Run(*[RuntimeError("401")] * GIVES_UP_AFTER)
    with pytest.raises(RuntimeError, match="401"):
        await run.again_and_again()
    assert sum(run.slept) > 4 * 60
    assert max(run.slept) == LONGEST_BACKOFF_S


class ApiServer:
    """As much of an API server as Kopf asks for; its first watch of each kind fails."""

    def __init__(self) -> None:
        self.watches: list[str] = []
        self.recovered = asyncio.Event()

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes([web.get("/{path:.*}", self._answer)])
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        *_, plural = path.split("/")
        kinds = {each.plural: each for each in (SPECULATIVE_DEPLOYMENT, *WATCHED_CHILDREN)}
        if plural not in kinds:
            namespaces = Kind("", "v1", "Namespace", "namespaces")
            return web.json_response(self._discovered(path, [*kinds.values(), namespaces]))
        if "watch" not in request.query:
            item = {"metadata": {"name": "kimi", "namespace": "llm", "uid": "u"}}
            items = [item] if plural == SPECULATIVE_DEPLOYMENT.plural else []
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        return await self._watched(request, plural)

    def _discovered(self, path: str, kinds: Sequence[Kind]) -> dict[str, Any]:
        if path == "api":
            return {"versions": ["v1"]}
        if path == "apis":
            groups: dict[str, str] = {each.group: each.version for each in kinds if each.group}
            return {
                "groups": [
                    {
                        "name": group,
                        "preferredVersion": {"version": version},
                        "versions": [{"version": version}],
                    }
                    for group, version in groups.items()
                ]
            }
        served = [each for each in kinds if path in {f"apis/{each.api_version}", "api/v1"}]
        return {
            "resources": [
                {
                    "name": each.plural,
                    "kind": each.kind,
                    "singularName": each.kind.lower(),
                    "namespaced": True,
                    "verbs": ["get", "list", "watch", "patch"],
                }
                for each in served
                if path.endswith(each.api_version)
            ]
        }

    async def _watched(self, request: web.Request, plural: str) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        if plural == SPECULATIVE_DEPLOYMENT.plural:
            self.watches.append(plural)
            if len(self.watches) == 1:
                error = {"kind": "Status", "code": 500, "message": "etcdserver: leader changed"}
                line = json.dumps({"type": "ERROR", "object": error})
                await stream.write(line.encode() + b"\n")
                return stream
            self.recovered.set()
        await asyncio.Event().wait()
        return stream


def test_kopf_does_not_kill_the_process_after_one_of_its_runs() -> None:
    assert kopf_settings().process.ultimate_exiting_timeout is None


async def test_kopf_begins_anew_after_an_error_in_a_watch(loops: Loops) -> None:
    """An API server that loses its etcd for a moment says 500 in the middle of a stream."""
    api = ApiServer()
    runner = web.AppRunner(api.application(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    configuration = Configuration(host=f"http://127.0.0.1:{port}")
    watching = asyncio.create_task(watch(loops, configuration, ()))
    try:
        async with asyncio.timeout(60):
            await api.recovered.wait()
        assert not watching.done()
        assert len(loops) == 1
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await runner.cleanup()
