"""Rollouts of real engines behind one Service, under traffic. In order, on one fleet of two."""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.observation import GUARD_SECONDS, by_operator, removed, until
from fathom.api import names
from fathom.engine.depth import depth_at
from local_cluster.demo.fleet import DemoFleet
from local_cluster.demo.stage import EXAMPLE, DemoStage, condition, create, wait_ready
from local_cluster.engine.language import EASY
from local_cluster.engine.model_pair import pair_directory
from local_cluster.engine.setup import ensure_engine
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.kube import MERGE_PATCH, Object
from local_cluster.paths import cache_dir
from support.local_cluster import is_ready

pytestmark = pytest.mark.e2e

REPLICAS = 2
MOST_MISSING = 1
DEPTH = 3
CONCURRENCY = REPLICAS
"""Whichever replica goes, it has a request to lose."""
PAUSE_SECONDS = 0.2
"""Between requests, while a canary is compared: each window needs thirty steps."""
START_PAUSE_SECONDS = 1.0
"""While an engine starts, which needs processors, too."""
SAMPLE_SECONDS = 0.2
ARGS = ("--dtype", "float32", "--enforce-eager", "--max-model-len", "1024", "--max-num-seqs")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drafts beside the constructed one: `weak`, which is always wrong, and `broken`."""
    ensure_engine()
    good = pair_directory(cache_dir()) / "draft"
    directory = tmp_path_factory.mktemp("models")
    weak, broken = directory / "weak", directory / "broken"
    for each in (weak, broken):
        shutil.copytree(good, each)
    _blank(weak / "model.safetensors", "lm_head.weight")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    return directory


@pytest.fixture(scope="module")
async def fleet(stage: DemoStage, models: Path) -> DemoFleet:
    """Two engines that serve with the weak draft."""
    example: Object = yaml.safe_load(EXAMPLE.read_text())
    spec = example["spec"]
    spec["replicas"] = REPLICAS
    spec["draft"] = {"id": str(models / "weak")}
    # Both revisions at one depth, so that they are compared from the first minute on.
    spec["speculation"] = {"tokens": DEPTH, "tuning": {"mode": "Advise"}}
    spec["engine"]["args"] = [*ARGS, "16"]
    spec["rollout"] = {"canaryMinutes": 1, "maxSurge": 0}
    fleet = DemoFleet(stage.api, stage.fleet.http, stage.fleet.namespace, "rolled")
    await removed(stage.fleet)  # two processors are its own engines' then
    await create(fleet, example)
    await wait_ready(fleet, say, GUARD_SECONDS)
    return fleet


async def test_another_draft_is_tried_at_its_own_depth_and_adopted_by_the_edit_that_is_named(
    fleet: DemoFleet,
) -> None:
    await edit(fleet, {"speculation": {"tuning": {"mode": "Auto", "windowSeconds": 5}}})
    async with under_traffic(fleet, CONCURRENCY) as (load, seen):
        # So shallow has the weak draft brought its fleet that no other could show much there.
        await until(lambda: is_at(fleet, 1))
        await edit(fleet, {"draft": {"trial": {"id": "/models/draft"}}})
        await until(lambda: is_compared(fleet))
        trial = (await fleet.resource())["status"]["draftTrial"]
        await until(lambda: is_at(fleet, DEPTH, pod=trial["pod"]))
        patch = json.loads(trial["message"].partition("-p '")[2].rstrip("'"))
        await edit(fleet, patch["spec"])
        await until(lambda: is_complete(fleet))
        await wait_ready(fleet, say, GUARD_SECONDS)
        after = len(load.results)
        await until(lambda: served(load, after + 20))

    say(f"{len(load.results)} requests; {seen}; {trial['message']}")
    assert failures(load) == []
    assert trial["result"] == "Faster"
    assert "RolledBack" not in seen.stages
    assert seen.least_ready >= REPLICAS - MOST_MISSING
    assert seen.most_held == REPLICAS
    assert trial["pod"] in {pod.name for pod in await fleet.pods()}
    assert [pod.restarts for pod in await fleet.pods()] == [0] * REPLICAS
    status = (await fleet.resource())["status"]
    assert "draftTrial" not in status
    assert status["rollout"]["revision"] == trial["revision"]
    await edit(fleet, {"speculation": {"tuning": {"mode": "Advise", "windowSeconds": None}}})


async def test_a_change_of_args_is_promoted_by_its_canary_and_no_request_is_lost(
    fleet: DemoFleet,
) -> None:
    before, earlier = {pod.name for pod in await fleet.pods()}, len(await events(fleet))
    async with under_traffic(fleet, CONCURRENCY) as (load, seen):
        await until(lambda: served(load, 10))
        await edit(fleet, {"engine": {"args": [*ARGS, "8"]}})
        await until(lambda: stage_is(fleet, "Canary"))
        await until(lambda: is_complete(fleet))
        await wait_ready(fleet, say, GUARD_SECONDS)
        await until(lambda: is_in_force(fleet))
        after = len(load.results)
        await until(lambda: served(load, after + 20))

    say(f"{len(load.results)} requests; {seen}")
    assert failures(load) == []
    assert seen.stages == ["Complete", "Settling", "Canary", "Promoted", "Complete"]
    assert seen.least_ready >= REPLICAS - MOST_MISSING
    assert seen.most_held == REPLICAS
    assert not before & {pod.name for pod in await fleet.pods()}
    assert [pod.restarts for pod in await fleet.pods()] == [0] * REPLICAS
    rollout = (await fleet.resource())["status"]["rollout"]
    assert "--max-num-seqs" in rollout["why"]
    told = (await events(fleet))[earlier:]
    steps = [each for each in told if each[0] in {"Rolling", "Canary", "Promoted", "RolledOut"}]
    assert [reason for reason, _ in steps] == ["Rolling", "Canary", "Promoted", "RolledOut"]
    assert "spec.engine.args" in steps[0][1]
    assert rollout["why"] in steps[1][1]
    assert "tokens per second per request, compared with the others" in steps[2][1]


async def test_a_draft_that_the_engine_cannot_load_is_rolled_back_by_itself(
    fleet: DemoFleet, models: Path
) -> None:
    before = {pod["metadata"]["uid"] for pod in await raw_pods(fleet)}
    good = (await fleet.resource())["spec"]["draft"]["id"]
    async with under_traffic(fleet, 1) as (load, seen):
        await edit(fleet, {"draft": {"id": str(models / "broken")}})
        await until(lambda: stage_is(fleet, "RolledBack"))
        await until(lambda: all_of_old_serve(fleet))

        resource = await fleet.resource()
        degraded, rollout = condition(resource, "Degraded"), resource["status"]["rollout"]
        assert (degraded["status"], degraded["reason"]) == ("True", "RolledBack")
        assert rollout["reason"] == "CanaryCrashed"
        say(degraded["message"])
        told = [message for reason, message in await events(fleet) if reason == "RolledBack"]
        assert len(told) == 1
        for said in (degraded["message"], *told):
            assert "Engine core initialization failed" in said

        await edit(fleet, {"draft": {"id": good}})
        await until(lambda: is_well(fleet))
        await until(lambda: served(load, 30))
        # The watch looks now and then: it has to see what is_well has just seen.
        await until(lambda: shows(seen, "Complete"))

    say(f"{len(load.results)} requests; {seen}")
    assert failures(load) == []
    assert seen.stages[:4] == ["Complete", "Settling", "Canary", "RolledBack"]
    assert seen.stages[-1] == "Complete"
    rollout = (await fleet.resource())["status"]["rollout"]
    assert (rollout["revision"], rollout["reason"]) == (rollout["stable"], "Reverted")
    assert seen.least_ready >= REPLICAS - MOST_MISSING
    assert seen.most_held == REPLICAS
    pods = await raw_pods(fleet)
    assert len(before & {pod["metadata"]["uid"] for pod in pods}) == REPLICAS - MOST_MISSING
    assert [pod.restarts for pod in await fleet.pods()] == [0] * REPLICAS


async def test_the_operator_is_refused_nothing(stage: DemoStage) -> None:
    """In all of these tests. That it uses all that it may do: tests/cluster/test_rights.py."""
    refused = [event for event in by_operator(stage.cluster) if event.code == 403]
    # One that is uninstalled gives its lease back, and its Role may be gone before.
    assert [event for event in refused if event.resource != "leases"] == []


@dataclass
class Seen:
    """What the API server showed, look after look."""

    began_s: float = field(default_factory=time.monotonic, repr=False)
    least_ready: int = REPLICAS
    most_held: int = 0
    """Pods that exist, those included that drain: each holds its GPUs."""
    stages: list[str] = field(default_factory=list)
    samples: int = 0

    def add(self, pods: list[Object], stage: str) -> None:
        ready = [pod for pod in pods if is_ready(pod) and not _terminating(pod)]
        self.least_ready = min(self.least_ready, len(ready))
        self.most_held = max(self.most_held, len(pods))
        self.samples += 1
        if stage and stage not in self.stages[-1:]:
            self.stages.append(stage)
            say(f"{time.monotonic() - self.began_s:4.0f} s  {stage}")


@asynccontextmanager
async def under_traffic(
    fleet: DemoFleet, concurrency: int
) -> AsyncIterator[tuple[LoadGenerator, Seen]]:
    """Requests without a pause, and every change of the fleet noted.

    One sender while an engine starts: on two processors, what the others compute makes it start
    slowly. All of them again once it is ready, which is when the next one goes.
    """
    model = (await fleet.resource())["spec"]["model"]["id"]
    seen = Seen()

    async def watch() -> None:
        while True:
            stage = (await fleet.resource())["status"].get("rollout", {}).get("stage", "")
            pods = await raw_pods(fleet)
            seen.add(pods, stage)
            all_ready = all(map(is_ready, pods))
            senders, pause_s = (
                (concurrency, PAUSE_SECONDS) if all_ready else (1, START_PAUSE_SECONDS)
            )
            load.set_phase(Phase(EASY, senders, pause_s=pause_s))
            await asyncio.sleep(SAMPLE_SECONDS)

    async with LoadGenerator(await fleet.service_url(), model) as load:
        watching = asyncio.create_task(watch())
        try:
            yield load, seen
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await load.stop()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def failures(load: LoadGenerator) -> list[str]:
    return [result.error for result in load.results if not result.ok]


async def edit(fleet: DemoFleet, spec: Mapping[str, Any]) -> None:
    await fleet.api.request("PATCH", fleet.path, body={"spec": spec}, content_type=MERGE_PATCH)


async def raw_pods(fleet: DemoFleet) -> list[Object]:
    listed = await fleet.api.request(
        "GET",
        f"/api/v1/namespaces/{fleet.namespace}/pods",
        query={"labelSelector": f"{names.LABEL_NAME}={fleet.name}"},
    )
    return list(listed["items"])


async def events(fleet: DemoFleet) -> list[tuple[str, str]]:
    """Reasons and messages of the resource's events, oldest first."""
    listed = await fleet.api.request("GET", f"/api/v1/namespaces/{fleet.namespace}/events")
    own = [each for each in listed["items"] if each["involvedObject"]["name"] == fleet.name]
    own.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
    return [(each["reason"], each["message"]) for each in own]


