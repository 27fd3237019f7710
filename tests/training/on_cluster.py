"""The chain on a cluster: drafts on trial, and from a person's approval to an adopted draft.

Control plane, operator, engines, trainer and intake are real. The trainer's pod is the template of
users, with both of its containers in one.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console

from e2e.observation import until
from fathom.api import names
from fathom.api.status import ArmState, Compared, ComparisonStatus
from fathom.engine.depth import depth_at
from local_cluster.cluster import LocalCluster
from local_cluster.demo.fleet import DemoFleet
from local_cluster.demo.stage import (
    EXAMPLE,
    NAMESPACE,
    create,
    create_namespace,
    install_operator,
    on_stage,
    wait_ready,
)
from local_cluster.engine.language import EASY, HARD, TrafficClass
from local_cluster.engine.model_pair import pair_directory
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.images import ENGINE_REPOSITORY, MODELS_MOUNT, Bind, Image, default_images
from local_cluster.kube import MERGE_PATCH, KubeApi, Object
from local_cluster.kubelet.volumes.claims import claim_folder
from local_cluster.paths import cache_dir
from training.drafts import RECIPES, write_data
from training.environment import TrainingEnvironment
from training.pod import cpu_template

_DATA: Final = "chat-logs"
_RECIPE: Final = "both"
_AT_ONCE: Final = 2
"""Requests: one for each replica."""
_LIFE: Final = Phase(HARD, _AT_ONCE)
_SHORT: Final = 24
"""Tokens."""
_REPORTS: Final = 2
"""So many of measurements: the second one is of a window that began after the first."""
_DRAFTS: Final = Path("/drafts")
"""Where engines have the drafts that are tried."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A draft beside the constructed one."""

    draft: str
    easy: int
    """So many requests come for `hard` others."""
    hard: int
    faster: bool
    """What is true of it under this mix, by what is accepted of it."""

    @property
    def classes(self) -> tuple[TrafficClass, ...]:
        """The classes of requests, each as often as it comes."""
        return (EASY,) * self.easy + (HARD,) * self.hard

    @property
    def phase(self) -> Phase:
        """The mix, in answers so short that each window of seconds has it."""
        first, *others = self.classes
        return Phase(first, _AT_ONCE, max_tokens=_SHORT, mixed_with=tuple(others))

    @property
    def traffic(self) -> str:
        """The mix in words."""
        return f"{self.easy} easy : {self.hard} hard"


TRIALS: Final = (
    Trial("hard", easy=4, hard=1, faster=False),
    Trial("early", easy=1, hard=1, faster=False),
    Trial("hard", easy=1, hard=4, faster=True),
)
"""No draft follows itself, so each is a comparison of its own."""
_FOUND: Final = {Compared.FASTER, Compared.SLOWER, Compared.NO_DIFFERENCE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of a trial."""

    trial: Trial
    status: ComparisonStatus
    depths: tuple[int, int]
    """The constructed draft's and that of the one on trial, for one request."""
    seconds: float

    @property
    def right(self) -> bool:
        return (self.status.result is Compared.FASTER) == self.trial.faster


@dataclass
class Life:
    """What was seen of a draft's life."""

    before: str = ""
    """P(the first draft is accepted), by the status, with the constructed draft."""
    after: str = ""
    """The same with the one that was trained."""
    requests: int = 0
    failed: int = 0
    """Requests that were lost, or whose output is not the target's own."""
    message: str = ""
    """What the status says of the trial."""
    trials: list[Judged] = field(default_factory=list)
    """What came of drafts that are there already, before it."""
    seconds: dict[str, float] = field(default_factory=dict)


async def lived(
    environment: TrainingEnvironment, drafts: Mapping[str, Path], console: Console
) -> Life:
    """Live one through.

    Args:
        environment: of the trainer.
        drafts: that are tried before, by name.
        console: where each phase is shown.
    """
    models = Bind(source=pair_directory(cache_dir()), target=MODELS_MOUNT)
    image = environment.image().model_copy(update={"binds": (models,)})
    images = (image, _with_drafts(drafts))
    async with LocalCluster.start("draft-train", images=images) as cluster:
        await install_operator(cluster)
        async with on_stage(cluster) as stage:
            await create_namespace(stage.api, NAMESPACE)
            await _create_claim(stage.api)
            data = claim_folder(cluster.state.directory / "claims", NAMESPACE, _DATA)
            await until(lambda: _holds(data.is_dir))
            write_data(data / "files", RECIPES[_RECIPE])
            return await _Story(stage.fleet, environment, console, Life()).told()


def _with_drafts(drafts: Mapping[str, Path]) -> Image:
    """The engine's image as it is, and drafts."""
    images = default_images().images
    engine = next(each for each in images if each.repository == ENGINE_REPOSITORY)
    more = (Bind(source=found, target=_DRAFTS / name) for name, found in drafts.items())
    return engine.model_copy(update={"binds": (*engine.binds, *more)})


async def _holds(found: Callable[[], bool]) -> bool:
    return found()


async def _create_claim(api: KubeApi) -> None:
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _DATA},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    await api.request("POST", path, body=claim)


