"""What one replica gives at each batch and depth, in tokens per second. Pure: no rendering.

The same estimates that decide, as speeds instead of gains, for people who want to see them all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log2

from fathom.engine.depth import DepthDocument, depth_at, first_batch
from fathom.tuning.interface import Settings
from fathom.tuning.learned_state import TuningState
from fathom.tuning.policy.value import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What one depth gives in one bucket."""

    depth: int
    tokens_per_second: float | None
    """Rate of one replica at the row's batch; None: nothing is known of it, or anything alike."""
    measured: bool
    """False: predicted from its neighbours."""
    in_force: bool
    """Whether the depth document asks for it here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceRow:
    """One bucket of batches."""

    first: int
    last: int
    batch: float
    """For which the speeds hold: the recent mean where there is load, else the bucket's last."""
    speeds: tuple[Speed, ...]


def surface(
    state: TuningState, settings: Settings, document: DepthDocument | None, now_s: float
) -> tuple[SurfaceRow, ...]:
    """Every bucket of which anything was measured, with all depths that may be chosen.

    Args:
        state: as persisted, or as the last decision left it.
        settings: the user's wishes.
        document: the depth document in force; None: nothing is marked as in force.
        now_s: Unix seconds; what was measured long ago is less certain.
    """
    evidence = Evidence(
        text=state.text,
        step_times=state.step_times,
        traffic=state.traffic,
        now_s=now_s,
        deepest=settings.depths[-1],
        prompts=state.prompts,
    )
    measured = {cell.batch_le for cell in state.step_times.cells}
    return tuple(
        _row(evidence, bucket, settings, document)
        for bucket in sorted(measured)
        if first_batch(bucket) <= settings.max_batch
    )


def _row(
    evidence: Evidence, bucket: int, settings: Settings, document: DepthDocument | None
) -> SurfaceRow:
    first, last = first_batch(bucket), min(bucket, settings.max_batch)
    logarithm = evidence.traffic.log_batches().get(bucket)
    batch = float(last) if logarithm is None else min(2.0**logarithm, last)
    schedule = document.schedule if document else ()
    asked = depth_at(schedule, first) if schedule else None
    return SurfaceRow(
        first=first,
        last=last,
        batch=batch,
        speeds=tuple(_speeds(evidence, bucket, batch, settings, asked)),
    )


def _speeds(
    evidence: Evidence, bucket: int, batch: float, settings: Settings, asked: int | None
) -> Iterator[Speed]:
    for depth in settings.depths:
        time = evidence.step_time(bucket, depth)
        drafted = evidence.text.is_drafted(bucket, depth)
        seconds = evidence.seconds_per_token(bucket, depth, log2(batch))
        speed = None if seconds is None else 1 / seconds
        yield Speed(
            depth=depth,
            tokens_per_second=speed,
            measured=time is not None and time.measured and drafted,
            in_force=depth == asked,
        )
