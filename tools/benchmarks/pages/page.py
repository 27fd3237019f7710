"""A page as a vLLM 0.32 with Fathom's plugin shows it: as many series, of names as long."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fathom_vllm.buckets import CONTEXT_RANGES, bucket_count, last_batch
from fathom_vllm.counters import DECODE, MIXED, CountersWriter, DraftSums
from fathom_vllm.environment import COUNTERS_FILE
from fathom_vllm.exposition import FathomCollector

MAX_BATCH: Final = 48
DEPTHS: Final = (0, 1, 3, 7)
_READ_COUNTERS: Final = (
    "vllm:generation_tokens",
    "vllm:prompt_tokens",
    "vllm:num_preemptions",
    "vllm:spec_decode_num_drafts",
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens",
)
_READ_GAUGES: Final = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
)
_READ_HISTOGRAMS: Final = {
    "vllm:request_time_per_output_token_seconds": 19,
    "vllm:time_to_first_token_seconds": 22,
}
_REASONS: Final = ("stop", "length", "abort", "error", "repetition")
_OTHER_COUNTERS: Final = 25
_OTHER_HISTOGRAMS: Final = (11, 11, 13, 11, 5, 11, 19, 21, 21, 21, 21, 21, 7, 11, 21)
"""Bounds of each, without the last, which is infinite."""
_LABELS: Final = ("engine", "model_name")


class ShownEngine:
    """An engine that has used every cell of its buckets and depths, and now uses a few of them."""

    def __init__(self, model: str, folder: Path) -> None:
        """Let it have worked for a while.

        Args:
            model: the name that it serves.
            folder: for the plugin's counters.
        """
        self._labels = ("0", model)
        self._registry = CollectorRegistry()
        counters = (*_READ_COUNTERS, *(f"vllm:other_tokens_{at}" for at in range(_OTHER_COUNTERS)))
        others = {f"vllm:other_seconds_{at}": each for at, each in enumerate(_OTHER_HISTOGRAMS)}
        histograms = _READ_HISTOGRAMS | others
        self._counters = [Counter(name, "Counted.", _LABELS, registry=None) for name in counters]
        self._gauges = [Gauge(name, "Now.", _LABELS, registry=None) for name in _READ_GAUGES]
        self._histograms = [
            Histogram(
                name,
                "Seconds.",
                _LABELS,
                buckets=[0.001 * 1.5**at for at in range(bounds)],
                registry=None,
            )
            for name, bounds in histograms.items()
        ]
        finished = Counter(
            "vllm:request_success", "By end.", (*_LABELS, "finished_reason"), registry=None
        )
        accepted = Counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "By position.",
            (*_LABELS, "position"),
            registry=None,
        )
        started = Gauge("process_start_time_seconds", "Start.", registry=None)
        path = folder / "counters"
        self._plugin = CountersWriter(
            str(path), max_batch=MAX_BATCH, max_depth=max(DEPTHS), token_budget=8192
        )
        for each in (
            *self._counters,
            *self._gauges,
            *self._histograms,
            finished,
            accepted,
            started,
        ):
            self._registry.register(each)
        self._registry.register(
            FathomCollector({COUNTERS_FILE: str(path)}, {"device": "NVIDIA GB200"})
        )
        for reason in _REASONS:
            finished.labels(*self._labels, reason).inc(7)
        for position in range(max(DEPTHS)):
            accepted.labels(*self._labels, str(position)).inc(9)
        started.set(1.75e9)
        self._work(range(bucket_count(MAX_BATCH)), DEPTHS)

    def page(self) -> bytes:
        """What it shows now."""
        return generate_latest(self._registry)

    def page_after_work(self) -> bytes:
        """What it shows after it has worked in two buckets, at one depth."""
        self._work(range(6, 8), (3,))
        return self.page()

    def _work(self, buckets: Iterable[int], depths: Iterable[int]) -> None:
        for counter in self._counters:
            counter.labels(*self._labels).inc(12345)
        for gauge in self._gauges:
            gauge.labels(*self._labels).set(0.25)
        for histogram in self._histograms:
            histogram.labels(*self._labels).observe(0.0375)
        for index in range(CONTEXT_RANGES):
            self._plugin.context(index, DraftSums(1000, 3000, 1500, 700))
        for bucket, depth, kind in product(buckets, depths, (DECODE, MIXED)):
            batch = last_batch(bucket)
            self._plugin.step(
                batch=batch,
                depth=depth,
                kind=kind,
                seconds=0.0123 + batch / 7,
                tokens=batch * (1 + depth) // 2,
                prefill=500 if kind == MIXED else 0,
                drafts=batch if depth else 0,
                accepted=[batch // (2 + position) for position in range(depth)],
            )
