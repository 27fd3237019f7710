"""What comes of comparing one replica with the others."""

from collections.abc import Iterable
from dataclasses import replace
from math import log1p

import pytest

from fathom.api.choices import Compares
from fathom.api.status import Compared
from fathom.rollout.canary_evidence import BakeTotals, CanaryContrast, CanaryEvidence
from fathom.rollout.comparison import ArmComparison, comparison_of

BAKE_S = 1200.0
NOW_S = 1_800_000_000.0
COMPARES = Compares.ADAPTIVE_VERIFICATION
SERVED = CanaryEvidence(
    canary=BakeTotals(tokens=1e6, finished=1e3),
    stable=BakeTotals(tokens=2e6, finished=2e3),
    looks=20,
)


def shown(speeds: Iterable[float]) -> CanaryEvidence:
    """Windows in which the one replica was so much faster than the others."""
    speed = CanaryContrast()
    for each in speeds:
        speed = speed.updated(log1p(each), 1.0)
    return replace(SERVED, speed=speed)


def alternating(mean: float, spread: float, windows: int = 20) -> CanaryEvidence:
    return shown(mean + (spread if i % 2 else -spread) for i in range(windows))


def after(evidence: CanaryEvidence, baked_s: float) -> ArmComparison | None:
    return comparison_of(evidence, COMPARES, baked_s=baked_s, bake_s=BAKE_S, now_s=NOW_S)


def found(evidence: CanaryEvidence, baked_s: float) -> Compared | None:
    comparison = after(evidence, baked_s)
    return comparison.found if comparison else None


def test_nothing_is_said_before_the_bake_is_over() -> None:
    assert after(alternating(0.5, 0.001), BAKE_S - 1) is None


@pytest.mark.parametrize(
    ("mean", "spread", "result"),
    [
        (0.05, 0.01, Compared.FASTER),
        (-0.05, 0.01, Compared.SLOWER),
        (0.0, 0.01, Compared.NO_DIFFERENCE),
        # Surely faster, and by less than anybody would roll out for.
        (0.004, 0.001, Compared.NO_DIFFERENCE),
        (0.0, 0.1, None),
    ],
)
def test_what_is_beyond_doubt_is_told_when_the_bake_is_over(
    mean: float, spread: float, result: Compared | None
) -> None:
    assert found(alternating(mean, spread), BAKE_S) is result


def test_what_two_errors_settle_waits_for_the_longest_bake() -> None:
    # 20 alike windows are worth 10: an error of a third of the spread.
    doubtful = alternating(0.05, 0.06)
    assert found(doubtful, BAKE_S) is None
    assert found(doubtful, 3 * BAKE_S) is Compared.FASTER
    assert found(alternating(-0.05, 0.06), 3 * BAKE_S) is Compared.SLOWER
    assert found(alternating(0.03, 0.06), 3 * BAKE_S) is Compared.CANNOT_TELL


def test_what_was_in_doubt_takes_three_errors_from_then_on() -> None:
    for spread, result in ((0.06, Compared.CANNOT_TELL), (0.04, Compared.FASTER)):
        later = comparison_of(
            alternating(0.05, spread),
            COMPARES,
            baked_s=4 * BAKE_S,
            bake_s=BAKE_S,
            now_s=NOW_S,
            doubted=True,
        )
        assert later is not None
        assert later.found is result


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (alternating(0.5, 0.001, windows=7), "hardly ever busy with batches of the same size"),
        (replace(alternating(0.5, 0.001), blind=10), "could not be read"),
        (replace(SERVED, canary=BakeTotals()), "It served no requests."),
    ],
)
def test_what_keeps_it_from_being_told_is_said(evidence: CanaryEvidence, why: str) -> None:
    assert found(evidence, BAKE_S) is None
    comparison = after(evidence, 3 * BAKE_S)
    assert comparison is not None
    assert not comparison.settled
    assert why in str(comparison)


def test_it_is_said_in_percent_with_its_interval_and_the_edit() -> None:
    comparison = ArmComparison(found=Compared.FASTER, at_s=NOW_S, mean=log1p(0.1), error=0.01)
    assert comparison.percent == "+10.0"
    assert comparison.interval_percent == "+7.8 to +12.2"
    assert str(comparison) == (
        "+10.0 % tokens per second per request at equal batch (95 %: +7.8 to +12.2). To run all "
        "replicas with adaptive verification, set spec.speculation.adaptiveVerification to Enabled."
    )


@pytest.mark.parametrize(
    ("found", "edit"),
    [
        (Compared.FASTER, "To run all replicas without drafts, set {} to Disabled."),
        (Compared.SLOWER, "That replica is slower than the others. To end it, set {} to Enabled."),
        (Compared.NO_DIFFERENCE, "That is no difference. To end it, set {} to Enabled."),
        (Compared.CANNOT_TELL, "To end it, set {} to Enabled."),
    ],
)
def test_a_replica_without_drafts_ends_with_drafts_in_all_or_in_none(
    found: Compared, edit: str
) -> None:
    compared = ArmComparison(
        found=found, at_s=NOW_S, mean=-0.4, error=0.01, compares=Compares.DRAFTING
    )
    assert str(compared).endswith(edit.format("spec.speculation.drafting"))


def test_without_speeds_no_number_is_said() -> None:
    comparison = ArmComparison(
        found=Compared.CANNOT_TELL, at_s=NOW_S, remark="It served no requests."
    )
    assert (comparison.percent, comparison.interval_percent) == ("", "")
    assert str(comparison).startswith("It served no requests. So far that shows nothing")


def test_what_else_is_worse_is_said_beside_the_speed() -> None:
    preempting = replace(
        alternating(0.05, 0.01), canary=BakeTotals(tokens=1e6, finished=1e3, preemptions=500.0)
    )
    comparison = after(preempting, BAKE_S)
    assert comparison is not None
    assert comparison.found is Compared.FASTER
    assert "But it preempts 0.50 times per request" in str(comparison)


def test_a_difference_is_told_with_its_error_and_one_window_has_none() -> None:
    told = after(alternating(0.05, 0.01), BAKE_S)
    assert told is not None
    assert told.mean == pytest.approx(log1p(0.05), abs=0.001)
    assert told.error is not None
    assert 0.002 < told.error < 0.005
    once = after(shown([0.05]), 1e9)
    assert once is not None
    assert (once.found, once.mean, once.error) == (Compared.CANNOT_TELL, 0.0, None)
