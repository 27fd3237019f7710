"""vLLM's own metrics, as far as Fathom reads them, for the simulated engine."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from local_cluster.engine.simulated_core import SimulatedRequest, StepObserver

_LATENCIES = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TOKENS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class EngineMetrics(StepObserver):
    """Names, types and labels as in vLLM 0.32."""

    def __init__(self, registry: CollectorRegistry, model: str, depth: int) -> None:
        self._registry = registry
        self._labels = {"engine": "0", "model_name": model}
        self._drafts = self._counter("spec_decode_num_drafts", "Drafts")
        self._draft_tokens = self._counter("spec_decode_num_draft_tokens", "Draft tokens")
        self._accepted = self._counter("spec_decode_num_accepted_tokens", "Accepted tokens")
        per_position = Counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens per position",
            [*self._labels, "position"],
            registry=registry,
        )
        self._positions = [
            per_position.labels(**self._labels, position=str(position)) for position in range(depth)
        ]
        self._generated = self._counter("generation_tokens", "Generated tokens")
        self._prompted = self._counter("prompt_tokens", "Prompt tokens")
        self._counter("num_preemptions", "Preemptions")
        self._success = Counter(
            "vllm:request_success",
            "Finished requests",
            [*self._labels, "finished_reason"],
            registry=registry,
        )
        self.running = self._gauge("num_requests_running", "Requests running")
        self.waiting = self._gauge("num_requests_waiting", "Requests waiting")
        self.cache_usage = self._gauge("kv_cache_usage_perc", "KV cache in use, 1 is all of it")
        self._inter_token = self._histogram("inter_token_latency_seconds", "Between two outputs")
        self._per_token = self._histogram(
            "request_time_per_output_token_seconds", "Per token of a finished request"
        )
        self._first_token = self._histogram("time_to_first_token_seconds", "To the first token")
        self._iterations = self._histogram("iteration_tokens_total", "Tokens per step", _TOKENS)

    def drafted(self, drafts: int, accepted: int) -> None:
        """Count one verified draft."""
        self._drafts.inc()
        self._draft_tokens.inc(drafts)
        self._accepted.inc(accepted)
        for position in range(accepted):
            self._positions[position].inc()

    def emitted(self, request: SimulatedRequest, tokens: int, now_s: float) -> None:
        """Count tokens and the latency they arrived with."""
        self._generated.inc(tokens)
        if request.first_token_at_s is None:
            request.first_token_at_s = now_s
            self._prompted.inc(request.prompt_tokens)
            self._first_token.observe(now_s - request.arrived_at_s)
        else:
            self._inter_token.observe(now_s - request.last_token_at_s)
        request.last_token_at_s = now_s

    def finished(self, request: SimulatedRequest, now_s: float) -> None:
        """Count a finished request."""
        self._success.labels(**self._labels, finished_reason="length").inc()
        if request.first_token_at_s is not None and len(request.tokens) > 1:
            seconds = now_s - request.first_token_at_s
            self._per_token.observe(seconds / (len(request.tokens) - 1))

    def stepped(self, tokens: int) -> None:
        """Count a step."""
        self._iterations.observe(tokens)

    def _counter(self, name: str, text: str) -> Counter:
        counter = Counter(f"vllm:{name}", text, list(self._labels), registry=self._registry)
        return counter.labels(**self._labels)

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge = Gauge(f"vllm:{name}", text, list(self._labels), registry=self._registry)
        return gauge.labels(**self._labels)

    def _histogram(self, name: str, text: str, buckets: Sequence[float] = _LATENCIES) -> Histogram:
        histogram = Histogram(
            f"vllm:{name}", text, list(self._labels), buckets=buckets, registry=self._registry
        )
        return histogram.labels(**self._labels)
