"""`fathom detach`: one field is written, and all pods are back before anything is removed."""

from dataclasses import dataclass, field, replace

import pytest

from fathom.adapters.http import BadAnswerError
from fathom.adapters.ports import KubeError, PodEndpoint
from fathom.api import names
from fathom.cli.detach import Detacher, DetachError, what_to_remove
from fathom.cluster.kinds import CONFIG_MAP, POD, SPECULATION_TUNER, ObjectKey
from fathom.engine.depth import DepthDocument, flat
from support.engine_page import FakeEngine
from support.fake_kube import FakeKube
from support.loop_harness import ManualClock

KEY = ObjectKey("llm", "qwen", SPECULATION_TUNER)
DEPTH = names.tuner_depth_config_map("qwen")
MOVED = DepthDocument(generation=4, schedule=flat(7, 16), tokens=flat(3, 16))
BACK = replace(MOVED, generation=5, schedule=flat(3, 16))


@dataclass
class Scene:
    """Two pods, and an operator that writes the user's depth after some seconds."""

    mode: str = "Auto"
    writes_after: int = 2
    obeys_after: int = 4
    unreadable: str = ""
    kube: FakeKube = field(default_factory=FakeKube)
    clock: ManualClock = field(default_factory=ManualClock)
    looks: int = 0
    said: list[str] = field(default_factory=list)
    asked: list[PodEndpoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        spec = {"selector": {"matchLabels": {"app": "qwen"}}, "tuning": {"mode": self.mode}}
        spec["metrics"] = {"port": 8200}
        self.kube.put(
            SPECULATION_TUNER,
            {
                "apiVersion": names.API_VERSION,
                "kind": names.TUNER_KIND,
                "metadata": {"name": "qwen", "namespace": "llm"},
                "spec": spec,
            },
        )
        self.write(MOVED)
        for name in ("qwen-0", "qwen-1"):
            self.start(name, DEPTH)
        self.start("other-0", "other-tuner-depth")

    def write(self, document: DepthDocument) -> None:
        data = {"depth.json": document.to_json()}
        metadata = {"name": DEPTH, "namespace": "llm"}
        self.kube.put(CONFIG_MAP, {"metadata": metadata, "data": data})

    def start(self, name: str, document: str) -> None:
        volumes = [{"name": "depth", "configMap": {"name": document}}]
        metadata = {"name": name, "namespace": "llm", "labels": {"app": "qwen"}}
        status = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
        spec = {"containers": [{"name": "main"}], "volumes": volumes}
        self.kube.put(POD, {"metadata": metadata, "spec": spec, "status": status})

    async def page(self, pod: PodEndpoint, path: str = "metrics") -> str:
        assert path == "metrics"
        self.asked.append(pod)
        if pod.pod == self.unreadable:
            raise BadAnswerError("it answers with HTTP status 503")
        document = BACK if self.looks >= self.obeys_after else MOVED
        page = FakeEngine(generation=document.generation).page()
        return f"{page}fathom_depth_schedule_hash {document.hash_for_pod(pod.pod)}\n"

    async def _pause(self, seconds: float) -> None:
        self.clock.at_s += seconds
        self.looks += 1
        if self.looks == self.writes_after:
            self.write(BACK)

    @property
    def detacher(self) -> Detacher:
        return Detacher(
            kube=self.kube,
            pages=self,
            clock=self.clock,
            pause=self._pause,
            tell=self.said.append,
            key=KEY,
        )


async def test_it_writes_the_mode_alone_and_waits_until_each_pod_shows_the_users_depth() -> None:
    scene = Scene()
    before = scene.kube.find(SPECULATION_TUNER, "qwen")["spec"]

    assert await scene.detacher.bring_back(60) == ()
    after = scene.kube.find(SPECULATION_TUNER, "qwen")["spec"]
    assert after == {**before, "tuning": {"mode": "Advise"}}
    assert [(each.kind, each.name) for each in scene.kube.writes] == [
        (names.TUNER_KIND, "qwen"),
    ]
    assert scene.looks == scene.obeys_after
    assert scene.said[1:] == [
        "Not yet at your depth: qwen-0, qwen-1.",
        "Every pod is at your depth, 3.",
    ]
    assert {(each.pod, each.port) for each in scene.asked} == {("qwen-0", 8200), ("qwen-1", 8200)}


async def test_whoever_is_not_back_in_time_is_named() -> None:
    scene = Scene(obeys_after=1000)

    assert await scene.detacher.bring_back(20) == ("qwen-0", "qwen-1")
    assert 20 <= scene.looks * 2 <= 24


async def test_a_pod_that_cannot_be_read_is_not_back() -> None:
    assert await Scene(unreadable="qwen-1").detacher.bring_back(20) == ("qwen-1",)


async def test_in_advise_nothing_is_written() -> None:
    scene = Scene(mode="Advise")
    scene.write(BACK)
    scene.obeys_after = 0

    assert await scene.detacher.bring_back(20) == ()
    assert scene.kube.writes == []


async def test_without_a_document_there_is_nothing_to_wait_for() -> None:
    scene = Scene()
    scene.kube.remove(CONFIG_MAP, "llm", DEPTH)

    assert await scene.detacher.bring_back(20) == ()
    assert scene.said[-1] == "It has no depth document: it has changed no depth."


async def test_a_document_that_cannot_be_read_is_not_none() -> None:
    scene = Scene()
    metadata = {"name": DEPTH, "namespace": "llm"}
    scene.kube.put(CONFIG_MAP, {"metadata": metadata, "data": {"depth.json": '{"version": 2}'}})

    with pytest.raises(DetachError, match="whether the pods are at your depth is not known"):
        await scene.detacher.bring_back(20)


async def test_a_pod_that_is_not_ready_is_back_only_once_the_document_is() -> None:
    scene = Scene(writes_after=3)
    for name in ("qwen-0", "qwen-1"):
        scene.kube.find(POD, name)["status"]["conditions"] = []

    assert await scene.detacher.bring_back(60) == ()
    assert scene.looks == scene.writes_after
    assert scene.said[1:] == [
        "Not yet at your depth: qwen-0, qwen-1.",
        "Every pod that is ready is at your depth, 3. Not ready, and so not read: qwen-0, qwen-1.",
    ]
    assert scene.asked == []


async def test_without_a_pod_it_says_of_none_that_it_is_back() -> None:
    scene = Scene()
    for name in ("qwen-0", "qwen-1"):
        scene.kube.remove(POD, "llm", name)

    assert await scene.detacher.bring_back(60) == ()
    assert scene.said[-1] == "No pod reads its depth document, so none is at a depth of its."


async def test_an_api_server_that_is_gone_for_a_moment_ends_no_waiting() -> None:
    scene = Scene()
    gone = iter((False, True, True))
    scene.kube.fail = lambda _, kind: (
        KubeError(503, "it restarts") if kind == POD and next(gone, False) else None
    )
    assert await scene.detacher.bring_back(60) == ()

    gone = iter([True] * 100)
    with pytest.raises(KubeError, match="it restarts"):
        await scene.detacher.bring_back(10)


async def test_the_tuner_alone_is_deleted() -> None:
    scene = Scene()
    await scene.detacher.delete()

    assert scene.kube.all_of(SPECULATION_TUNER) == []
    assert len(scene.kube.writes) == 1


async def test_what_is_not_there_or_is_refused_is_said() -> None:
    scene = Scene(mode="Static")
    with pytest.raises(DetachError, match="is refused, so nothing acts on it"):
        await scene.detacher.bring_back(20)
    scene.kube.remove(SPECULATION_TUNER, "llm", "qwen")
    with pytest.raises(DetachError, match="There is no SpeculationTuner llm/qwen"):
        await scene.detacher.bring_back(20)


def test_arguments_go_first_and_the_plugin_last() -> None:
    lines = what_to_remove("qwen", deleted=False)

    assert "--scheduler-cls" in lines[1]
    assert lines[3] == "3. SpeculationTuner qwen"
    assert lines[-1].startswith("4. at last")
    assert len(what_to_remove("qwen", deleted=True)) == len(lines) - 1
