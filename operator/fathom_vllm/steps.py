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
* so does a step that makes no drafts although a depth is scheduled, since no request could use them
  (`skip_drafts`, from vLLM 0.33): chunks of prompts alone, before their last, cost the same at
  every depth, and of requests that are sure to end drafts are verified and none are made;
* requests that ended while the step was in flight (aborts; under asynchronous scheduling also
  stops) count towards the batch, since the engine computed them, but neither tokens nor drafts,
  exactly as vLLM passes over them.

Of each step these are counted: the tokens that reach requests, cut where an answer ends; and the
prompt tokens that it prefilled, which are those scheduled and not verified. Accepted drafts are
vLLM's own sums: the engine made them, also where an answer ends before the last of them. All of it
runs in the scheduler's thread, so requests are asked all at once, mostly by calls that loop in C.

A step of decodes that takes a tenth of a second, and ten times as long as those before it, is a
*stall*: a kernel that is compiled at its first use, a garbage collection, a node that hangs. That
says nothing about depth: it counts as a usual step, and what it took beyond that is counted apart.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from fathom_vllm.counters import DECODE, MIXED, CountersWriter

LONGEST_GAP_S = 1.0
"""A busy engine leaves microseconds between two steps; beyond this it was paused or asleep."""


class NewRequest(Protocol):
    """A request's first appearance in a step."""

    @property
    def req_id(self) -> str:
        """The request's id."""

    @property
    def num_computed_tokens(self) -> int:
        """Tokens of it that were computed before the step."""


class CachedRequests(Protocol):
    """The part of vLLM's `CachedRequestData` that is read: requests that are not new to a step."""

    @property
    def req_ids(self) -> Sequence[str]:
        """Their ids."""

    @property
    def num_computed_tokens(self) -> Sequence[int]:
        """Tokens of each that were computed before the step."""


class ScheduledStep(Protocol):
    """The part of vLLM's `SchedulerOutput` that is read.

    Since 0.33 there is `skip_drafts`, too.
    """

    @property
    def num_scheduled_tokens(self) -> dict[str, int]:
        """Tokens per request, drafts included."""

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Their sum."""

    @property
    def scheduled_spec_decode_tokens(self) -> dict[str, list[int]]:
        """Drafts per request; a request without any is absent."""

    @property
    def scheduled_new_reqs(self) -> Sequence[NewRequest]:
        """Requests that appear for the first time."""

    @property
    def scheduled_cached_reqs(self) -> CachedRequests:
        """Requests that appeared before."""

    @property
    def num_invalid_spec_tokens(self) -> Mapping[str, int] | None:
        """Drafts per request that a grammar forbids; vLLM does not count them as drafted."""

    @property
    def num_spec_tokens_to_schedule(self) -> int:
        """Depth of the drafts that the step makes for the next one, unless they are skipped."""


class VerifiedDrafts(Protocol):
    """The part of vLLM's `SpecDecodingStats` that is read: a step's drafts, of all requests."""

    @property
    def num_drafts(self) -> int:
        """Requests whose drafts were verified."""

    @property
    def num_draft_tokens(self) -> int:
        """Tokens of those drafts."""

    @property
    def num_accepted_tokens_per_pos(self) -> Sequence[int]:
        """How many of them had each position accepted."""


class StepStats(Protocol):
    """The part of vLLM's `SchedulerStats` that is read."""

    @property
    def spec_decoding_stats(self) -> VerifiedDrafts | None:
        """None where no draft was verified."""


class RequestOutput(Protocol):
    """The part of vLLM's `EngineCoreOutput` that is read."""

    @property
    def request_id(self) -> str:
        """Whose it is."""

    @property
    def new_token_ids(self) -> Sequence[int]:
        """What the request emitted, cut where it stops."""


class ClientOutputs(Protocol):
    """The part of vLLM's `EngineCoreOutputs` that is read."""

    @property
    def outputs(self) -> Sequence[RequestOutput]:
        """Outputs of each request that emitted anything; after them, of those that failed."""

    @property
    def scheduler_stats(self) -> StepStats | None:
        """Given to one client; None for the others, and where vLLM keeps no statistics."""


class EngineStep(NamedTuple):
    """One step, ready to be counted. A tuple, since one is made in every step."""

    batch: int
    depth: int | None
    """None for a transition."""
    kind: int = DECODE
    tokens: int = 0
    prefill: int = 0
    drafts: int = 0
    accepted: Sequence[int] = ()


def observe_step(step: ScheduledStep, outputs: Mapping[int, ClientOutputs]) -> EngineStep | None:
    """Describe a step from what was scheduled and what vLLM made of it.

    Args:
        step: what was scheduled.
        outputs: what vLLM's `update_from_output` returned for it, by client.

    Returns:
        None where vLLM keeps no statistics: it does wherever ours are shown.
    """
    stats: StepStats | None = None
    tokens = 0
    for client in outputs.values():
        stats = stats or client.scheduler_stats
        # All lists first, and then their lengths: what has left the caches is fetched faster so.
        tokens += sum(map(len, [each.new_token_ids for each in client.outputs]))
    if stats is None:
        return None
    batch, depth = len(step.num_scheduled_tokens), step.num_spec_tokens_to_schedule
    kind, prefill = _kind(step, depth)
    if kind is None:
        return EngineStep(batch, None, MIXED, tokens, prefill)
    verified = stats.spec_decoding_stats
    if verified is None:
        return EngineStep(batch, depth, kind, tokens, prefill)
    accepted = verified.num_accepted_tokens_per_pos
    return EngineStep(batch, depth, kind, tokens, prefill, verified.num_drafts, accepted[:depth])


