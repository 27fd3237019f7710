"""The operator's own metrics of one resource."""

from dataclasses import replace

from fathom.adapters.ports import KubeError
from fathom.core.cluster.kinds import SPECULATIVE_DEPLOYMENT, Kind
from fathom.engine.depth import DepthDocument, DepthRange
from fathom.runtime.loops import Loops
from fathom.runtime.telemetry import Telemetry
from fathom.tuning.estimate.measured import Measured
from support.bench import KEY, Bench, holding


def depth(bench: Bench, batch: str) -> float | None:
    labels = {"namespace": "llm", "name": "kimi", "batch": batch}
    return bench.world.telemetry.registry.get_sample_value("fathom_depth", labels)


async def test_the_depth_is_shown_at_the_smallest_and_at_the_largest_batch(bench: Bench) -> None:
    schedule = (DepthRange(1, 4, 5), DepthRange(5, 16, 3), DepthRange(17, 256, 1))
    document = DepthDocument(2, schedule)
    bench.decide = lambda snapshot: replace(holding(snapshot), document=document)
    await bench.tick()
    assert (depth(bench, "smallest"), depth(bench, "largest")) == (5, 1)


def series(bench: Bench) -> set[str]:
    """Names of all samples of the resource."""
    return {
        sample.name
        for family in bench.world.telemetry.registry.collect()
        for sample in family.samples
        if sample.labels.get("name") == "kimi"
    }


async def test_all_series_go_with_their_resource(bench: Bench) -> None:
    document = DepthDocument(2, (DepthRange(1, 256, 3),))
    bench.decide = lambda snapshot: replace(holding(snapshot), document=document)
    await bench.tick()
    some = {"fathom_depth", "fathom_alarm", "fathom_condition", "fathom_writes_total"}
    assert some <= series(bench)

    bench.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    await bench.tick()
    assert series(bench) == set()


def conditions(bench: Bench) -> list[tuple[str, str, str]]:
    """Type, status and reason of each that is shown."""
    samples = [
        sample
        for family in bench.world.telemetry.registry.collect()
        for sample in family.samples
        if sample.name == "fathom_condition"
    ]
    assert {sample.value for sample in samples} == {1}
    return sorted(
        (each.labels["type"], each.labels["status"], each.labels["reason"]) for each in samples
    )


async def test_conditions_are_those_of_the_status_and_no_earlier_ones(bench: Bench) -> None:
    for tokens, degraded in ((3, "AsExpected"), (99, "InvalidSpec"), (3, "AsExpected")):
        bench.edit({"speculation.tokens": tokens})
        await bench.tick()
        written = [
            (each["type"], each["status"], each["reason"]) for each in bench.status["conditions"]
        ]
        assert conditions(bench) == sorted(written)
        assert bench.condition("Degraded")["reason"] == degraded


async def test_conditions_are_shown_where_the_status_cannot_be_written(bench: Bench) -> None:
    def refused(verb: str, kind: Kind) -> KubeError | None:
        of_status = verb == "apply" and kind == SPECULATIVE_DEPLOYMENT
        return KubeError(403, "not allowed") if of_status else None

    bench.kube.fail = refused
    bench.edit({"speculation.tokens": 99})
    await bench.tick()
    assert ("Degraded", "True", "InvalidSpec") in conditions(bench)
    assert bench.condition("Degraded")["reason"] == "AsExpected"


def shown(bench: Bench, name: str) -> float | None:
    labels = {"namespace": "llm", "name": "kimi"}
    return bench.world.telemetry.registry.get_sample_value(name, labels)


async def test_the_gain_is_shown_where_it_is_known(bench: Bench) -> None:
    measured = Measured(bench.clock.now_s(), 30.0, 1000.0, 4.0, 2.5, 0.5, (0.8,), 0.02, None)
    for gain, percent in ((None, None), (0.042, 4.2), (-0.1, -10.0), (None, None)):
        now = replace(measured, gain=gain)
        bench.decide = lambda snapshot, now=now: replace(holding(snapshot), measured=now)  # type: ignore[misc]
        await bench.tick()
        assert shown(bench, "fathom_gain_percent") == percent


async def test_a_gain_that_somebody_else_wrote_stops_nothing(bench: Bench) -> None:
    resource = bench.resource
    status = {**resource["status"], "measured": {"gainPercent": "much"}}
    bench.kube.put(SPECULATIVE_DEPLOYMENT, {**resource, "status": status})
    bench.restart()
    await bench.tick()
    assert bench.status["measured"]["gainPercent"] == "much"
    assert shown(bench, "fathom_gain_percent") is None
    assert ("Ready", "True", "AllReplicasReady") in conditions(bench)


async def test_a_pass_that_does_not_begin_is_overdue(bench: Bench, loops: Loops) -> None:
    loops.seen(KEY)
    assert shown(bench, "fathom_pass_overdue_seconds") == 0
    bench.clock.at_s += 400
    assert shown(bench, "fathom_pass_overdue_seconds") == 400


def test_whether_it_acts_is_asked_at_each_scrape() -> None:
    telemetry, holds = Telemetry(), [False]
    telemetry.leads(lambda: holds[0])
    assert telemetry.registry.get_sample_value("fathom_leader") == 0
    holds[0] = True
    assert telemetry.registry.get_sample_value("fathom_leader") == 1
