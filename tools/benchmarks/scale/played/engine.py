"""An engine without a process: its counters go on with time, at the depths that it was told of."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.scale.played.engine_page import Sums, vllm_part
from fathom_vllm.buckets import (
    CONTEXT_RANGES,
    bucket_index,
    first_batch,
    first_context,
    last_batch,
    last_context,
)
from fathom_vllm.counters import MIXED, STEP_KINDS
from fathom_vllm.depth_document import (
    DepthDocumentError,
    depth_table,
    parse_depth_document,
    schedule_hash,
)
from local_cluster.engine.plant import Plant

MAX_BATCH: Final = 256
MAX_DEPTH: Final = 7
TOKENS: Final = 3
"""The depth it was started with."""
_PLANT: Final = Plant(
    step_s=0.012, token_s=2e-5, draft_s=0.0011, draft_request_s=1e-5, prefill_token_s=1e-5
)
_ACCEPTANCE: Final = 0.72
"""Acceptance of a draft whose forerunners were accepted."""
_TOKENS_PER_REQUEST: Final = 200.0
_PROMPT: Final = 512
_MIXED: Final = 0.05
"""Share of the steps that hold a prefill."""
_MIDDLE, _SWING, _PERIOD_S = 24.0, 16.0, 1800.0
"""Requests in flight: a wave."""
_PAST_DEPTHS: Final = range(1, 6)
_BUSY_S: Final = 600.0
"""In each cell of these depths, before the benchmark: an engine that has run for a while."""
_LONGEST_S: Final = 30.0
"""Stretches of time in which the batch counts as constant."""


_PREFILL: Final = "fathom_prefill_tokens_total"
"""Counter of mixed steps alone."""
_FAMILIES: Final = (
    "fathom_steps_total",
    "fathom_step_seconds_total",
    "fathom_tokens_total",
    "fathom_scheduled_requests_total",
    _PREFILL,
)


@dataclass(slots=True)
class _Cell:
    """Steps of one batch bucket and depth; five sums of decode steps, then of mixed ones."""

    bucket: int
    depth: int
    sums: list[float] = field(default_factory=lambda: [0.0] * 2 * len(_FAMILIES))
    drafts: float = 0.0
    accepted: list[float] = field(default_factory=list)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Each family's name, and its lines."""
        batches = f'batch_ge="{first_batch(self.bucket)}",batch_le="{last_batch(self.bucket)}"'
        labels = f'{batches},depth="{self.depth}"'
        for at, name in enumerate(_FAMILIES):
            yield (
                name,
                "".join(
                    f'{name}{{{labels},step="{kind}"}} '
                    f"{_shown(name, self.sums[len(_FAMILIES) * number + at])}\n"
                    for number, kind in enumerate(STEP_KINDS)
                    if number == MIXED or name != _PREFILL
                ),
            )
        yield _DRAFTS, f"{_DRAFTS}{{{labels}}} {round(self.drafts)}.0\n"
        yield (
            _ACCEPTED,
            "".join(
                f'{_ACCEPTED}{{{labels},position="{position}"}} {round(count)}.0\n'
                for position, count in enumerate(self.accepted)
            ),
        )


def _shown(family: str, value: float) -> str:
    """Seconds as they are; everything else is counted."""
    return repr(value) if "seconds" in family else f"{round(value)}.0"


_DRAFTS: Final = "fathom_drafts_total"
_ACCEPTED: Final = "fathom_accepted_tokens_total"
_CONTEXTS: Final = (
    "fathom_context_drafts_total",
    "fathom_context_draft_tokens_total",
    "fathom_context_accepted_tokens_total",
    "fathom_context_first_accepted_total",
)


