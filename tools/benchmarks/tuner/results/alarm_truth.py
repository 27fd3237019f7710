"""Whether a course justifies an alarm: by what happens in it, not by what the tuner saw."""

from typing import Final

from benchmarks.tuner.course.course import OBEYS, WorldCourse
from benchmarks.tuner.outcome import AlarmRaised, CourseOutcome
from fathom.api.conditions import AlarmKind

LOOKED_BACK_S: Final = 2 * 3600.0
"""That drafting never pays is judged by so much of the time before."""
BELIEVABLE: Final = (0.01, 0.99)
"""Shares of first drafts accepted that raise no suspicion."""


def is_justified(alarm: AlarmRaised, course: WorldCourse, outcome: CourseOutcome) -> bool:
    """Whether there is what the alarm says: from when it begins, and for good."""
    tick = min(int(alarm.at_s // course.clock.tick_s), course.clock.ticks - 1)
    match alarm.kind:
        case AlarmKind.DRAFT_MISMATCH:
            return any(at_s <= alarm.at_s for at_s in course.mismatches_s)
        case AlarmKind.ACCEPTANCE_DECAY:
            return any(at_s <= alarm.at_s for at_s, _ in course.decays)
        case AlarmKind.SUSPICIOUS_ACCEPTANCE:
            least, most = BELIEVABLE
            believable = least < course.survival[tick, 0] < most
            return not believable or bool((course.own_depth[: tick + 1] != OBEYS).any())
        case AlarmKind.SPECULATION_NEVER_PAYS:
            return _never_paid(tick, course, outcome)


def _never_paid(tick: int, course: WorldCourse, outcome: CourseOutcome) -> bool:
    """Whether no depth of the engines would have made more of the last hours than depth 0."""
    first = max(0, tick + 1 - round(LOOKED_BACK_S / course.clock.tick_s))
    made = course.rate_of(outcome.batch)[first : tick + 1].sum(axis=(0, 1))
    drafting = [depth for depth in course.world.fleet.named if depth]
    return bool((made[drafting] <= made[0]).all())
