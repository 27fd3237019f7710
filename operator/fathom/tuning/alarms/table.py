"""All alarms: a row for each.

A new one is a row here, the function in `sights` that sees it, and its names in
`fathom.api.conditions`. Conditions, events, the metric and docs/alarms.md follow from it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from fathom.api.conditions import AlarmKind, Reason
from fathom.tuning.alarms import sights
from fathom.tuning.alarms.alarm import NORMAL_AFTER_S
from fathom.tuning.alarms.sights import Look, Sight
from fathom.tuning.estimate.acceptance import HEALED_S, LOW_QUANTILE
from fathom.tuning.estimate.step_table import NO_DRAFT_SD
from fathom.tuning.policy.value import CERTAIN_Z

_MINUTE_S: Final = 60.0
_HOUR_S: Final = 60 * _MINUTE_S
_DAY_S: Final = 24 * _HOUR_S


class RestsOn(Enum):
    """What must be known for an alarm to be seen."""

    ACCEPTANCE = auto()
    """Which drafts were accepted: nobody knows where they are cut."""
    LIVE_DEPTH = auto()
    """That depth follows the document: elsewhere none was asked for, and only the user's runs."""


@dataclass(frozen=True, slots=True)
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
    advice: str
    """What a person does about it: ends the condition's message."""
    rests_on: RestsOn = RestsOn.ACCEPTANCE


ALARMS: Final = (
    AlarmRow(
        AlarmKind.DRAFT_MISMATCH,
        Reason.ACCEPTANCE_CLIFF,
        sights.acceptance_cliff,
        lasts_s=3 * _MINUTE_S,
        when=f"acceptance of the first draft token is below {sights.CLIFF_SHARE:g} of the low end "
        f"({LOW_QUANTILE:.0%} quantile) of the last day, of which "
        f"{sights.NORMAL_KNOWN_S / _MINUTE_S:.0f} min must be known; until above "
        f"{sights.RESTORED_SHARE:g} of it. What lasts for {NORMAL_AFTER_S / _HOUR_S:.0f} h begins "
        "to count as normal. If acceptance comes back and no engine restarted, it was traffic, and "
        f"as low a level raises no alarm for {HEALED_S / _DAY_S:.0f} days",
        advice="Check that the draft belongs to the target's present weights and chat template, "
        "and whether a new kind of traffic arrived that the draft was not trained for. Depth "
        "follows what is measured meanwhile.",
    ),
    AlarmRow(
        AlarmKind.DRAFT_MISMATCH,
        Reason.ONE_POD_DIFFERS,
        sights.one_pod_differs,
        lasts_s=3 * _MINUTE_S,
        when=f"one pod accepts less than {sights.POD_CLIFF_SHARE:g} of the others' median",
        advice="Compare the draft and its revision in that pod's log with another pod's; delete "
        "the pod to load it again.",
    ),
    AlarmRow(
        AlarmKind.ACCEPTANCE_DECAY,
        Reason.OLDER_REPLICAS_ACCEPT_LESS,
        sights.older_replicas_accept_less,
        lasts_s=30 * _MINUTE_S,
        when=f"engines older than {sights.OLD_S / _HOUR_S:.0f} h, and {sights.OLD_FACTOR:g} times "
        f"as old as the youngest, accept {sights.DECAY_SHARE:.0%} less than the others, by "
        f"{sights.DECAY_Z:g} standard errors",
        advice="Restart the older replicas one at a time, or let rollout.refresh: Auto do so.",
    ),
    AlarmRow(
        AlarmKind.SUSPICIOUS_ACCEPTANCE,
        Reason.TOO_GOOD_TO_BE_TRUE,
        sights.too_good_to_be_true,
        lasts_s=10 * _MINUTE_S,
        when=f"{sights.TOO_GOOD_SHARE:.1%} of the drafts or more are accepted at every position",
        advice="Check that the traffic is real and not one repeated prompt, and that the draft is "
        "not the target itself.",
    ),
    AlarmRow(
        AlarmKind.SUSPICIOUS_ACCEPTANCE,
        Reason.NOTHING_ACCEPTED,
        sights.nothing_accepted,
        lasts_s=10 * _MINUTE_S,
        when=f"{sights.NOTHING_ACCEPTED_SHARE:.0%} of the drafts or fewer are accepted at the "
        f"first position; until above {sights.SOMETHING_ACCEPTED_SHARE:.0%}",
        advice="Check that draft.method is what the draft was trained as, and that the draft "
        "belongs to this target.",
    ),
    AlarmRow(
        AlarmKind.SUSPICIOUS_ACCEPTANCE,
        Reason.OTHER_DEPTH_THAN_ASKED,
        sights.other_depth_than_asked,
        lasts_s=5 * _MINUTE_S,
        when=f"more than {sights.OTHER_DEPTH_SHARE:.0%} of a pod's steps verify another number of "
        "drafts than the schedule that it reports to be in force asks for",
        advice="Look for another part that shortens drafts (a grammar, max_model_len), and in the "
        "pod's log for 'fathom'.",
        rests_on=RestsOn.LIVE_DEPTH,
    ),
    AlarmRow(
        AlarmKind.SPECULATION_NEVER_PAYS,
        Reason.SLOWER_THAN_WITHOUT,
        sights.slower_than_without,
        lasts_s=2 * _HOUR_S,
        when="depth 0 is better beyond doubt than every other, at every batch under load; with "
        "minTokens above 0 depth 0 never runs and is only predicted, so the loss must exceed "
        f"about {CERTAIN_Z * NO_DRAFT_SD:.0%}",
        advice="With speculation.minTokens: 0 the tuner may stop speculating by itself; "
        "speculation.drafting: Disabled saves the draft's work as well. Or use another draft, "
        "trained on this traffic.",
        rests_on=RestsOn.LIVE_DEPTH,
    ),
)
