"""What prompts and ends take of an engine: the part of its work that depth does not change.

Users wait for whole requests. Each has a prompt, which is prefilled once whatever the depth, so

    seconds per token = seconds of decoding per token + price x prefill,

where the price is what a prompt token takes of the engine's time, and prefill is how many of them
come with each token that is emitted. The price is the time by which a step with prompts exceeds one
without, at the same depth and about the same batch, over the prompt tokens of it. It belongs to the
hardware, so it is kept while no step only decodes. Where none ever did, it is the time of all over
all tokens computed.

A constant error of the price mostly cancels: the price of their prompts is taken off mixed steps,
and added again for the prompts of all. The error remains where a step has more prompt tokens than
its share, or fewer: a deep draft that displaces prompts pays for them.

A step holds at most the token budget. So where n requests decode at depth d, emit E tokens each and
bring P prompt tokens with each of these, no more than

    n = budget / (d + 1 + P x E)

can go on: the prompts of the others wait. The fixed part of a step is then shared by fewer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, log2
from operator import itemgetter
from typing import Final

from fathom.measurement.counters import Cell, CellCounts, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.acceptance_length import decay

HALF_LIFE_WINDOWS: Final = 5.0
"""Half-life of counts of prompts: they come in lumps, and the price belongs to the hardware."""
FULL_SHARE: Final = 0.9
"""Share of the token budget in a mean mixed step: then prompts wait for space in the budget, and
drafts take some."""
LEAST_DECODE_STEPS: Final = 30.0
"""With fewer to hold mixed steps against, the price is that of all tokens."""
LEAST_STEPS: Final = 3.0
"""Decode steps of a bucket and depth in a window, against which its mixed steps are held."""
FARTHEST_FACTOR: Final = 2.0
"""Between the batch of mixed steps and that of the decode steps that they are held against."""
LEAST_REQUESTS: Final = 20.0
"""Finished requests before it is shown how long answers are."""
MOST_PREEMPTED_SHARE: Final = 0.02
"""Share of the requests that end, beyond which too many prompts are read once more. How many are
depends on the depth, and is not known."""
LEAST_LEVELLED_SHARE: Final = 0.05
"""Share of the time of mixed steps, at least, however many prompt tokens are taken off them."""


@dataclass(frozen=True, slots=True)
class Excess:
    """By how much mixed steps exceeded decode steps of their depth and about their batch."""

    seconds: float = 0.0
    tokens: float = 0.0
    """Prompt tokens of the mixed steps."""
    decode_steps: float = 0.0
    """That they were held against."""

    @property
    def per_token(self) -> float | None:
        """Seconds; None: too little was compared."""
        if self.decode_steps < LEAST_DECODE_STEPS or self.tokens <= 0:
            return None
        return max(0.0, self.seconds / self.tokens)

    def after(self, newer: Iterable["Excess"], kept: float) -> "Excess":
        """With what one more window says; forgotten only for newer ones."""
        found = [each for each in newer if each.tokens > 0]
        decode_steps = sum(each.decode_steps for each in found)
        if self.decode_steps > 0:
            # Few newer ones do not push out what is known: else the price would jump.
            least = (LEAST_DECODE_STEPS - decode_steps) / self.decode_steps
            kept = max(kept, min(1.0, least)) if found else 1.0
        return Excess(
            kept * self.seconds + sum(each.seconds for each in found),
            kept * self.tokens + sum(each.tokens for each in found),
            kept * self.decode_steps + decode_steps,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Discounted sums over the recent windows, of pods whose plugin counts prompts."""

    prefill_tokens: float = 0.0
    mixed_prefill_tokens: float = 0.0
    """The part in mixed steps; the rest was in transitions."""
    emitted_tokens: float = 0.0
    finished: float = 0.0
    """Requests."""
    prompt_tokens: float = 0.0
    """Prompt tokens of requests that began, cached ones included."""
    preempted: float = 0.0
    """Requests, whose prompts are read once more."""
    steps: float = 0.0
    decode_steps: float = 0.0
    seconds: float = 0.0
    computed_tokens: float = 0.0
    """Prefilled or verified."""
    mixed_tokens: float = 0.0
    """The part in mixed steps."""
    token_budget: float = 0.0
    """Tokens that a step may hold, as the engines say; 0: they do not."""
    excess: Excess = Excess()
    transition_seconds: float = 0.0
    """Busy seconds of steps that mix depths, whose gain is unknown."""
    requests: float = 0.0
    """Scheduled at depths above 0, summed over the steps."""
    drafts: float = 0.0
    """Those that verified a draft: the others had prompts, or had ended."""
    scheduled: float = 0.0
    """Requests in each step, summed over the steps."""
    in_flight: float = 0.0
    """The same of those that an engine could have scheduled, waiting ones included."""
    at_s: float = 0.0

    @property
    def known(self) -> bool:
        """Whether any pod counts prompts."""
        return self.steps >= 1

    @property
    def price(self) -> float:
        """Seconds that an engine takes for a prompt token."""
        if self.prefill_tokens <= 0 or self.computed_tokens <= 0:
            return 0.0
        excess = self.excess.per_token
        return self.seconds / self.computed_tokens if excess is None else excess

    @property
    def steps_are_full(self) -> bool:
        """Whether mixed steps hold as many tokens as the engines allow."""
        mixed = self.steps - self.decode_steps
        return 0 < FULL_SHARE * self.token_budget * mixed <= self.mixed_tokens

    @property
    def crowding(self) -> float:
        """Requests in flight for each that is scheduled, at least 1: full steps leave some out."""
        if not self.steps_are_full or self.scheduled <= 0:
            return 1.0
        return max(1.0, self.in_flight / self.scheduled)

    @property
    def prefill_per_token(self) -> float:
        """Prompt tokens for each that is emitted."""
        return self.prefill_tokens / self.emitted_tokens if self.emitted_tokens > 0 else 0.0

    @property
    def seconds_per_token(self) -> float:
        """Engine seconds that prompts take for each token emitted."""
        return self.price * self.prefill_per_token

    @property
    def prefill_share_of_cells(self) -> float:
        """Share of the prompt tokens in steps of one depth: only these are counted by bucket."""
        return self.mixed_prefill_tokens / self.prefill_tokens if self.prefill_tokens > 0 else 1.0

    @property
    def are_read_again(self) -> bool:
        """Whether many requests are preempted, since the KV cache is full."""
        return self.preempted > MOST_PREEMPTED_SHARE * self.finished

    @property
    def told_share(self) -> float:
        """Share of the busy seconds in steps of one depth, whose gain can be known."""
        whole = self.seconds + self.transition_seconds
        return self.seconds / whole if whole > 0 else 1.0

    @property
    def answer_tokens(self) -> float | None:
        """Mean length of an answer; None: too few have ended."""
        return self.emitted_tokens / self.finished if self.finished >= LEAST_REQUESTS else None

    @property
    def mean_context(self) -> float | None:
        """Tokens of context of a request, on average over its steps; None: too few have ended."""
        answer = self.answer_tokens
        return None if answer is None else self.prompt_tokens / self.finished + answer / 2

    @property
    def drafting_share(self) -> float:
        """Share of the requests in a step that decode."""
        return min(1.0, self.drafts / self.requests) if self.drafts > 0 else 1.0

    def updated(
        self, deltas: Iterable[PodDelta], at_s: float, window_seconds: float, max_batch: int
    ) -> "Prompts":
        """With what pods counted in one more window; without any steps, the very same.

        Args:
            deltas: what they counted.
            at_s: end of the window (Unix seconds).
            window_seconds: its usual length.
            max_batch: requests that an engine schedules in a step at most.
        """
        counted = [each for each in deltas if each.counts_prompts and each.steps > 0]
        if not counted:
            return self
        kept = decay(at_s - self.at_s, HALF_LIFE_WINDOWS * window_seconds)
        after = Prompts(
            **{name: kept * getattr(self, name) for name in _SUMS},
            excess=self.excess.after((_excess(each.cells) for each in counted), kept),
            at_s=at_s,
        )
        for each in counted:
            after = after._with(each, max_batch)
        return after

    def _with(self, delta: PodDelta, max_batch: int) -> "Prompts":
        cells, engine = delta.cells, delta.engine
        steps = sum(c.steps for c in cells.values())
        mixed_prefill = sum(c.prefill_tokens for c in cells.values())
        computed = {
            cell: c.prefill_tokens + c.scheduled_requests * (cell.depth + 1)
            for cell, c in cells.items()
        }
        drafting = sum(c.scheduled_requests for cell, c in cells.items() if cell.depth)
        return replace(
            self,
            prefill_tokens=self.prefill_tokens + delta.transition_prefill + mixed_prefill,
            mixed_prefill_tokens=self.mixed_prefill_tokens + mixed_prefill,
            emitted_tokens=self.emitted_tokens
            + delta.transition_tokens
            + sum(c.tokens for c in cells.values()),
            finished=self.finished + engine.finished_requests,
            prompt_tokens=self.prompt_tokens + engine.prompt_tokens,
            preempted=self.preempted + engine.preemptions,
            steps=self.steps + steps,
            decode_steps=self.decode_steps
            + sum(c.steps for cell, c in cells.items() if cell.step is StepKind.DECODE),
            seconds=self.seconds + sum(c.step_seconds for c in cells.values()),
            computed_tokens=self.computed_tokens + sum(computed.values()),
            mixed_tokens=self.mixed_tokens
            + sum(each for cell, each in computed.items() if cell.step is StepKind.MIXED),
            token_budget=float(delta.token_budget),
            transition_seconds=self.transition_seconds + delta.transition_seconds,
            requests=self.requests + drafting,
            drafts=self.drafts + sum(c.drafts for cell, c in delta.drafts.items() if cell.depth),
            scheduled=self.scheduled + sum(c.scheduled_requests for c in cells.values()),
            in_flight=self.in_flight
            + steps * min(max_batch, engine.requests_running + engine.requests_waiting),
        )

    @property
    def tokens_per_mixed_step(self) -> float:
        """Mean prompt tokens of a step that has any."""
        mixed = self.steps - self.decode_steps
        return self.mixed_prefill_tokens / mixed if mixed > 0 else 0.0

    def levelled(self, delta: PodDelta, tokens: float) -> PodDelta:
        """The same counts, as if each mixed step had had so many prompt tokens.

        Of a pod that does not count prompts, mixed steps are left out: nobody knows how many theirs
        had.
        """
        if not self.known:
            return delta
        price = self.price
        cells = {
            cell: counts if cell.step is StepKind.DECODE else _levelled(counts, tokens, price)
            for cell, counts in delta.cells.items()
            if delta.counts_prompts or cell.step is StepKind.DECODE
        }
        return replace(delta, cells=cells)