async def served(load: LoadGenerator, requests: int) -> bool:
    return len(load.results) >= requests


async def shows(seen: "Seen", stage: str) -> bool:
    return seen.stages[-1] == stage


async def stage_is(fleet: DemoFleet, stage: str) -> bool:
    status = (await fleet.resource())["status"]
    return bool(status.get("rollout", {}).get("stage") == stage)


async def is_complete(fleet: DemoFleet) -> bool:
    rollout = (await fleet.resource())["status"].get("rollout", {})
    assert rollout.get("stage") != "RolledBack", rollout["message"]
    return bool(rollout.get("stage") == "Complete")


async def is_at(fleet: DemoFleet, depth: int, *, pod: str = "") -> bool:
    """Whether the depth asked for is this one: of the fleet, or at least of one of its pods."""
    document = await fleet.document()
    if pod:
        return pod not in document.ends and depth_at(document.for_pod(pod), 1) >= depth
    return depth_at(document.schedule, 1) == depth


async def is_compared(fleet: DemoFleet) -> bool:
    trial = (await fleet.resource())["status"].get("draftTrial", {})
    assert trial.get("state") != "Failed", trial["message"]
    return trial.get("state") == "Compared" and trial["result"] != "CannotTell"


async def is_in_force(fleet: DemoFleet) -> bool:
    return await fleet.depth_in_force(CONCURRENCY) == DEPTH


async def all_of_old_serve(fleet: DemoFleet) -> bool:
    stable = (await fleet.resource())["status"]["rollout"]["stable"]
    ready = [pod for pod in await raw_pods(fleet) if is_ready(pod) and not _terminating(pod)]
    revisions = [pod["metadata"]["labels"][names.LABEL_REVISION] for pod in ready]
    return revisions == [stable] * REPLICAS


async def is_well(fleet: DemoFleet) -> bool:
    resource = await fleet.resource()
    degraded = condition(resource, "Degraded")
    fresh = degraded["observedGeneration"] == resource["metadata"]["generation"]
    over = resource["status"]["rollout"]["stage"] == "Complete"
    return bool(fresh and over and degraded["status"] == "False")


def _terminating(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _blank(weights: Path, tensor: str) -> None:
    """Write zeros over a tensor. The format: github.com/huggingface/safetensors#format."""
    content = bytearray(weights.read_bytes())
    data_at = 8 + int.from_bytes(content[:8], "little")
    begin, end = json.loads(content[8:data_at])[tensor]["data_offsets"]
    content[data_at + begin : data_at + end] = bytes(end - begin)
    weights.write_bytes(content)
