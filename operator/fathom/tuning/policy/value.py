"""What a depth is worth: tokens per second at matched batch, E[L | depth] / step time.

At a given batch, Latency (tokens per second per request) and Throughput (times the batch) are
largest at the same depth, so one quantity serves both. Goodput asks besides which depths keep the
SLO at the slow end of the requests: see `fathom.tuning.policy.slo`.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from math import erf, exp, expm1, pi, sqrt
from typing import Final

from fathom.tuning.estimate.length import Lengths
from fathom.tuning.estimate.step_table import StepTable
from fathom.tuning.estimate.step_time import StepTimes
from fathom.tuning.estimate.survival import Survival
from fathom.tuning.estimate.traffic import Traffic
from fathom.tuning.estimate.yields import CutLengths, Yields

CERTAIN_Z: Final = 1.64
"""Beyond doubt: one-sided 95 %. What a move needs."""
TWO_SIDED_Z: Final = 1.96
"""Half the width of the intervals that people are shown: two-sided 95 %."""


@dataclass(frozen=True, slots=True)
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

    def knowledge_gradient(self, least: float, noise: float) -> float:
        """What one more measurement is worth, if a gain above `least` is then taken.

        Before it is made, the mean that will be known after it is normal about today's, with
        variance sd⁴ / (sd² + noise²): E[(mean after - least)⁺] less what is taken without it
        (Frazier, Powell and Dayanik, A knowledge-gradient policy, 2008). What was never measured is
        not taken without it, however large it looks.

        Args:
            least: smallest gain that is acted on.
            noise: error of the measurement.
        """
        if self.sd <= 0:
            return 0.0
        spread = self.sd * self.sd / sqrt(self.sd * self.sd + noise * noise)
        ahead = self.mean - least
        taken_anyway = max(0.0, ahead) if self.step_time_measured else 0.0
        return _mean_above_zero(ahead, spread) - taken_anyway

    def __str__(self) -> str:
        kind = "" if self.measured else ", predicted"
        return f"{expm1(self.mean):+.1%} ± {self.sd:.1%}{kind}"


NO_GAIN: Final = Gain(mean=0.0, sd=0.0, step_time_measured=True, survival_measured=True)
"""Of a depth over itself: whatever its errors, they cancel."""


def _mean_above_zero(mean: float, sd: float) -> float:
    """E[max(0, x)] of a normal x."""
    if sd <= 0:
        return max(0.0, mean)
    u = mean / sd
    density = exp(-u * u / 2) / sqrt(2 * pi)
    return mean * (1 + erf(u / sqrt(2))) / 2 + sd * density


@dataclass(frozen=True)
class Evidence:
    """What is known at one moment."""

    text: Survival | Yields
    """What drafts are worth under the present traffic."""
    step_times: StepTimes
    traffic: Traffic
    now_s: float
    deepest: int
    """The deepest that is asked about."""
    _gains: dict[Hashable, Gain | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _lengths: dict[int, Lengths | CutLengths] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

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
        return StepTable(self.step_times, self.now_s, self.traffic.log_batches())

    def gain(self, bucket: int, to: int, start: int) -> Gain | None:
        """What going from depth `start` to `to` is worth in a bucket; None: not known at all."""
        key = (bucket, to, start)
        if key not in self._gains:
            self._gains[key] = self._gain(bucket, to, start)
        return self._gains[key]

    def _gain(self, bucket: int, to: int, start: int) -> Gain | None:
        kind = self.traffic.kind(bucket)
        fast = self.table.estimate(bucket, to, kind)
        slow = self.table.estimate(bucket, start, kind)
        if fast is None or slow is None:
            return None
        length, length_variance = self.lengths(bucket).log_ratio(to, start)
        return Gain(
            mean=length - fast.log_seconds + slow.log_seconds,
            sd=sqrt(length_variance + fast.variance + slow.variance),
            step_time_measured=fast.measured and slow.measured,
            survival_measured=all(self.text.is_drafted(bucket, each) for each in (to, start)),
        )

    def tpot_seconds(self, bucket: int, depth: int) -> float | None:
        """Expected time per output token at a depth, at the pods' present speed."""
        time = self.table.estimate(bucket, depth, self.traffic.kind(bucket))
        if time is None:
            return None
        return exp(time.log_seconds + self.step_times.speed()) / self.lengths(bucket).at(depth)