def _levelled(counts: CellCounts, tokens: float, price: float) -> CellCounts:
    more = counts.steps * tokens - counts.prefill_tokens
    least = LEAST_LEVELLED_SHARE * counts.step_seconds
    return replace(counts, step_seconds=max(least, counts.step_seconds + price * more))


def _excess(cells: Mapping[Cell, CellCounts]) -> Excess:
    """Mixed steps against decode steps at their depth and about their batch.

    A prompt that comes in makes the batch larger, so mixed steps are often a bucket further up.
    """
    decodes = [
        (cell, counts)
        for cell, counts in cells.items()
        if cell.step is StepKind.DECODE and counts.steps >= LEAST_STEPS
    ]
    found: list[Excess] = []
    for cell, counts in cells.items():
        if cell.step is StepKind.DECODE or counts.prefill_tokens <= 0:
            continue
        near = [
            (abs(log2(other.batch_le / cell.batch_le)), decode)
            for other, decode in decodes
            if other.depth == cell.depth
        ]
        distance, decode = min(near, key=itemgetter(0), default=(inf, counts))
        if distance <= log2(FARTHEST_FACTOR):
            seconds = counts.step_seconds - counts.steps * decode.step_seconds / decode.steps
            found.append(Excess(seconds, counts.prefill_tokens, decode.steps))
    return Excess().after(found, 1.0)


_SUMS: Final = tuple(
    name for name in Prompts.__dataclass_fields__ if name not in {"at_s", "token_budget", "excess"}
)
NO_PROMPTS: Final = Prompts()
"""Nobody counts them."""
