"""The counters as Prometheus metrics, read when someone scrapes and never in between."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import REGISTRY, Collector

from fathom_vllm import __version__
from fathom_vllm.counters import MIXED, STEP_KINDS, counters_path
from fathom_vllm.counts import Counts, read_counts
from fathom_vllm.environment import POD_NAME, POD_UID
from fathom_vllm.plugin_version import content_hash, package_files

log = logging.getLogger("vllm.fathom")

_BATCHES = ("batch_ge", "batch_le")
"""A bucket's first and last batch: an earlier plugin gave the last alone, and its buckets were
whole doublings."""
NOTHING_TOLD: Mapping[str, str] = MappingProxyType({})
OVERDUE_SECONDS = 30.0
"""The depth file is looked at four times a second; later than this, depth no longer follows it."""


class FathomCollector(Collector):
    """Shows the counts of the engines in this pod, added up."""

    def __init__(
        self,
        environ: Mapping[str, str],
        engine: Mapping[str, str] = NOTHING_TOLD,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show what the pod's environment points at.

        Args:
            environ: the environment variables.
            engine: what it runs with (`engine_report`).
            clock: the depth watch's, in seconds.
        """
        self._path = counters_path(environ)
        self._content = content_hash(package_files())
        self._pod = (environ.get(POD_NAME, ""), environ.get(POD_UID, ""))
        self._engine = engine
        self._clock = clock
        self._failed = False
        self._overdue = False

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
            "fathom_plugin_info",
            "Fathom's plugin in this engine",
            labels=["version", "content", "pod_name", "pod_uid"],
        )
        info.add_metric([__version__, self._content, *self._pod], 1)
        yield info
        named = GaugeMetricFamily(
            "fathom_pod_named",
            "0: this engine does not know its pod's name, so it finds no entry of its own",
        )
        named.add_metric([], float(bool(self._pod[0])))
        yield named
        if any(self._engine.values()):
            engine = GaugeMetricFamily(
                "fathom_engine_info", "What this engine runs with", labels=list(self._engine)
            )
            engine.add_metric(list(self._engine.values()), 1)
            yield engine
        counts = read_counts(self._path)
        shown = GaugeMetricFamily(
            "fathom_counters_shown",
            "0 while no engine's counters can be read: none has started, or it had no space for "
            "the file and counts for itself; then its log says so",
        )
        shown.add_metric([], float(counts is not None))
        yield shown
        live = GaugeMetricFamily(
            "fathom_live_depth", "1 while depth follows the operator's document without a restart"
        )
        live.add_metric([], float(counts is not None and self._is_live(counts)))
        yield live
        if counts is not None:
            yield from _state(counts)
            yield from _steps(counts)
            yield from _drafts(counts)
            yield from _contexts(counts)

    def _is_live(self, counts: Counts) -> bool:
        """Whether the hook is on and the depth file was looked at lately.

        Judged here, since an engine that waits for requests cannot notice that the file's volume
        does not answer.
        """
        overdue = counts.live and self._clock() - counts.looked_at_s > OVERDUE_SECONDS
        if overdue and not self._overdue:
            log.warning(
                "Fathom: the depth file has not been checked for %.0f s: its volume does not "
                "answer, or the thread that watches it is gone. Depth stays as it is.",
                self._clock() - counts.looked_at_s,
            )
        self._overdue = overdue
        return counts.live and not overdue


def show(environ: Mapping[str, str], engine: Mapping[str, str]) -> None:
    """Put the counters on `/metrics` of this process, once, with what the engine runs with."""
    ours = FathomCollector(environ, engine)
    if "PROMETHEUS_MULTIPROC_DIR" not in environ:
        REGISTRY.register(ours)
        return
    # Several API servers, as vLLM starts them for several data-parallel engines, merge what each
    # counts. The page is made by a collector that vLLM keeps to itself, so its class is told: ours
    # are read at the scrape, and are the same whichever server answers.
    merged = MultiProcessCollector.collect

    def collect(self: MultiProcessCollector) -> Iterator[Metric]:
        yield from merged(self)  # type: ignore[no-untyped-call]
        yield from ours.collect()

    MultiProcessCollector.collect = collect  # type: ignore[method-assign]


