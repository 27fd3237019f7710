"""The simulated engine without its server: batches, drafts, and the same hook around each step.

It follows the constructed pair's language, so its completions are the real engine's, token for
token, and so is its acceptance; only the time a step takes comes from a `Plant`. What is drafted in
one step is verified in the next, as in vLLM.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fathom_vllm.hook import SchedulerHook
from local_cluster.engine.language import TrafficClass, class_of
from local_cluster.engine.plant import Plant


@dataclass(slots=True)
class SimulatedRequest:
    """A request on its way through the engine."""

    req_id: str
    traffic: TrafficClass
    last_token: int
    prompt_tokens: int
    max_tokens: int
    arrived_at_s: float
    tokens: list[int] = field(default_factory=list)
    drafted: int = 0
    first_token_at_s: float | None = None
    last_token_at_s: float = 0.0
    done: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: bool = False

    @property
    def num_computed_tokens(self) -> int:
        """Tokens of it that were computed: all but the last one, once it has any."""
        return self.prompt_tokens + len(self.tokens) - 1 if self.tokens else 0

    def is_finished(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.aborted or len(self.tokens) >= self.max_tokens


@dataclass(frozen=True, slots=True)
class SimulatedCached:
    """Requests of a step that are not new to it, in the shape the hook reads."""

    req_ids: list[str]
    num_computed_tokens: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """What was scheduled, in the same shape."""

    num_scheduled_tokens: dict[str, int]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    scheduled_new_reqs: list[SimulatedRequest]
    scheduled_cached_reqs: SimulatedCached
    num_spec_tokens_to_schedule: int
    num_invalid_spec_tokens: None = None

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Their sum."""
        return sum(self.num_scheduled_tokens.values())


@dataclass(frozen=True, slots=True)
class SimulatedSamples:
    """What was sampled, in the same shape."""

    req_id_to_index: dict[str, int]
    sampled_token_ids: list[list[int]]


@dataclass(frozen=True, slots=True)
class SimulatedOutput:
    """What a request emitted, in the same shape."""

    request_id: str
    new_token_ids: list[int]


@dataclass(frozen=True, slots=True)
class SimulatedDrafts:
    """What became of a step's drafts, in the same shape."""

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens_per_pos: list[int]


@dataclass(frozen=True, slots=True)
class SimulatedStats:
    """What the scheduler counted in a step."""

    spec_decoding_stats: SimulatedDrafts | None


@dataclass(frozen=True, slots=True)
class SimulatedOutputs:
    """What came of a step."""

    outputs: list[SimulatedOutput]
    scheduler_stats: SimulatedStats


class StepObserver:
    """Told of each step's outcome; the server keeps vLLM's own metrics with it."""

    def drafted(self, drafts: int, accepted: int) -> None:
        """A request verified `drafts` drafts and accepted that many."""

    def emitted(self, request: SimulatedRequest, tokens: int, now_s: float) -> None:
        """A request got tokens."""

    def finished(self, request: SimulatedRequest, now_s: float) -> None:
        """A request got its last token."""

    def stepped(self, tokens: int) -> None:
        """A step ended that scheduled so many tokens."""


