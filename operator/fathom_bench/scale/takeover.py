"""A leader that ends beside a standby: how long until the next one acts. Pure."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from fathom_local.control_plane.audit import AuditEvent

_WORKLOADS: Final = frozenset({"deployments", "pods", "leaderworkersets"})


class Ending(StrEnum):
    """How the leader ended."""

    KILLED = "killed"
    STOPPED = "stopped"
    """By SIGTERM: it gives its lease back."""


class Takeover(BaseModel):
    """What the next leader did, with requests at every engine."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    ending: Ending
    first_write_seconds: float | None
    """From the end of the leader to the next one's first write, the lease's left out; None: none
    was seen."""
    looked_at_seconds: float | None
    """To the moment at which the next one had looked at every resource; None: not in time."""
    writes_to_workloads: int
    """Of Deployments, groups and pods, while nothing asked for them: a rollout would be some."""


def takeover_of(
    ending: Ending, since: datetime, until: datetime, events: Sequence[AuditEvent], *, within: bool
) -> Takeover:
    """What lies between the end of a leader and the moment at which all was looked at.

    Args:
        ending: the former leader's.
        since: when that had ended.
        until: when the next one had looked at every resource, or was not waited for any longer.
        events: the operators' requests in between without the leases', oldest first.
        within: whether it was done in time.
    """
    writes = [each for each in events if each.is_write]
    return Takeover(
        ending=ending,
        first_write_seconds=(writes[0].at - since).total_seconds() if writes else None,
        looked_at_seconds=(until - since).total_seconds() if within else None,
        writes_to_workloads=sum(each.resource in _WORKLOADS for each in writes),
    )
