"""A full-size /metrics page, as vLLM 0.32 shows it with its defaults. Pure.

What the operator reads is counted by `played_engine`; the rest is made of a few sums, so that all
of it moves as it does on the page of a busy engine.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

_MODEL: Final = "llama-3.3-70b"
_LABELS: Final = f'engine="0",model_name="{_MODEL}"'
_STARTED: Final = "1.7e+09"
"""What `_created` says: only that it stands there counts."""

# Bounds of vllm/v1/metrics/buckets.py, 0.32.
_LATENCIES: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_FIRST_TOKENS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_BETWEEN_TOKENS: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_ITERATION: Final = tuple(float(1 << power) for power in (0, *range(3, 15)))
_TOKENS: Final = (*(m * 10.0**e for e in range(5) for m in (1, 2, 5)), 100_000.0)
_HISTOGRAMS: Final = (
    ("request_prompt_tokens", _TOKENS),
    ("request_generation_tokens", _TOKENS),
    ("iteration_tokens_total", _ITERATION),
    ("request_max_num_generation_tokens", _TOKENS),
    ("request_params_n", (1.0, 2.0, 5.0, 10.0, 20.0)),
    ("request_params_max_tokens", _TOKENS),
    ("time_to_first_token_seconds", _FIRST_TOKENS),
    ("inter_token_latency_seconds", _BETWEEN_TOKENS),
    ("request_time_per_output_token_seconds", _BETWEEN_TOKENS),
    ("e2e_request_latency_seconds", _LATENCIES),
    ("request_queue_time_seconds", _LATENCIES),
    ("request_inference_time_seconds", _LATENCIES),
    ("request_prefill_time_seconds", _LATENCIES),
    ("request_decode_time_seconds", _LATENCIES),
    ("request_num_preemptions", (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)),
    ("request_prefill_kv_computed_tokens", _TOKENS),
)
_COUNTERS: Final = (
    ("corrupted_requests", 0.0),
    ("prefix_cache_queries", 512.0),
    ("prefix_cache_hits", 128.0),
    ("external_prefix_cache_queries", 0.0),
    ("external_prefix_cache_hits", 0.0),
    ("mm_cache_queries", 0.0),
    ("mm_cache_hits", 0.0),
    ("num_preemptions", 0.0),
    ("prompt_tokens", 512.0),
    ("prompt_tokens_cached", 128.0),
    ("estimated_flops_per_gpu", 2048.0),
    ("estimated_read_bytes_per_gpu", 4096.0),
    ("estimated_write_bytes_per_gpu", 1024.0),
)
"""Counters of vLLM, by what a request adds."""
_DRAFTING: Final = (
    ("generation_tokens", "tokens"),
    ("spec_decode_num_drafts", "drafts"),
    ("spec_decode_num_draft_tokens", "draft_tokens"),
    ("spec_decode_num_accepted_tokens", "accepted"),
)
"""Counters of vLLM that show a sum as it is."""
_BY_LABEL: Final = (
    ("request_success", "finished_reason", ("stop", "length", "abort", "error", "repetition")),
    ("prompt_tokens_by_source", "source", ("local_compute", "local_cache_hit", "external")),
    ("admission_rejections", "reason", ("queue_full", "kv_cache", "too_long")),
)
"""Counters with a label more; the first value of each has all that was counted."""
_GAUGES: Final = ("engine_sleep_state_awake", "lora_requests_info", "cache_config_info")
_HANDLERS: Final = ("/v1/completions", "/v1/chat/completions", "/health", "/v1/models", "none")
_PYTHON: Final = (
    *(f'python_gc_objects_collected_total{{generation="{n}"}}' for n in range(3)),
    *(f'python_gc_objects_uncollectable_total{{generation="{n}"}}' for n in range(3)),
    *(f'python_gc_collections_total{{generation="{n}"}}' for n in range(3)),
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
)


@dataclass(frozen=True, slots=True)
class Sums:
    """What one engine has done since its start."""

    started_at_s: float
    requests: float
    """Finished."""
    tokens: float
    steps: float
    drafts: float
    draft_tokens: float
    accepted: float
    step_seconds: float
    running: float
    """Requests in flight now."""


_Series = Iterator[tuple[str, str, float]]
"""Each series, what of `Sums` it follows, and how much of that it shows."""


def _process() -> _Series:
    yield "process_start_time_seconds", "started_at_s", 1.0
    for name in _PYTHON:
        yield name, "requests", 0.25


def _gauges() -> _Series:
    for name, share in (("num_requests_running", 1.0), ("num_requests_waiting", 0.0)):
        yield f"vllm:{name}{{{_LABELS}}}", "running", share
    yield f"vllm:kv_cache_usage_perc{{{_LABELS}}}", "running", 1 / 256
    for name in _GAUGES:
        yield f"vllm:{name}{{{_LABELS}}}", "running", 0.0


def _counters() -> _Series:
    for name, of in _DRAFTING:
        yield f"vllm:{name}_total{{{_LABELS}}}", of, 1.0
    for name, share in _COUNTERS:
        yield f"vllm:{name}_total{{{_LABELS}}}", "requests", share
    accepted = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    for position in range(7):
        yield f'{accepted}{{{_LABELS},position="{position}"}}', "accepted", 0.5 ** (position + 1)
    for name, label, values in _BY_LABEL:
        for number, value in enumerate(values):
            share = 0.0 if number else 1.0
            yield f'vllm:{name}_total{{{_LABELS},{label}="{value}"}}', "requests", share


def _histograms() -> _Series:
    for name, bounds in _HISTOGRAMS:
        of = "steps" if name.startswith("iteration") else "requests"
        yield from _histogram(f"vllm:{name}", _LABELS, bounds, of)


def _requests() -> _Series:
    for handler in _HANDLERS:
        labels = f'handler="{handler}",method="POST"'
        yield f'http_requests_total{{{labels},status="2xx"}}', "requests", 0.2
    for handler in _HANDLERS:
        labels = f'handler="{handler}",method="POST"'
        yield f"http_request_size_bytes_count{{{labels}}}", "requests", 0.2
        yield f"http_request_size_bytes_sum{{{labels}}}", "requests", 400.0
    for handler in _HANDLERS:
        labels = f'handler="{handler}",method="POST"'
        yield from _histogram("http_request_duration_seconds", labels, (0.1, 0.5, 1.0), "requests")
    yield from _histogram("http_request_duration_highr_seconds", "", _LATENCIES, "requests")


def _histogram(name: str, labels: str, bounds: Sequence[float], of: str) -> _Series:
    comma = "," if labels else ""
    for number, bound in enumerate(bounds, 1):
        # Half of all in the lower third, nearly all in the lower two.
        share = min(1.0, 1.5 * number / len(bounds))
        yield f'{name}_bucket{{{labels}{comma}le="{bound}"}}', of, share
    yield f'{name}_bucket{{{labels}{comma}le="+Inf"}}', of, 1.0
    braces = f"{{{labels}}}" if labels else ""
    yield f"{name}_count{braces}", of, 1.0
    # The mean of what is observed lies in the middle of the bounds.
    yield f"{name}_sum{braces}", of, bounds[len(bounds) // 3]


def _template() -> tuple[str, tuple[tuple[str, float], ...]]:
    """The page with a gap for each number, and what goes into the gaps."""
    text, gaps, families = list[str](), list[tuple[str, float]](), set[str]()
    series_of = chain(_process(), _gauges(), _counters(), _histograms(), _requests())
    for series, of, share in series_of:
        name = series.partition("{")[0]
        family = name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
        if family not in families:
            families.add(family)
            kind = "counter" if family.endswith("_total") else "gauge"
            kind = "histogram" if name.endswith("_bucket") else kind
            text.append(f"# HELP {family} What an engine counts by this name.")
            text.append(f"# TYPE {family} {kind}")
            if family.endswith("_total") and family.startswith("vllm:"):
                created = f"{family.removesuffix('_total')}_created"
                text.append(f"{created}{{{_LABELS}}} {_STARTED}")
        text.append(f"{series} %s")
        gaps.append((of, share))
    return "\n".join(text) + "\n", tuple(gaps)


_TEXT, _GAPS = _template()


def vllm_part(sums: Sums) -> str:
    """What vLLM itself shows."""
    values = {name: getattr(sums, name) for name in Sums.__slots__}
    return _TEXT % tuple(_number(values[of] * share) for of, share in _GAPS)


def _number(value: float) -> str:
    return f"{value:.1f}" if value >= 1000 else repr(round(value, 6))  # noqa: PLR2004
