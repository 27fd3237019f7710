"""What stands between the operator and the API server may answer in its place."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from fathom.adapters.kube import IN_LINE_S, LISTS_AT_ONCE, Kube
from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT
from fathom.cluster.manifest import Manifest, Seen
from support.api_server import BUSY
from support.leaping_time import in_leaping_time
from support.waiting import GUARD_S

SIGN_IN = "<html>Sign in to continue</html>"


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def kube_of(
    answer: Answer,
    timeout_s: float = GUARD_S,
    lists_at_once: int = LISTS_AT_ONCE,
    in_line_s: float = IN_LINE_S,
    silent_s: float = GUARD_S,
) -> AsyncIterator[Kube]:
    """A client of a server that has one answer to everything."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with (
        TestServer(app, host="127.0.0.1") as server,
        ApiClient(Configuration(host=str(server.make_url("")).rstrip("/"))) as client,
    ):
        yield Kube(
            client,
            timeout_s,
            silent_s=silent_s,
            lists_at_once=lists_at_once,
            in_line_s=in_line_s,
        )


@asynccontextmanager
async def kube_before(status: int, body: str) -> AsyncIterator[Kube]:
    """A client of a server that answers all requests alike."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    async with kube_of(answer) as kube:
        yield kube


@pytest.mark.parametrize("body", [SIGN_IN, "", "[]", '"OK"', '{"status": "ok"}'])
async def test_what_is_no_list_is_not_an_empty_one(body: str) -> None:
    async with kube_before(200, body) as kube:
        with pytest.raises(KubeError, match="is not an API server's") as failed:
            await kube.select(DEPLOYMENT, "llm", "")
        assert failed.value.transient
        with pytest.raises(KubeError):
            await kube.named(CONFIG_MAP, "llm", "kimi-tuning")
        with pytest.raises(KubeError):
            await kube.events("llm", "kimi", "FailedCreate")


def busy(times: int, *, again_after: str | None, then: str = "") -> tuple[Answer, list[str]]:
    """A server that fills its cache for so many requests; what it was asked."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.method)
        if len(asked) > times:
            return web.Response(text=then)
        headers = {} if again_after is None else {"Retry-After": again_after}
        return web.json_response(BUSY, status=429, headers=headers)

    return answer, asked


@in_leaping_time
async def test_a_read_waits_quietly_for_a_server_that_fills_its_cache() -> None:
    listed = '{"metadata": {"resourceVersion": "12"}, "items": []}'
    reads: dict[str, Callable[[Kube], Awaitable[object]]] = {
        "list": lambda kube: kube.select(DEPLOYMENT, "llm", ""),
        "look": lambda kube: kube.get(CONFIG_MAP, "llm", "kimi-tuning"),
        "events": lambda kube: kube.events("llm", "kimi", ""),
        "watch": watched,
    }
    for name, read in reads.items():
        then = told("ADDED", 8) if name == "watch" else listed
        answer, asked = busy(2, again_after="0", then=then)
        async with kube_of(answer) as kube:
            await read(kube)
        assert asked == ["GET"] * 3, name


@pytest.mark.parametrize("again_after", ["3600", "soon", None])
async def test_nobody_waits_for_what_takes_longer_than_a_request(again_after: str | None) -> None:
    for read in (lambda kube: kube.select(DEPLOYMENT, "llm", ""), watched):
        answer, asked = busy(9, again_after=again_after)
        async with kube_of(answer) as kube:
            with pytest.raises(KubeError, match="initializing") as failed:
                await read(kube)
        assert (failed.value.status, failed.value.transient) == (429, True)
        assert len(asked) == 1


async def test_a_write_is_left_to_the_next_pass() -> None:
    """By the time that the server takes it, another operator may lead."""
    config_map = {"metadata": {"name": "a", "namespace": "llm"}}
    seen = Seen("u", "1")
    writes: list[Callable[[Kube], Awaitable[object]]] = [
        lambda kube: kube.create(CONFIG_MAP, config_map),
        lambda kube: kube.apply(CONFIG_MAP, config_map, seen),
        lambda kube: kube.merge(CONFIG_MAP, "llm", "a", {}, seen),
        lambda kube: kube.delete(CONFIG_MAP, "llm", "a", seen),
    ]
    for write in writes:
        answer, asked = busy(9, again_after="0")
        async with kube_of(answer) as kube:
            with pytest.raises(KubeError) as failed:
                await write(kube)
        assert (failed.value.status, failed.value.transient) == (429, True)
        assert len(asked) == 1


