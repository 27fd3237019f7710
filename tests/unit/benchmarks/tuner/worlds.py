"""Worlds small enough to compute by hand."""

from typing import Any

from benchmarks.tuner.course.course import CourseClock, WorldCourse
from benchmarks.tuner.course.drawing import DAY_S, draw
from benchmarks.tuner.worlds.world import SimulatedWorld

SILENT = {
    "pod_speed_sd": 0,
    "pod_spread_sd": 0,
    "step_spread": 0,
    "design_effect": 1,
    "outliers_per_hour": 0,
}
STEP = {
    "spread": 0,
    "overhead_ms": 10,
    "weights_ms": 0,
    "compute_per_token_us": 0,
    "attention_per_request_us_per_1k": 0,
    "draft_fixed_ms": 0,
    "draft_token_ms": 1,
    "draft_token_request_us": 0,
}
EVEN = {"concurrency": 4, "fluctuation": 0, "skew": 0, "prefill_us_per_token": 0}
HALF = {"name": "half", "acceptance": [0.5], "tail": 0}

TICK_S = 10.0


def world(**parts: Any) -> SimulatedWorld:
    """No noise; four requests in flight; a step takes 10 ms and 1 ms a draft; half is accepted."""
    given = {"name": "small", "noise": SILENT, "step_time": STEP, "traffic": EVEN}
    given["classes"] = (HALF,)
    for part, fields in parts.items():
        given[part] = {**given.get(part, {}), **fields} if isinstance(fields, dict) else fields
    return SimulatedWorld.model_validate(given)


def course(
    of: SimulatedWorld, *, hours: float = 1.0, seed: int = 1, tick_s: float = TICK_S
) -> WorldCourse:
    ticks = round(hours * 3600 / tick_s)
    return draw(of, seed, CourseClock(tick_s, ticks, max(1, round(30 / tick_s))))


def days(of: SimulatedWorld, count: int, *, seed: int = 1) -> WorldCourse:
    """In ticks of a minute."""
    return draw(of, seed, CourseClock(60.0, round(count * DAY_S / 60), 5))
