"""An engine that serves requests one by one, as vLLM does, and counts as Fathom's plugin does.

In each step all that decode come first, each with its drafts, as far as the token budget goes; then
prompts, in chunks or whole; then those that wait. What was drafted in one step is verified in the
next, so a change of depth makes a step that mixes depths. An answer may end before the last of its
accepted drafts. Under asynchronous scheduling a request is in one more step after its end. Where
the KV cache is full, the request that came last is preempted, and starts again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fathom.core.measurement import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    PodCounters,
    StepKind,
    bucket_of,
)
from fathom_bench.tuner.requests.arrivals import Arrivals, Request
from fathom_bench.tuner.requests.world import EnginePart, HardwarePart
from fathom_bench.tuner.worlds.parts import DEEPEST
from fathom_vllm.steps import Stalls

EPOCH_S: Final = 1_750_032_000.0
"""Unix seconds at the world's beginning."""

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Served:
    """What users got of one engine, in truth."""

    tokens: int = 0
    """Emitted, whether or not their requests have ended."""
    finished: int = 0
    finished_tokens: int = 0
    busy_s: float = 0.0
    first_token_s: list[float] = field(default_factory=list)
    """From arrival to the first token, of each request."""
    waiting_s: float = 0.0
    """Sum over time of the requests that wait."""


@dataclass(slots=True)
class _Counts:
    """One cell of the plugin's."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    requests: int = 0
    prefill: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one step schedules."""

    decodes: Ints
    """Indices of requests that verify …"""
    verified: Ints
    """… and how many drafts of each."""
    chunks: Mapping[int, int]
    """Index of a request to prompt tokens."""
    lone: int
    """Chunks of one token, of requests that a step has had before."""


