"""What became of a SpeculativeDeployment: what was decided, when, and why. Pure.

The status keeps the last ten decisions of the tuner and the last rollout, the tuning ConfigMap a
day of restarts, and the cluster its events for as long as it is told to, commonly an hour.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fathom.api.status import DecisionStatus, SpeculativeDeploymentStatus
from fathom.core.cluster.observed import ObservedEvent
from fathom.core.times import rfc3339
from fathom.rollout.refresh import RefreshLog


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing that was decided, done, or told."""

    at: str
    """RFC 3339, UTC."""
    what: str
    """One word."""
    why: str
    """A sentence."""


def history_of(
    status: SpeculativeDeploymentStatus, refreshes: RefreshLog, events: Iterable[ObservedEvent]
) -> tuple[Happened, ...]:
    """All that is known of the past, newest first; what two sources tell, once.

    Args:
        status: of the resource.
        refreshes: replicas that were restarted for their age.
        events: that are about the resource.
    """
    decided = {each.message for each in status.tuning.history}
    known = [*_from_status(status), *_refreshed(refreshes)]
    known += [
        Happened(rfc3339(each.at_s), each.reason, each.message)
        for each in events
        if each.message not in decided
    ]
    return tuple(sorted(known, key=lambda each: each.at, reverse=True))


def _from_status(status: SpeculativeDeploymentStatus) -> Iterator[Happened]:
    for each in status.tuning.history:
        yield Happened(each.at, each.action, _decided(each))
    rollout = status.rollout
    if rollout is not None and rollout.since:
        why = " ".join(part for part in (rollout.message, rollout.why) if part)
        yield Happened(rollout.since, rollout.stage, why or rollout.reason)
    if status.quality is not None:
        yield Happened(status.quality.at, status.quality.result, status.quality.message)


def _decided(decision: DecisionStatus) -> str:
    expected, measured = decision.expected_gain_percent, decision.measured_gain_percent
    gains = (
        f" Expected: {expected} %." if expected else "",
        f" Measured: {measured} %." if measured else "",
    )
    return f"{decision.message or decision.reason}{''.join(gains)}"


def _refreshed(refreshes: RefreshLog) -> Iterator[Happened]:
    for each in refreshes.refreshes:
        yield Happened(rfc3339(each.at_s), "Refreshing", f"{each.pod} was restarted for its age.")
