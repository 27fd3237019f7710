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

All this runs in every step, for up to a thousand requests, where a Python loop over them takes the
better part of a millisecond. So what requests have in common is asked of all at once, by calls that
loop in C, and only those that differ are looked at one by one: prefills, and requests that ended.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import count, filterfalse
from operator import mul
from typing import NamedTuple, Protocol

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

    @property
    def finished_req_ids(self) -> Collection[str]:
        """Requests that ended after the step before it was scheduled, and before it was."""


class RequestState(Protocol):
    """The part of vLLM's `Request` that is read."""

    def is_finished(self) -> bool:
        """Whether it ended, so that vLLM discards what the step sampled for it."""


class Step(NamedTuple):
    """One step, ready to be counted. A tuple, since one is made in every step."""

    batch: int
    depth: int | None
    """None for a transition, of which nothing but the batch is told."""
    kind: int = DECODE
    tokens: int = 0
    drafts: int = 0
    accepted: Sequence[int] = ()


def observe_step(
    step: ScheduledStep,
    sampled: Sequence[Sequence[int]],
    index: Mapping[str, int],
    requests: Mapping[str, RequestState],
    finished: Collection[str],
    *,
    max_depth: int,
) -> Step:
    """Describe a step from what was scheduled and what the model sampled.

    To be called before vLLM's `update_from_output`, which cuts `sampled` at stops.

    Args:
        step: what was scheduled.
        sampled: sampled tokens per row, a row for each request of the step; empty where a prompt is
            not finished.
        index: request id to row of `sampled`.
        requests: vLLM's live requests.
        finished: every request that ended since the step was scheduled, and perhaps others.
        max_depth: longest draft.
    """
    scheduled = step.num_scheduled_tokens
    drafted = step.scheduled_spec_decode_tokens
    depth = step.num_spec_tokens_to_schedule
    kind, undrafted = (DECODE, ()) if _is_plain(step) else _told_apart(step)
    if kind is None:
        return Step(len(scheduled), None)
    if not sampled:
        return Step(len(scheduled), depth, kind)
    if len(sampled) != len(scheduled):
        sampled, index = _own_rows(scheduled, sampled, index)
    emitted = _rows_by_length(sampled, depth + 1, max_depth + 1)
    over: Collection[str] = ()
    if finished:
        over = {name for name in finished if name in scheduled and _is_over(requests.get(name))}
    for name in over:
        if name in index:
            emitted[len(sampled[index[name]])] -= 1
    tokens = sum(map(mul, emitted, count()))
    if not drafted:
        return Step(len(scheduled), depth, kind, tokens)
    for name in undrafted:
        if name not in over:
            emitted[len(sampled[index[name]])] -= 1
    drafts = sum(emitted[1:])
    accepted = [sum(emitted[position + 2 :]) for position in range(depth)] if drafts else ()
    return Step(len(scheduled), depth, kind, tokens, drafts, accepted)


def _own_rows(
    scheduled: Mapping[str, int], sampled: Sequence[Sequence[int]], index: Mapping[str, int]
) -> tuple[Sequence[Sequence[int]], Mapping[str, int]]:
    """The rows of a step's requests alone, and where each is."""
    names = [name for name in scheduled if name in index]
    return [sampled[index[name]] for name in names], {name: at for at, name in enumerate(names)}


def _is_plain(step: ScheduledStep) -> bool:
    """Whether all requests verify drafts of one length and nothing else: most steps are that."""
    scheduled = step.num_scheduled_tokens
    drafted = step.scheduled_spec_decode_tokens
    depth = step.num_spec_tokens_to_schedule
    if step.scheduled_new_reqs or len(drafted) != (len(scheduled) if depth else 0):
        return False
    tokens = [*scheduled.values()]
    if tokens.count(depth + 1) != len(tokens):
        return False
    # Under asynchronous scheduling all hold one and the same list, so that no element is compared.
    drafts = [*drafted.values()]
    return not drafts or (len(drafts[0]) == depth and drafts.count(drafts[0]) == len(drafts))


def _told_apart(step: ScheduledStep) -> tuple[int | None, Collection[str]]:
    """A step's kind, None for a transition; and who brought no drafts where others did."""
    new = {each.req_id for each in step.scheduled_new_reqs}
    undrafted = _undrafted(
        step.num_scheduled_tokens,
        step.scheduled_spec_decode_tokens,
        step.num_spec_tokens_to_schedule,
        new,
    )
    return _kind(step, undrafted, new), undrafted


