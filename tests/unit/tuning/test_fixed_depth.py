"""What is said where depth is not live: what was measured, and of nothing else a number."""

import re
from dataclasses import replace
from math import expm1, log

import pytest

from fathom.api.choices import TuningMode
from fathom.api.conditions import Reason
from fathom.engine.depth import DepthDocument, flat
from fathom.measurement.counters import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    PodCounters,
    StepKind,
)
from fathom.measurement.deltas import PodDelta, pooled_cells
from fathom.tuning.alarms.alarm import AlarmKind, Watch
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.estimate.acceptance_length import Trials
from fathom.tuning.estimate.step_filter import updated
from fathom.tuning.estimate.step_time import StepTimes
from fathom.tuning.estimate.traffic import Traffic
from fathom.tuning.estimate.yields import Yields
from fathom.tuning.explanation import explain
from fathom.tuning.fixed_depth import HOW_TO_TRY
from fathom.tuning.interface import Action, TunedPod, TuningSnapshot
from fathom.tuning.learned_state import TuningState
from fathom.tuning.tuner import decide
from unit.tuning.plant import SETTINGS, START_S

NOW_S = START_S + 1000
REFUSAL = (Reason.LIVE_DEPTH_UNSUPPORTED, "depth stays at tokens (3).")
FIVE = replace(SETTINGS, max_tokens=5)


def ran(bucket: int, depth: int, step_seconds: float, busy_seconds: float) -> PodDelta:
    """A window of one pod that did one thing."""
    steps = busy_seconds / step_seconds
    counts = CellCounts(steps, busy_seconds, steps * bucket, steps * bucket)
    cell = Cell(bucket, depth, StepKind.DECODE)
    return PodDelta(
        pod="pod-0",
        from_s=NOW_S - 30,
        to_s=NOW_S,
        engine=EngineCounts(),
        cells={cell: counts},
        drafts={},
    )


def state_after(*windows: PodDelta) -> TuningState:
    return TuningState(
        step_times=updated(StepTimes(), windows),
        # Of the drafts that reached each position, 80, 60, 50 and 40 in a hundred were accepted.
        survival=Survival().updated(
            Trials((1e6, 8e5, 4.8e5, 2.4e5), (8e5, 4.8e5, 2.4e5, 9.6e4)), NOW_S
        ),
        traffic=Traffic().updated(pooled_cells(windows), NOW_S, 30),
    )


STATE = state_after(
    ran(4, 3, 0.011, 1000), ran(4, 2, 0.010, 1000), ran(8, 3, 0.0105, 500), ran(4, 4, 0.012, 1000)
)


def snapshot(state: TuningState = STATE, *, now_s: float = NOW_S) -> TuningSnapshot:
    return TuningSnapshot(
        now_s=now_s,
        settings=FIVE,
        pods=(),
        document=None,
        document_written_at_s=0,
        live_refusal=REFUSAL,
        state=state,
        read=False,
    )


def intervals(message: str) -> dict[str, tuple[float, float]]:
    found = re.findall(r"(\d): ([-+][\d.]+) to ([-+][\d.]+) %", message)
    return {depth: (float(low), float(high)) for depth, low, high in found}


@pytest.mark.parametrize("mode", [TuningMode.AUTO, TuningMode.ADVISE])
def test_it_says_what_was_measured_at_the_depth_that_runs_and_does_nothing(
    mode: TuningMode,
) -> None:
    given = snapshot()
    decision = decide(replace(given, settings=replace(FIVE, mode=mode)))

    assert (decision.action, decision.reason) == (Action.HOLD, Reason.LIVE_DEPTH_UNSUPPORTED)
    assert decision.expected_gain is None
    assert not decision.notable
    # E[L | 3] = 1 + .8 + .48 + .24.
    assert decision.message.startswith(
        "depth stays at tokens (3). Measured at depth 3: 2.52 tokens per step (accepted by "
        "position: 0.80, 0.48, 0.24); a step takes 11.0 ms at batch 4, 10.5 ms at batch 8. "
    )
    assert decision.message.endswith(HOW_TO_TRY)


def test_only_a_depth_that_ran_has_an_interval() -> None:
    message = decide(snapshot()).message

    assert "Depth 1, 5: not measured." in message
    found = intervals(message)
    assert list(found) == ["2", "4"]
    low, high = found["2"]
    assert low < 100 * (2.28 / 2.52 * 11 / 10 - 1) < high
    low, high = found["4"]
    assert low < 100 * (2.616 / 2.52 * 11 / 12 - 1) < high


def test_where_it_ran_at_some_batches_only_these_are_named() -> None:
    message = decide(snapshot()).message
    assert re.search(r"4: \S+ to \S+ % \(batch 4\)", message)
    both = state_after(
        ran(4, 3, 0.011, 500), ran(8, 3, 0.011, 500), ran(4, 2, 0.01, 500), ran(8, 2, 0.01, 500)
    )
    message = decide(snapshot(both)).message
    assert "(batch" not in message
    low, high = intervals(message)["2"]
    assert low < 100 * (2.28 / 2.52 * 1.1 - 1) < high


def test_an_interval_is_that_of_what_the_explanation_shows() -> None:
    first, _ = explain(STATE, FIVE, None, NOW_S, live=False).buckets
    (gain,) = (each.gain for each in first.worths if each.depth == 2)
    assert gain is not None
    low, high = (100 * expm1(gain.mean + z * gain.sd) for z in (-1.96, 1.96))
    assert intervals(decide(snapshot()).message)["2"] == pytest.approx((low, high), abs=0.06)