class PlayedEngine:
    """One pod's engine. Times are Unix seconds."""

    def __init__(self, pod: str, phase: float, now_s: float) -> None:
        """Start one that has a past.

        Args:
            pod: its name.
            phase: where in the wave of requests its resource is, from 0 to 1.
            now_s: from when on it counts.
        """
        self._pod = pod
        self._phase = phase
        self._random = random.Random(pod)  # noqa: S311 - noise, not a secret
        self._at_s = now_s
        self._started_at_s = round(now_s - 3600.0, 2)
        self._busy = False
        self._generation = 0
        self._schedule_hash = 0
        self._table = [TOKENS] * (MAX_BATCH + 1)
        self._cells: dict[tuple[int, int], _Cell] = {}
        self._lines: dict[str, dict[tuple[int, int], str]] = {
            name: {} for name in (*_FAMILIES, _DRAFTS, _ACCEPTED)
        }
        self._moved: set[tuple[int, int]] = set()
        self._steps = self._tokens = self._seconds = 0.0
        self._drafts = self._draft_tokens = self._accepted = self._first_accepted = 0.0
        low, high = (round(_MIDDLE + swing) for swing in (-_SWING, _SWING))
        for bucket in range(bucket_index(low), bucket_index(high) + 1):
            for depth in _PAST_DEPTHS:
                self._serve(_BUSY_S, last_batch(bucket), depth)

    def obey(self, document: str) -> None:
        """Put a depth document in force; what cannot be read changes nothing, as in an engine."""
        try:
            told = parse_depth_document(document, pod=self._pod, max_depth=MAX_DEPTH)
        except DepthDocumentError:
            return
        self._generation = told.generation
        self._schedule_hash = schedule_hash(told.schedule)
        self._table = depth_table(told.schedule, MAX_BATCH)

    def set_traffic(self, *, busy: bool, now_s: float) -> None:
        """Requests come from now on, or no more of them."""
        self._go_on(now_s)
        self._busy = busy

    def page(self, now_s: float) -> str:
        """What it shows now."""
        self._go_on(now_s)
        for key in self._moved:
            for name, text in self._cells[key].lines():
                self._lines[name][key] = text
        self._moved.clear()
        parts = [
            vllm_part(
                Sums(
                    started_at_s=self._started_at_s,
                    requests=self._tokens / _TOKENS_PER_REQUEST,
                    tokens=self._tokens,
                    steps=self._steps,
                    drafts=self._drafts,
                    draft_tokens=self._draft_tokens,
                    accepted=self._accepted,
                    step_seconds=self._seconds,
                    running=float(self._batch(now_s)) if self._busy else 0.0,
                )
            ),
            _STATE.format(
                generation=self._generation,
                schedule=self._schedule_hash,
                seen=int(self._generation > 0),
                pod=self._pod,
            ),
        ]
        for name, cells in self._lines.items():
            parts += [f"# HELP {name} Of steps, by cell.\n# TYPE {name} counter\n", *cells.values()]
        return "".join([*parts, *self._contexts()])

    def _contexts(self) -> Iterator[str]:
        """As many drafts in each range of contexts."""
        sums = (self._drafts, self._draft_tokens, self._accepted, self._first_accepted)
        for name, total in zip(_CONTEXTS, sums, strict=True):
            yield f"# HELP {name} Of drafts, by context.\n# TYPE {name} counter\n"
            count = round(total / CONTEXT_RANGES)
            for index in range(CONTEXT_RANGES):
                last = last_context(index) or "+Inf"
                labels = f'context_ge="{first_context(index)}",context_le="{last}"'
                yield f"{name}{{{labels}}} {count}.0\n"

    def _go_on(self, now_s: float) -> None:
        while self._busy and self._at_s < now_s:
            seconds = min(now_s - self._at_s, _LONGEST_S)
            batch = self._batch(self._at_s + seconds / 2)
            self._serve(seconds, batch, self._table[batch])
            self._at_s += seconds
        self._at_s = max(self._at_s, now_s)

    def _batch(self, at_s: float) -> int:
        return round(_MIDDLE + _SWING * math.sin(math.tau * (at_s / _PERIOD_S + self._phase)))

    def _serve(self, seconds: float, batch: int, depth: int) -> None:
        """Count what so many seconds at one batch and depth make."""
        key = bucket_index(batch), depth
        cell = self._cells.setdefault(key, _Cell(*key, accepted=[0.0] * depth))
        self._moved.add(key)
        decode_s, mixed_s = (
            _PLANT.step_seconds(
                requests=batch, tokens=batch * (depth + 1), prefill=prefill, drafting=depth
            )
            for prefill in (0, _PROMPT)
        )
        steps = seconds / ((1 - _MIXED) * decode_s + _MIXED * mixed_s)
        drafts = steps * batch
        accepted = self._accept(drafts, depth)
        tokens = drafts + sum(accepted)
        for number, (share, step_s) in enumerate(((1 - _MIXED, decode_s), (_MIXED, mixed_s))):
            noise = 1 + self._random.gauss(0, 0.1 / math.sqrt(max(1.0, share * steps)))
            sums = (steps, steps * step_s * noise, tokens, drafts, steps * _PROMPT)
            for at, more in enumerate(sums):
                cell.sums[len(_FAMILIES) * number + at] += share * more
        self._steps += steps
        self._tokens += tokens
        self._seconds += seconds
        if depth:
            cell.drafts += drafts
            cell.accepted = [one + more for one, more in zip(cell.accepted, accepted, strict=True)]
            self._drafts += drafts
            self._draft_tokens += drafts * depth
            self._accepted += sum(accepted)
            self._first_accepted += accepted[0]

    def _accept(self, drafts: float, depth: int) -> Sequence[float]:
        """How many drafts were accepted up to each position."""
        counts, reached = list[float](), drafts
        for _ in range(depth):
            mean = reached * _ACCEPTANCE
            spread = math.sqrt(mean * (1 - _ACCEPTANCE))
            reached = min(reached, max(0.0, mean + self._random.gauss(0, spread)))
            counts.append(reached)
        return counts


