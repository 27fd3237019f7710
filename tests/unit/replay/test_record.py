"""`fathom record`: all serving pods, again and again, as `fathom replay` reads them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fathom.adapters.http import BadAnswerError
from fathom.adapters.pod_metrics import ForbiddenPageError
from fathom.adapters.ports import KubeError, PodEndpoint
from fathom.cli.main import app
from fathom.cluster.kinds import POD, ObjectKey
from fathom.replay.record import Recorder, Tally, follow
from fathom.replay.recording import RecordingWriter, page_of
from support.fake_kube import FakeKube
from support.loop_harness import ManualClock
from unit.replay.recorded import points
from unit.tuning.plant import EASY, Fleet

KEY = ObjectKey("llm", "kimi")


def pod(
    name: str, *, role: str = "leader", ready: str = "True", of: str = "kimi"
) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "llm",
            "name": name,
            "labels": {"fathom.dev/name": of, "fathom.dev/role": role},
        },
        "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": ready}]},
    }


def cluster(*pods: str) -> FakeKube:
    kube = FakeKube()
    for name in pods:
        kube.put(POD, pod(name))
    return kube


@dataclass
class Pages:
    """What pods show; one with an error cannot be read."""

    errors: dict[str, BadAnswerError] = field(default_factory=dict)
    shows: Callable[[str], str] = lambda pod: f"page of {pod}"
    asked: list[PodEndpoint] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def page(self, pod: PodEndpoint) -> str:
        self.asked.append(pod)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if pod.pod in self.errors:
            raise self.errors[pod.pod]
        return self.shows(pod.pod)


@dataclass
class Written:
    """A recording that is only remembered."""

    lines: list[tuple[float, str, str]] = field(default_factory=list)
    flushed: int = 0

    def write_page(self, *, at_s: float, pod: str, page: str) -> None:
        self.lines.append((at_s, pod, page))

    def flush(self) -> int:
        self.flushed = len(self.lines)
        return 100 * self.flushed


class Scene:
    """A recorder, and all that it meets."""

    def __init__(self, kube: FakeKube, **options: Any) -> None:
        self.kube, self.pages, self.written = kube, Pages(), Written()
        self.clock, self.complaints = ManualClock(), list[str]()
        self.shown, self.pauses = list[str](), list[float]()
        self.recorder = Recorder(
            kube=kube,
            pages=self.pages,
            sink=options.pop("sink", self.written),
            clock=self.clock,
            key=KEY,
            complain=self.complaints.append,
            **options,
        )

    def pods(self) -> list[str]:
        """The pod of each line, in order."""
        return [name for _, name, _ in self.written.lines]

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.at_s += seconds

    async def follow(
        self,
        every_s: float,
        for_s: float | None,
        pause: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        await follow(
            self.recorder,
            every_s=every_s,
            for_s=for_s,
            pause=pause or self.pause,
            show=lambda tally: self.shown.append(str(tally)),
        )


async def test_each_serving_pod_is_a_line_and_each_line_is_flushed() -> None:
    scene = Scene(cluster("a", "b"))
    for other in (
        pod("worker", role="worker"),
        pod("starts", ready="False"),
        pod("x", of="kimi-two"),
    ):
        scene.kube.put(POD, other)

    await scene.recorder.look()

    at_s = scene.clock.now_s()
    assert scene.written.lines == [(at_s, "a", "page of a"), (at_s, "b", "page of b")]
    assert scene.written.flushed == 2
    assert {(each.namespace, each.port) for each in scene.pages.asked} == {("llm", 8000)}
    assert scene.recorder.tally == Tally(pods=2, lines=2, size_bytes=200)
    assert scene.complaints == []


async def test_it_looks_at_the_first_moment_and_at_the_last() -> None:
    scene = Scene(cluster("a"))

    await scene.follow(30, 60)

    assert len(scene.written.lines) == 3
    assert scene.pauses == [30, 30]
    assert scene.shown == [
        "1 pod, 1 line, 100 bytes, 0:00:00",
        "1 pod, 2 lines, 200 bytes, 0:00:30",
        "1 pod, 3 lines, 300 bytes, 0:01:00",
    ]


async def test_a_slow_look_costs_looks_and_does_not_put_off_the_next() -> None:
    scene = Scene(cluster("a"))
    lasts = iter([70.0, 5.0])

    def slow(_: str) -> str:
        scene.clock.at_s += next(lasts, 0.0)
        return ""

    scene.pages.shows = slow
    await scene.follow(30, 150)

    assert scene.pauses == [20, 25, 30]


async def test_without_an_end_it_goes_on_until_it_is_cancelled() -> None:
    scene = Scene(cluster("a"))

    async def pause(seconds: float) -> None:
        if len(scene.written.lines) == 100:
            raise asyncio.CancelledError
        await scene.pause(seconds)

    with pytest.raises(asyncio.CancelledError):
        await scene.follow(30, None, pause)

    assert scene.written.flushed == 100


async def test_a_clock_that_is_set_back_neither_disorders_nor_holds_up_a_recording() -> None:
    """`replay` skips what is older than the lines above it."""
    scene = Scene(cluster("a"))

    async def pause(seconds: float) -> None:
        await scene.pause(seconds)
        scene.clock.set_forward_s = -3600.0

    await scene.follow(30, 60, pause)

    times = [at_s for at_s, *_ in scene.written.lines]
    assert len(times) == 3
    assert times == sorted(times)
    assert max(scene.pauses) == 30


async def test_a_pod_that_cannot_be_read_is_reported_once_for_each_change() -> None:
    scene = Scene(cluster("a", "b"))
    first, second = BadAnswerError("no answer within 5 s"), BadAnswerError("it broke off")
    for error in (first, first, second, None, first):
        scene.pages.errors = {"a": error} if error else {}
        await scene.recorder.look()

    assert scene.complaints == [
        "Pod a cannot be read: no answer within 5 s.",
        "Pod a cannot be read: it broke off.",
        "Pod a is read again.",
        "Pod a cannot be read: no answer within 5 s.",
    ]
    assert scene.pods() == ["b", "b", "b", "a", "b", "b"]
    assert scene.recorder.tally.pods == 1


async def test_pods_come_and_go() -> None:
    scene = Scene(cluster())
    await scene.recorder.look()
    await scene.recorder.look()
    scene.kube.put(POD, pod("a"))
    scene.pages.errors = {"a": BadAnswerError("it broke off")}
    await scene.recorder.look()
    scene.kube.remove(POD, "llm", "a")
    scene.kube.put(POD, pod("b"))
    await scene.recorder.look()

    assert scene.complaints == [
        "No pod of llm/kimi serves.",
        "Pod a cannot be read: it broke off.",
    ]
    assert scene.pods() == ["b"]


async def test_a_right_that_is_lacking_ends_it_before_the_first_line_and_not_after() -> None:
    scene = Scene(cluster("a"))
    scene.pages.errors = {"a": ForbiddenPageError("you may not")}
    with pytest.raises(ForbiddenPageError):
        await scene.follow(30, None)

    scene.pages.errors = {}
    await scene.recorder.look()
    scene.pages.errors = {"a": ForbiddenPageError("you may not")}
    await scene.recorder.look()

    assert scene.complaints == ["Pod a cannot be read: you may not."]


async def test_an_api_server_that_restarts_does_not_end_a_recording() -> None:
    scene = Scene(cluster("a"))
    gone = KubeError(0, "no answer.")
    scene.kube.fail = lambda *_: gone
    with pytest.raises(KubeError):
        await scene.recorder.look()

    for trouble in (None, gone, gone, None):
        scene.kube.fail = lambda *_, trouble=trouble: trouble  # type: ignore[misc]
        await scene.recorder.look()

    (sentence,) = scene.complaints
    assert sentence.startswith("The pods of llm/kimi are not known. The API server cannot be asked")
    assert scene.pods() == ["a", "a"]


async def test_only_so_many_pods_are_read_at_once() -> None:
    scene = Scene(cluster(*(f"pod-{i:02}" for i in range(20))), at_once=4)

    await scene.recorder.look()

    assert len(scene.written.lines) == 20
    assert scene.pages.most_at_once == 4


@pytest.mark.parametrize("name", ["kimi.jsonl", "kimi.jsonl.gz"])
async def test_what_it_wrote_is_replayed(tmp_path: Path, name: str) -> None:
    fleet, file = Fleet(acceptance=EASY), tmp_path / name
    writer = RecordingWriter(file)
    scene = Scene(cluster(*(each.name for each in fleet.pods)), sink=writer)
    by_name = {each.name: each for each in fleet.pods}
    scene.clock.at_s = fleet.now_s
    scene.pages.shows = lambda pod: page_of(points(by_name[pod].counters(fleet.now_s)))

    async def pause(seconds: float) -> None:
        fleet.run(seconds)
        scene.clock.at_s = fleet.now_s

    await scene.follow(10, 300, pause)
    # It is killed here: nothing closes the file.

    asked = ["replay", str(file), "--max-batch", "16", "--window", "10"]
    result = CliRunner().invoke(app, asked)
    writer.close()

    assert (result.exit_code, result.stderr) == (0, "")
    assert "Recorded: 62 scrapes of 2 pods within 0:05:00" in result.stdout.replace("\n", " ")
    assert "Estimated gain in tokens per second" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--every", "10ms"], "--every: take 1s or longer, as the API server passes on each page."),
        (["--every", "often"], "'often' is not a duration such as"),
        (["--for", "0s"], "'0s' is too short"),
        ([], "does not exist: correct the path"),
    ],
)
def test_what_is_refused_is_a_sentence_and_leaves_no_file(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    file = tmp_path / "a.jsonl"
    nowhere = ["--kubeconfig", str(tmp_path / "none"), "-o", str(file)]

    result = CliRunner().invoke(app, ["record", "kimi", *nowhere, *arguments])

    assert result.exit_code == 2
    assert sentence in result.stderr
    assert not file.exists()