def _undrafted(
    scheduled: Mapping[str, int],
    drafted: Mapping[str, Sequence[int]],
    depth: int,
    new: Collection[str],
) -> Collection[str]:
    """Requests without drafts, where others have some or should have."""
    missing = len(scheduled) - len(drafted)
    if not missing or not (drafted or depth):
        return ()
    if missing == len(new) and drafted.keys().isdisjoint(new):
        return new
    return list(filterfalse(drafted.__contains__, scheduled))


def _kind(step: ScheduledStep, undrafted: Collection[str], new: Collection[str]) -> int | None:
    """Whether the step held decodes alone; None if one of them is of another depth."""
    scheduled = step.num_scheduled_tokens
    drafted = step.scheduled_spec_decode_tokens
    depth = step.num_spec_tokens_to_schedule
    kind = MIXED if new else DECODE
    drafts = [*drafted.values()]
    if drafts and not (len(drafts[0]) == depth and drafts.count(drafts[0]) == len(drafts)):
        for name, draft in drafted.items():
            if len(draft) == depth:
                continue
            if scheduled[name] <= len(draft) + 1 and name not in new:
                return None
            kind = MIXED
    for name in undrafted:
        if scheduled[name] > 1 or name in new:
            kind = MIXED
        elif depth:
            return None
    if kind == DECODE and max(scheduled.values(), default=0) > depth + 1:
        kind = MIXED
    return kind


def _is_over(request: RequestState | None) -> bool:
    return request is None or request.is_finished()


def _rows_by_length(rows: Sequence[Sequence[int]], usual: int, longest: int) -> list[int]:
    """How many rows have each length from 0 on, to `usual` or to `longest` if any is longer.

    Raises:
        ValueError: a row is longer than `longest`.
    """
    lengths = bytes(map(len, rows))
    found = [lengths.count(length) for length in range(usual + 1)]
    if sum(found) == len(rows):
        return found
    if max(lengths) > longest:
        raise ValueError(f"a request emitted {max(lengths)} tokens where {longest} are the most")
    return [lengths.count(length) for length in range(longest + 1)]


class _Flight(NamedTuple):
    """A step between its scheduling and its end."""

    scheduled_at_s: float
    finished: Collection[str] = ()
    """Requests that ended meanwhile, as far as later steps have told."""


class StepsInFlight:
    """Busy seconds of each step, and which requests ended while it was under way.

    A step runs from the end of the one before it (with asynchronous scheduling it was scheduled
    earlier, but ran behind that one) or from its own scheduling after the engine was idle. So the
    overlap is not counted twice, and waiting for requests is not step time.
    """

    def __init__(self) -> None:
        self._flights: dict[int, _Flight] = {}
        self._ended_at_s = 0.0
        self._busy = False

    def scheduled(self, step: ScheduledStep, began_at_s: float) -> None:
        """Remember when the scheduling of `step` began."""
        if len(self._flights) > _MOST_IN_FLIGHT:  # vLLM dropped outputs; do not keep them all
            self._flights.clear()
        if step.finished_req_ids:
            self._flights = {
                key: _Flight(at_s, {*finished, *step.finished_req_ids})
                for key, (at_s, finished) in self._flights.items()
            }
        self._flights[id(step)] = _Flight(began_at_s)

    def finished_during(self, step: ScheduledStep) -> Collection[str] | None:
        """Requests that ended since `step` was scheduled, those since the last step excepted.

        Returns:
            None if its scheduling was not seen.
        """
        flight = self._flights.get(id(step))
        return None if flight is None else flight.finished

    def ended(self, step: ScheduledStep, at_s: float, *, busy: bool) -> float:
        """Seconds that `step` took, given that it ended now; 0 if its scheduling was not seen.

        Args:
            step: the object given to `scheduled`.
            at_s: now.
            busy: whether requests are left, so that the gap to the next step is work, not waiting.
        """
        flight = self._flights.pop(id(step), None)
        scheduled_at_s = at_s if flight is None else flight.scheduled_at_s
        began_at_s = max(self._ended_at_s, scheduled_at_s)
        if self._busy and scheduled_at_s - self._ended_at_s < LONGEST_GAP_S:
            began_at_s = self._ended_at_s
        self._ended_at_s = at_s
        self._busy = busy
        return at_s - began_at_s


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
