"""The loop of one SpeculationTuner over simulated engines that somebody else started."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from fathom.adapters.ports import MetricsPort, PodEndpoint, Sample
from fathom.api import names
from fathom.cluster.kinds import CONFIG_MAP, POD, SPECULATION_TUNER, ObjectKey
from fathom.engine.depth import DepthDocument, DepthRange, Schedule, flat
from fathom.engine.plugin import PluginBundle
from fathom.engine.report import EngineReport
from fathom.fetch.state import FetchProgram
from fathom.manifests.intake_job import IntakeProgram
from fathom.measurement.counters import PodCounters, Unread
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef
from fathom.runtime.caches import ShownResources
from fathom.runtime.child_cache import ChildCache
from fathom.runtime.ports import World
from fathom.runtime.telemetry import Telemetry
from fathom.runtime.tuner_loop import TunerLoop
from fathom.tuning.tuner import decide
from support.fake_kube import FakeKube
from support.loop_harness import FakeCompletions, FakeFetches, ManualClock
from unit.tuning.plant import EASY, TICK_S, Hardware, Pod

KEY = ObjectKey("llm", "qwen", SPECULATION_TUNER)
DOCUMENT = names.tuner_depth_config_map(KEY.name)
MAX_BATCH = 16
GONE_AFTER_S = 60.0
"""As long the plugin waits for a document that is gone."""
LIVE = EngineReport(
    version="0.32.0",
    runner="V2",
    graph_mode="NONE",
    depths=(0, 1, 3, 5, 7),
    schedule=(DepthRange(1, MAX_BATCH, 3),),
    max_num_seqs=MAX_BATCH,
)
"""What an engine tells of itself that runs with the patch."""


class TunerHarness:
    """A fake cluster with pods of another's, and one SpeculationTuner that selects them."""

    def __init__(self, spec: Mapping[str, Any] | None = None, pods: int = 2) -> None:
        self.clock = ManualClock()
        self.kube = FakeKube()
        self.engines: dict[str, Pod] = {}
        self.gone_s: dict[str, float] = {}
        """By pod: since when it finds no document, where it had one."""
        self.tick_s = TICK_S
        self.reports: dict[str, EngineReport] = {}
        self.without_plugin: set[str] = set()
        self.unreadable: dict[str, Unread] = {}
        self.acceptance: tuple[float, ...] = EASY
        self.concurrency = 0
        self._sent: dict[str, str] = {}
        self.tokens: dict[str, Schedule] = {}
        """By pod: what it goes back to."""
        self.create(spec or {})
        for number in range(pods):
            self.start(f"qwen-{number}")
        self.loop = self.restart()

    def create(
        self, spec: Mapping[str, Any], *, uid: str = "uid-of-qwen", key: ObjectKey = KEY
    ) -> None:
        """Apply a SpeculationTuner for the pods."""
        document = {
            "apiVersion": names.API_VERSION,
            "kind": names.TUNER_KIND,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
            "spec": {
                "selector": {"matchLabels": {"app": "qwen"}},
                "tuning": {"windowSeconds": 10},
                **spec,
            },
        }
        self.kube.put(SPECULATION_TUNER, document)

    def restart(self) -> TunerLoop:
        """A new operator: all that the old one held in memory is gone."""
        self.shown = ShownResources()
        self.loop = self.loop_of(KEY)
        return self.loop

    def loop_of(self, key: ObjectKey) -> TunerLoop:
        """A new loop for a tuner over these pods."""

        async def models(_: ModelRef, __: object) -> ModelFacts:
            return ModelFacts()

        async def nodes() -> tuple[()]:
            return ()

        def metrics_for(_: object, __: str) -> MetricsPort:
            return self

        world = World(
            kube=self.kube,
            children=ChildCache(self.clock),
            nodes=nodes,
            metrics_for=metrics_for,
            completions=FakeCompletions(),
            fetches=FakeFetches(self.clock),
            clock=self.clock,
            decide=decide,
            models=models,
            served=self.kube.served,
            bundle=PluginBundle({"fathom_vllm/__init__.py": "one = 1\n"}, "aaaaaaaaaa"),
            program=FetchProgram({"fathom_fetch/__init__.py": "one = 1\n"}, "cccccccccc"),
            intake=IntakeProgram({"fathom_intake/__init__.py": "one = 1\n"}, "dddddddddd"),
            identity="operator-0",
            telemetry=Telemetry(),
            shown=self.shown,
        )
        return TunerLoop(key, world)

    # -- whoever owns the pods

    def start(
        self,
        name: str,
        *,
        report: EngineReport = LIVE,
        plugin: bool = True,
        document: str = DOCUMENT,
        labels: Mapping[str, str] | None = None,
    ) -> Pod:
        """Start a pod that the selector finds, and that mounts this depth document, if any."""
        volumes = [{"name": "depth", "configMap": {"name": document}}] if document else []
        self.kube.put(
            POD,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": KEY.namespace,
                    "uid": f"uid-of-{name}",
                    "labels": {"app": "qwen", **(labels or {})},
                },
                "spec": {"containers": [{"name": "main"}], "volumes": volumes},
                "status": {
                    "phase": "Running",
                    "podIP": "10.0.0.1",
                    "conditions": [
                        {
                            "type": "Ready",
                            "status": "True",
                            "lastTransitionTime": "2027-01-15T07:00:00Z",
                        }
                    ],
                },
            },
        )
        engine = Pod(name, Hardware(), Random(len(name)), flat(3, MAX_BATCH))
        engine.live, engine.device = plugin and bool(report.depths), "NVIDIA H100"
        self.engines[name], self.reports[name] = engine, report
        self.without_plugin ^= {name} if not plugin else set()
        return engine

    def edit(self, changes: Mapping[str, Any]) -> None:
        """Change fields of the spec."""
        document = copy.deepcopy(self.resource)
        document["spec"] |= changes
        self.kube.put(SPECULATION_TUNER, document)
        self.loop.wake()

    # -- what there is

    @property
    def resource(self) -> dict[str, Any]:
        return self.kube.find(SPECULATION_TUNER, KEY.name)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.resource["status"]
        return found

    def condition(self, kind: str) -> dict[str, Any]:
        return next(each for each in self.status["conditions"] if each["type"] == kind)

    @property
    def document(self) -> DepthDocument | None:
        """As it is in the cluster; None: there is none."""
        if DOCUMENT not in self.kube.names(CONFIG_MAP):
            return None
        data = self.kube.find(CONFIG_MAP, DOCUMENT)["data"]
        return DepthDocument.from_json(data.get("depth.json", ""))

    def written(self) -> set[tuple[str, str]]:
        """Kind and name of all that was written, beside events and the status."""
        return {
            (each.kind, each.name)
            for each in self.kube.writes
            if each.kind not in {"Event", names.TUNER_KIND}
        }

    # -- time

    async def tick(self) -> float | None:
        """One pass after something moved."""
        self.loop.wake()
        return await self.loop.tick()

    async def run_for(self, seconds: float) -> None:
        """Passes whenever the loop wants one, over engines that serve."""
        until_s = self.clock.at_s + seconds
        while self.clock.at_s < until_s:
            delay_s = await self.loop.tick()
            if delay_s is None:
                return
            self.serve(delay_s)

    def serve(self, seconds: float) -> None:
        """Let kubelets bring the document, and engines serve for so long."""
        self._bring_document()
        for _ in range(max(1, round(seconds / self.tick_s))):
            self.clock.at_s += self.tick_s
            self._go_back()
            for engine in self.engines.values():
                engine.tick(self.clock.at_s, self.concurrency, self.acceptance, self.tick_s)

    def _bring_document(self) -> None:
        """As kubelets do, to pods that mount it."""
        document = self.document
        sent = "" if document is None else document.to_json()
        for name, engine in self.engines.items():
            volumes = self.kube.find(POD, name)["spec"]["volumes"]
            if not any(each["configMap"]["name"] == DOCUMENT for each in volumes):
                continue
            if document is None:
                if engine.generation:
                    self.gone_s.setdefault(name, self.clock.at_s)
                continue
            self.gone_s.pop(name, None)
            if self._sent.get(name) != sent:
                self._sent[name] = sent
                # Engines obey whatever is there, also of a lower generation.
                engine.generation = min(engine.generation, document.generation - 1)
                engine.pending = [(self.clock.at_s + 1, document)]
                self.tokens[name] = document.tokens

    def _go_back(self) -> None:
        """As the plugin does once its document was gone for a minute."""
        for name, since_s in [*self.gone_s.items()]:
            engine = self.engines.get(name)
            if engine is None or self.clock.at_s - since_s < GONE_AFTER_S:
                continue
            del self.gone_s[name]
            self._sent.pop(name, None)
            engine.schedule = self.tokens.get(name) or flat(3, MAX_BATCH)
            engine.generation, engine.own_ends, engine.pending = 0, None, []
            engine.document_gone = True

    # -- a `MetricsPort`

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        """What the engines' pages show."""
        silent = {each.pod for each in pods} - self.engines.keys()
        failing = {pod: Unread(pod, "no connection") for pod in silent} | self.unreadable
        read = [each.pod for each in pods if each.pod not in failing]
        failures = [failing[each.pod] for each in pods if each.pod in failing]
        return Sample(tuple(map(self._page, read)), tuple(failures))

    def _page(self, pod: str) -> PodCounters:
        found, report = self.engines[pod].counters(self.clock.at_s), self.reports[pod]
        if pod not in self.without_plugin:
            return replace(found, report=report)
        return stock(found)


def stock(found: PodCounters) -> PodCounters:
    """The page of an engine without the plugin: vLLM's own counters alone."""
    drafts = sum(each.drafts for each in found.drafts.values())
    depth = max((cell.depth for cell in found.drafts), default=0)
    accepted = [
        sum(each.accepted[at] for each in found.drafts.values() if at < len(each.accepted))
        for at in range(depth)
    ]
    engine = replace(
        found.engine, drafts=drafts, draft_tokens=drafts * depth, accepted_tokens=sum(accepted)
    )
    return PodCounters(
        pod=found.pod,
        at_s=found.at_s,
        started_at_s=found.started_at_s,
        engine=engine,
        live_depth=False,
        depth_generation=0,
        has_plugin=False,
        positions=tuple((float(at), count) for at, count in enumerate(accepted)),
    )
