"""The operator's own metrics of one resource."""

from dataclasses import replace

from fathom.core.depth import DepthDocument, DepthRange
from support.bench import Bench, holding


def depth(bench: Bench, batch: str) -> float | None:
    labels = {"namespace": "llm", "name": "kimi", "batch": batch}
    return bench.world.telemetry.registry.get_sample_value("fathom_depth", labels)


async def test_the_depth_is_shown_at_the_smallest_and_at_the_largest_batch(bench: Bench) -> None:
    schedule = (DepthRange(1, 4, 5), DepthRange(5, 16, 3), DepthRange(17, 256, 1))
    document = DepthDocument(2, schedule)
    bench.decide = lambda snapshot: replace(holding(snapshot), document=document)
    await bench.tick()
    assert (depth(bench, "smallest"), depth(bench, "largest")) == (5, 1)
