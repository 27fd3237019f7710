"""`fathom advise`: the one depth to write, from what was measured."""

from dataclasses import replace

import pytest

from fathom.api.choices import Objective, TuningMode
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cli.explain import advice_lines
from fathom.cluster.kinds import ObjectKey
from fathom.measurement.deltas import pooled_cells
from fathom.page.subject import Subject
from fathom.tuning.depth_to_write import DepthToWrite, depth_to_write
from fathom.tuning.estimate.step_filter import updated
from fathom.tuning.estimate.step_time import StepTimes
from fathom.tuning.estimate.traffic import Traffic
from fathom.tuning.interface import Settings
from fathom.tuning.learned_state import TuningState
from manifest_samples import resource
from unit.cli.test_explain import NOW_S, STATE, ran
from unit.tuning.plant import EASY, HARD, MIDDLE, SETTINGS, Fleet, best_depth, expected_length

ADVISE = replace(SETTINGS, mode=TuningMode.ADVISE)


def advice(fleet: Fleet, settings: Settings = SETTINGS, *, live: bool = True) -> DepthToWrite:
    found = depth_to_write(fleet.state, settings, fleet.document, fleet.now_s, live=live)
    assert found is not None
    return found


@pytest.mark.parametrize("acceptance", [EASY, HARD])
def test_it_is_about_the_best_depth_at_one_batch(acceptance: tuple[float, ...]) -> None:
    fleet = Fleet(acceptance=acceptance, jitter=0).run(1200)
    found = advice(fleet)
    best = best_depth(fleet.hardware, acceptance, fleet.concurrency)

    def value(depth: int) -> float:
        step = fleet.hardware.step_seconds(fleet.concurrency, depth)
        return expected_length(acceptance, depth) / step

    assert value(found.depth) > 0.97 * value(best)
    assert found.low <= value(found.depth) / value(3) - 1 <= found.high
    assert found.measured


def test_in_mode_advise_it_is_predicted_and_says_so() -> None:
    found = advice(Fleet(settings=ADVISE, acceptance=EASY).run(600), ADVISE)

    assert found.depth > 3
    assert not found.measured
    assert found.by_batch.startswith("batch ")


def test_no_other_depth_is_named_that_gains_less_than_the_least() -> None:
    fleet = Fleet(acceptance=MIDDLE).run(1200)
    found = advice(fleet, replace(SETTINGS, min_gain=0.9))

    assert (found.depth, found.gain, found.by_batch) == (3, 0.0, "")


def test_where_depth_is_not_live_only_what_ran_counts() -> None:
    alone = Fleet(settings=ADVISE, acceptance=EASY).run(600)
    assert advice(alone, live=False).depth == 3


def test_a_depth_that_is_known_at_one_batch_only_is_not_named_for_all() -> None:
    windows = (ran(4, 3, 0.011, 1000), ran(4, 4, 0.0111, 1000), ran(8, 3, 0.0105, 500))
    state = replace(
        STATE,
        step_times=updated(StepTimes(), windows),
        traffic=Traffic().updated(pooled_cells(windows), NOW_S, 30),
    )
    at_four = replace(state, traffic=Traffic().updated(pooled_cells(windows[:2]), NOW_S, 30))
    found = [depth_to_write(each, SETTINGS, None, NOW_S, live=False) for each in (at_four, state)]
    assert [each and each.depth for each in found] == [4, 3]


def test_a_depth_that_misses_the_slo_is_not_named() -> None:
    settings = replace(SETTINGS, objective=Objective.GOODPUT, tpot_slo_seconds=1e-6)
    fleet = Fleet(acceptance=EASY).run(1200)

    assert advice(fleet).depth > 3
    assert advice(fleet, settings).depth >= 3


def test_without_traffic_there_is_nothing_to_advise() -> None:
    assert depth_to_write(TuningState(), SETTINGS, None, 0.0, live=True) is None


def lines(fleet: Fleet, **changes: object) -> list[str]:
    status = SpeculativeDeploymentStatus.model_validate({"engine": {"actuation": "Live"}})
    live = Subject(
        key=ObjectKey("llm", "kimi"),
        resource=resource(changes),
        status=status,
        document=fleet.document,
        state=fleet.state,
    )
    return list(advice_lines(live, fleet.now_s))


def test_in_words() -> None:
    first, *_ = lines(Fleet(acceptance=EASY).run(1200))

    assert first.startswith("Write spec.speculation.tokens: 7 instead of 3: +")
    assert first.endswith(", measured, over the load of the last minutes.")
    assert lines(Fleet()) == [
        "Nothing was measured under traffic yet, so there is nothing to advise."
    ]
    static = lines(Fleet(), **{"speculation.tuning": {"mode": "Static"}})
    assert static == [
        "Nothing is measured by depth in mode Static, or without drafting: nothing to advise."
    ]
