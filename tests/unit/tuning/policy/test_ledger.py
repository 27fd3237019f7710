"""The bound on loss: what is entered, and the return to the user's own depth."""

from dataclasses import replace
from math import exp

import pytest

from fathom.api.conditions import Reason
from fathom.engine.depth import flat
from fathom.measurement.counters import Cell, CellCounts, EngineCounts, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.tuning.checks.moves import REST_S
from fathom.tuning.interface import Action
from fathom.tuning.policy.ledger import HOUR_S, MOST_BEHIND_LOSS, Ledger
from unit.tuning.plant import HARD, START_S, WINDOW_30, Fleet, hours_long, value

FLAT_OPTIMUM = (0.6,) * 16
"""Depth 3 is the best, and 2 is two percent behind it."""
STUBBORN = replace(WINDOW_30, tokens=2, min_gain=0.1)
"""A tuner that moves for ten percent and for nothing less."""


def over_three(_bucket: int, depth: int) -> float | None:
    """Relative gain of a depth over the user's own, 3; of depth 6 nothing is known."""
    return {3: 0.0, 4: 0.02, 7: -0.2}.get(depth)


def ran(depth: int, seconds: float, pod: str = "pod-0") -> PodDelta:
    """A pod was busy for so long at one depth, at batch 4."""
    steps = seconds / 0.012
    cell = Cell(4, depth, StepKind.DECODE)
    counts = CellCounts(steps, seconds, 10 * steps, 4 * steps)
    return PodDelta(
        pod=pod, from_s=0.0, to_s=seconds, engine=EngineCounts(), cells={cell: counts}, drafts={}
    )


def behind(share: float, kept_s: float = HOUR_S) -> Ledger:
    return Ledger(gained_seconds=-share * 1000.0, busy_seconds=1000.0, kept_s=kept_s, at_s=START_S)


# What is entered


def test_time_at_the_users_own_depth_is_neither_gain_nor_loss() -> None:
    assert Ledger().updated([ran(3, 30.0)], over_three, START_S).gain == 0.0


def test_a_probe_is_entered_at_what_it_costs() -> None:
    """One pod of two at depth 7 for half of the window: a quarter of its loss."""
    probed = [ran(3, 15.0), ran(7, 15.0), ran(3, 30.0, pod="pod-1")]
    assert Ledger().updated(probed, over_three, START_S).gain == pytest.approx(-0.2 / 4)


def test_what_nothing_is_known_of_is_not_entered() -> None:
    ledger = Ledger().updated([ran(4, 10.0), ran(6, 90.0)], over_three, START_S)
    assert ledger.gain == pytest.approx(0.02)


def test_the_past_is_forgotten_over_an_hour() -> None:
    before = Ledger(gained_seconds=-100.0, busy_seconds=1000.0, kept_s=HOUR_S, at_s=START_S)
    after = before.updated([ran(3, 1.0)], over_three, START_S + HOUR_S)
    assert after.busy_seconds == pytest.approx(1000 / exp(1) + 1)
    assert after.gained_seconds == pytest.approx(-100 / exp(1))


def test_without_traffic_nothing_is_entered() -> None:
    ledger = behind(0.01)
    assert ledger.updated([], over_three, START_S + 60) is ledger


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (Ledger(), False),
        (behind(0.01), True),
        (behind(-0.01), False),
        (behind(MOST_BEHIND_LOSS / 2), False),
        (behind(0.3, kept_s=HOUR_S - 60), False),
    ],
    ids=["empty", "behind", "ahead", "within what is allowed", "not for an hour"],
)
def test_behind_is_more_than_half_a_percent_over_a_whole_hour(
    ledger: Ledger, *, expected: bool
) -> None:
    assert ledger.is_behind is expected


# The return


@pytest.fixture(scope="module")
def returned() -> Fleet:
    """At depth 2 when the user asks for 3, too stubborn to move for two percent."""
    fleet = hours_long(settings=STUBBORN, acceptance=FLAT_OPTIMUM, jitter=0, seed=2).run(600)
    assert fleet.depth() == 2
    fleet.change(tokens=3)
    while not fleet.actions(Action.RETURN) and fleet.now_s < START_S + 3 * HOUR_S:
        fleet.run(60)
    return fleet


def test_two_percent_behind_is_returned_from_after_an_hour_and_said(returned: Fleet) -> None:
    truth = value(returned.hardware, FLAT_OPTIMUM, 4, 2) / value(
        returned.hardware, FLAT_OPTIMUM, 4, 3
    )
    assert 0.97 < truth < 0.985
    (decision,) = returned.actions(Action.RETURN)

    assert decision.reason is Reason.RETURNED
    assert decision.notable
    assert decision.document.schedule == flat(3, 16)
    assert not decision.document.pods
    assert decision.message.startswith("Returns to your own depth, 3, from 2:")
    assert "0.5% allowed" in decision.message
    assert returned.now_s - START_S >= 600 + HOUR_S


def test_the_users_depth_is_kept_for_an_hour_and_then_it_tunes_again(returned: Fleet) -> None:
    at_s = next(at_s for at_s, d in returned.decisions if d.action is Action.RETURN)
    returned.change(min_gain=0.01)
    returned.run(at_s + 2 * HOUR_S - returned.now_s)

    during = [d for t, d in returned.decisions if at_s + 60 < t < at_s + REST_S]
    after = [d for t, d in returned.decisions if t >= at_s + REST_S]
    assert {(d.action, d.reason) for d in during} == {(Action.HOLD, Reason.RETURNED)}
    assert all(d.document.schedule == flat(3, 16) for d in during)
    assert Reason.RETURNED not in {d.reason for d in after}
    assert any(d.action is Action.PROBE for d in after)


@pytest.mark.parametrize(("ago_s", "rests"), [(REST_S - 60, True), (REST_S + 60, False)])
def test_after_a_return_it_rests_though_another_depth_looks_better(
    ago_s: float, *, rests: bool
) -> None:
    fleet = Fleet(acceptance=HARD).run(30)
    fleet.state = replace(fleet.state, returned_at_s=fleet.now_s - ago_s)
    decision = fleet.step()
    assert (decision.reason is Reason.RETURNED) is rests


def test_other_traffic_does_not_end_the_rest() -> None:
    fleet = hours_long(acceptance=FLAT_OPTIMUM).run(600)
    fleet.state = replace(fleet.state, ledger=behind(0.01))
    fleet.run(60)
    assert fleet.actions(Action.RETURN)
    fleet.acceptance = HARD
    fleet.run(300)

    assert fleet.depth() == 3, fleet.log()


def test_changing_tokens_opens_a_new_ledger() -> None:
    fleet = hours_long(acceptance=FLAT_OPTIMUM).run(600)
    fleet.state = replace(fleet.state, ledger=behind(0.1))
    fleet.change(tokens=4)
    fleet.run(90)

    assert not fleet.actions(Action.RETURN)
    assert fleet.state.ledger.kept_s <= 90
    assert fleet.state.ledger.gain == pytest.approx(0.0, abs=0.06)


def test_a_tuner_that_gains_never_returns() -> None:
    fleet = hours_long(acceptance=(0.9,) * 16).run(3 * HOUR_S)
    assert not fleet.actions(Action.RETURN)
    gain = fleet.state.ledger.gain
    assert gain is not None
    assert gain > 0.1
