"""Children whose API a cluster may not have: made where they can be, else said to be left out."""

from dataclasses import replace

import pytest

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import POD_DISRUPTION_BUDGET, POD_MONITOR, Kind, ServedApis
from support.loop_harness import LoopHarness


def served(*kinds: Kind) -> ServedApis:
    return ServedApis(kinds=frozenset((kind.api_version, kind.kind) for kind in kinds))


async def up(*kinds: Kind) -> LoopHarness:
    harness = LoopHarness({"replicas": 2}, served=served(*kinds))
    await harness.until_ready()
    return harness


def said(harness: LoopHarness) -> str:
    assert "No Pod" not in harness.condition("Progressing")["message"]
    return " ".join(harness.status["leftOut"])


async def test_they_are_made_where_the_cluster_serves_them() -> None:
    harness = await up(POD_DISRUPTION_BUDGET, POD_MONITOR)
    (budget,) = harness.kube.all_of(POD_DISRUPTION_BUDGET)
    (monitor,) = harness.kube.all_of(POD_MONITOR)
    serving = {"matchLabels": {"fathom.dev/name": "kimi", "fathom.dev/role": "leader"}}
    assert budget["spec"] == {"maxUnavailable": 1, "selector": serving}
    assert monitor["spec"]["selector"] == serving
    assert "No Pod" not in said(harness)
    harness.kube.writes.clear()
    await harness.tick()
    assert harness.kube.writes == []


async def test_what_cannot_be_read_just_now_is_not_taken_for_absent() -> None:
    harness = await up(POD_DISRUPTION_BUDGET)
    for status in (404, 500):
        harness.kube.fail = lambda verb, kind, status=status: (  # type: ignore[misc]
            KubeError(status, "no") if (verb, kind) == ("list", POD_DISRUPTION_BUDGET) else None
        )
        harness.kube.writes.clear()
        harness.edit({"rollout.maxUnavailable": 2})
        await harness.tick()
        assert harness.kube.writes == []


async def test_what_the_cluster_does_not_serve_is_said_with_what_follows_from_it() -> None:
    harness = await up()
    assert harness.kube.all_of(POD_DISRUPTION_BUDGET) == []
    assert (
        "No PodDisruptionBudget, as this cluster does not serve policy/v1: draining nodes may take "
        "more replicas at a time than rollout.maxUnavailable." in said(harness)
    )
    assert (
        "No PodMonitor, as this cluster does not serve monitoring.coreos.com/v1: Prometheus has to "
        "be configured to scrape port http of the pods." in said(harness)
    )


async def test_an_operator_without_the_right_to_one_goes_on_without_it() -> None:
    harness = LoopHarness({"replicas": 2}, served=served(POD_DISRUPTION_BUDGET, POD_MONITOR))
    harness.kube.fail = lambda _verb, kind: (
        KubeError(403, "podmonitors is forbidden") if kind == POD_MONITOR else None
    )
    await harness.until_ready()
    assert len(harness.kube.all_of(POD_DISRUPTION_BUDGET)) == 1
    assert (
        "No PodMonitor, as the operator may not list podmonitors.monitoring.coreos.com, which its "
        "chart allows: " in said(harness)
    )
    assert "No PodDisruptionBudget" not in said(harness)


async def test_a_list_that_fails_for_another_reason_is_not_taken_for_none() -> None:
    harness = await up(POD_MONITOR)
    harness.kube.writes.clear()
    harness.kube.fail = lambda _verb, kind: (
        KubeError(500, "etcdserver: timeout") if kind == POD_MONITOR else None
    )
    harness.loop.wake()
    await harness.tick()
    assert harness.kube.writes == []


async def test_labels_let_a_prometheus_find_its_pod_monitors_and_the_operator_its_own() -> None:
    labels = {"release": "prometheus", "fathom.dev/name": "another"}
    harness = LoopHarness({"metrics": {"podMonitorLabels": labels}}, served=served(POD_MONITOR))
    await harness.until_ready()
    (monitor,) = harness.kube.all_of(POD_MONITOR)
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["metadata"]["labels"]["fathom.dev/name"] == "kimi"


async def test_one_that_is_not_asked_for_any_more_goes() -> None:
    harness = await up(POD_DISRUPTION_BUDGET, POD_MONITOR)
    harness.edit({"metrics": {"podMonitor": "Never"}})
    await harness.until_ready()
    assert harness.kube.all_of(POD_MONITOR) == []
    assert len(harness.kube.all_of(POD_DISRUPTION_BUDGET)) == 1
    assert "No PodMonitor" not in said(harness)


async def test_a_budget_beside_one_of_the_users_own_goes() -> None:
    harness = await up(POD_DISRUPTION_BUDGET, POD_MONITOR)
    harness.edit({"rollout": {"podDisruptionBudget": "Never"}})
    await harness.until_ready()
    assert harness.kube.all_of(POD_DISRUPTION_BUDGET) == []
    assert len(harness.kube.all_of(POD_MONITOR)) == 1
    assert "No PodDisruptionBudget" not in said(harness)


async def test_the_budget_follows_the_rollouts_bound() -> None:
    harness = await up(POD_DISRUPTION_BUDGET)
    harness.edit({"rollout": {"maxUnavailable": 2}})
    await harness.until_ready()
    (budget,) = harness.kube.all_of(POD_DISRUPTION_BUDGET)
    assert budget["spec"]["maxUnavailable"] == 2


@pytest.mark.parametrize(
    ("version", "policy"),
    [((1, 36), "AlwaysAllow"), ((1, 27), "AlwaysAllow"), ((1, 26), None), (None, None)],
)
async def test_pods_that_do_not_serve_keep_no_node_from_being_drained(
    version: tuple[int, int] | None, policy: str | None
) -> None:
    apis = replace(served(POD_DISRUPTION_BUDGET), version=version)
    harness = LoopHarness({"replicas": 2}, served=apis)
    await harness.until_ready()
    (budget,) = harness.kube.all_of(POD_DISRUPTION_BUDGET)
    assert budget["spec"].get("unhealthyPodEvictionPolicy") == policy


async def test_a_budget_of_none_would_keep_nodes_from_ever_being_drained() -> None:
    harness = await up(POD_DISRUPTION_BUDGET)
    harness.edit({"rollout": {"maxUnavailable": 0, "maxSurge": 1}})
    await harness.until_ready()
    (budget,) = harness.kube.all_of(POD_DISRUPTION_BUDGET)
    assert budget["spec"]["maxUnavailable"] == 1


async def test_the_engines_are_scraped_twice_a_window_within_what_is_common() -> None:
    intervals = {}
    for window_s in (5, 30, 600):
        harness = LoopHarness(
            {"speculation": {"tuning": {"windowSeconds": window_s}}}, served=served(POD_MONITOR)
        )
        await harness.until_ready()
        (monitor,) = harness.kube.all_of(POD_MONITOR)
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        intervals[window_s] = endpoint["interval"]
    assert intervals == {5: "5s", 30: "15s", 600: "30s"}
