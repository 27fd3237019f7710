"""The straightforward way, beside which the operator's is measured."""

from prometheus_client.parser import text_string_to_metric_families

from fathom.adapters.exposition import counters
from fathom.adapters.series import FAMILIES, Point
from fathom.measurement.counters import PodCounters


def read_by_library(page: bytes, pod: str, *, at_s: float) -> PodCounters:
    """prometheus_client's own parser, over those lines alone that are wanted."""
    wanted = [
        line
        for line in page.decode().splitlines()
        if line.partition("{")[0].partition(" ")[0] in FAMILIES
    ]
    points = [
        Point(sample.name, sample.labels, float(sample.value))
        for family in text_string_to_metric_families("\n".join(wanted))
        for sample in family.samples
    ]
    return counters(points, pod=pod, at_s=at_s)
