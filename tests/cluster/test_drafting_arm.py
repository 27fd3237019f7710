"""One replica without drafts beside the others, on the user's own traffic."""

import pytest

from local_cluster.engine.language import EASY
from local_cluster.engine.traffic import Phase
from local_cluster.kube import Object
from support.local_cluster import TestNamespace, is_ready
from support.operated import SPEC, Resource, operator, resource, under_traffic
from support.waiting import until

__all__ = ["operator", "resource"]

pytestmark = pytest.mark.cluster

FLEET = {**SPEC, "replicas": 2, "rollout": {"canaryMinutes": 1, "maxSurge": 0}}


def drafts(pod: Object) -> bool:
    return "--speculative-config" in pod["spec"]["containers"][0]["args"]


@pytest.mark.usefixtures("operator")
async def test_what_drafts_are_worth_is_measured_in_one_replica_without(
    namespace: TestNamespace, resource: Resource
) -> None:
    await resource.apply(FLEET)
    await resource.wait("Ready", "True")
    await resource.edit({"speculation": {"drafting": "Canary"}})

    async def one_without() -> list[Object] | None:
        pods = await namespace.all_of("Pod")
        as_asked = sorted(map(drafts, pods)) == [False, True]
        return pods if as_asked and all(map(is_ready, pods)) else None

    pods = await until(one_without, "one of two does not draft")

    async def compared() -> Object | None:
        found: Object = (await resource.get())["status"].get("drafting", {})
        return found if found.get("state") == "Compared" else None

    # Of what is drafted here, most is right.
    async with under_traffic(namespace) as loads:
        for load in loads:
            load.set_phase(Phase(EASY, concurrency=4))
        verdict = await until(compared, "it is compared")
    assert [result.error for load in loads for result in load.results if not result.ok] == []
    assert verdict["result"] == "Slower"
    low, high = map(float, verdict["intervalPercent"].split(" to "))
    assert low < float(verdict["percent"]) < high < 0
    assert verdict["pod"] in {pod["metadata"]["name"] for pod in pods if not drafts(pod)}
    assert (await resource.get())["status"]["engine"]["actuation"] == "Live"