def told(change: str, version: int, **more: object) -> str:
    body = {"metadata": {"name": "a", "resourceVersion": str(version)}, **more}
    return json.dumps({"type": change, "object": body}) + "\n"


async def watched(kube: Kube) -> list[tuple[str, str]]:
    stream = kube.watch(CONFIG_MAP, "llm", "fathom.dev/name", "7", 60)
    return [(event.type.value, event.version) async for event in stream]


async def test_a_watch_tells_each_event_with_its_version() -> None:
    lines = told("ADDED", 8) + told("BOOKMARK", 9) + told("DELETED", 10, data={"x": "y" * 300_000})
    async with kube_before(200, lines) as kube:
        assert await watched(kube) == [
            ("BOOKMARK", "7"),
            ("ADDED", "8"),
            ("BOOKMARK", "9"),
            ("DELETED", "10"),
        ]


async def test_a_watch_that_was_away_too_long_says_so() -> None:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
    async with kube_before(200, told("ADDED", 8) + json.dumps(gone) + "\n") as kube:
        with pytest.raises(KubeError, match="too old") as failed:
            await watched(kube)
        assert failed.value.status == 410


async def test_a_watch_that_is_forbidden_says_so() -> None:
    async with kube_before(403, '{"message": "cannot watch"}') as kube:
        with pytest.raises(KubeError, match="cannot watch") as failed:
            await watched(kube)
        assert failed.value.status == 403


@pytest.mark.parametrize("line", [SIGN_IN, "[]", "{}", told("ELSE", 3), '{"type": "ADDED"}'])
async def test_what_is_no_event_is_not_passed_over(line: str) -> None:
    async with kube_before(200, line) as kube:
        with pytest.raises(KubeError, match="is not an API server's"):
            await watched(kube)


@in_leaping_time
async def test_a_watch_ends_when_it_is_silent_and_that_is_no_error() -> None:
    """An API server sends no bookmarks of a kind to which nothing has ever happened."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(told("ADDED", 8).encode())
        await asyncio.Event().wait()
        return response

    async with kube_of(answer, silent_s=0.2) as kube:
        assert await watched(kube) == [("BOOKMARK", "7"), ("ADDED", "8")]


@dataclass
class TwoPages:
    """A server whose lists have two pages of one item."""

    asked: list[dict[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        goes_on = "" if "continue" in request.query else "next"
        metadata = {"resourceVersion": "12", "continue": goes_on}
        items = [{"metadata": {"name": f"page-{len(self.asked)}"}}]
        return web.json_response({"metadata": metadata, "items": items})


async def test_a_list_comes_in_pages() -> None:
    server = TwoPages()
    async with kube_of(server.answer) as kube:
        pages = [page async for page in kube.pages(CONFIG_MAP, "llm", "fathom.dev/name")]
    assert [each.get("continue") for each in server.asked] == [None, "next"]
    assert [page.resource_version for page in pages] == ["12", "12"]
    found: list[Any] = [each for page in pages for each in page.items]
    assert [each["metadata"]["name"] for each in found] == ["page-1", "page-2"]
    assert {each["kind"] for each in found} == {"ConfigMap"}


async def test_events_are_read_to_their_end() -> None:
    server = TwoPages()
    async with kube_of(server.answer) as kube:
        found: list[Any] = [*await kube.events("llm", "kimi", "")]
    assert [each["metadata"]["name"] for each in found] == ["page-1", "page-2"]
    assert [each.get("continue") for each in server.asked] == [None, "next"]
    assert {each["fieldSelector"] for each in server.asked} == {"involvedObject.name=kimi"}


async def test_events_beyond_all_measure_are_not_all_read() -> None:
    """Whoever may write events may write any number about anything."""
    asked: list[str] = []
    items = json.dumps([{"metadata": {"name": "kimi.1"}}] * 500)

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query.get("continue", ""))
        goes_on = "next" if len(asked) < 40 else ""
        metadata = json.dumps({"resourceVersion": "12", "continue": goes_on})
        return web.Response(text=f'{{"metadata": {metadata}, "items": {items}}}')

    async with kube_of(answer) as kube:
        found = await kube.events("llm", "kimi", "")
    assert len(found) == 10_000
    assert len(asked) == 20


@pytest.mark.parametrize("body", [SIGN_IN, "", "[]", '"OK"'])
async def test_what_is_no_object_is_none(body: str) -> None:
    async with kube_before(200, body) as kube:
        with pytest.raises(KubeError, match="is not an API server's"):
            await kube.get(CONFIG_MAP, "llm", "kimi-tuning")
        with pytest.raises(KubeError):
            await kube.served()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            'configmaps "kimi" is forbidden: .',
            (
                'configmaps "kimi" may not be created by this account: give it the rights of the '
                "chart's role."
            ),
        ),
        ('configmaps "kimi" is forbidden: no quota left.', None),
    ],
)
async def test_a_refusal_without_a_reason_is_given_one(said: str, told: str | None) -> None:
    """What an API server says of an apply that would create, and may only change."""
    async with kube_before(403, json.dumps({"message": said})) as kube:
        with pytest.raises(KubeError) as failed:
            await kube.select(DEPLOYMENT, "llm", "")
        assert failed.value.message == (told or said)


@pytest.mark.parametrize("items", ["[]", "null"])
async def test_an_empty_list_is_one(items: str) -> None:
    async with kube_before(200, f'{{"kind": "DeploymentList", "items": {items}}}') as kube:
        assert await kube.select(DEPLOYMENT, "llm", "") == ()


@pytest.mark.parametrize("body", [SIGN_IN, "", "[]", '"OK"', '{"message": 7}'])
async def test_an_error_keeps_its_status_whatever_it_says(body: str) -> None:
    async with kube_before(502, body) as kube:
        with pytest.raises(KubeError) as failed:
            await kube.select(DEPLOYMENT, "llm", "")
        assert failed.value.status == 502


@dataclass
class SlowLists:
    """A server that answers ten lists by label at a time, in 0.3 s, and all else at once."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(10))
    listed: int = 0
    halfway: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        if "labelSelector" in request.query and "limit" not in request.query:
            async with self.turns:
                await asyncio.sleep(0.3)
            self.listed += 1
            if self.listed == 60:
                self.halfway.set()
        return web.json_response({"metadata": {"resourceVersion": "12"}, "items": []})