def test_of_a_depth_that_has_just_been_asked_for_nothing_is_told_before_it_ran() -> None:
    given = replace(snapshot(), settings=replace(FIVE, tokens=5))
    assert decide(given).message == REFUSAL[1]


def test_a_deeper_depth_whose_drafts_nobody_made_has_none() -> None:
    shallow = replace(
        STATE, survival=Survival().updated(Trials((1e6, 8e5, 4.8e5), (8e5, 4.8e5, 2.4e5)), NOW_S)
    )
    assert "Depth 1, 4, 5: not measured." in decide(snapshot(shallow)).message
    shallower = replace(STATE, survival=Survival().updated(Trials((1e6, 8e5), (8e5, 4.8e5)), NOW_S))
    assert "(accepted by position: 0.80, 0.48)" in decide(snapshot(shallower)).message
    found = explain(shallower, FIVE, None, NOW_S, live=False)
    assert [each.position for each in found.positions] == [1, 2]


def test_at_rest_the_sentence_stays_as_it_is() -> None:
    said = {decide(snapshot(now_s=NOW_S + later)).message for later in (0, 600, 24 * 3600)}
    assert len(said) == 1


def test_before_the_first_step_there_is_nothing_to_say() -> None:
    assert decide(snapshot(TuningState())).message == REFUSAL[1]


def test_without_drafting_nothing_is_said_of_depths() -> None:
    refusal = (Reason.DRAFTING_DISABLED, "It is off.")
    assert decide(replace(snapshot(), live_refusal=refusal)).message == "It is off."


def test_where_drafts_are_cut_nobody_knows_of_positions() -> None:
    cut = replace(
        STATE,
        yields=Yields().updated(
            pooled_cells([ran(4, 3, 0.011, 1000), ran(8, 3, 0.01, 500)]), NOW_S
        ),
    )
    settings = replace(FIVE, drafts_are_cut=True)
    message = decide(replace(snapshot(cut), settings=settings)).message
    assert "Measured at depth 3: 1.00 tokens per step; a step takes" in message


def look(at_s: float, steps: float, depth: int) -> PodCounters:
    counts = CellCounts(steps, 0.01 * steps, 2 * steps, steps)
    return PodCounters(
        pod="pod-0",
        at_s=at_s,
        started_at_s=START_S,
        engine=EngineCounts(generation_tokens=2 * steps),
        live_depth=False,
        depth_generation=0,
        cells={Cell(1, depth, StepKind.DECODE): counts},
        drafts={DraftCell(1, depth): DraftCounts(steps, (0.6 * steps,) * depth)},
    )


def test_it_learns_from_what_such_pods_count_and_no_alarm_is_raised_for_their_depth() -> None:
    """As of a canary at another depth than `tokens`: no depth was asked of it."""
    state = TuningState()
    for number in range(40):
        counted = look(NOW_S + 30 * number, 1000.0 * number, 5)
        pod = TunedPod(name="pod-0", ready=True, ready_for_s=9999, counters=counted)
        given = replace(snapshot(state, now_s=NOW_S + 30 * number), pods=(pod,))
        decision = decide(given)
        state = decision.state
    assert decision.alarms == ()
    assert decision.not_obeyed == ()
    assert {(each.batch_le, each.depth) for each in state.step_times.cells} == {(1, 5)}
    assert [round(each, 1) for each in state.measured.survival] == [0.6] * 5  # type: ignore[union-attr]


def test_the_explanation_shows_what_was_measured_and_proposes_nothing() -> None:
    alarm = Watch(
        kind=AlarmKind.SUSPICIOUS_ACCEPTANCE,
        reason=Reason.TOO_GOOD_TO_BE_TRUE,
        message="All of it.",
        recommendation="Look.",
        first_seen_s=START_S,
        last_seen_s=NOW_S,
        raised_at_s=START_S,
    )
    left = DepthDocument(generation=7, schedule=flat(1, 16))  # of an engine whose depth was live
    found = explain(replace(STATE, watches=(alarm,)), FIVE, left, NOW_S, live=False)

    first, second = found.buckets
    assert (first.batches, first.depth, first.why) == (
        "batch 4",
        3,
        "it is not live; a step takes 11.0 ms.",
    )
    assert (second.batches, second.depth, second.why) == (
        "batch 8",
        3,
        "it is not live; a step takes 10.5 ms.",
    )
    gains = {each.depth: each.gain for each in first.worths}
    assert [depth for depth, gain in gains.items() if gain is None] == [1, 5]
    assert gains[2] is not None
    assert gains[2].mean == pytest.approx(log(2.28 / 2.52 * 11 / 10), abs=2e-3)
    assert [each.depth for each in second.worths if each.gain is not None] == [3]
    assert [each.position for each in found.positions] == [1, 2, 3]
    assert found.next_step == f"Nothing by itself. {HOW_TO_TRY}"
    assert (found.schedule, found.doubts, found.turning_points) == ((), (), ())
    assert [each.message for each in found.alarms] == ["All of it."]


def test_nothing_measured_is_explained_as_such() -> None:
    found = explain(TuningState(), FIVE, None, NOW_S, live=False)
    assert found.nothing == "Nothing was measured yet: that needs traffic and readable metrics."