@dataclass
class _Story:
    fleet: DemoFleet
    environment: TrainingEnvironment
    console: Console
    life: Life

    async def told(self) -> Life:
        with self.console.status("two engines start"):
            await create(self.fleet, self._resource())
            await wait_ready(self.fleet, self.console.print)
        await self.tried()
        async with self._traffic():
            self.life.before = await self._timed("hard traffic", self._acceptance)
        await self._annotate(names.ANNOTATION_PROPOSE_TRAINING, "1")
        proposed = await self._timed("Proposed", lambda: self._at("Proposed"))
        self.console.print(proposed["message"])
        await self._annotate(names.ANNOTATION_APPROVE_TRAINING, proposed["run"])
        await self._timed("Training", lambda: self._at("Intake", "Trial"))
        trial = await self._timed("Intake", lambda: self._at("Trial"))
        async with self._traffic():
            found = await self._timed("Trial", lambda: self._at("Faster"))
            self.life.message = found["message"]
            self.console.print(found["message"])
            await self._patch({"spec": {"draft": trial["adopt"]}})
            await self._timed("Adopted", lambda: self._at("Adopted"))
            await self._timed("promoted", self._complete)
            self.life.after = await self._timed("acceptance", self._acceptance)
        return self.life

    async def tried(self) -> None:
        """Each draft under its mix, and then none."""
        for trial in TRIALS:
            what = f"{trial.draft}, {trial.traffic}"
            async with self._traffic(trial.phase):
                await self._patch(
                    {"spec": {"draft": {"trial": {"id": f"{_DRAFTS / trial.draft}"}}}}
                )
                status = await self._timed(what, self._compared)
                depths = await self._depths(status.pod)
            self.console.print(status.message)
            seconds = self.life.seconds[what]
            self.life.trials.append(
                Judged(trial=trial, status=status, depths=depths, seconds=seconds)
            )
        await self._patch({"spec": {"draft": {"trial": None}}})
        await self._timed("no trial", self._untried)

    async def _compared(self) -> ComparisonStatus:
        """What is found, of this trial and not of the one before."""
        found: list[ComparisonStatus] = []

        async def told() -> bool:
            status = (await self.fleet.resource())["status"].get("draftTrial")
            if status is not None:
                now = ComparisonStatus.model_validate(status)
                if now.state is ArmState.FAILED:
                    raise RuntimeError(now.message)
                if found or now.state is not ArmState.COMPARED:
                    found[:] = [now]
            return bool(found) and found[0].result in _FOUND

        await until(told)
        return found[0]

    async def _depths(self, pod: str) -> tuple[int, int]:
        document = await self.fleet.document()
        return depth_at(document.schedule, 1), depth_at(document.for_pod(pod), 1)

    async def _untried(self) -> None:
        async def ended() -> bool:
            return "draftTrial" not in (await self.fleet.resource())["status"]

        await until(ended)
        await self._complete()

    def _resource(self) -> Object:
        example: Object = yaml.safe_load(EXAMPLE.read_text())
        spec = example["spec"]
        spec["draft"]["training"] = {
            "gpus": 0,
            "deadlineMinutes": 60,
            "gpuHoursPerWeek": 0,
            "dataClaim": _DATA,
            "template": cpu_template(self.environment, RECIPES[_RECIPE].train_args),
        }
        spec["cache"] = {"size": "2Gi", "prefetch": False}
        spec["rollout"] = {"canaryMinutes": 1, "maxSurge": 0}
        return example

    @asynccontextmanager
    async def _traffic(self, phase: Phase = _LIFE) -> AsyncIterator[None]:
        """Requests through the Service, each answer compared with the target's own."""
        url = await self.fleet.service_url()
        async with LoadGenerator(url, "/models/target") as load:
            load.set_phase(phase)
            yield
        self.life.requests += len(load.results)
        self.life.failed += sum(not each.ok for each in load.results)

    async def _timed(self, what: str, wait: Callable[[], Awaitable[Any]]) -> Any:
        began_s = time.monotonic()
        with self.console.status(what):
            found = await wait()
        self.life.seconds[what] = time.monotonic() - began_s
        self.console.print(f"{what}: {self.life.seconds[what]:.0f} s")
        return found

    async def _acceptance(self) -> str:
        """What the status says of the first position, once it says so of later windows."""
        seen: dict[str, str] = {}
        earlier = (await self.fleet.resource())["status"].get("measured", {}).get("at")

        async def enough() -> bool:
            measured = (await self.fleet.resource())["status"].get("measured", {})
            if measured.get("survival") and measured["at"] != earlier:
                seen[measured["at"]] = measured["survival"][0]
            return len(seen) >= _REPORTS

        await until(enough)
        return seen[max(seen)]

    async def _at(self, *phases: str) -> Object:
        found: Object = {}

        async def there() -> bool:
            found.clear()
            found.update((await self.fleet.resource())["status"].get("training", {}))
            if found.get("phase") in {"Failed", "Refused", "Dismissed"}:
                raise RuntimeError(found["message"])
            return found.get("phase") in phases

        await until(there)
        return found

    async def _complete(self) -> None:
        async def complete() -> bool:
            rollout = (await self.fleet.resource())["status"].get("rollout", {})
            if rollout.get("stage") == "RolledBack":
                raise RuntimeError(rollout["message"])
            return rollout.get("stage") == "Complete"

        await until(complete)
        await wait_ready(self.fleet, self.console.print)

    async def _annotate(self, name: str, value: str) -> None:
        await self._patch({"metadata": {"annotations": {name: value}}})

    async def _patch(self, patch: Object) -> None:
        await self.fleet.api.request("PATCH", self.fleet.path, body=patch, content_type=MERGE_PATCH)
