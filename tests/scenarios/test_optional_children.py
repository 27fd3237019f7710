"""Children whose API a cluster may not have: made where they can be, else said to be left out."""

from dataclasses import replace

import pytest

from fathom.adapters.ports import KubeError
from fathom.core.cluster.kinds import POD_DISRUPTION_BUDGET, POD_MONITOR, Kind
from fathom.core.cluster.served import ServedApis
from support.bench import Bench


def served(*kinds: Kind) -> ServedApis:
    return ServedApis(frozenset((kind.api_version, kind.kind) for kind in kinds))


async def up(*kinds: Kind) -> Bench:
    bench = Bench({"replicas": 2}, served=served(*kinds))
    await bench.until_ready()
    return bench


def said(bench: Bench) -> str:
    return str(bench.condition("Progressing")["message"])


async def test_they_are_made_where_the_cluster_serves_them() -> None:
    bench = await up(POD_DISRUPTION_BUDGET, POD_MONITOR)
    (budget,) = bench.kube.all_of(POD_DISRUPTION_BUDGET)
    (monitor,) = bench.kube.all_of(POD_MONITOR)
    serving = {"matchLabels": {"fathom.dev/name": "kimi", "fathom.dev/role": "leader"}}
    assert budget["spec"] == {"maxUnavailable": 1, "selector": serving}
    assert monitor["spec"]["selector"] == serving
    assert "No Pod" not in said(bench)
    bench.kube.writes.clear()
    await bench.tick()
    assert bench.kube.writes == []


async def test_what_cannot_be_read_just_now_is_not_taken_for_absent() -> None:
    bench = await up(POD_DISRUPTION_BUDGET)
    for status in (404, 500):
        bench.kube.fail = lambda verb, kind, status=status: (  # type: ignore[misc]
            KubeError(status, "no") if (verb, kind) == ("list", POD_DISRUPTION_BUDGET) else None
        )
        bench.kube.writes.clear()
        bench.edit({"rollout.maxUnavailable": 2})
        await bench.tick()
        assert bench.kube.writes == []


async def test_what_the_cluster_does_not_serve_is_said_with_what_follows_from_it() -> None:
    bench = await up()
    assert bench.kube.all_of(POD_DISRUPTION_BUDGET) == []
    assert (
        "No PodDisruptionBudget, as this cluster does not serve policy/v1: draining nodes may take "
        "more replicas at a time than rollout.maxUnavailable." in said(bench)
    )
    assert (
        "No PodMonitor, as this cluster does not serve monitoring.coreos.com/v1: a Prometheus has "
        "to be told to scrape port http of the pods." in said(bench)
    )


async def test_an_operator_without_the_right_to_one_goes_on_without_it() -> None:
    bench = Bench({"replicas": 2}, served=served(POD_DISRUPTION_BUDGET, POD_MONITOR))
    bench.kube.fail = lambda _verb, kind: (
        KubeError(403, "podmonitors is forbidden") if kind == POD_MONITOR else None
    )
    await bench.until_ready()
    assert len(bench.kube.all_of(POD_DISRUPTION_BUDGET)) == 1
    assert (
        "No PodMonitor, as the operator may not list podmonitors.monitoring.coreos.com, which its "
        "chart allows: " in said(bench)
    )
    assert "No PodDisruptionBudget" not in said(bench)


async def test_a_list_that_fails_for_another_reason_is_not_taken_for_none() -> None:
    bench = await up(POD_MONITOR)
    bench.kube.writes.clear()
    bench.kube.fail = lambda _verb, kind: (
        KubeError(500, "etcdserver: timeout") if kind == POD_MONITOR else None
    )
    bench.loop.wake()
    await bench.tick()
    assert bench.kube.writes == []


async def test_labels_let_a_prometheus_find_its_pod_monitors_and_the_operator_its_own() -> None:
    labels = {"release": "prometheus", "fathom.dev/name": "another"}
    bench = Bench({"metrics": {"podMonitorLabels": labels}}, served=served(POD_MONITOR))
    await bench.until_ready()
    (monitor,) = bench.kube.all_of(POD_MONITOR)
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["metadata"]["labels"]["fathom.dev/name"] == "kimi"


async def test_one_that_is_not_asked_for_any_more_goes() -> None:
    bench = await up(POD_DISRUPTION_BUDGET, POD_MONITOR)
    bench.edit({"metrics": {"podMonitor": "Never"}})
    await bench.until_ready()
    assert bench.kube.all_of(POD_MONITOR) == []
    assert len(bench.kube.all_of(POD_DISRUPTION_BUDGET)) == 1
    assert "No PodMonitor" not in said(bench)


async def test_a_budget_beside_one_of_the_users_own_goes() -> None:
    bench = await up(POD_DISRUPTION_BUDGET, POD_MONITOR)
    bench.edit({"rollout": {"podDisruptionBudget": "Never"}})
    await bench.until_ready()
    assert bench.kube.all_of(POD_DISRUPTION_BUDGET) == []
    assert len(bench.kube.all_of(POD_MONITOR)) == 1
    assert "No PodDisruptionBudget" not in said(bench)


async def test_the_budget_follows_the_rollouts_bound() -> None:
    bench = await up(POD_DISRUPTION_BUDGET)
    bench.edit({"rollout": {"maxUnavailable": 2}})
    await bench.until_ready()
    (budget,) = bench.kube.all_of(POD_DISRUPTION_BUDGET)
    assert budget["spec"]["maxUnavailable"] == 2


@pytest.mark.parametrize(
    ("version", "policy"),
    [((1, 36), "AlwaysAllow"), ((1, 27), "AlwaysAllow"), ((1, 26), None), (None, None)],
)
async def test_pods_that_do_not_serve_keep_no_node_from_being_drained(
    version: tuple[int, int] | None, policy: str | None
) -> None:
    apis = replace(served(POD_DISRUPTION_BUDGET), version=version)
    bench = Bench({"replicas": 2}, served=apis)
    await bench.until_ready()
    (budget,) = bench.kube.all_of(POD_DISRUPTION_BUDGET)
    assert budget["spec"].get("unhealthyPodEvictionPolicy") == policy


async def test_a_budget_of_none_would_keep_nodes_from_ever_being_drained() -> None:
    bench = await up(POD_DISRUPTION_BUDGET)
    bench.edit({"rollout": {"maxUnavailable": 0, "maxSurge": 1}})
    await bench.until_ready()
    (budget,) = bench.kube.all_of(POD_DISRUPTION_BUDGET)
    assert budget["spec"]["maxUnavailable"] == 1


async def test_the_engines_are_scraped_twice_a_window_within_what_is_common() -> None:
    intervals = {}
    for window_s in (5, 30, 600):
        bench = Bench(
            {"speculation": {"tuning": {"windowSeconds": window_s}}}, served=served(POD_MONITOR)
        )
        await bench.until_ready()
        (monitor,) = bench.kube.all_of(POD_MONITOR)
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        intervals[window_s] = endpoint["interval"]
    assert intervals == {5: "5s", 30: "15s", 600: "30s"}