class SimulatedEngine:
    """Runs as one task: `await run()`."""

    def __init__(
        self,
        *,
        max_batch: int,
        depth: int,
        table: Sequence[int] | None,
        cuts_drafts: bool = False,
        hook: SchedulerHook | None,
        observer: StepObserver,
        plant: Plant,
        clock: Callable[[], float],
    ) -> None:
        self.running: dict[str, SimulatedRequest] = {}
        self.waiting: deque[SimulatedRequest] = deque()
        self._max_batch = max_batch
        self._depth = depth
        self._cuts_drafts = cuts_drafts
        self._hook = hook
        self._table = table
        self._observer = observer
        self._plant = plant
        self._clock = clock
        self._wake = asyncio.Event()
        self._free_at_s = 0.0
        if hook is not None:
            self._table = hook.before_schedule() or table

    def submit(self, req_id: str, prompt: list[int], max_tokens: int) -> SimulatedRequest:
        """Queue a request; its `done` is set when it has all its tokens.

        Raises:
            ValueError: the prompt does not end on a cycle, so it has no continuation.
        """
        traffic = class_of(prompt[-1]) if prompt else None
        if traffic is None:
            raise ValueError(
                "the simulated engine continues only words such as easy-17 or hard-4; this prompt "
                "ends with another token"
            )
        request = SimulatedRequest(
            req_id=req_id,
            traffic=traffic,
            last_token=prompt[-1],
            prompt_tokens=len(prompt),
            max_tokens=max_tokens,
            arrived_at_s=self._clock(),
        )
        self.waiting.append(request)
        self._wake.set()
        return request

    def abort(self, request: SimulatedRequest) -> None:
        """Forget a request whose client went away."""
        request.aborted = True

    async def run(self) -> None:
        """Step while there are requests; wait while there are none."""
        while True:
            self._drop_finished()
            if not (self.running or self.waiting):
                self._wake.clear()
                await self._wake.wait()
            await self._step()

    async def _step(self) -> None:
        began_at = self._hook.now() if self._hook else 0.0
        if self._hook is not None:
            self._table = self._hook.before_schedule() or self._table
        step = self._schedule()
        if self._hook is not None:
            self._hook.after_schedule(step, began_at)
        requests = [self.running[name] for name in step.num_scheduled_tokens]
        most = self._most_verified(requests, step)
        await self._pass(self._seconds(step, sum(max(0, r.drafted - most) for r in requests)))
        rows = [self._sample(request, min(request.drafted, most)) for request in requests]
        names = {request.req_id: at for at, request in enumerate(requests)}
        by_context = (
            self._hook.before_update(step, SimulatedSamples(names, rows)) if self._hook else None
        )
        # As in vLLM, what was sampled for a request that ended meanwhile is passed over.
        outputs = _outputs(
            [
                (request, row)
                for request, row in zip(requests, rows, strict=True)
                if not request.aborted
            ]
        )
        for request, row in zip(requests, rows, strict=True):
            self._deliver(request, row, step.num_spec_tokens_to_schedule)
        self._drop_finished()
        self._observer.stepped(step.total_num_scheduled_tokens)
        if self._hook is not None:
            busy = bool(self.running or self.waiting)
            self._hook.after_update(step, {0: outputs}, busy=busy, by_context=by_context)

    def _schedule(self) -> SimulatedStep:
        new = []
        while self.waiting and len(self.running) < self._max_batch:
            request = self.waiting.popleft()
            self.running[request.req_id] = request
            new.append(request)
        scheduled = {
            name: request.drafted + 1 if request.tokens else request.prompt_tokens
            for name, request in self.running.items()
        }
        return SimulatedStep(
            num_scheduled_tokens=scheduled,
            scheduled_spec_decode_tokens={
                name: [-1] * request.drafted
                for name, request in self.running.items()
                if request.drafted
            },
            scheduled_new_reqs=new,
            scheduled_cached_reqs=SimulatedCached(
                [name for name, request in self.running.items() if request.tokens],
                [each.num_computed_tokens for each in self.running.values() if each.tokens],
            ),
            num_spec_tokens_to_schedule=(
                self._depth if self._table is None else self._table[len(scheduled)]
            ),
        )

    def _most_verified(self, requests: Sequence[SimulatedRequest], step: SimulatedStep) -> int:
        """Drafts of each request that are verified at most: after scheduling, as in vLLM."""
        if not self._cuts_drafts:
            return self._depth
        drafted = [(each.drafted, 1 - each.traffic.hard_share) for each in requests]
        return self._plant.worth_verifying(drafted, drafting=step.num_spec_tokens_to_schedule)

    def _seconds(self, step: SimulatedStep, cut: int) -> float:
        prefill = sum(request.prompt_tokens for request in step.scheduled_new_reqs)
        return self._plant.step_seconds(
            requests=len(step.num_scheduled_tokens),
            tokens=step.total_num_scheduled_tokens - prefill - cut,
            prefill=prefill,
            drafting=step.num_spec_tokens_to_schedule,
        )

    async def _pass(self, seconds: float) -> None:
        # Paced against a deadline, not by sleeping for the duration: timers are late by up to a
        # millisecond, which would add up to more than the differences between depths.
        now = self._clock()
        if now - self._free_at_s > seconds:
            self._free_at_s = now
        self._free_at_s += seconds
        await asyncio.sleep(max(0.0, self._free_at_s - now))

    def _sample(self, request: SimulatedRequest, verified: int) -> list[int]:
        right = request.traffic.accepted(request.last_token, verified)
        return list(request.traffic.walk(request.last_token, right + 1))

    def _deliver(self, request: SimulatedRequest, row: list[int], drafting: int) -> None:
        now = self._clock()
        if request.drafted:
            self._observer.drafted(request.drafted, len(row) - 1)
        kept = row[: request.max_tokens - len(request.tokens)]
        self._observer.emitted(request, len(kept), now)
        request.tokens += kept
        request.last_token = row[-1]
        request.drafted = drafting
        if request.is_finished():
            self._observer.finished(request, now)
            request.done.set()

    def _drop_finished(self) -> None:
        for name in [name for name, request in self.running.items() if request.is_finished()]:
            del self.running[name]
        while self.waiting and self.waiting[0].is_finished():
            self.waiting.popleft()


def _outputs(emitted: list[tuple[SimulatedRequest, list[int]]]) -> SimulatedOutputs:
    """What came of a step whose requests emitted these rows."""
    verified = [(request.drafted, len(row) - 1) for request, row in emitted if request.drafted]
    accepted = [
        sum(right > position for _, right in verified)
        for position in range(max((drafted for drafted, _ in verified), default=0))
    ]
    tokens = sum(drafted for drafted, _ in verified)
    drafts = SimulatedDrafts(len(verified), tokens, accepted) if verified else None
    outputs = [SimulatedOutput(request.req_id, row) for request, row in emitted]
    return SimulatedOutputs(outputs, SimulatedStats(drafts))
