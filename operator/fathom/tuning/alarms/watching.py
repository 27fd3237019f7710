"""When an alarm is raised, and when it is over. Pure.

What is seen for long enough stands as an alarm; what is not seen for long enough is over. An alarm
never changes depth by itself: depth follows what is measured, alarm or not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from fathom.api.conditions import AlarmKind
from fathom.core.measurement import PodDelta
from fathom.engine.depth import DepthDocument
from fathom.tuning.alarms.alarm import Alarm, Watch
from fathom.tuning.alarms.sights import Look, Sight
from fathom.tuning.alarms.table import ALARMS, AlarmRow, RestsOn
from fathom.tuning.estimate.acceptance import Acceptance
from fathom.tuning.estimate.survival import Survival
from fathom.tuning.interface import TuningSnapshot
from fathom.tuning.policy.policy import Policy

OVER_AFTER_S: Final = 300.0
"""How long an alarm's cause must be gone: one good window does not end an alarm."""
FORGOTTEN_AFTER_S: Final = 60.0
"""How long what was only suspected must be gone: one bad window a day is none."""


def watched(
    watches: Sequence[Watch],
    *,
    snapshot: TuningSnapshot,
    document: DepthDocument,
    deltas: Sequence[PodDelta],
    policy: Policy,
    acceptance: Acceptance,
) -> tuple[Watch, ...]:
    """The watches after one more window with data; without data nothing is learnt."""
    if not any(each.steps for each in deltas):
        return tuple(watches)
    standing = frozenset(each.reason for each in watches if each.raised_at_s)
    look = Look(snapshot, document, deltas, policy, acceptance, standing)
    unknown: set[RestsOn] = set()
    if not isinstance(policy.evidence.text, Survival):
        # What was never verified counts as rejected: where drafts are cut, acceptance says nothing.
        unknown.add(RestsOn.ACCEPTANCE)
    if snapshot.live_refusal is not None:
        unknown.add(RestsOn.LIVE_DEPTH)
    seen: dict[AlarmKind, tuple[AlarmRow, Sight]] = {}
    for row in ALARMS:
        if row.kind in seen or row.rests_on in unknown:
            continue
        if (sight := row.sees(look)) is not None:
            seen[row.kind] = row, sight
    before = {each.kind: each for each in reversed(watches)}
    after = (
        _continued(before.get(kind), *seen[kind], snapshot.now_s)
        if kind in seen
        else _unseen(before.get(kind), snapshot.now_s)
        for kind in AlarmKind
    )
    return tuple(each for each in after if each is not None)


def standing(watches: Iterable[Watch]) -> tuple[Alarm, ...]:
    """The alarms that stand."""
    return tuple(each.alarm() for each in watches if each.raised_at_s)


def _continued(before: Watch | None, row: AlarmRow, sight: Sight, now_s: float) -> Watch:
    """What is seen once more, or for the first time."""
    watch = Watch(
        kind=row.kind,
        reason=row.reason,
        message=sight.message,
        recommendation=row.advice,
        first_seen_s=before.first_seen_s if before is not None else now_s,
        last_seen_s=now_s,
        raised_at_s=before.raised_at_s if before is not None else 0.0,
        older_than_s=sight.older_than_s,
    )
    if not watch.raised_at_s and now_s - watch.first_seen_s >= row.lasts_s:
        watch = replace(watch, raised_at_s=now_s)
    return watch


def _unseen(before: Watch | None, now_s: float) -> Watch | None:
    """One good window does not end an alarm, nor may one bad window a day apart begin one."""
    if before is None:
        return None
    quiet_s = OVER_AFTER_S if before.raised_at_s else FORGOTTEN_AFTER_S
    return before if now_s - before.last_seen_s < quiet_s else None