@in_leaping_time
async def test_lists_wait_in_line_for_a_slow_server_and_nothing_else_waits_behind_them() -> None:
    """As when a GitOps sync edits a thousand resources, each of which lists its children."""
    server = SlowLists()
    config_map: Manifest = {"metadata": {"name": "a", "namespace": "llm"}}
    async with kube_of(server.answer, timeout_s=5.0) as kube, asyncio.TaskGroup() as tasks:
        # It takes six seconds for all, beyond the time of each.
        for _ in range(200):
            tasks.create_task(kube.select(DEPLOYMENT, "llm", "fathom.dev/name=kimi"))
        await server.halfway.wait()
        await kube.get(CONFIG_MAP, "llm", "kimi-tuning")
        await kube.apply(CONFIG_MAP, config_map, Seen("u", "1"))
        assert [page async for page in kube.pages(CONFIG_MAP, "llm", "fathom.dev/name")]
        others_answered_after = server.listed

    assert server.listed == 200
    assert others_answered_after < 140


@in_leaping_time
async def test_no_list_waits_for_ever_in_the_line() -> None:
    """All passes that look would stand in it, and the operator would be ended as one that hangs."""

    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(3600)
        return web.json_response({"items": []})

    async with kube_of(answer, timeout_s=0.2, lists_at_once=2, in_line_s=0.5) as kube:
        began_s = asyncio.get_running_loop().time()
        lists = (kube.select(DEPLOYMENT, "llm", "") for _ in range(200))
        ended = await asyncio.gather(*lists, return_exceptions=True)
        # One after the other they take 20 s. The last of them has its turn for so long.
        assert asyncio.get_running_loop().time() - began_s < 0.5 + 0.2 + 0.1
    said = [each.message for each in ended if isinstance(each, KubeError) and each.transient]
    assert len(said) == 200
    assert "the API server is too slow: no turn to list deployments in 0.5 s" in said


async def test_a_list_that_nobody_waits_for_any_more_gives_back_its_turn() -> None:
    go_on, asked = asyncio.Event(), 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        await go_on.wait()
        return web.json_response({"items": []})

    async with kube_of(answer, lists_at_once=2) as kube:
        lists = [asyncio.create_task(kube.select(DEPLOYMENT, "llm", "")) for _ in range(5)]
        while asked < 2:
            await asyncio.sleep(0)
        for each in reversed(lists):
            each.cancel()
        await asyncio.wait(lists)
        assert asked == 2
        go_on.set()
        assert await kube.select(DEPLOYMENT, "llm", "") == ()
        assert asked == 3
