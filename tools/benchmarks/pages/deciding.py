"""What the tuner takes through a day of simulated traffic."""

import time

from benchmarks.pages.figures import WINDOW_S, TunerCost
from benchmarks.tuner.course.drawing import clock, draw
from benchmarks.tuner.fleet.fleet import CourseFleet
from benchmarks.tuner.fleet.load import ClosedLoad, OpenLoad
from benchmarks.tuner.fleet.settings import settings
from benchmarks.tuner.simulate import LIVE, TICK_S
from benchmarks.tuner.worlds.files import load
from fathom.api.choices import TuningMode
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from fathom.tuning.tuner import decide

_DAY_S = 86_400.0


def tuner_cost(name: str) -> TunerCost:
    """Let the tuner live through the first day of a shipped world; a minute or less."""
    world = load(name)
    fleet = world.fleet
    took_s: list[float] = []

    def timed(snapshot: TuningSnapshot) -> TuningDecision:
        began_at = time.thread_time()
        decision = decide(snapshot)
        took_s.append(time.thread_time() - began_at)
        return decision

    course = draw(world, 1, clock(tick_s=TICK_S, window_s=fleet.window_seconds, days=1))
    traffic = OpenLoad(course) if world.traffic.mode == "open" else ClosedLoad(course)
    wishes = settings(world, TuningMode.AUTO, window_s=fleet.window_seconds)
    CourseFleet(course, traffic, wishes, LIVE, timed).run()
    return TunerCost(
        world=name,
        pods=fleet.replicas,
        decide_ms=sum(took_s) / len(took_s) * 1000,
        looks=len(took_s) / (_DAY_S / WINDOW_S),
    )
