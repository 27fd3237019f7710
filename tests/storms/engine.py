"""One engine of a history: the simulated engine with the real hook, slowed to a step a second.

What the operator may not notice: a step takes a second instead of a hundredth. All it measures is
in proportion, and a history of half an hour costs a second.
"""

import asyncio
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from prometheus_client.core import Metric

from fathom_vllm.counters import CountersWriter
from fathom_vllm.depth_file import DepthFile
from fathom_vllm.exposition import FathomCollector
from fathom_vllm.hook import SchedulerHook
from local_cluster.engine.plant import Plant
from local_cluster.engine.simulated_core import SimulatedEngine, SimulatedRequest, StepObserver
from storms.simulated_time import START_S

MAX_BATCH: Final = 8
SLOWER: Final = 200.0
PLANT: Final = Plant(
    step_s=0.0038 * SLOWER,
    token_s=0.0001 * SLOWER,
    draft_s=0.0004 * SLOWER,
    draft_request_s=0.00003 * SLOWER,
    prefill_token_s=0.00002 * SLOWER,
)
LOOK_S: Final = 1.0
_BUCKETS: Final = (1.0, 5.0, 20.0, 60.0, math.inf)


class _Counts(StepObserver):
    """What vLLM itself counts, as far as it is read."""

    def __init__(self) -> None:
        self.drafts = self.draft_tokens = self.accepted = self.tokens = 0
        self.finished_requests = 0
        self.tpot_s = 0.0
        self.tpot = [0] * len(_BUCKETS)
        self.ttft = [0] * len(_BUCKETS)

    def drafted(self, drafts: int, accepted: int) -> None:
        self.drafts += 1
        self.draft_tokens += drafts
        self.accepted += accepted

    def emitted(self, request: SimulatedRequest, tokens: int, now_s: float) -> None:
        self.tokens += tokens
        if request.first_token_at_s is None:
            request.first_token_at_s = now_s
            _count(self.ttft, (now_s - request.arrived_at_s) / SLOWER)
        request.last_token_at_s = now_s

    def finished(self, request: SimulatedRequest, now_s: float) -> None:
        self.finished_requests += 1
        if request.first_token_at_s is not None and len(request.tokens) > 1:
            seconds = (now_s - request.first_token_at_s) / (len(request.tokens) - 1)
            self.tpot_s += seconds
            _count(self.tpot, seconds)


def _count(buckets: list[int], value: float) -> None:
    for index, bound in enumerate(_BUCKETS):
        buckets[index] += value <= bound


class Engine:
    """From a process's start to its end. A restarted container is another one."""

    def __init__(
        self,
        directory: Path,
        pod: str,
        *,
        depth: int,
        table: list[int] | None,
        max_batch: int,
        cuts_drafts: bool = False,
        disk_full: bool = False,
        slower: float = 1.0,
        fails: bool = False,
    ) -> None:
        """Start it.

        Args:
            directory: where the depth document is mounted and the counters are kept.
            pod: the pod's name.
            depth: the engine's `num_speculative_tokens`.
            table: of depths by batch; None: an engine without live depth.
            max_batch: the engine's `max_num_seqs`.
            cuts_drafts: whether adaptive verification is on.
            disk_full: whether there is no room for the counters' file.
            slower: times as long as its steps take.
            fails: whether all requests fail.
        """
        loop = asyncio.get_running_loop()
        self.started_at_s = START_S + loop.time()
        self.max_batch = max_batch
        self.blind = disk_full
        self._fails = fails
        environ = {
            "FATHOM_DEPTH_FILE": str(directory / "depth" / "depth.json"),
            "FATHOM_POD_NAME": pod,
            "FATHOM_COUNTERS_FILE": str(directory / "counters"),
        }
        self._counts = _Counts()
        shown = None if disk_full else environ["FATHOM_COUNTERS_FILE"]
        counters = CountersWriter(shown, max_batch=max_batch, max_depth=depth)
        depth_file = DepthFile.from_environment(environ, max_depth=depth)
        self.hook = SchedulerHook(depth_file, counters, table, clock=loop.time)
        self._shown = FathomCollector(environ)
        self.engine = SimulatedEngine(
            max_batch=max_batch,
            depth=depth,
            table=table,
            cuts_drafts=cuts_drafts,
            hook=self.hook,
            observer=self._counts,
            plant=replace(PLANT, step_s=PLANT.step_s * slower),
            clock=loop.time,
        )
        self._tasks = [
            loop.create_task(self.engine.run(), name=f"engine of {pod}"),
            loop.create_task(self._watch(), name=f"depth watch of {pod}"),
        ]

    @property
    def depths(self) -> tuple[int, ...]:
        """The depth table in force, by batch."""
        table = self.engine._table
        return tuple(table[1:]) if table else ()

    def stop(self) -> None:
        """End it, with all that it had in flight."""
        for task in self._tasks:
            task.cancel()

    async def _watch(self) -> None:
        """What the hook does in a thread of its own."""
        while self.hook.watch is not None:
            self.hook.watch.look()
            await asyncio.sleep(LOOK_S)

    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """What its page shows: name, labels, value."""
        counts, model = self._counts, {"engine": "0", "model_name": "model"}
        failed = counts.finished_requests if self._fails else 0
        found: list[tuple[str, dict[str, str], float]] = [
            ("vllm:generation_tokens_total", model, counts.tokens),
            ("vllm:prompt_tokens_total", model, counts.finished_requests),
            ("vllm:num_preemptions_total", model, 0),
            ("vllm:spec_decode_num_drafts_total", model, counts.drafts),
            ("vllm:spec_decode_num_draft_tokens_total", model, counts.draft_tokens),
            ("vllm:spec_decode_num_accepted_tokens_total", model, counts.accepted),
            ("vllm:num_requests_running", model, len(self.engine.running)),
            ("vllm:num_requests_waiting", model, len(self.engine.waiting)),
            ("vllm:kv_cache_usage_perc", model, len(self.engine.running) / self.max_batch),
            (
                "vllm:request_success_total",
                {**model, "finished_reason": "length"},
                counts.finished_requests - failed,
            ),
            ("vllm:request_success_total", {**model, "finished_reason": "error"}, failed),
            ("process_start_time_seconds", {}, self.started_at_s),
        ]
        for name, buckets in (
            ("vllm:request_time_per_output_token_seconds", counts.tpot),
            ("vllm:time_to_first_token_seconds", counts.ttft),
        ):
            for bound, count in zip(_BUCKETS, buckets, strict=True):
                le = "+Inf" if math.isinf(bound) else str(bound)
                found.append((f"{name}_bucket", {**model, "le": le}, count))
            found.append((f"{name}_count", model, buckets[-1]))
            found.append((f"{name}_sum", model, counts.tpot_s))
        for family in self._shown.collect():
            found += [(each.name, dict(each.labels), each.value) for each in _samples(family)]
        return found


def _samples(family: Metric) -> list[Any]:
    return list(family.samples)


def page(samples: list[tuple[str, dict[str, str], float]]) -> bytes:
    """Prometheus's text format."""
    lines = []
    for name, labels, value in samples:
        inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
        lines.append(f"{name}{{{inside}}} {value}")
    return ("\n".join(lines) + "\n").encode()


def write_atomically(path: Path, text: str) -> None:
    """As a kubelet swaps a volume: a new inode at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)  # noqa: PTH105
