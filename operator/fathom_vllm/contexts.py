"""Drafts by the context of their request, since many drafts are worse where it is long. Pure.

The *context* of a request in a step is what vLLM's scheduler has as its computed tokens when it
schedules that step (`SchedulerOutput.scheduled_cached_reqs.num_computed_tokens`), prompt included.
Under asynchronous scheduling this takes the drafts of a step in flight for accepted: the context is
too long by those that are rejected, so by the depth at most.

Where all contexts of a step lie in one range, vLLM's own sums are counted. Else its requests are
gone through one by one. So that this costs some microseconds a step at any batch, of steps with
more than `MOST_DRAFTS` drafts only one in 2, 4 or more is counted, as so many.

Every draft that vLLM counts is counted, also in a transition step. So with up to `MOST_DRAFTS`
drafts a step the sums over all ranges are vLLM's, exactly; with more they are on average.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import add
from typing import NamedTuple, Protocol

from fathom_vllm.buckets import context_range
from fathom_vllm.counters import DraftSums
from fathom_vllm.steps import ClientOutputs, ScheduledStep

MOST_DRAFTS = 8
"""Drafts of a step, on average, that may be gone through one by one."""


class SampledTokens(Protocol):
    """The part of vLLM's `ModelRunnerOutput` that is read."""

    @property
    def req_id_to_index(self) -> Mapping[str, int]:
        """Row of each request."""

    @property
    def sampled_token_ids(self) -> Sequence[Sequence[int]]:
        """What each row emits. vLLM itself cuts it where an answer ends, after it has counted."""


class CountedStep(NamedTuple):
    """A step that is counted by context, as it is before vLLM takes its tokens."""

    steps: int
    """As how many it counts."""
    one_range: int | None
    """The range of all its contexts; None: they differ."""
    rows: Mapping[str, int]
    sampled: Sequence[int]
    """Tokens of each row; empty where all contexts lie in one range."""


class ContextSampling:
    """Chooses the steps that are counted by context."""

    def __init__(self) -> None:
        self._due = 0.0
        """How much of a step that counts has been passed over since the last one."""

    def begin(self, step: ScheduledStep, sampled: SampledTokens) -> CountedStep | None:
        """What has to be known of a step before vLLM takes its tokens; None: it is not counted."""
        drafts = len(step.scheduled_spec_decode_tokens)
        if not drafts or not sampled.sampled_token_ids:
            return None
        steps = 1 << ((drafts - 1) // MOST_DRAFTS).bit_length()
        self._due += 1 / steps
        if self._due < 1:
            return None
        self._due -= 1
        contexts = step.scheduled_cached_reqs.num_computed_tokens
        if step.scheduled_new_reqs:
            contexts = [*_contexts(step).values()]
        shortest = context_range(min(contexts))
        if shortest == context_range(max(contexts)):
            return CountedStep(steps, shortest, {}, ())
        lengths = [*map(len, sampled.sampled_token_ids)]
        return CountedStep(steps, None, sampled.req_id_to_index, lengths)


def drafts_by_context(
    step: ScheduledStep, counted: CountedStep, outputs: Mapping[int, ClientOutputs]
) -> Mapping[int, DraftSums]:
    """A step's drafts by the range of their context.

    Args:
        step: what was scheduled.
        counted: what `ContextSampling.begin` made of it.
        outputs: what vLLM's `update_from_output` returned for it, by client.
    """
    if counted.one_range is not None:
        return _in_one_range(counted.one_range, outputs)
    contexts, drafted = _contexts(step), step.scheduled_spec_decode_tokens
    names = defaultdict[int, list[str]](list)
    for client in outputs.values():
        for each in client.outputs:
            name = each.request_id
            # What vLLM passed over has no output, and what failed an empty one.
            if name in drafted and each.new_token_ids:
                names[contexts[name].bit_length()].append(name)
    sums: dict[int, DraftSums] = {}
    for bits, alike in names.items():
        index = context_range(1 << bits >> 1)
        found = _sums(alike, step, counted)
        sums[index] = DraftSums(*map(add, sums[index], found)) if index in sums else found
    return sums


def _sums(names: Sequence[str], step: ScheduledStep, counted: CountedStep) -> DraftSums:
    """What became of these requests' drafts. By calls that loop in C."""
    tokens = sum(map(len, map(step.scheduled_spec_decode_tokens.__getitem__, names)))
    if step.num_invalid_spec_tokens:
        tokens -= sum(step.num_invalid_spec_tokens.get(name, 0) for name in names)
    sampled = [*map(counted.sampled.__getitem__, map(counted.rows.__getitem__, names))]
    drafts = len(names)
    return DraftSums(drafts, tokens, sum(sampled) - drafts, drafts - sampled.count(1))


def _contexts(step: ScheduledStep) -> dict[str, int]:
    """The context of each request that may have drafts."""
    cached, drafted = step.scheduled_cached_reqs, step.scheduled_spec_decode_tokens
    contexts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    for each in step.scheduled_new_reqs:
        # It has some where its prompt was computed elsewhere.
        if each.req_id in drafted:
            contexts[each.req_id] = each.num_computed_tokens
    return contexts


def _in_one_range(index: int, outputs: Mapping[int, ClientOutputs]) -> Mapping[int, DraftSums]:
    """By vLLM's own sums."""
    stats = [each.scheduler_stats for each in outputs.values() if each.scheduler_stats]
    verified = stats[0].spec_decoding_stats if stats else None
    if verified is None:
        return {}
    accepted = verified.num_accepted_tokens_per_pos
    sums = DraftSums(verified.num_drafts, verified.num_draft_tokens, sum(accepted), accepted[0])
    return {index: sums}