def _kind(step: ScheduledStep, depth: int) -> tuple[int | None, int]:
    """Whether a step held decodes alone, None for a transition; and its tokens of prompts.

    Of each request vLLM schedules its drafts, the token that they follow, and what is beyond these:
    tokens of its prompt. So the total tells whether there are any, and no request has to be asked.
    """
    batch, new = len(step.num_scheduled_tokens), step.scheduled_new_reqs
    drafts = [*step.scheduled_spec_decode_tokens.values()]
    # Under asynchronous scheduling all hold one and the same list, so that no element is compared.
    alike = not drafts or drafts.count(drafts[0]) == len(drafts)
    tokens = len(drafts) * len(drafts[0]) if alike and drafts else sum(map(len, drafts))
    beyond = step.total_num_scheduled_tokens - batch - tokens
    undrafted = decoding = batch - len(drafts)
    if undrafted and (new or beyond):
        decoding = _undrafted_decodes(step)
    prefill = beyond + undrafted - decoding
    if depth and (decoding or getattr(step, "skip_drafts", False)):
        return None, prefill
    if drafts and not (alike and len(drafts[0]) == depth) and _has_another_depth(step, depth):
        return None, prefill
    return MIXED if new or beyond else DECODE, prefill


def _undrafted_decodes(step: ScheduledStep) -> int:
    """Requests without drafts that are neither new nor in the middle of a prompt."""
    scheduled, drafted = step.num_scheduled_tokens, step.scheduled_spec_decode_tokens
    new = {each.req_id for each in step.scheduled_new_reqs}
    if len(scheduled) - len(drafted) == len(new) and drafted.keys().isdisjoint(new):
        return 0
    others = set(scheduled).difference(drafted, new)
    return [*map(scheduled.__getitem__, others)].count(1)


def _has_another_depth(step: ScheduledStep, depth: int) -> bool:
    """Whether a request that decodes has drafts, and not as many as the step's depth."""
    scheduled = step.num_scheduled_tokens
    new = {each.req_id for each in step.scheduled_new_reqs}
    return any(
        len(draft) != depth and scheduled[name] == len(draft) + 1 and name not in new
        for name, draft in step.scheduled_spec_decode_tokens.items()
    )


class StepsInFlight:
    """Busy seconds of each step.

    A step runs from the end of the one before it (with asynchronous scheduling it was scheduled
    earlier, but ran behind that one) or from its own scheduling after the engine was idle. So the
    overlap is not counted twice, and waiting for requests is not step time.
    """

    def __init__(self) -> None:
        self._scheduled_at_s: dict[int, float] = {}
        self._ended_at_s = 0.0
        self._busy = False

    def scheduled(self, step: ScheduledStep, began_at_s: float) -> None:
        """Remember when the scheduling of `step` began."""
        if len(self._scheduled_at_s) > _MOST_IN_FLIGHT:  # vLLM dropped outputs; not to keep them
            self._scheduled_at_s.clear()
        self._scheduled_at_s[id(step)] = began_at_s

    def ended(self, step: ScheduledStep, at_s: float, *, busy: bool) -> float | None:
        """Seconds that `step` took, given that it ended now; None if its scheduling was not seen.

        Args:
            step: the object given to `scheduled`.
            at_s: now.
            busy: whether requests are left, so that the gap to the next step is work, not waiting.
        """
        ended_at_s, self._ended_at_s = self._ended_at_s, at_s
        was_busy, self._busy = self._busy, busy
        scheduled_at_s = self._scheduled_at_s.pop(id(step), None)
        if scheduled_at_s is None:
            return None
        if was_busy and scheduled_at_s - ended_at_s < LONGEST_GAP_S:
            return at_s - ended_at_s
        return at_s - max(ended_at_s, scheduled_at_s)


_MOST_IN_FLIGHT = 64


class Stalls:
    """Tells steps of decodes that stalled, by what such steps usually take."""

    def __init__(self) -> None:
        self.usual_s = 0.0
        self.seen = 0
        self.in_a_row = 0

    def excess_s(self, seconds: float) -> float:
        """Seconds by which a step of decodes stalled; 0: it did not.

        Many in a row did not: they are what is usual now. The simulated engine compiles this very
        function, for rows with these three fields.
        """
        longest_s = max(LEAST_STALL_S, STALL_FACTOR * self.usual_s)
        if self.seen >= _USUAL_AFTER and seconds > longest_s:
            self.in_a_row += 1
            if self.in_a_row <= _MOST_IN_A_ROW:
                return seconds - self.usual_s
            self.usual_s, self.seen = 0.0, 0
        self.in_a_row = 0
        self.seen += 1
        self.usual_s += (seconds - self.usual_s) / min(self.seen, _USUAL_AFTER)
        return 0.0


STALL_FACTOR = 10.0
"""Times what is usual. From a batch of one to the largest, steps take some five times as long."""
LEAST_STALL_S = 0.1
"""In the seconds of a probe, less does not matter."""
_USUAL_AFTER = 16
_MOST_IN_A_ROW = 4


def count_step(counters: CountersWriter, step: EngineStep, seconds: float, stalls: Stalls) -> None:
    """Put an observed step into its cell; a transition, and the excess of a stall, apart."""
    if not step.batch:
        return
    if step.depth is None:
        counters.transition_step(seconds, tokens=step.tokens, prefill=step.prefill)
        return
    if step.kind == DECODE and (excess_s := stalls.excess_s(seconds)):
        counters.stalled_step(excess_s)
        seconds -= excess_s
    counters.step(
        batch=step.batch,
        depth=step.depth,
        kind=step.kind,
        seconds=seconds,
        tokens=step.tokens,
        prefill=step.prefill,
        drafts=step.drafts,
        accepted=step.accepted,
    )
