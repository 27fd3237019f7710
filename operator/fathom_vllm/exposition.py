"""The counters as Prometheus metrics, read when someone scrapes and never in between."""

import logging
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fathom_vllm import __version__
from fathom_vllm.content import content_hash, package_files
from fathom_vllm.counters import Counts, counters_path, read_counts
from fathom_vllm.depth_file import Adopted, DepthFile

log = logging.getLogger("vllm.fathom")


class FathomCollector(Collector):
    """Shows the counts of the engine in this pod."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._path = counters_path(environ)
        self._content = content_hash(package_files())
        self._failed = False

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would otherwise scrape once on registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read and convert. Never raises: that would take vLLM's own metrics down with ours."""
        try:
            metrics = list(self._metrics())
        except Exception:
            if not self._failed:
                log.exception("Fathom: the counters cannot be shown")
            self._failed = True
            metrics = []
        yield from metrics

    def _metrics(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "fathom_plugin_info", "Fathom's plugin in this engine", labels=["version", "content"]
        )
        info.add_metric([__version__, self._content], 1)
        yield info
        counts = read_counts(self._path)
        live = GaugeMetricFamily(
            "fathom_live_depth", "1 while depth follows the operator's document without a restart"
        )
        live.add_metric([], float(counts is not None and counts.live))
        yield live
        if counts is not None:
            yield from _state(counts, self._generation(counts))
            yield from _steps(counts)
            yield from _drafts(counts)

    def _generation(self, counts: Counts) -> int:
        """The generation in force for the next step.

        The scheduler looks at the file when it schedules, and an idle engine schedules nothing; but
        its next step comes only after such a look. What it will find is in force already: without
        this, an idle replica would seem to disobey.
        """
        if counts.live and counts.idle:
            found = DepthFile.from_environment(self._environ, max_depth=counts.max_depth).poll()
            if isinstance(found, Adopted):
                return found.document.generation
        return counts.generation


def _state(counts: Counts, generation: int) -> Iterator[Metric]:
    gauge = GaugeMetricFamily(
        "fathom_depth_generation", "Generation of the depth document in force, 0 before the first"
    )
    gauge.add_metric([], generation)
    yield gauge
    for name, text, value in (
        ("fathom_depth_rejections", "Depth documents not adopted", counts.rejections),
        ("fathom_hook_errors", "Exceptions inside Fathom's hooks", counts.errors),
        ("fathom_hook_seconds", "Seconds spent inside Fathom's hooks", counts.hook_seconds),
        (
            "fathom_transition_steps",
            "Steps counted in no cell, since they mixed depths",
            counts.transitions,
        ),
    ):
        counter = CounterMetricFamily(name, text)
        counter.add_metric([], value)
        yield counter


def _steps(counts: Counts) -> Iterator[Metric]:
    labels = ["batch_le", "depth", "step"]
    steps = CounterMetricFamily("fathom_steps", "Engine steps", labels=labels)
    seconds = CounterMetricFamily("fathom_step_seconds", "Busy seconds of steps", labels=labels)
    tokens = CounterMetricFamily("fathom_tokens", "Tokens emitted by steps", labels=labels)
    requests = CounterMetricFamily(
        "fathom_scheduled_requests", "Requests scheduled, summed over steps", labels=labels
    )
    for cell in counts.steps:
        values = [str(cell.batch_le), str(cell.depth), cell.kind]
        steps.add_metric(values, cell.steps)
        seconds.add_metric(values, cell.seconds)
        tokens.add_metric(values, cell.tokens)
        requests.add_metric(values, cell.requests)
    yield from (steps, seconds, tokens, requests)


def _drafts(counts: Counts) -> Iterator[Metric]:
    drafts = CounterMetricFamily("fathom_drafts", "Drafts verified", labels=["batch_le", "depth"])
    accepted = CounterMetricFamily(
        "fathom_accepted_tokens",
        "Drafts whose tokens were accepted up to and including this position",
        labels=["batch_le", "depth", "position"],
    )
    for cell in counts.drafts:
        values = [str(cell.batch_le), str(cell.depth)]
        drafts.add_metric(values, cell.drafts)
        for position, count in enumerate(cell.accepted):
            accepted.add_metric([*values, str(position)], count)
    yield from (drafts, accepted)
