"""What people are shown of a window."""

import pytest

from fathom.core.measurement import DraftCell, DraftCounts, EngineCounts, PodDelta
from fathom.tuning.estimate.measured import measure


def drafted(pod: str, *accepted: float) -> PodDelta:
    """A window of one pod: a hundred drafts, and how many were accepted at each position."""
    drafts = {DraftCell(4, len(accepted)): DraftCounts(100.0, accepted)}
    return PodDelta(pod, 0.0, 10.0, EngineCounts(generation_tokens=500.0), {}, drafts)


def test_survival_is_over_the_drafts_of_all_pods_that_were_deep_enough() -> None:
    measured = measure([drafted("a", 80.0), drafted("b", 60.0, 30.0)], 10.0, None)
    assert measured is not None
    assert measured.survival == pytest.approx((0.7, 0.7 * 0.5))


def test_survival_ends_where_no_draft_got() -> None:
    measured = measure([drafted("a", 80.0, 0.0, 0.0)], 10.0, None)
    assert measured is not None
    assert measured.survival == pytest.approx((0.8, 0.0))
