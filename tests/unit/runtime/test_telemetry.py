"""The operator's own metrics of one resource."""

from dataclasses import replace

import pytest

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.kinds import POD, SPECULATIVE_DEPLOYMENT, Kind
from fathom.engine.depth import DepthDocument, DepthRange
from fathom.runtime.loop_registry import Loops
from fathom.runtime.telemetry import Telemetry
from fathom.tuning.estimate.measured import Measured
from support.loop_harness import KEY, LoopHarness, holding
from support.played_training import ALLOWED, annotate, approve, end_job


def depth(harness: LoopHarness, batch: str) -> float | None:
    labels = {"resource": KEY.kind.kind, "namespace": "llm", "name": "kimi", "batch": batch}
    return harness.world.telemetry.registry.get_sample_value("fathom_depth", labels)


async def test_the_depth_is_shown_at_the_smallest_and_at_the_largest_batch(
    harness: LoopHarness,
) -> None:
    schedule = (DepthRange(1, 4, 5), DepthRange(5, 16, 3), DepthRange(17, 256, 1))
    document = DepthDocument(generation=2, schedule=schedule)
    harness.decide = lambda snapshot: replace(holding(snapshot), document=document)
    await harness.tick()
    assert (depth(harness, "smallest"), depth(harness, "largest")) == (5, 1)


def series(harness: LoopHarness) -> set[str]:
    """Names of all samples of the resource."""
    return {
        sample.name
        for family in harness.world.telemetry.registry.collect()
        for sample in family.samples
        if sample.labels.get("name") == "kimi"
    }


async def test_all_series_go_with_their_resource(harness: LoopHarness) -> None:
    document = DepthDocument(generation=2, schedule=(DepthRange(1, 256, 3),))
    harness.decide = lambda snapshot: replace(holding(snapshot), document=document)
    await harness.tick()
    some = {"fathom_depth", "fathom_alarm", "fathom_condition", "fathom_writes_total"}
    assert some <= series(harness)

    harness.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    await harness.tick()
    assert series(harness) == set()


async def test_pods_are_shown_as_long_as_they_are_there(harness: LoopHarness) -> None:
    def shown() -> set[str]:
        found = harness.world.telemetry.registry.collect()
        samples = (each for family in found for each in family.samples)
        return {each.labels["pod"] for each in samples if each.name == "fathom_pod"}

    await harness.until_ready()
    there = set(harness.kube.names(POD))
    assert shown() == there != set()
    await harness.tick()
    harness.lose_pod()
    await harness.tick()
    assert shown() == set(harness.kube.names(POD)) != there


def conditions(harness: LoopHarness) -> list[tuple[str, str, str]]:
    """Type, status and reason of each that is shown."""
    samples = [
        sample
        for family in harness.world.telemetry.registry.collect()
        for sample in family.samples
        if sample.name == "fathom_condition"
    ]
    assert {sample.value for sample in samples} == {1}
    return sorted(
        (each.labels["type"], each.labels["status"], each.labels["reason"]) for each in samples
    )


async def test_conditions_are_those_of_the_status_and_no_earlier_ones(harness: LoopHarness) -> None:
    for tokens, degraded in ((3, "AsExpected"), (99, "InvalidSpec"), (3, "AsExpected")):
        harness.edit({"speculation.tokens": tokens})
        await harness.tick()
        written = [
            (each["type"], each["status"], each["reason"]) for each in harness.status["conditions"]
        ]
        assert conditions(harness) == sorted(written)
        assert harness.condition("Degraded")["reason"] == degraded


async def test_conditions_are_shown_where_the_status_cannot_be_written(
    harness: LoopHarness,
) -> None:
    def refused(verb: str, kind: Kind) -> KubeError | None:
        of_status = verb == "apply" and kind == SPECULATIVE_DEPLOYMENT
        return KubeError(403, "not allowed") if of_status else None

    harness.kube.fail = refused
    harness.edit({"speculation.tokens": 99})
    await harness.tick()
    assert ("Degraded", "True", "InvalidSpec") in conditions(harness)
    assert harness.condition("Degraded")["reason"] == "AsExpected"


def shown(harness: LoopHarness, name: str) -> float | None:
    labels = {"resource": KEY.kind.kind, "namespace": "llm", "name": "kimi"}
    return harness.world.telemetry.registry.get_sample_value(name, labels)


MEASURED = Measured(
    at_s=0.0,
    window_seconds=30.0,
    tokens_per_second=1000.0,
    mean_batch=4.0,
    acceptance_length=2.5,
    acceptance_rate=0.5,
    survival=(0.8,),
    tpot_seconds=0.02,
    gain=None,
)


