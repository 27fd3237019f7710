"""Step times and acceptance of a world, against arithmetic by hand."""

import numpy as np
import pytest

from benchmarks.tuner.course.acceptance import survival
from benchmarks.tuner.course.hardware import hardware
from benchmarks.tuner.worlds.parts import ClassPart, ExpertsPart, StepTimePart

EXACT = {"spread": 0.0, "overhead_ms": 0.0, "draft_fixed_ms": 0.0}


def milliseconds(part: StepTimePart, max_batch: int = 64) -> np.ndarray:
    return 1000 * hardware(part, max_batch, np.random.default_rng(1)).seconds


def test_step_time_is_the_sum_of_its_parts() -> None:
    part = StepTimePart(
        spread=0,
        overhead_ms=1,
        weights_ms=6,
        compute_per_token_us=100,
        knee=1,
        draft_fixed_ms=0.5,
        draft_token_ms=0.7,
        draft_token_request_us=10,
    )
    got = milliseconds(part)
    assert got[8, 0] == pytest.approx(1 + 6 + 0.1 * 8)
    assert got[8, 3] == pytest.approx(1 + 6 + 0.1 * 32 + 0.5 + 3 * (0.7 + 0.01 * 8))


def test_a_hard_knee_takes_the_larger_of_memory_and_compute() -> None:
    part = StepTimePart(**EXACT, weights_ms=6, compute_per_token_us=100, knee=16, draft_token_ms=0)
    got = milliseconds(part)
    assert got[4, 0] == pytest.approx(6, rel=0.01)
    assert got[64, 2] == pytest.approx(0.1 * 64 * 3 + 0.002 * 64 * 2, rel=0.01)


def test_steps_are_padded_to_the_next_captured_graph() -> None:
    part = StepTimePart(
        **EXACT,
        weights_ms=0,
        compute_per_token_us=1000,
        draft_token_ms=0,
        draft_token_request_us=0,
        graph_sizes=(8, 16, 32),
    )
    got = milliseconds(part)
    assert got[5, 1] == pytest.approx(16)  # 10 tokens
    assert got[4, 3] == pytest.approx(16)  # exactly 16
    assert got[40, 0] == pytest.approx(40)  # beyond the largest: as it is


def test_experts_are_read_only_where_a_token_chose_them() -> None:
    moe = ExpertsPart(experts=16, top=4, expert_us=100, own_experts=1.0)
    part = StepTimePart(
        **EXACT, weights_ms=0, compute_per_token_us=0, draft_token_ms=0, draft_token_request_us=0
    ).model_copy(update={"moe": moe})
    got = milliseconds(part)
    assert got[1, 0] == pytest.approx(0.1 * 4)
    assert got[1, 1] == pytest.approx(0.1 * 16 * (1 - 0.75**2))
    assert got[64, 7] == pytest.approx(0.1 * 16)


def test_a_table_is_met_at_its_rows_and_linear_in_between() -> None:
    part = StepTimePart(spread=0, table_ms={"1": (9.0, 10.0), "3": (11.0, 14.0)})
    got = milliseconds(part, max_batch=8)
    assert got[1, :2] == pytest.approx([9, 10])
    assert got[2, :2] == pytest.approx([10, 12])
    assert got[3, 2] == pytest.approx(17)  # depths beyond the row go on as its last two do
    assert got[8, 0] == pytest.approx(11)


def test_spread_changes_hardware_with_the_seed_only() -> None:
    part = StepTimePart(spread=0.15)
    one, again, other = (
        hardware(part, 16, np.random.default_rng(seed)).seconds for seed in (1, 1, 2)
    )
    assert (one == again).all()
    assert not np.allclose(one, other, rtol=0.01)


def test_survival_gives_back_the_published_lengths() -> None:
    length = (1.83, 2.43, 2.88, 3.24, 3.46, 3.62, 3.71, 3.77)
    got = survival(ClassPart(name="coding", length=length))
    assert 1 + np.cumsum(got) == pytest.approx(length)


def test_a_dip_in_published_differences_does_not_raise_survival() -> None:
    got = survival(ClassPart(name="rounded", length=(1.8, 2.5, 2.6, 2.75)))
    assert (np.diff(got) <= 0).all()


def test_conditional_acceptance_carries_on_with_its_last_value() -> None:
    got = survival(ClassPart(name="chat", acceptance=(0.8, 0.5)))
    assert got[:4] == pytest.approx([0.8, 0.4, 0.2, 0.1])
