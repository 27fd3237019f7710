"""Pods whose plugin counts by whole doublings of the batch, and what was learnt from such pods."""

from dataclasses import replace
from math import exp
from pathlib import Path

import pytest

from fathom.engine.depth import DepthDocument, DepthRange, flat
from fathom.measurement.counters import StepKind
from fathom.tuning.estimate.step_table import StepTable
from fathom.tuning.interface import Action
from fathom.tuning.learned_state import Probe, TuningState
from unit.tuning.plant import EASY, HARD, SETTINGS, START_S, Fleet

LEARNT = TuningState.from_json((Path(__file__).parents[1] / "states/by_doublings.json").read_text())
"""What an operator from before the cut had written after ten minutes of easy traffic at batch 4 to
8, for which depth 7 is best."""
THEN_S = START_S + 600


@pytest.mark.parametrize("acceptance", [EASY, HARD])
@pytest.mark.parametrize("older", [1, 2, 3])
def test_a_fleet_of_both_plugins_finds_the_best_depth(
    older: int, acceptance: tuple[float, ...]
) -> None:
    fleet = Fleet(replicas=3, acceptance=acceptance, concurrency=6, jitter=2)
    for pod in fleet.pods[:older]:
        pod.by_doublings = True
    fleet.run(240)
    assert fleet.shortfall() <= 0.03, fleet.log()


def test_pods_that_count_by_doublings_are_not_taken_for_disobedient() -> None:
    """Batches 5 and 6 are to run depth 1, 7 and 8 depth 6, and all are counted as 5 to 8."""
    fleet = Fleet(concurrency=6, jitter=2, settings=replace(SETTINGS, probing=False, min_gain=9.0))
    for pod in fleet.pods:
        pod.by_doublings = True
    fleet.run(60)
    fleet.document = DepthDocument(
        generation=fleet.state.generation + 1,
        schedule=(DepthRange(1, 6, 1), DepthRange(7, SETTINGS.max_batch, 6)),
    )
    for pod in fleet.pods:
        pod.generation, pod.schedule = fleet.document.generation, fleet.document.schedule
    fleet.run(600)
    assert not fleet.state.watches, fleet.log()


def test_what_was_learnt_by_doublings_is_carried_over() -> None:
    table = StepTable(LEARNT.step_times, THEN_S)
    for bucket in (6, 8):
        deep = table.estimate(bucket, 7, StepKind.DECODE)
        shallow = table.estimate(bucket, 3, StepKind.DECODE)
        assert deep is not None
        assert shallow is not None
        # The hardware's: (8 ms + 7 · 0.75 ms) over (8 ms + 3 · 0.75 ms), and a little by batch.
        assert exp(deep.log_seconds - shallow.log_seconds) == pytest.approx(1.33, abs=0.1)


def test_a_fleet_goes_on_from_what_was_learnt_by_doublings() -> None:
    fleet = Fleet(acceptance=EASY, concurrency=6, jitter=2, now_s=THEN_S, state=LEARNT)
    fleet.document = DepthDocument(generation=7, schedule=flat(7, SETTINGS.max_batch))
    fleet.run(300)
    assert not fleet.actions(Action.MOVE), fleet.log()
    assert fleet.depth() == 7


def test_a_probe_that_ran_meanwhile_ends_by_itself() -> None:
    """It was begun for batches 5 to 8, of which it is remembered for the largest."""
    probe = Probe(pod="pod-0", depths=((8, 3),), started_at_s=THEN_S - 5, in_force_at_s=THEN_S - 3)
    fleet = Fleet(acceptance=EASY, concurrency=6, jitter=2, now_s=THEN_S)
    fleet.state = replace(LEARNT, probe=probe)
    tried = (DepthRange(1, 4, 7), DepthRange(5, 8, 3), DepthRange(9, 16, 7))
    fleet.document = DepthDocument(
        generation=7, schedule=flat(7, SETTINGS.max_batch), pods={"pod-0": tried}
    )
    for pod in fleet.pods:
        pod.generation, pod.schedule = 7, fleet.document.for_pod(pod.name)
    fleet.run(120)
    assert fleet.state.probe is None
    assert fleet.document is not None
    assert not fleet.document.pods
    assert fleet.depth() == 7
