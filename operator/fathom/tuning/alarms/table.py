"""All alarms, a row for each, and when one is raised and when it is over. Pure.

A new one is a row here, the function in `detectors` that sees it, and its names in
`fathom.api.conditions`. Conditions, events, the metric and docs/alarms.md follow from it.

What is seen for long enough stands as an alarm; what is not seen for long enough is over. An alarm
never changes depth by itself: depth follows what is measured, alarm or not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from fathom.api.conditions import AlarmKind, Reason
from fathom.api.names import ANNOTATION_NEW_REFERENCE
from fathom.engine.depth import DepthDocument
from fathom.measurement.deltas import CLOCK_TOLERANCE_S, PodDelta
from fathom.tuning.alarms import detectors
from fathom.tuning.alarms.alarm import NORMAL_AFTER_S, Alarm, Engine, Watch
from fathom.tuning.alarms.detectors import Look, Sight
from fathom.tuning.alarms.reference_detector import LASTS_AFTER_S, acceptance_below_reference
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.estimate.acceptance_changes import (
    HEALED_S,
    LOW_QUANTILE,
    RESTORED_S,
    RESTORED_SHARE,
    Acceptance,
)
from fathom.tuning.estimate.reference import (
    BELOW_DAYS,
    BELOW_SHARE,
    FAR_BELOW_SHARE,
    Reference,
)
from fathom.tuning.estimate.step_table import NO_DRAFT_SD
from fathom.tuning.interface import TunedPod, TuningSnapshot
from fathom.tuning.policy.policy import Policy
from fathom.tuning.policy.value import CERTAIN_Z

_MINUTE_S: Final = 60.0
_HOUR_S: Final = 60 * _MINUTE_S
_DAY_S: Final = 24 * _HOUR_S
OVER_AFTER_S: Final = 300.0
"""How long an alarm's cause must be gone: one good window does not end an alarm."""
FORGOTTEN_AFTER_S: Final = 60.0
"""How long what was only suspected must be gone: one bad window a day is none."""


class RestsOn(Enum):
    """What must be known for an alarm to be seen."""

    ACCEPTANCE = auto()
    """Which drafts were accepted: nobody knows where they are cut."""
    LIVE_DEPTH = auto()
    """That depth follows the document: elsewhere none was asked for, and only the user's runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRow:
    """One cause of one alarm."""

    kind: AlarmKind
    """Its condition; of several causes that are seen at once, the first row's is told."""
    reason: Reason
    sees: Callable[[Look], Sight | None]
    lasts_s: float
    """Seconds for which it must be seen before the alarm is raised."""
    when: str
    """What is seen, as the documentation puts it."""
    rests_on: RestsOn = RestsOn.ACCEPTANCE

    @property
    def advice(self) -> str:
        """What a person does about it: ends the condition's message."""
        return self.reason.advice


