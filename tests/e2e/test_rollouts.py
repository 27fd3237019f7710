"""Rollouts of real engines behind one Service, under traffic. In order, on one fleet of two.

A draft on trial, and its adoption: test_loop.py.
"""

import asyncio
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
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The constructed draft, of which half of the weights are missing."""
    ensure_engine()
    draft = tmp_path_factory.mktemp("models") / "broken"
    shutil.copytree(pair_directory(cache_dir()) / "draft", draft)
    weights = draft / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    return draft


@pytest.fixture(scope="module")
async def fleet(stage: DemoStage) -> DemoFleet:
    """Two engines that serve."""
    example: Object = yaml.safe_load(EXAMPLE.read_text())
    spec = example["spec"]
    spec["replicas"] = REPLICAS
    # Both revisions at one depth, so that they are compared from the first minute on.
    spec["speculation"] = {"tokens": DEPTH, "tuning": {"mode": "Advise"}}
    spec["engine"]["args"] = [*ARGS, "16"]
    spec["rollout"] = {"canaryMinutes": 1, "maxSurge": 0}
    fleet = DemoFleet(stage.api, stage.fleet.http, stage.fleet.namespace, "rolled")
    await removed(stage.fleet)  # two processors are its own engines' then
    await create(fleet, example)
    await wait_ready(fleet, say, GUARD_SECONDS)
    return fleet


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
    assert seen.stages == ["Settling", "Canary", "Promoted", "Complete"]
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
    fleet: DemoFleet, broken: Path
) -> None:
    before = {pod["metadata"]["uid"] for pod in await raw_pods(fleet)}
    good = (await fleet.resource())["spec"]["draft"]["id"]
    async with under_traffic(fleet, 1) as (load, seen):
        await edit(fleet, {"draft": {"id": str(broken)}})
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
