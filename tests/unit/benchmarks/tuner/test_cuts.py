"""Engines that verify only as many drafts as make a step fastest."""

from typing import Any

import numpy as np
import pytest

from benchmarks.tuner.course.course import WorldCourse
from benchmarks.tuner.fleet.plant import CoursePlant, CourseWork
from benchmarks.tuner.worlds.errors import WorldError
from benchmarks.tuner.worlds.files import parse
from benchmarks.tuner.worlds.parts import DEEPEST
from unit.benchmarks.tuner.worlds import course, world

WORLD: dict[str, Any] = {
    "step_time": {"compute_per_token_us": 60, "draft_token_ms": 0.4},
    "traffic": {"concurrency": 24, "fluctuation": 0.5},
    "classes": [{"name": "chat", "acceptance": [0.6, 0.5, 0.4]}],
}


def drawn(*, cut: bool) -> WorldCourse:
    return course(world(**WORLD, fleet={"adaptive_verification": cut}), hours=0.1)


def work(of: WorldCourse, tick: int, depth: int) -> CourseWork:
    batch = int(of.batch[tick, 0])
    return CoursePlant.of(of).work(tick, 0, batch, depth, wear=1.0, lost=float(of.lost[tick, 0]))


@pytest.mark.parametrize("tick", [0, 7, 20])
def test_a_replica_makes_what_the_course_says(tick: int) -> None:
    cut = drawn(cut=True)
    for depth in range(DEEPEST + 1):
        found = work(cut, tick, depth)
        assert found.rate == pytest.approx(cut.rate[tick, 0, depth])
        assert found.length == pytest.approx(cut.length[tick, 0, depth])


def test_no_depth_is_slower_for_being_cut_and_the_deepest_are_faster() -> None:
    cut, whole = drawn(cut=True), drawn(cut=False)
    assert (cut.batch == whole.batch).all()
    faster = cut.rate / whole.rate
    assert (faster >= 1 - 1e-12).all()
    assert (faster[:, :, 0] == 1).all()
    assert faster[:, :, DEEPEST].mean() > 1.1


def test_what_was_not_verified_counts_as_rejected() -> None:
    cut = drawn(cut=True)
    busiest = int(np.argmax(cut.batch[:, 0]))
    found = work(cut, busiest, DEEPEST)
    assert len(found.survival) == DEEPEST
    verified = sum(each > 0 for each in found.survival)
    assert 0 < verified < DEEPEST
    assert found.length == pytest.approx(1 + sum(found.survival))
    assert found.decode_s < work(drawn(cut=False), busiest, DEEPEST).decode_s


def test_to_draft_what_is_never_verified_costs() -> None:
    cut = drawn(cut=True)
    busiest = int(np.argmax(cut.batch[:, 0]))
    rates = cut.rate[busiest, 0]
    assert rates[DEEPEST] < rates[DEEPEST - 1] < rates.max()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("[fleet.graphs]\n", "without graphs"),
        ("[step_time.table_ms]\n4 = [10, 11]\n", "table_ms"),
        ('[traffic]\nmode = "open"\n', "closed traffic"),
    ],
)
def test_what_cannot_be_cut_is_refused(more: str, why: str) -> None:
    with pytest.raises(WorldError, match=why):
        parse(f"[fleet]\nadaptive_verification = true\n{more}", "mine")