ALARMS: Final = (
    AlarmRow(
        kind=AlarmKind.DRAFT_MISMATCH,
        reason=Reason.ACCEPTANCE_CLIFF,
        sees=detectors.acceptance_cliff,
        lasts_s=3 * _MINUTE_S,
        when=f"acceptance of the first draft token is below {detectors.CLIFF_SHARE:g} of the low "
        f"end ({LOW_QUANTILE:.0%} quantile) of the last day, of which "
        f"{detectors.NORMAL_KNOWN_S / _MINUTE_S:.0f} min must be known; until above "
        f"{RESTORED_SHARE:g} of it. What lasts for {NORMAL_AFTER_S / _HOUR_S:.0f} h "
        "begins to count as normal, and AcceptanceBelowReference takes over. If acceptance comes "
        "back and no engine restarted, it was "
        f"traffic, and as low a level raises no alarm for {HEALED_S / _DAY_S:.0f} days",
    ),
    AlarmRow(
        kind=AlarmKind.DRAFT_MISMATCH,
        reason=Reason.ONE_POD_DIFFERS,
        sees=detectors.one_pod_differs,
        lasts_s=3 * _MINUTE_S,
        when=f"one pod accepts less than {detectors.POD_CLIFF_SHARE:g} of the others' median",
    ),
    AlarmRow(
        kind=AlarmKind.DRAFT_MISMATCH,
        reason=Reason.ACCEPTANCE_BELOW_REFERENCE,
        sees=acceptance_below_reference,
        lasts_s=3 * _MINUTE_S,
        when="acceptance of the first draft token, over a whole day, is below "
        f"{FAR_BELOW_SHARE:g} of the lowest day of this draft's first week once (within that week: "
        f"of its first day), or below {BELOW_SHARE:g} of it on {BELOW_DAYS} days in a row; until a "
        f"day is above {BELOW_SHARE:g} of it. Or AcceptanceCliff began "
        f"when the draft had served for {LASTS_AFTER_S / _HOUR_S:.0f} h, and counts as "
        f"normal by now; until {RESTORED_S / _HOUR_S:.0f} h of acceptance as before. Both end with "
        "another draft or target, and by a person's "
        f"[{ANNOTATION_NEW_REFERENCE}](tuning.md#the-reference)",
    ),
    AlarmRow(
        kind=AlarmKind.DRAFT_MISMATCH,
        reason=Reason.LONG_CONTEXT_REJECTED,
        sees=detectors.long_context_rejected,
        lasts_s=10 * _MINUTE_S,
        when="from some context on, with "
        f"{detectors.LONG_DRAFTS_SHARE:.0%} of the drafts or more, the first draft token is "
        f"accepted less than {detectors.LONG_SHARE:g} as often as at shorter contexts, by "
        f"{detectors.LONG_Z:g} standard errors, and by measured step times drafting loses there at "
        f"every batch under load (or less than {detectors.LOSES_SHARE:.0%} is accepted)",
    ),
    AlarmRow(
        kind=AlarmKind.ACCEPTANCE_DECAY,
        reason=Reason.OLDER_REPLICAS_ACCEPT_LESS,
        sees=detectors.older_replicas_accept_less,
        lasts_s=30 * _MINUTE_S,
        when=f"engines older than {detectors.OLD_S / _HOUR_S:.0f} h, and {detectors.OLD_FACTOR:g} "
        f"times as old as the youngest, accept {detectors.DECAY_SHARE:.0%} less than the others, "
        f"by {detectors.DECAY_Z:g} standard errors",
    ),
    AlarmRow(
        kind=AlarmKind.SUSPICIOUS_ACCEPTANCE,
        reason=Reason.TOO_GOOD_TO_BE_TRUE,
        sees=detectors.too_good_to_be_true,
        lasts_s=10 * _MINUTE_S,
        when=f"{detectors.TOO_GOOD_SHARE:.1%} of the drafts or more are accepted at every position",
    ),
    AlarmRow(
        kind=AlarmKind.SUSPICIOUS_ACCEPTANCE,
        reason=Reason.NOTHING_ACCEPTED,
        sees=detectors.nothing_accepted,
        lasts_s=10 * _MINUTE_S,
        when=f"{detectors.NOTHING_ACCEPTED_SHARE:.0%} of the drafts or fewer are accepted at the "
        f"first position; until above {detectors.SOMETHING_ACCEPTED_SHARE:.0%}",
    ),
    AlarmRow(
        kind=AlarmKind.SUSPICIOUS_ACCEPTANCE,
        reason=Reason.DEPTH_MISMATCH,
        sees=detectors.depth_mismatch,
        lasts_s=5 * _MINUTE_S,
        when=f"more than {detectors.OTHER_DEPTH_SHARE:.0%} of a pod's steps verify another number "
        "of drafts than the schedule that it reports to be in force asks for",
        rests_on=RestsOn.LIVE_DEPTH,
    ),
    AlarmRow(
        kind=AlarmKind.SPECULATION_NEVER_PAYS,
        reason=Reason.SPECULATION_SLOWER,
        sees=detectors.speculation_slower,
        lasts_s=2 * _HOUR_S,
        when="depth 0 is better beyond doubt than every other, at every batch under load; with "
        "minTokens above 0 depth 0 never runs and is only predicted, so the loss must exceed "
        f"about {CERTAIN_Z * NO_DRAFT_SD:.0%}",
        rests_on=RestsOn.LIVE_DEPTH,
    ),
)


def watched(
    watches: Sequence[Watch],
    *,
    snapshot: TuningSnapshot,
    document: DepthDocument,
    deltas: Sequence[PodDelta],
    policy: Policy,
    acceptance: Acceptance,
    reference: Reference | None = None,
) -> tuple[Watch, ...]:
    """The watches after one more window with data.

    Without data nothing is learned but that an engine is gone, and with it what was seen of it.
    """
    pods = {each.name: each for each in (*snapshot.pods, *snapshot.apart)}
    watches = [each for each in watches if each.engine is None or _runs(each.engine, pods)]
    if not any(each.steps for each in deltas):
        return tuple(watches)
    acceptance = replace(acceptance, pods=tuple(p for p in acceptance.pods if p.pod in pods))
    standing = frozenset(each.reason for each in watches if each.raised_at_s)
    look = Look(
        snapshot=snapshot,
        document=document,
        deltas=deltas,
        policy=policy,
        acceptance=acceptance,
        standing=standing,
        reference=reference,
    )
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


def _runs(engine: Engine, pods: Mapping[str, TunedPod]) -> bool:
    """Whether it still does, as far as is known."""
    pod = pods.get(engine.pod)
    started_at_s = pod.counters.started_at_s if pod and pod.counters else engine.started_at_s
    return pod is not None and abs(started_at_s - engine.started_at_s) <= CLOCK_TOLERANCE_S


def standing(watches: Iterable[Watch]) -> tuple[Alarm, ...]:
    """The alarms that stand."""
    return tuple(each.alarm() for each in watches if each.raised_at_s)


def _continued(before: Watch | None, row: AlarmRow, sight: Sight, now_s: float) -> Watch:
    """What is seen once more, or for the first time.

    Another cause of an alarm that stands takes its place, and is seen since now: how long it lasts
    says whether it has become normal.
    """
    same = before is not None and (before.reason is row.reason or not before.raised_at_s)
    watch = Watch(
        kind=row.kind,
        reason=row.reason,
        message=sight.message,
        recommendation=row.advice,
        first_seen_s=before.first_seen_s if before is not None and same else now_s,
        last_seen_s=now_s,
        raised_at_s=before.raised_at_s if before is not None else 0.0,
        older_than_s=sight.older_than_s,
        engine=sight.engine,
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