class RequestEngine:
    """One pod's engine. Times are seconds since the world began."""

    def __init__(
        self,
        *,
        name: str,
        settings: EnginePart,
        hardware: HardwarePart,
        arrivals: Arrivals,
        depth: int,
        seed: int,
        stalls: Mapping[int, float],
    ) -> None:
        """Start one.

        Args:
            name: of its pod.
            settings: vLLM's.
            hardware: how fast it is.
            arrivals: its requests.
            depth: at every batch, at first.
            seed: of acceptance and of the noise.
            stalls: seconds that the first step of decodes takes longer, by depth.
        """
        self.name = name
        self.now_s = 0.0
        self.generation = 0
        self.table: Sequence[int] = [depth] * (settings.max_batch + 1)
        self.served = Served()
        self._settings = settings
        self._hardware = hardware
        self._arrivals = arrivals
        self._random = np.random.default_rng(seed)
        self._stalls = dict(stalls)
        self._stall_watch = Stalls()
        self._requests: list[Request] = []
        none = np.zeros(0, np.int64)
        # Of each request, in the order of `_requests`: looked at in every step.
        self._prompt, self._answer, self._drafts, self._context = none, none, none, none
        self._ended = np.zeros(0, bool)
        self._log_survival = np.zeros((0, DEEPEST))
        self._cells: dict[Cell, _Counts] = {}
        self._draft_cells: dict[DraftCell, tuple[int, Ints]] = {}
        self._transitions = _Counts()
        self._verified = self._drafted_tokens = self._accepted = 0
        self._prefilled = self._preemptions = 0

    @property
    def waiting(self) -> int:
        """Requests that no step has had yet."""
        return len(self._arrivals.waiting)

    def advance(self, until_s: float) -> None:
        """Serve until then, or until the step that is running then has ended."""
        while self.now_s < until_s:
            self._arrivals.arrive(self.now_s)
            if self._requests or self._arrivals.waiting:
                self._step()
            else:
                self.now_s = min(until_s, max(self._arrivals.next_s(self.now_s), self.now_s + 1e-6))

    def counters(self) -> PodCounters:
        """What a scrape shows now."""
        served = self.served
        return PodCounters(
            pod=self.name,
            at_s=EPOCH_S + self.now_s,
            started_at_s=EPOCH_S,
            engine=EngineCounts(
                generation_tokens=float(served.tokens),
                prompt_tokens=float(self._prefilled),
                preemptions=float(self._preemptions),
                drafts=float(self._verified),
                draft_tokens=float(self._drafted_tokens),
                accepted_tokens=float(self._accepted),
                finished_requests=float(served.finished),
                requests_running=float(len(self._requests)),
                requests_waiting=float(self.waiting),
            ),
            live_depth=True,
            depth_generation=self.generation,
            token_budget=self._settings.token_budget,
            device=self._hardware.device,
            transition_steps=float(self._transitions.steps),
            transition_seconds=self._transitions.seconds,
            transition_tokens=float(self._transitions.tokens),
            transition_prefill=float(self._transitions.prefill),
            cells={
                cell: CellCounts(
                    float(of.steps),
                    of.seconds,
                    float(of.tokens),
                    float(of.requests),
                    float(of.prefill),
                )
                for cell, of in self._cells.items()
            },
            drafts={
                cell: DraftCounts(float(drafts), tuple(accepted.astype(float).tolist()))
                for cell, (drafts, accepted) in self._draft_cells.items()
            },
        )

    def _step(self) -> None:
        plan = self._schedule()
        batch = len(plan.decodes) + len(plan.chunks)
        depth = self.table[min(batch, self._settings.max_batch)]
        prefill = sum(plan.chunks.values())
        whole = [at for at, chunk in plan.chunks.items() if chunk == self._prompt[at]]
        scheduled = np.concatenate([plan.decodes, np.array([*plan.chunks], np.int64)])
        seconds = self._hardware.step_s(
            tokens=int(plan.verified.sum()) + len(plan.decodes) + prefill,
            context=float(self._context[scheduled].sum()),
            depth=depth,
            drafting=len(plan.decodes) + len(whole),
        )
        if self._hardware.noise:
            seconds *= float(np.exp(self._random.normal(0, self._hardware.noise)))
        # A chunk of one token looks like a decode without drafts, and the plugin takes it for one.
        uniform = bool((plan.verified == depth).all()) and not (depth and plan.lone)
        if uniform and len(plan.decodes) and not prefill:
            seconds += self._stalls.pop(depth, 0.0)
        self.now_s += seconds
        self.served.busy_s += seconds
        self.served.waiting_s += seconds * self.waiting
        before = self.served.tokens
        drafts, accepted = self._verify(plan, depth)
        self._prefill(plan.chunks, whole)
        self._drafts[scheduled] = np.where(self._prompt[scheduled] == 0, depth, 0)
        self._count(
            _Counts(1, seconds, self.served.tokens - before, batch, prefill - plan.lone),
            depth=depth if uniform else None,
            drafts=drafts,
            accepted=accepted,
        )
        self._end()

    def _schedule(self) -> _Plan:
        """Decodes first, then prompts, then those that wait."""
        left = self._settings.token_budget
        decodes = np.flatnonzero(self._prompt == 0)
        needed = np.cumsum(self._drafts[decodes] + 1)
        fitting = int(np.searchsorted(needed, left, side="right"))
        verified = self._drafts[decodes[:fitting]]
        left -= int(needed[fitting - 1]) if fitting else 0
        if fitting < len(decodes) and left:  # the next one is cut
            verified = np.append(verified, left - 1)
            fitting, left = fitting + 1, 0
        chunks: dict[int, int] = {}
        for at in np.flatnonzero(self._prompt > 0):
            if not (chunk := self._chunk(int(self._prompt[at]), left, alone=not chunks)):
                break
            chunks[int(at)] = chunk
            left -= chunk
        lone = [*chunks.values()].count(1)
        waiting = self._arrivals.waiting
        while left and waiting and len(self._requests) < self._settings.max_batch:
            alone = not self._requests
            if not (chunk := self._chunk(waiting[0].prompt, left, alone=alone)):
                break
            if not alone and self._full(waiting[0]):
                break
            # What was preempted is not new to the engine.
            lone += chunk == 1 and waiting[0].preempted
            chunks[self._admit(waiting.popleft())] = chunk
            left -= chunk
        return _Plan(decodes[:fitting], verified, chunks, lone)

    def _chunk(self, prompt: int, left: int, *, alone: bool) -> int:
        """How much of a prompt is prefilled now."""
        if self._settings.chunked_prefill:
            return min(prompt, left)
        whole_budget = left == self._settings.token_budget
        return prompt if prompt <= left or (alone and whole_budget) else 0

    def _full(self, request: Request) -> bool:
        needed = int(self._context.sum()) + request.prompt + request.context
        return needed > self._settings.kv_tokens

    def _admit(self, request: Request) -> int:
        self._requests.append(request)
        self._prompt = np.append(self._prompt, request.prompt)
        self._answer = np.append(self._answer, request.answer)
        self._context = np.append(self._context, request.context)
        self._drafts = np.append(self._drafts, 0)
        self._ended = np.append(self._ended, False)
        self._log_survival = np.vstack([self._log_survival, request.log_survival])
        return len(self._requests) - 1

    def _verify(self, plan: _Plan, depth: int) -> tuple[int, Ints]:
        """Emit what is accepted; how many drafts were verified, and accepted by position."""
        accepted = np.zeros(depth, np.int64)
        if not len(plan.decodes):
            return 0, accepted
        at, drafted = plan.decodes, plan.verified
        luck = np.log(1 - self._random.random(len(at)))
        run = np.minimum((self._log_survival[at] > luck[:, None]).sum(axis=1), drafted)
        lives = ~self._ended[at]
        emitted = np.where(lives, np.minimum(run + 1, self._answer[at]), 0)
        self._answer[at] -= emitted
        self._context[at] += emitted
        self.served.tokens += int(emitted.sum())
        drafts = int((lives & (drafted > 0)).sum())
        self._verified += drafts
        self._drafted_tokens += int(drafted[lives].sum())
        self._accepted += int(run[lives].sum())
        if depth:
            reached = np.bincount(np.minimum(run[lives], depth), minlength=depth + 1)
            accepted = reached[::-1].cumsum()[::-1][1:]
        return drafts, accepted

    def _prefill(self, chunks: Mapping[int, int], whole: Sequence[int]) -> None:
        for at, chunk in chunks.items():
            self._prompt[at] -= chunk
            self._context[at] += chunk
            self._prefilled += chunk
        for at in whole:
            request = self._requests[at]
            self._answer[at] -= 1
            self._context[at] += 1
            self.served.tokens += 1
            if request.first_s < 0:
                request.first_s = self.now_s
                self.served.first_token_s.append(self.now_s - request.born_s)

    def _count(self, step: _Counts, *, depth: int | None, drafts: int, accepted: Ints) -> None:
        """As the plugin does."""
        if depth is None:
            _add(self._transitions, step)
            return
        if not step.prefill:
            step.seconds -= self._stall_watch.excess_s(step.seconds)
        kind = StepKind.MIXED if step.prefill else StepKind.DECODE
        bucket = bucket_of(step.requests)
        _add(self._cells.setdefault(Cell(bucket, depth, kind), _Counts()), step)
        if drafts:
            cell = DraftCell(bucket, depth)
            known = self._draft_cells.get(cell, (0, np.zeros(depth, np.int64)))
            self._draft_cells[cell] = known[0] + drafts, known[1] + accepted

    def _end(self) -> None:
        """Let go of those that are done, and of the last one while the KV cache is too small."""
        newly = (self._prompt == 0) & (self._answer <= 0) & ~self._ended
        for at in np.flatnonzero(newly):
            self.served.finished += 1
            self.served.finished_tokens += self._requests[at].whole
            self._arrivals.ended()
        gone = self._ended if self._settings.asynchronous else newly
        self._ended = self._ended | newly
        if gone.any():
            self._keep(~gone)
        while len(self._requests) > 1 and int(self._context.sum()) > self._settings.kv_tokens:
            self._preempt()

    def _preempt(self) -> None:
        at = len(self._requests) - 1
        request = self._requests[at]
        if not self._ended[at]:
            self._preemptions += 1
            request.prompt = int(self._prompt[at] + self._context[at])
            request.answer, request.context = int(self._answer[at]), 0
            request.preempted = True
            self._arrivals.waiting.appendleft(request)
        keep = np.ones(len(self._requests), bool)
        keep[at] = False
        self._keep(keep)

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        self._requests = [each for each, kept in zip(self._requests, keep, strict=True) if kept]
        self._prompt, self._answer = self._prompt[keep], self._answer[keep]
        self._drafts, self._context = self._drafts[keep], self._context[keep]
        self._ended, self._log_survival = self._ended[keep], self._log_survival[keep]


def _add(to: _Counts, more: _Counts) -> None:
    to.steps += more.steps
    to.seconds += more.seconds
    to.tokens += more.tokens
    to.requests += more.requests
    to.prefill += more.prefill
