"""The operator's own metrics of one resource."""

from dataclasses import replace

from fathom.core.cluster.kinds import SPECULATIVE_DEPLOYMENT
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


def series(bench: Bench) -> set[str]:
    """Names of all samples of the resource."""
    return {
        sample.name
        for family in bench.world.telemetry.registry.collect()
        for sample in family.samples
        if sample.labels.get("name") == "kimi"
    }


async def test_all_series_go_with_their_resource(bench: Bench) -> None:
    document = DepthDocument(2, (DepthRange(1, 256, 3),))
    bench.decide = lambda snapshot: replace(holding(snapshot), document=document)
    await bench.tick()
    assert {"fathom_depth", "fathom_alarm", "fathom_writes_total"} <= series(bench)

    bench.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    await bench.tick()
    assert series(bench) == set()
