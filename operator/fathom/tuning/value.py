"""What a depth is worth: tokens per second at matched batch, E[L | depth] / step time.

One quantity serves all three objectives. At a given batch, Latency (tokens per second per request)
and Throughput (times the batch) are largest at the same depth, and so is Goodput: time per output
token is the inverse of the same ratio, so the depth that is fastest is also the one that keeps the
SLO if any does. Where it is missed even so, only fewer requests at once would help, which is not
the tuner's to decide; it says so.
"""

from dataclasses import dataclass
from math import erf, exp, expm1, pi, sqrt
from typing import Final

from fathom.tuning.step_time import StepTimes
from fathom.tuning.survival import Survival
from fathom.tuning.traffic import Traffic

Z: Final = 1.64
"""One-sided 95 %."""


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

    def lower(self, z: float = Z) -> float:
        return self.mean - z * self.sd

    def upper(self, z: float = Z) -> float:
        return self.mean + z * self.sd

    @property
    def expected_improvement(self) -> float:
        """Mean of the gain where it is positive: what knowing it is worth."""
        if self.sd <= 0:
            return max(0.0, self.mean)
        u = self.mean / self.sd
        density = exp(-u * u / 2) / sqrt(2 * pi)
        return self.mean * (1 + erf(u / sqrt(2))) / 2 + self.sd * density

    def __str__(self) -> str:
        kind = "" if self.measured else ", predicted"
        return f"{expm1(self.mean):+.1%} ± {self.sd:.1%}{kind}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known at one moment."""

    survival: Survival
    step_times: StepTimes
    traffic: Traffic
    now_s: float

    def gain(self, bucket: int, to: int, start: int) -> Gain | None:
        """What going from depth `start` to `to` is worth in a bucket; None: not known at all."""
        kind = self.traffic.kind(bucket)
        fast = self.step_times.estimate(bucket, to, kind, self.now_s)
        slow = self.step_times.estimate(bucket, start, kind, self.now_s)
        if fast is None or slow is None:
            return None
        length, length_variance = self.survival.log_length_ratio(to, start)
        return Gain(
            mean=length - fast.log_seconds + slow.log_seconds,
            sd=sqrt(length_variance + fast.variance + slow.variance),
            step_time_measured=fast.measured and slow.measured,
            survival_measured=self.survival.is_measured(max(to, start)),
        )

    def tpot_seconds(self, bucket: int, depth: int) -> float | None:
        """Expected time per output token at a depth, at the pods' present speed."""
        time = self.step_times.estimate(bucket, depth, self.traffic.kind(bucket), self.now_s)
        if time is None:
            return None
        seconds = exp(time.log_seconds + self.step_times.speed())
        return seconds / self.survival.expected_length(depth)
