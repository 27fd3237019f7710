"""A state alone, without any pods: what explains or advises lets it speak for itself. Pure."""

from fathom.engine.depth import DepthDocument
from fathom.tuning.interface import Settings, TuningSnapshot
from fathom.tuning.state import TuningState


def recalled(
    state: TuningState, settings: Settings, document: DepthDocument | None, now_s: float
) -> TuningSnapshot:
    """A snapshot in which nothing new was seen."""
    return TuningSnapshot(
        now_s=now_s,
        settings=settings,
        pods=(),
        document=document,
        document_written_at_s=now_s,
        live_refusal=None,
        state=state,
    )
