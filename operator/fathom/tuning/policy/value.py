"""What a depth is worth: tokens that reach users, per second of an engine, at matched batch.

    value = 1 / (t / (B x E[L]) + c x P)

where t is the time of a step net of its prompts, over steps of decodes and mixed ones as they come;
E[L] the tokens of a request in a step, less what lies beyond its end; c x P what the prompts take
for each token (`estimate.prompts`). Where no pod counts prompts, it is E[L] / t of decode steps.

At a given batch, Latency (tokens per second per request) and Throughput (times the batch) are
largest at the same depth, so one quantity serves both. Goodput asks besides which depths keep the
SLO at the slow end of the requests: see `fathom.tuning.policy.slo`.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import erf, exp, expm1, log, log2, pi, sqrt
from typing import Final

from fathom.measurement.counters import StepKind
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.estimate.acceptance_length import Lengths
from fathom.tuning.estimate.prompts import NO_PROMPTS, Prompts
from fathom.tuning.estimate.step_table import StepTable, StepTime
from fathom.tuning.estimate.step_time import StepTimes
from fathom.tuning.estimate.traffic import Traffic
from fathom.tuning.estimate.yields import CutLengths, Yields

CERTAIN_Z: Final = 1.64
"""Beyond doubt: one-sided 95 %. What a move needs."""
TWO_SIDED_Z: Final = 1.96
"""Half the width of the intervals that people are shown: two-sided 95 %."""
OTHER_KIND_SD: Final = 0.05
"""Relative error of taking a mixed step less its prompts for a step of decodes, and vice versa."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Logarithm of the value at one depth over that at another, in one bucket."""

    mean: float
    sd: float
    step_time_measured: bool
    survival_measured: bool

    @property
    def measured(self) -> bool:
        return self.step_time_measured and self.survival_measured

    def lower(self, z: float = CERTAIN_Z) -> float:
        return self.mean - z * self.sd

    def upper(self, z: float = CERTAIN_Z) -> float:
        return self.mean + z * self.sd

    @property
    def expected_improvement(self) -> float:
        """Mean of the gain where it is positive: what knowing it exactly is worth."""
        return _mean_above_zero(self.mean, self.sd)

    @property
    def expected_loss(self) -> float:
        """Mean of the loss where it is one: what trying it costs."""
        return _mean_above_zero(-self.mean, self.sd)

    def worth_knowing(self, least: float) -> float:
        """What it is worth to know the gain exactly, if one above `least` is then taken.

        E[(gain - least)⁺], less what is taken without it. What was never measured is not taken
        without it, however large it seems.
        """
        ahead = self.mean - least
        taken_anyway = max(0.0, ahead) if self.step_time_measured else 0.0
        return _mean_above_zero(ahead, self.sd) - taken_anyway

    def __str__(self) -> str:
        kind = "" if self.measured else ", predicted"
        return f"{expm1(self.mean):+.1%} ± {self.sd:.1%}{kind}"


NO_GAIN: Final = Gain(mean=0.0, sd=0.0, step_time_measured=True, survival_measured=True)
"""Gain of a depth over itself: whatever its errors, they cancel."""


