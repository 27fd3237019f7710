"""The program that fetches, as a process, against a server that answers like a hub."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from fathom.adapters.pod_metrics import FetchMetrics
from fathom.adapters.ports import PodEndpoint
from fathom.fetch.state import Fetched, FetchedBytes
from support.hub_server import COMMIT, TOKEN, HubServer, Repository, serving
from support.loop_harness import ManualClock
from support.waiting import guarded, until

OPERATOR = Path(__file__).parents[2] / "operator"
FIRST, SECOND = b"a" * 3_000_000, b"b" * 24_000_000
"""The client writes ten million bytes at a time."""
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = json.dumps({"weight_map": {"x": ONE, "y": TWO}}).encode()
TARGET = Repository(
    {
        "config.json": b"{}",
        "model.safetensors.index.json": INDEX,
        ONE: FIRST,
        TWO: SECOND,
        "pytorch_model.bin": b"k" * 1000,
    }
)
DRAFT = Repository({"config.json": b"{}", "model.safetensors": b"d" * 1000}, gated=True)
TOTAL = len(FIRST) + len(SECOND) + len(INDEX) + 2


@pytest.fixture
async def hub() -> AsyncIterator[HubServer]:
    async with serving(HubServer({"org/target": TARGET, "org/draft": DRAFT})) as hub:
        yield hub
        hub.released.set()


@dataclass
class Ended:
    code: int
    message: str


@dataclass
class Program:
    """The program with a cache of its own."""

    hub: HubServer
    directory: Path
    port: int

    async def start(self, *arguments: str, token: str = "") -> asyncio.subprocess.Process:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fathom_fetch", *arguments),
            *("--port", str(self.port), "--message", str(self.directory / "message")),
            env={
                **inherited,
                "PYTHONPATH": str(OPERATOR),
                "HF_ENDPOINT": self.hub.endpoint,
                "HF_HOME": str(self.directory / "home"),
                **({"HF_TOKEN": token} if token else {}),
            },
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def run(self, *arguments: str, token: str = "") -> Ended:
        process = await self.start(*arguments, token=token)
        async with guarded("the fetch ends"):
            code = await process.wait()
        return Ended(code, (self.directory / "message").read_text())


@pytest.fixture
def program(hub: HubServer, tmp_path: Path) -> Program:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Program(hub, tmp_path, free.getsockname()[1])


async def test_says_what_it_fetched_and_fetches_it_once(program: Program) -> None:
    hub = program.hub
    ended = await program.run("--model", "org/target", "--draft", "org/draft", token=TOKEN)
    assert ended.code == 0
    fetched = Fetched.from_json(ended.message)
    assert fetched == Fetched((("draft", COMMIT), ("model", COMMIT)), TOTAL + 1002)
    assert hub.sent_bytes[ONE] == len(FIRST)
    assert "pytorch_model.bin" not in hub.sent_bytes

    hub.sent_bytes.clear()
    again = await program.run("--model", "org/target", "--draft", "org/draft", token=TOKEN)
    assert again == ended
    assert hub.sent_bytes == {}


async def test_shows_how_far_it_is_and_goes_on_after_a_kill(program: Program) -> None:
    hub = program.hub
    hub.held[TWO] = 12_000_000
    process = await program.start("--model", "org/target")
    async with aiohttp.ClientSession() as session:
        metrics = FetchMetrics(session, ManualClock())

        async def far_enough() -> FetchedBytes | None:
            look = await metrics.look(
                PodEndpoint(namespace="llm", pod="fetch", ip="127.0.0.1", port=program.port)
            )
            return look if look and look.present >= len(FIRST) + 10_000_000 else None

        look = await until(far_enough, "one file and a half are there")
        assert look.total == TOTAL
        assert look.present < TOTAL
    process.send_signal(signal.SIGKILL)
    await process.wait()

    hub.sent_bytes.clear()
    hub.released.set()
    ended = await program.run("--model", "org/target")
    assert ended.code == 0
    assert ONE not in hub.sent_bytes
    assert hub.sent_bytes[TWO] <= len(SECOND)


async def test_code_that_a_configuration_borrows_is_fetched_too(program: Program) -> None:
    config = {
        "auto_map": {"AutoModel": "org/code--modeling.Model", "AutoTokenizer": ["own.T", None]}
    }
    program.hub.repositories["org/borrower"] = Repository(
        {"config.json": json.dumps(config).encode(), "model.safetensors": b"w" * 10}
    )
    program.hub.repositories["org/code"] = Repository(
        {"modeling.py": b"pass", "model.safetensors": b"w" * 10_000}
    )
    ended = await program.run("--model", "org/borrower")
    assert ended.code == 0
    assert program.hub.sent_bytes["modeling.py"] == 4
    assert program.hub.sent_bytes["model.safetensors"] == 10


async def test_leaves_at_once_when_it_is_told_to(program: Program) -> None:
    program.hub.held[ONE] = 0
    process = await program.start("--model", "org/target")

    async def downloads() -> bool:
        return any("/cdn/" in request for request in program.hub.requests)

    await until(downloads, "it downloads")
    process.terminate()
    async with guarded("it leaves, though its download would go on for ever"):
        assert await process.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--draft", "org/draft"), "org/draft cannot be fetched: it is gated at "),
        (("--model", "org/none"), "shows no such repository: correct spec.model.id"),
        (
            ("--model", "org/target", "--model-revision", "v9"),
            "knows no revision v9 of it: correct spec.model.revision.",
        ),
        (("--draft", "/local/path"), "that is no Hugging Face id: correct spec.draft.id."),
    ],
)
async def test_says_why_it_cannot(program: Program, arguments: tuple[str, ...], said: str) -> None:
    ended = await program.run(*arguments)
    assert ended.code == 1
    assert said in ended.message
    assert ended.message.endswith(".")


async def test_a_hub_that_is_down_is_named(program: Program) -> None:
    program.hub.broken = True
    ended = await program.run("--model", "org/target")
    assert ended.code == 1
    assert f"{program.hub.endpoint} answers with HTTP status 503" in ended.message


async def test_a_mirror_that_names_no_commit_is_told(program: Program) -> None:
    program.hub.commit = "main"
    ended = await program.run("--model", "org/target")
    assert ended.code == 1
    assert "does not say which commit its revision means" in ended.message


async def test_a_page_of_something_else_is_no_look() -> None:
    async with serving(HubServer({})) as hub, aiohttp.ClientSession() as session:
        port = int(hub.endpoint.rsplit(":", 1)[1])
        endpoint = PodEndpoint(namespace="llm", pod="fetch", ip="127.0.0.1", port=port)
        assert await FetchMetrics(session, ManualClock()).look(endpoint) is None
