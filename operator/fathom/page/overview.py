"""All resources at a glance. Pure. What is unknown is a dash: it is not zero."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fathom.api.status import SpeculativeDeploymentStatus
from fathom.core.cluster.kinds import ObjectKey
from fathom.core.reporting.reading import UNKNOWN, standing

MOST_ROWS: Final = 1000
"""On one page: what a browser lays out at once, and what a request may cost."""


@dataclass(frozen=True, slots=True)
class OverviewRow:
    """One resource. All is as its status has it."""

    namespace: str
    name: str
    ready: str
    reason: str
    depth: str
    speed: str
    gain: str
    tuning: str
    alarms: tuple[str, ...]
    """What somebody should look at: alarms that stand, and Degraded."""


@dataclass(frozen=True, slots=True)
class Overview:
    """One page of the list."""

    rows: tuple[OverviewRow, ...]
    number: int
    """Of this page, from 1."""
    pages: int
    resources: int
    troubled: int
    """Resources that somebody should look at; they come first."""


def pages_of(resources: int) -> int:
    """Pages that the list has, of so many resources."""
    return max(1, -(-resources // MOST_ROWS))


def overview_of(
    found: Iterable[tuple[ObjectKey, SpeculativeDeploymentStatus]], number: int = 1
) -> Overview:
    """The list, what needs a look first, then by namespace and name.

    Args:
        found: all resources.
        number: the page of it, from 1; one beyond the last is the last.
    """
    listed = [(not standing(status), key, status) for key, status in found]
    listed.sort(key=lambda each: each[:2])
    pages = pages_of(len(listed))
    number = max(1, min(number, pages))
    part = listed[(number - 1) * MOST_ROWS : number * MOST_ROWS]
    return Overview(
        tuple(_row(key, status) for _, key, status in part),
        number,
        pages,
        len(listed),
        sum(not well for well, _, _ in listed),
    )


def _row(key: ObjectKey, status: SpeculativeDeploymentStatus) -> OverviewRow:
    measured = status.measured
    return OverviewRow(
        namespace=key.namespace,
        name=key.name,
        ready=status.ready or UNKNOWN,
        reason=status.reason or UNKNOWN,
        depth=status.depth.summary or UNKNOWN,
        speed=str(measured.tokens_per_second) if measured.at else UNKNOWN,
        gain=f"{measured.gain_percent} %" if measured.gain_percent else UNKNOWN,
        tuning=status.tuning.summary or UNKNOWN,
        alarms=standing(status),
    )