def _mean_above_zero(mean: float, sd: float) -> float:
    """E[max(0, x)] of a normal x."""
    if sd <= 0:
        return max(0.0, mean)
    u = mean / sd
    density = exp(-u * u / 2) / sqrt(2 * pi)
    return mean * (1 + erf(u / sqrt(2))) / 2 + sd * density


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known at one moment."""

    text: Survival | Yields
    """What drafts are worth under the present traffic."""
    step_times: StepTimes
    traffic: Traffic
    now_s: float
    deepest: int
    """The deepest that is asked about."""
    prompts: Prompts = NO_PROMPTS
    _gains: dict[Hashable, Gain | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _lengths: dict[int, Lengths | CutLengths] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _step_times: dict[tuple[int, int], StepTime | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _tpots: dict[tuple[int, int], float | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def tells_value(self) -> bool:
        """Whether it is known what depths are worth: else it is good enough to choose by."""
        return self.prompts.known and self.step_times.pods_are_alike

    @property
    def tells_gain(self) -> bool:
        """Whether what a depth gains users can be told.

        Where requests are preempted, it is more than this by what their prompts take.
        """
        return self.tells_value and not self.prompts.are_read_again

    def lengths(self, bucket: int) -> Lengths | CutLengths:
        """Expected tokens per step at each depth, in a bucket."""
        # Acceptance by position is the same in all buckets.
        key = 0 if isinstance(self.text, Survival) else bucket
        if key not in self._lengths:
            self._lengths[key] = (
                self.text.lengths(self.deepest, self.now_s)
                if isinstance(self.text, Survival)
                else self.text.lengths(bucket, self.now_s)
            )
        return self._lengths[key]

    @cached_property
    def table(self) -> StepTable:
        price = self.prompts.price
        return StepTable(self.step_times, self.now_s, self._log_batches, price=price)

    @cached_property
    def _log_batches(self) -> dict[int, float]:
        return self.traffic.log_batches()

    def gain(self, bucket: int, to: int, start: int) -> Gain | None:
        """What going from depth `start` to `to` is worth in a bucket; None: not known at all."""
        key = (bucket, to, start)
        if key not in self._gains:
            self._gains[key] = self._gain(bucket, to, start)
        return self._gains[key]

    def _gain(self, bucket: int, to: int, start: int) -> Gain | None:
        fast, slow = self.step_time(bucket, to), self.step_time(bucket, start)
        if fast is None or slow is None:
            return None
        length, length_variance = self.lengths(bucket).log_ratio(to, start)
        length += self._log_kept(bucket, to) - self._log_kept(bucket, start)
        length -= log(self._crowded(bucket, to, fast) / self._crowded(bucket, start, slow))
        # Of decoding alone; prompts take as long at any depth.
        decoding = length - fast.log_seconds + slow.log_seconds
        share = self._decoding_share(bucket, start, slow)
        left = share * exp(-decoding) + 1 - share
        return Gain(
            mean=-log(left),
            sd=sqrt(length_variance + fast.variance + slow.variance)
            * share
            * exp(-decoding)
            / left,
            step_time_measured=fast.measured and slow.measured,
            survival_measured=all(self.text.is_drafted(bucket, each) for each in (to, start)),
        )

    def step_time(self, bucket: int, depth: int) -> StepTime | None:
        """Time of a step at a depth, net of its prompts, in this bucket; None: not known.

        Mixed steps count beside those of decodes: where they are full, each draft displaces a token
        of a prompt, and where they compute for longer than they read weights, each costs more.
        """
        key = (bucket, depth)
        if key not in self._step_times:
            self._step_times[key] = self._step_time(bucket, depth)
        return self._step_times[key]

    def _step_time(self, bucket: int, depth: int) -> StepTime | None:
        if not self.prompts.known:
            return self.table.estimate(bucket, depth, self.traffic.kind(bucket))
        share = self.traffic.mixed_share(bucket)
        decode = self.table.estimate(bucket, depth, StepKind.DECODE) if share < 1 else None
        mixed = self.table.estimate(bucket, depth, StepKind.MIXED) if share > 0 else None
        if decode is None or mixed is None:
            return decode or mixed
        if decode.measured != mixed.measured:
            # By the price, a mixed step less its prompts is a step of decodes.
            known = decode if decode.measured else mixed
            other = replace(known, variance=known.variance + OTHER_KIND_SD**2)
            decode, mixed = (known, other) if decode.measured else (other, known)
        of_decode = (1 - share) * exp(decode.log_seconds)
        of_mixed = share * exp(mixed.log_seconds)
        seconds = of_decode + of_mixed
        variance = (decode.variance * of_decode**2 + mixed.variance * of_mixed**2) / seconds**2
        main = mixed if of_mixed > of_decode else decode
        return StepTime(log(seconds), variance, measured=main.measured)

    def seconds_per_token(
        self, bucket: int, depth: int, log_batch: float | None = None
    ) -> float | None:
        """Engine seconds per token at a depth, prompts included, at the pods' present speed.

        Args:
            bucket: of batches.
            depth: drafted tokens.
            log_batch: to base 2; None: the present mean.
        """
        time = self.step_time(bucket, depth)
        if time is None:
            return None
        decoding = self._decoding_seconds(bucket, depth, time, log_batch)
        return exp(self.step_times.speed()) * (decoding + self.prompts.seconds_per_token)

    def tpot_seconds(self, bucket: int, depth: int) -> float | None:
        """Expected time per output token at a depth, at the pods' present speed.

        A request waits for its own steps, and for the prompts of others in them.
        """
        key = (bucket, depth)
        if key not in self._tpots:
            self._tpots[key] = self._tpot_seconds(bucket, depth)
        return self._tpots[key]

    def _tpot_seconds(self, bucket: int, depth: int) -> float | None:
        time = self.step_time(bucket, depth)
        if time is None:
            return None
        decoding = exp(time.log_seconds) / self.lengths(bucket).at(depth)
        at_once = decoding / self._decoding_seconds(bucket, depth, time, None)
        prompts = self.prompts.seconds_per_token * at_once
        return exp(self.step_times.speed()) * (decoding + prompts)

    def _decoding_share(self, bucket: int, depth: int, time: StepTime) -> float:
        """Share of the time per token in a bucket that its prompts do not take.

        Prompts of the bucket's own steps: shares of the busy time, by which the gains of several
        buckets are weighted, have those in them.
        """
        prefill = self.traffic.prefill_per_token(bucket)
        if prefill is None:
            prompts = self.prompts.seconds_per_token
        else:
            prompts = self.prompts.price * prefill / max(self.prompts.prefill_share_of_cells, 0.1)
        decoding = self._decoding_seconds(bucket, depth, time, None)
        return decoding / (decoding + prompts)

    def _decoding_seconds(
        self, bucket: int, depth: int, time: StepTime, log_batch: float | None
    ) -> float:
        """Engine seconds per token without prompts, at the speed of the table."""
        decoding = self._decoding(bucket, log_batch)
        seconds = exp(time.log_seconds) / (decoding * self.lengths(bucket).at(depth))
        return seconds * self._crowded(bucket, depth, time, log_batch)

    def _decoding(self, bucket: int, log_batch: float | None) -> float:
        """Requests of a batch that decode; by default of the bucket's present mean."""
        if log_batch is None:
            log_batch = self._log_batches.get(bucket, log2(bucket))
        return 2**log_batch * self.prompts.drafting_share

    def _crowded(
        self, bucket: int, depth: int, time: StepTime, log_batch: float | None = None
    ) -> float:
        """Factor by which a token takes longer than at this batch, since steps hold so few tokens.

        The fixed part of a step is shared by those that decode: by all in flight, unless prompts
        of some must wait for room (`estimate.prompts`).
        """
        prompts = self.prompts
        if prompts.token_budget <= 0:
            return 1.0
        decoding = self._decoding(bucket, log_batch)
        room = prompts.token_budget / (
            depth + 1 + prompts.prefill_per_token * self.lengths(bucket).at(depth)
        )
        shared_by = min(room, decoding * prompts.crowding)
        fixed = max(0.0, 1 - prompts.price * decoding * (depth + 1) / exp(time.log_seconds))
        return fixed * decoding / shared_by + 1 - fixed

    def _log_kept(self, bucket: int, depth: int) -> float:
        """Logarithm of the share of drafted tokens and steps that no end of an answer wastes.

        The first token of an answer comes with its prompt. The other n - 1 take (n - 1 + w) / L
        steps, w the overshoot of the last one, and one more step that was scheduled before the end
        was seen (asynchronous scheduling).
        """
        lengths, answer = self.lengths(bucket), self.prompts.answer_tokens
        if answer is None or not isinstance(lengths, Lengths) or answer <= 1:
            return 0.0
        steps = answer - 1 + lengths.overshoot(depth) + lengths.at(depth)
        return log((answer - 1) / steps)