_STATE: Final = """\
# TYPE fathom_plugin_info gauge
fathom_plugin_info{{version="0.1.0",content="played",pod_name="{pod}"}} 1.0
# TYPE fathom_pod_named gauge
fathom_pod_named 1.0
# TYPE fathom_engine_info gauge
fathom_engine_info{{device="NVIDIA GB200"}} 1.0
# TYPE fathom_counters_shown gauge
fathom_counters_shown 1.0
# TYPE fathom_live_depth gauge
fathom_live_depth 1.0
# TYPE fathom_depth_generation gauge
fathom_depth_generation {generation}.0
# TYPE fathom_depth_schedule_hash gauge
fathom_depth_schedule_hash {schedule}.0
# TYPE fathom_depth_document_seen gauge
fathom_depth_document_seen {seen}.0
# TYPE fathom_depth_document_gone gauge
fathom_depth_document_gone 0.0
# TYPE fathom_depth_rejections_total counter
fathom_depth_rejections_total 0.0
# TYPE fathom_hook_errors_total counter
fathom_hook_errors_total 0.0
# TYPE fathom_hook_seconds_total counter
fathom_hook_seconds_total 0.5
# TYPE fathom_transition_steps_total counter
fathom_transition_steps_total 0.0
# TYPE fathom_transition_step_seconds_total counter
fathom_transition_step_seconds_total 0.0
# TYPE fathom_transition_tokens_total counter
fathom_transition_tokens_total 0.0
# TYPE fathom_transition_prefill_tokens_total counter
fathom_transition_prefill_tokens_total 0.0
# TYPE fathom_stalled_steps_total counter
fathom_stalled_steps_total 0.0
# TYPE fathom_stalled_step_seconds_total counter
fathom_stalled_step_seconds_total 0.0
# TYPE fathom_token_budget gauge
fathom_token_budget 8192.0
"""
