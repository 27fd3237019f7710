"""One replica with adaptive verification beside the others: begun, judged, kept, and ended."""

from collections.abc import Collection

import pytest

from local_cluster.engine.language import HARD
from local_cluster.engine.traffic import Phase
from local_cluster.kube import Object
from support.local_cluster import TestNamespace, is_ready
from support.operated import SPEC, Resource, operator, resource, under_traffic
from support.operator_process import Operator
from support.waiting import until

__all__ = ["operator", "resource"]

pytestmark = pytest.mark.cluster

FLEET = {
    **SPEC,
    "replicas": 3,
    "speculation": {**SPEC["speculation"], "tuning": {"mode": "Advise"}},
    # With it vLLM needs its graphs.
    "engine": {**SPEC["engine"], "args": ["--max-num-seqs", "16"]},
    "rollout": {"canaryMinutes": 1, "maxSurge": 0},
}


def has_it(pod: Object) -> bool:
    return "enable_adaptive_verification" in " ".join(pod["spec"]["containers"][0]["args"])


async def ready_pods(namespace: TestNamespace, *, arms: int) -> list[Object] | None:
    """The three, as soon as so many of them have adaptive verification and all serve."""
    pods = await namespace.all_of("Pod")
    as_asked = len(pods) == 3 and sum(map(has_it, pods)) == arms
    return pods if as_asked and all(map(is_ready, pods)) else None


def uids(pods: Collection[Object]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


async def test_one_replica_is_compared_with_the_others_which_nothing_touches(
    namespace: TestNamespace, operator: Operator, resource: Resource
) -> None:
    await resource.apply(FLEET)
    await resource.wait("Ready", "True")
    before = uids(await namespace.all_of("Pod"))

    await resource.edit({"speculation": {"adaptiveVerification": "Canary"}})
    pods = await until(lambda: ready_pods(namespace, arms=1), "one of three has it")
    others = uids([pod for pod in pods if not has_it(pod)])
    assert others < before

    # Most of what is drafted here is wrong: not to verify it pays.
    async with under_traffic(namespace) as loads:
        for load in loads:
            load.set_phase(Phase(HARD, concurrency=4))

        async def compared() -> Object | None:
            found: Object = (await resource.get())["status"].get("adaptiveVerification", {})
            return found if found.get("state") == "Compared" else None

        verdict = await until(compared, "it is compared")
    assert [result.error for load in loads for result in load.results if not result.ok] == []
    assert verdict["result"] == "Faster"
    low, high = map(float, verdict["intervalPercent"].split(" to "))
    assert 0 < low < float(verdict["percent"]) < high
    assert verdict["pod"] in {pod["metadata"]["name"] for pod in pods if has_it(pod)}

    # The operator dies, and the next one knows what was found: an edit shows that it is at work.
    operator.kill()
    await resource.edit({"speculation": {"tuning": {"minGainPercent": 2}}})
    operator.start()
    await resource.wait("Ready", "True")
    assert (await resource.get())["status"]["adaptiveVerification"] == verdict
    assert uids(await namespace.all_of("Pod")) == uids(pods)

    await resource.edit({"speculation": {"adaptiveVerification": "Disabled"}})
    after = await until(lambda: ready_pods(namespace, arms=0), "none of three has it")
    assert others < uids(after)
    await resource.wait("Progressing", "False", "UpToDate")
    assert "adaptiveVerification" not in (await resource.get())["status"]
    assert len(await namespace.all_of("Deployment")) == 1
    told = [event["reason"] for event in await namespace.all_of("Event")]
    assert told.count("Compared") == 1