def _state(counts: Counts) -> Iterator[Metric]:
    gauge = GaugeMetricFamily(
        "fathom_depth_generation", "Generation of the depth document in force, 0 before the first"
    )
    schedule = GaugeMetricFamily(
        "fathom_depth_schedule_hash",
        "Hash of the schedule in force; 0: it is of no document",
    )
    seen = GaugeMetricFamily(
        "fathom_depth_document_seen", "1 once this engine has obeyed a depth document"
    )
    gone = GaugeMetricFamily(
        "fathom_depth_document_gone",
        "1 while the depth document that was obeyed is missing for a minute or longer, so that "
        "depth went back to the user's own",
    )
    # An idle engine schedules nothing, but its next step puts in force what lies ready: without
    # this, an idle replica would seem to disobey.
    lies_ready = counts.live and counts.idle
    gauge.add_metric([], counts.ready if lies_ready else counts.generation)
    schedule.add_metric([], counts.ready_schedule_hash if lies_ready else counts.schedule_hash)
    seen.add_metric([], float(counts.seen))
    gone.add_metric([], float(counts.gone))
    yield from (gauge, schedule, seen, gone)
    if counts.token_budget:
        budget = GaugeMetricFamily(
            "fathom_token_budget", "Tokens that a step may hold (max_num_batched_tokens)"
        )
        budget.add_metric([], counts.token_budget)
        yield budget
    for name, text, value in (
        ("fathom_depth_rejections", "Depth documents not adopted", counts.rejections),
        ("fathom_hook_errors", "Exceptions inside Fathom's hooks", counts.errors),
        ("fathom_hook_seconds", "Seconds spent inside Fathom's hooks", counts.hook_seconds),
        (
            "fathom_transition_steps",
            "Steps counted in no cell, since they mixed depths or drafted for no request",
            counts.transitions,
        ),
        (
            "fathom_transition_step_seconds",
            "Busy seconds of transition steps",
            counts.transition_seconds,
        ),
        (
            "fathom_transition_tokens",
            "Tokens that reached requests in transition steps",
            counts.transition_tokens,
        ),
        (
            "fathom_transition_prefill_tokens",
            "Tokens of prompts computed by transition steps",
            counts.transition_prefill,
        ),
        (
            "fathom_stalled_steps",
            "Steps of decodes ten times as long as those before them",
            counts.stalls,
        ),
        (
            "fathom_stalled_step_seconds",
            "Seconds by which they were longer, which no cell holds",
            counts.stall_seconds,
        ),
    ):
        counter = CounterMetricFamily(name, text)
        counter.add_metric([], value)
        yield counter


def _steps(counts: Counts) -> Iterator[Metric]:
    labels = [*_BATCHES, "depth", "step"]
    steps = CounterMetricFamily("fathom_steps", "Engine steps", labels=labels)
    seconds = CounterMetricFamily("fathom_step_seconds", "Busy seconds of steps", labels=labels)
    tokens = CounterMetricFamily("fathom_tokens", "Tokens that reached requests", labels=labels)
    requests = CounterMetricFamily(
        "fathom_scheduled_requests", "Requests scheduled, summed over steps", labels=labels
    )
    prefill = CounterMetricFamily(
        "fathom_prefill_tokens", "Tokens of prompts computed by mixed steps", labels=labels
    )
    for cell in counts.steps:
        values = [str(cell.batch_ge), str(cell.batch_le), str(cell.depth), cell.kind]
        steps.add_metric(values, cell.steps)
        seconds.add_metric(values, cell.seconds)
        tokens.add_metric(values, cell.tokens)
        requests.add_metric(values, cell.requests)
        if cell.kind == STEP_KINDS[MIXED]:
            prefill.add_metric(values, cell.prefill)
    yield from (steps, seconds, tokens, requests, prefill)


def _drafts(counts: Counts) -> Iterator[Metric]:
    drafts = CounterMetricFamily("fathom_drafts", "Drafts verified", labels=[*_BATCHES, "depth"])
    accepted = CounterMetricFamily(
        "fathom_accepted_tokens",
        "Drafts whose tokens were accepted up to and including this position",
        labels=[*_BATCHES, "depth", "position"],
    )
    for cell in counts.drafts:
        values = [str(cell.batch_ge), str(cell.batch_le), str(cell.depth)]
        drafts.add_metric(values, cell.drafts)
        for position, count in enumerate(cell.accepted):
            accepted.add_metric([*values, str(position)], count)
    yield from (drafts, accepted)


def _contexts(counts: Counts) -> Iterator[Metric]:
    labels = ["context_ge", "context_le"]
    drafts = CounterMetricFamily(
        "fathom_context_drafts", "Drafts verified, by the request's context", labels=labels
    )
    tokens = CounterMetricFamily(
        "fathom_context_draft_tokens", "Tokens of those drafts", labels=labels
    )
    accepted = CounterMetricFamily(
        "fathom_context_accepted_tokens", "Tokens of those drafts that were accepted", labels=labels
    )
    first = CounterMetricFamily(
        "fathom_context_first_accepted", "Those drafts whose first token was", labels=labels
    )
    for each in counts.contexts:
        last = "+Inf" if each.context_le is None else str(each.context_le)
        values = [str(each.context_ge), last]
        drafts.add_metric(values, each.drafts)
        tokens.add_metric(values, each.tokens)
        accepted.add_metric(values, each.accepted)
        first.add_metric(values, each.first_accepted)
    yield from (drafts, tokens, accepted, first)