async def test_the_gain_is_shown_where_it_is_known(harness: LoopHarness) -> None:
    measured = replace(MEASURED, at_s=harness.clock.now_s())
    for gain, percent in ((None, None), (0.042, 4.2), (-0.1, -10.0), (None, None)):
        now = replace(measured, gain=gain)
        harness.decide = lambda snapshot, now=now: replace(holding(snapshot), measured=now)  # type: ignore[misc]
        await harness.tick()
        assert shown(harness, "fathom_gain_percent") == percent


@pytest.mark.parametrize(
    ("reason", "headroom", "utilization"),
    [
        (Reason.AT_BEST, 250.0, 0.8),
        (Reason.AT_BEST, 0.0, 1.0),
        (Reason.AT_BEST, None, None),
        (Reason.NO_TRAFFIC, 250.0, 0.0),
    ],
)
async def test_what_an_autoscaler_reads_is_absent_where_it_is_not_known(
    harness: LoopHarness, reason: Reason, headroom: float | None, utilization: float | None
) -> None:
    measured = replace(MEASURED, at_s=harness.clock.now_s(), tokens_per_step=1.75)
    harness.decide = lambda snapshot: replace(
        holding(snapshot), measured=measured, reason=reason, headroom_tokens_per_second=headroom
    )
    await harness.tick()

    assert shown(harness, "fathom_utilization") == utilization
    assert shown(harness, "fathom_tokens_per_step") == 1.75


@pytest.mark.parametrize("reason", [Reason.PAUSED, Reason.MEASURING, Reason.NO_METRICS])
async def test_the_utilization_of_a_window_long_ago_is_not_known(
    harness: LoopHarness, reason: Reason
) -> None:
    """Whatever the tuner is busy with: the status keeps the last window with traffic."""
    began_s = harness.clock.now_s()
    measured = replace(MEASURED, at_s=began_s)
    harness.decide = lambda snapshot: replace(
        holding(snapshot), measured=measured, reason=reason, headroom_tokens_per_second=250.0
    )
    await harness.tick()
    assert shown(harness, "fathom_utilization") == 0.8

    harness.clock.at_s = began_s + 120.0
    await harness.tick()
    assert shown(harness, "fathom_utilization") is None


async def test_a_gain_that_somebody_else_wrote_stops_nothing(harness: LoopHarness) -> None:
    resource = harness.resource
    status = {**resource["status"], "measured": {"gainPercent": "much"}}
    harness.kube.put(SPECULATIVE_DEPLOYMENT, {**resource, "status": status})
    harness.restart()
    await harness.tick()
    assert harness.status["measured"]["gainPercent"] == "much"
    assert shown(harness, "fathom_gain_percent") is None
    assert ("Ready", "True", "AllReplicasReady") in conditions(harness)


def trainings(harness: LoopHarness) -> dict[str, float]:
    """Whether each training that is shown waits for a person, by its phase."""
    found = harness.world.telemetry.registry.collect()
    samples = (sample for family in found for sample in family.samples)
    return {
        each.labels["phase"]: each.value
        for each in samples
        if each.name == "fathom_training_awaits_person"
    }


async def test_a_training_is_shown_with_what_it_may_cost_and_goes_with_its_field() -> None:
    hours = ("fathom_training_gpu_hours", "fathom_training_gpu_hours_allowed")
    harness = LoopHarness({"replicas": 3, **ALLOWED})
    await harness.until_ready()
    assert trainings(harness) == {}
    assert [shown(harness, each) for each in hours] == [None, None]

    annotate(harness, names.ANNOTATION_PROPOSE_TRAINING, "1")
    await harness.tick()
    assert trainings(harness) == {"Proposed": 1}
    assert [shown(harness, each) for each in hours] == [0, 12]

    approve(harness)
    await harness.tick()
    await harness.tick()
    assert trainings(harness) == {"Training": 0}
    assert [shown(harness, each) for each in hours] == [6, 12]

    end_job(harness, "training", exit_code=1)
    await harness.tick()
    assert trainings(harness) == {"Failed": 1}

    harness.edit({"draft.training": None})
    await harness.tick()
    await harness.tick()
    assert trainings(harness) == {"Dismissed": 0}
    assert [shown(harness, each) for each in hours] == [None, None]

    harness.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    await harness.tick()
    assert series(harness) == set()


async def test_a_pass_that_does_not_begin_is_overdue(harness: LoopHarness, loops: Loops) -> None:
    loops.seen(KEY)
    assert shown(harness, "fathom_reconcile_overdue_seconds") == 0
    harness.clock.at_s += 400
    assert shown(harness, "fathom_reconcile_overdue_seconds") == 400


def test_whether_it_acts_is_asked_at_each_scrape() -> None:
    telemetry, holds = Telemetry(), [False]
    telemetry.leads(lambda: holds[0])
    assert telemetry.registry.get_sample_value("fathom_leader") == 0
    holds[0] = True
    assert telemetry.registry.get_sample_value("fathom_leader") == 1
