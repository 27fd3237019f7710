"""The sum of what was gained, whatever windows it is made of."""

from hypothesis import given
from hypothesis import strategies as st

from fathom.measurement.counters import Cell, CellCounts, EngineCounts, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.tuning.gains import Gained
from fathom.tuning.policy.value import Gain

# No engine is busy for less than a float can hold to all its digits.
SECONDS = st.floats(0, 1e5, allow_subnormal=False)
GAINS = st.none() | st.builds(
    Gain,
    mean=st.floats(-2, 2),
    sd=st.floats(0, 1),
    step_time_measured=st.booleans(),
    survival_measured=st.booleans(),
)
WINDOWS = st.lists(st.tuples(SECONDS, GAINS), max_size=20)


def delta(at: int, seconds: float) -> PodDelta:
    cells = {Cell(4, at % 8, StepKind.DECODE): CellCounts(1.0, seconds, 1.0, 1.0)}
    return PodDelta(
        pod="pod",
        from_s=1e9 + at,
        to_s=1e9 + at + 30,
        engine=EngineCounts(),
        cells=cells,
        drafts={},
    )


def summed(windows: list[tuple[float, Gain | None]], gpus: int = 1) -> Gained:
    found = Gained()
    for at, (seconds, gain) in enumerate(windows):
        found = found.updated([delta(at, seconds)], lambda _pod, _bucket, _depth, g=gain: g, gpus)
    return found


def close(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-6 * max(1.0, abs(one), abs(other))


@given(WINDOWS)
def test_every_busy_second_is_entered_once_and_only_as_measured_or_not(
    windows: list[tuple[float, Gain | None]],
) -> None:
    found = summed(windows)
    assert close(
        found.measured_gpu_s + found.unmeasured_gpu_s, sum(seconds for seconds, _ in windows)
    )


@given(WINDOWS, WINDOWS)
def test_it_is_the_sum_of_its_parts_in_any_order(
    first: list[tuple[float, Gain | None]], second: list[tuple[float, Gain | None]]
) -> None:
    one, other = summed(first + second), summed(second + first)
    assert close(one.gained_gpu_s, summed(first).gained_gpu_s + summed(second).gained_gpu_s)
    assert close(one.gained_gpu_s, other.gained_gpu_s)
    assert close(one.error_gpu_s, other.error_gpu_s)


@given(WINDOWS, st.integers(1, 64))
def test_gpus_are_a_factor_of_all_but_the_ratio(
    windows: list[tuple[float, Gain | None]], gpus: int
) -> None:
    one, many = summed(windows), summed(windows, gpus)
    assert close(gpus * one.gained_gpu_s, many.gained_gpu_s)
    assert (one.ratio is None) is (many.ratio is None)
    assert one.ratio is None or many.ratio is None or close(one.ratio, many.ratio)


@given(WINDOWS)
def test_a_restart_at_any_time_changes_nothing(windows: list[tuple[float, Gain | None]]) -> None:
    found = summed(windows)
    assert Gained.read(found.to_json()) == found
