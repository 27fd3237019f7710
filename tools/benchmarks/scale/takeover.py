"""A leader that ends beside a standby: how long until the next one acts. Pure."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from local_cluster.control_plane.audit import AuditEvent

_WORKLOADS: Final = frozenset({"deployments", "leaderworkersets"})


class Ending(StrEnum):
    """How the leader ended."""

    KILLED = "killed"
    STOPPED = "stopped"
    """By SIGTERM: it gives its lease back."""


class Takeover(BaseModel):
    """What the next leader did, with requests at every engine."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    ending: Ending
    first_pass_seconds: float | None
    """From the signal that ended the leader to the next one's first pass; None: none in time."""
    looked_at_seconds: float | None
    """To the moment at which the next one had looked at every resource; None: not in time."""
    workloads_written: int
    """Deployments and groups, and pods made or deleted, while nobody asked for it: a rollout would
    be some."""


def workloads_written(events: Iterable[AuditEvent]) -> int:
    """How many writes were to workloads; that a pod is told of a depth by a patch is none."""
    return sum(
        each.is_write
        and (each.resource in _WORKLOADS or (each.resource == "pods" and each.verb != "patch"))
        for each in events
    )
