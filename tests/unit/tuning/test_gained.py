"""GPU hours over `tokens`: what counts, what does not, and what is kept."""

import json
from dataclasses import replace
from math import log

import pytest

from fathom.api.choices import TuningMode
from fathom.measurement.counters import Cell, CellCounts, EngineCounts, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.tuning.gains import Gained, GainOver
from fathom.tuning.policy.value import NO_GAIN, TWO_SIDED_Z, Gain
from unit.tuning.plant import EASY, SETTINGS, START_S, Fleet, value

FASTER = Gain(mean=log(1.06), sd=0.01, step_time_measured=True, survival_measured=True)
SLOWER = replace(FASTER, mean=log(0.9))


def ran(
    depth: int, busy_s: float = 1800.0, pod: str = "pod-0", from_s: float = START_S
) -> PodDelta:
    cell = Cell(4, depth, StepKind.DECODE)
    counts = CellCounts(1000, busy_s, 4000, 4000)
    return PodDelta(
        pod=pod,
        from_s=from_s,
        to_s=from_s + 3600,
        engine=EngineCounts(),
        cells={cell: counts},
        drafts={},
    )


def by_depth(gains: dict[int, Gain | None]) -> GainOver:
    return lambda _pod, _bucket, depth: gains[depth]


def test_busy_seconds_times_gpus_times_the_gain() -> None:
    found = Gained().updated([ran(5), ran(5, pod="pod-1")], by_depth({5: FASTER}), gpus=4)

    assert found.hours == pytest.approx(4 * 0.06)
    assert found.ratio == pytest.approx(0.06)
    assert found.half_width_hours == pytest.approx(4 * TWO_SIDED_Z * 1.06 * 0.01)
    assert (found.measured_gpu_s, found.unmeasured_gpu_s) == (4 * 3600, 0)
    assert found.since_s == START_S


def test_a_probe_that_cost_something_counts_against_it() -> None:
    gains = by_depth({5: FASTER, 1: SLOWER, 3: NO_GAIN})
    found = Gained().updated([ran(5), ran(1), ran(3)], gains, gpus=1)

    assert found.gained_gpu_s == pytest.approx(1800 * (0.06 - 0.1))
    assert found.ratio == pytest.approx((0.06 - 0.1) / 3)


@pytest.mark.parametrize(
    "gain",
    [
        None,
        replace(FASTER, step_time_measured=False),
        replace(FASTER, sd=0.5),
    ],
)
def test_what_is_not_measured_adds_nothing_and_is_told_apart(gain: Gain | None) -> None:
    before = Gained().updated([ran(5)], by_depth({5: FASTER}), gpus=2)
    after = before.updated([ran(7)], by_depth({7: gain}), gpus=2)

    assert after == replace(before, unmeasured_gpu_s=3600)
    assert Gained().updated([ran(7)], by_depth({7: gain}), gpus=2).ratio is None


def test_without_steps_it_is_the_very_same() -> None:
    before = Gained().updated([ran(5)], by_depth({5: FASTER}), gpus=1)
    idle = replace(ran(5), cells={})

    assert before.updated([idle], by_depth({}), gpus=1) is before
    assert before.updated([], by_depth({}), gpus=1) is before


def test_it_survives_and_so_do_sums_of_a_newer_release() -> None:
    found = Gained().updated([ran(5)], by_depth({5: FASTER}), gpus=1)
    newer = json.dumps(json.loads(found.to_json()) | {"later": {"a": 1}})

    assert Gained.read(found.to_json()) == found
    assert Gained.read(newer) == found
    assert Gained.read("{}") == Gained()
    assert len(found.to_json()) < 300


@pytest.mark.parametrize("text", ["", "[]", '{"gained_gpu_s": NaN}', '{"measured_gpu_s": -1}'])
def test_what_is_none_is_refused(text: str) -> None:
    assert Gained.read(text) is None


def test_of_a_fleet_it_is_what_the_depths_were_worth() -> None:
    """The tuner's own account beside what the simulated hardware really gained."""
    fleet = Fleet(acceptance=EASY, jitter=0).run(3600)
    gained = fleet.state.gained
    best = value(fleet.hardware, EASY, 4, fleet.depth(4)) / value(fleet.hardware, EASY, 4, 3) - 1

    assert gained.ratio is not None
    assert 0.7 * best < gained.ratio < 1.1 * best
    assert gained.measured_gpu_s > 5 * gained.unmeasured_gpu_s
    busy_s = gained.measured_gpu_s + gained.unmeasured_gpu_s
    assert busy_s == pytest.approx(2 * 3600, rel=0.05)


def test_at_tokens_it_is_zero_which_is_known() -> None:
    """However little is known of step times there: it is held against itself."""
    fleet = Fleet(settings=replace(SETTINGS, mode=TuningMode.ADVISE), acceptance=EASY).run(60)
    gained = fleet.state.gained

    assert (gained.ratio, gained.half_width, gained.unmeasured_gpu_s) == (0, 0, 0)
    assert gained.measured_gpu_s > 60


def test_the_state_is_kept_without_it_so_that_an_older_release_reads_that() -> None:
    state = Fleet(acceptance=EASY).run(60).state

    assert state.gained != Gained()
    assert "gained" not in json.loads(state.to_json())


def test_seconds_of_which_no_gain_can_be_told_are_told_apart() -> None:
    mixing = replace(ran(5), transition_seconds=600.0)
    old = replace(ran(5), counts_prompts=False)
    found = Gained().updated([mixing, old], by_depth({5: FASTER}), gpus=2)

    assert (found.measured_gpu_s, found.unmeasured_gpu_s) == (2 * 1800, 2 * (600 + 1800))


def test_a_pod_of_which_nobody_knows_what_it_is_like_adds_nothing() -> None:
    def of_known_pods(pod: str, _bucket: int, _depth: int) -> Gain | None:
        return FASTER if pod == "known" else None

    found = Gained().updated([ran(5, pod="known"), ran(5, pod="new")], of_known_pods, gpus=1)
    assert (found.measured_gpu_s, found.unmeasured_gpu_s) == (1800, 1800)
