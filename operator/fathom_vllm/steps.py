"""What one engine step was: its batch, its depth, what it emitted, how long it took. Pure.

A step costs the verification of the drafts made before it and the drafting of the next ones. Only
where both used one depth does its time say something about that depth, so:

* *batch* is the number of requests scheduled, prefill chunks included: vLLM's index into the table;
* *depth* is the number of draft tokens verified per decoding request, counted, not looked up;
* a step with any prefill is `mixed`. One with nothing but prefill verifies no draft; its depth is
  the one it drafts with;
* a step whose requests verify different depths, or which drafts for another depth than it verifies,
  belongs to no cell: a *transition*. That takes in the step after every change of depth (by the
  file, or by the batch moving to another range), a request near `max_model_len` whose drafts are
  cut, drafts that a grammar shortened before they were scheduled, and a decoding request that
  brings no drafts (resumed after a preemption with everything cached). All are rare, and visible in
  a counter of their own. Near `max_tokens` vLLM schedules in full or not at all, which needs no
  rule; drafts a grammar invalidates later are still verified, and count as rejected, as in vLLM;
* requests that ended while the step was in flight (aborts; under asynchronous scheduling also
  stops) count towards the batch, since the engine computed them, but neither tokens nor drafts,
  exactly as vLLM passes over them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fathom_vllm.counters import DECODE, MIXED, CountersWriter

LONGEST_GAP_S = 1.0
"""A busy engine leaves microseconds between two steps; beyond this it was paused or asleep."""


class NewRequest(Protocol):
    """A request's first appearance in a step."""

    @property
    def req_id(self) -> str:
        """The request's id."""


class ScheduledStep(Protocol):
    """The part of vLLM's `SchedulerOutput` that is read (0.28 to 0.32)."""

    @property
    def num_scheduled_tokens(self) -> dict[str, int]:
        """Tokens per request, drafts included."""

    @property
    def scheduled_spec_decode_tokens(self) -> dict[str, list[int]]:
        """Drafts per request; a request without any is absent."""

    @property
    def scheduled_new_reqs(self) -> Sequence[NewRequest]:
        """Requests that appear for the first time."""

    @property
    def num_spec_tokens_to_schedule(self) -> int:
        """Depth of the drafts that the step makes for the next one."""


class RequestState(Protocol):
    """The part of vLLM's `Request` that is read."""

    def is_finished(self) -> bool:
        """Whether it ended, so that vLLM discards what the step sampled for it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step, ready to be counted. `depth` is None for a transition."""

    batch: int
    depth: int | None
    kind: int
    tokens: int
    drafts: int
    accepted: list[int]


def observe_step(
    step: ScheduledStep,
    sampled: Sequence[Sequence[int]],
    index: Mapping[str, int],
    requests: Mapping[str, RequestState],
    max_depth: int,
) -> Step:
    """Describe a step from what was scheduled and what the model sampled.

    To be called before vLLM's `update_from_output`, which cuts `sampled` at stops.

    Args:
        step: what was scheduled.
        sampled: sampled tokens per row; empty where a prompt is not finished.
        index: request id to row of `sampled`.
        requests: vLLM's live requests.
        max_depth: longest draft.
    """
    drafted_with = step.num_spec_tokens_to_schedule
    drafted = step.scheduled_spec_decode_tokens
    new = {request.req_id for request in step.scheduled_new_reqs} if step.scheduled_new_reqs else ()
    depth = -1
    uniform = True
    kind = DECODE
    tokens = drafts = 0
    lengths = [0] * (max_depth + 1)
    for request_id, scheduled in step.num_scheduled_tokens.items():
        draft = len(drafted[request_id]) if request_id in drafted else 0
        if scheduled > draft + 1 or request_id in new:
            kind = MIXED
        elif depth < 0:
            depth = draft
        elif draft != depth:
            uniform = False
        request = requests.get(request_id)
        if request is None or request.is_finished():
            continue
        emitted = len(sampled[index[request_id]]) if sampled else 0
        if emitted:
            tokens += emitted
            if draft:
                drafts += 1
                lengths[emitted - 1] += 1
    if depth < 0:
        depth = drafted_with
    known = uniform and depth == drafted_with
    return Step(
        batch=len(step.num_scheduled_tokens),
        depth=depth if known else None,
        kind=kind,
        tokens=tokens,
        drafts=drafts,
        accepted=_accepted_per_position(lengths, depth) if known and drafts else [],
    )


def _accepted_per_position(lengths: list[int], depth: int) -> list[int]:
    """Drafts accepted up to each position, from how many had exactly that many accepted."""
    accepted = [0] * depth
    running = 0
    for position in range(depth - 1, -1, -1):
        running += lengths[position + 1]
        accepted[position] = running
    return accepted


class StepClock:
    """Busy seconds per step.

    A step runs from the end of the one before it (with asynchronous scheduling it was scheduled
    earlier, but ran behind that one) or from its own scheduling after the engine was idle. So the
    overlap is not counted twice, and waiting for requests is not step time.
    """

    def __init__(self) -> None:
        self._scheduled: dict[int, float] = {}
        self._ended_at = 0.0
        self._busy = False

    def scheduled(self, step: object, at: float) -> None:
        """Remember when the scheduling of `step` began."""
        if len(self._scheduled) > _MOST_IN_FLIGHT:  # vLLM dropped outputs; do not keep them all
            self._scheduled.clear()
        self._scheduled[id(step)] = at

    def ended(self, step: object, at: float, *, busy: bool) -> float:
        """Seconds `step` took, given that it ended now.

        Args:
            step: the object given to `scheduled`.
            at: now.
            busy: whether requests are left, so that the gap to the next step is work, not waiting.
        """
        scheduled_at = self._scheduled.pop(id(step), at)
        began_at = max(self._ended_at, scheduled_at)
        if self._busy and scheduled_at - self._ended_at < LONGEST_GAP_S:
            began_at = self._ended_at
        self._ended_at = at
        self._busy = busy
        return at - began_at


_MOST_IN_FLIGHT = 64


def count_step(counters: CountersWriter, step: Step, seconds: float) -> None:
    """Put an observed step into its cell."""
    if not step.batch:
        return
    if step.depth is None:
        counters.transition_step()
        return
    counters.step(
        batch=step.batch, depth=step.depth, kind=step.kind, seconds=seconds, tokens=step.tokens
    )
    if step.drafts:
        counters.drafts(
            batch=step.batch, depth=step.depth, drafts=step.drafts, accepted=step.accepted
        )
