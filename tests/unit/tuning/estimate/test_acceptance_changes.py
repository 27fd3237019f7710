"""What is normal here, and each pod's part."""

from dataclasses import replace

import pytest

from fathom.measurement.counters import DraftCell, DraftCounts, EngineCounts, PodCounters
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.acceptance_changes import (
    HEALED_S,
    HEALED_SHARE,
    LEAST_DRAFTS,
    LEVELS,
    MOST_PODS,
    RESTORED_S,
    Acceptance,
)

WINDOW_S = 30.0


def drafted(pod: str, rate: float, at_s: float, drafts: float = 1000.0) -> PodDelta:
    """One window in which a share of the first drafts was accepted."""
    cells = {DraftCell(4, 1): DraftCounts(drafts, (rate * drafts,))}
    return PodDelta(
        pod=pod, from_s=at_s - WINDOW_S, to_s=at_s, engine=EngineCounts(), cells={}, drafts=cells
    )


def look(pod: str, started_at_s: float) -> PodCounters:
    return PodCounters(
        pod=pod,
        at_s=0.0,
        started_at_s=started_at_s,
        engine=EngineCounts(),
        live_depth=True,
        depth_generation=1,
    )


def after(*rates: float, normal: bool = True) -> Acceptance:
    acceptance = Acceptance()
    for i, rate in enumerate(rates):
        window = [drafted("a", rate, WINDOW_S * (i + 1))]
        acceptance = acceptance.updated(window, {}, normal=normal)
    return acceptance


def ratios(acceptance: Acceptance) -> dict[str, float | None]:
    return {each.pod: each.ratio for each in acceptance.pods}


def test_nothing_drafted_is_no_level() -> None:
    acceptance = Acceptance()
    assert acceptance.normal is None
    assert acceptance.level is None
    assert acceptance.known_s == 0
    assert acceptance.updated([], {}, normal=True) is acceptance


def test_a_handful_of_drafts_says_nothing() -> None:
    acceptance = after(0.9, 0.9)
    few = [drafted("a", 0.1, 90.0, drafts=LEAST_DRAFTS - 1)]
    assert acceptance.updated(few, {}, normal=True) is acceptance


def test_normal_is_the_low_end_of_what_was_seen() -> None:
    mostly = after(*[0.9] * 80, *[0.6] * 20)
    rarely = after(*[0.9] * 95, *[0.6] * 5)

    assert mostly.normal == pytest.approx(0.6, abs=0.5 / LEVELS + 1e-9)
    assert rarely.normal == pytest.approx(0.9, abs=0.5 / LEVELS + 1e-9)


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_a_level_is_told_within_its_bin(rate: float) -> None:
    assert after(*[rate] * 10).normal == pytest.approx(rate, abs=0.5 / LEVELS + 1e-9)


def test_what_an_alarm_stands_for_does_not_become_normal() -> None:
    before = after(*[0.9] * 10)
    later = before.updated([drafted("a", 0.2, 330.0)], {}, normal=False)
    assert later.levels == before.levels
    assert later.level is not None
    assert before.level is not None
    assert later.level < before.level


def test_known_seconds_are_those_with_traffic() -> None:
    acceptance = after(*[0.9] * 21)
    assert acceptance.known_s == pytest.approx(600, rel=0.01)
    # A night without requests is ten minutes at most.
    morning = acceptance.updated([drafted("a", 0.9, 40_000.0)], {}, normal=True)
    assert morning.known_s <= 1200


def test_a_pod_is_compared_with_all_pods_in_the_same_windows() -> None:
    acceptance = Acceptance()
    for i in range(20):
        rate = 0.9 if i < 10 else 0.5
        at_s = WINDOW_S * (i + 1)
        window = [drafted("a", rate, at_s), drafted("b", rate, at_s), drafted("c", rate / 2, at_s)]
        acceptance = acceptance.updated(window, {}, normal=True)
    found = ratios(acceptance)

    assert found["a"] == found["b"] == pytest.approx(1.2)
    assert found["c"] == pytest.approx(0.6)


def test_a_restarted_pod_begins_anew() -> None:
    acceptance = Acceptance()
    for i in range(20):
        window = [drafted(pod, 0.9 if pod == "a" else 0.3, WINDOW_S * (i + 1)) for pod in "ab"]
        looks = {pod: look(pod, 1000.0) for pod in "ab"}
        acceptance = acceptance.updated(window, looks, normal=True)
    looks = {"a": look("a", 1000.0), "b": look("b", 5000.0)}
    window = [drafted("a", 0.9, 660.0), drafted("b", 0.9, 660.0)]
    acceptance = acceptance.updated(window, looks, normal=True)

    assert ratios(acceptance)["b"] == pytest.approx(1.0)
    assert [each.started_at_s for each in acceptance.pods] == [1000.0, 5000.0]


def test_it_stays_bounded() -> None:
    acceptance = Acceptance()
    for i in range(MOST_PODS + 20):
        acceptance = acceptance.updated([drafted(f"{i}", 0.9, 30.0 * i)], {}, normal=True)
    assert len(acceptance.pods) == MOST_PODS
    assert "0" not in ratios(acceptance)


def healed() -> Acceptance:
    """An alarm stood for three windows of low acceptance, and is over."""
    acceptance = after(0.9, 0.9)
    for i, rate in enumerate((0.3, 0.2, 0.25, 0.9)):
        window = [drafted("a", rate, WINDOW_S * (i + 3))]
        acceptance = acceptance.updated(window, {}, normal=False, alarmed=rate < 0.5)
    return acceptance


def test_what_came_back_by_itself_is_known_traffic_for_a_week() -> None:
    before = healed()
    assert before.cliff is None
    assert before.healed is not None
    low = before.healed.lowest

    def again(rate: float, after_s: float) -> bool:
        window = [drafted("a", rate, before.at_s + after_s)]
        return replace(before, level=rate).updated(window, {}, normal=True).is_known_traffic

    assert again(HEALED_SHARE * low + 0.01, 3600)
    assert not again(HEALED_SHARE * low - 0.01, 3600)
    assert again(low, HEALED_S - 1)
    assert not again(low, HEALED_S + 1)


def test_a_cliff_knows_what_was_normal_before_it_and_for_how_long_that_is_back() -> None:
    acceptance = after(*(0.9,) * 10)
    normal = acceptance.normal
    rates = (0.3, 0.3, 0.9, 0.9, 0.3, 0.3, *(0.9,) * 200)
    backs: list[float | None] = []
    for i, rate in enumerate(rates):
        window = [drafted("a", rate, WINDOW_S * (i + 11))]
        acceptance = acceptance.updated(window, {}, normal=True, alarmed=i < 2, lasts=True)
        assert acceptance.cliff is None or acceptance.cliff.normal == normal
        backs.append(acceptance.cliff and acceptance.cliff.restored_s)
    # The level lags by a window; what falls again is a new one.
    assert backs[:9] == [0, 0, 0, 30, 0, 0, 0, 30, 60]
    # Whatever else stands that the draft does not fit, this was traffic.
    assert backs.index(None) * WINDOW_S == pytest.approx(RESTORED_S, abs=10 * WINDOW_S)
    assert acceptance.healed is not None


def test_the_lowest_that_came_back_is_remembered() -> None:
    first = healed()
    assert first.healed is not None
    shallow = first.updated([drafted("a", 0.5, 500.0)], {}, normal=False, alarmed=True)
    second = shallow.updated([drafted("a", 0.9, 530.0)], {}, normal=True)
    assert second.healed is not None
    assert second.healed.lowest == first.healed.lowest
