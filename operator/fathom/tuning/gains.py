"""What following the traffic gained over the user's depth, and how much load still fits. Pure.

An engine that makes g times more tokens in a second than it would at `tokens` saves g of that
second: at `tokens` the same tokens would have taken 1 + g of it. Over all busy seconds of all
engines, each times the GPUs of one engine,

    gained = sum of seconds x GPUs x (V(depth that ran) / V(tokens) - 1),

where V is what a depth is worth in the same bucket of batches, for whole requests (`policy.value`),
as known when the second was counted. A probe that cost something counts against it, and a second at
`tokens` itself counts as zero, which is known. A second for which V is not measured at both depths
adds nothing and is kept apart: unknown is not zero. Idle time is no time.

The errors of V are those of one table of step times and one traffic, much the same in every window.
So they are added, and not averaged out: more hours do not narrow the interval by themselves.

A busy pod whose batches lie in bucket b makes one token in the seconds that `policy.value` says,
prompts included: with the bucket's mean batch, at the pods' present speed, and with the prompts of
the present traffic. What a pod can serve is at least the most of that over the buckets in which the
depth in force was measured and which, with objective Goodput, keep the SLO. The headroom is that
times the ready pods that can be read, less what they serve now. Beyond the largest batch that was
measured nothing is known: where that is the fastest, and the pods have it now, the headroom is
unknown, and not zero.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import exp, expm1
from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.step_table import MEASURED_SD
from fathom.tuning.estimate.step_time import CellTime
from fathom.tuning.policy.policy import Policy
from fathom.tuning.policy.value import NO_GAIN, TWO_SIDED_Z, Gain

_HOUR_S: Final = 3600.0
GainOver = Callable[[str, int, int], Gain | None]
"""What a depth is worth over `tokens`, by pod, bucket and depth; None: nothing is known."""
_Seconds = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gained:
    """Sums since the first window that was entered. Never forgotten; five numbers at any age."""

    # Others' fields are passed over, so that an older Fathom goes on from a newer one's sums.
    __pydantic_config__ = ConfigDict(extra="ignore", allow_inf_nan=False)

    since_s: _Seconds = 0.0
    """Begin of the first window (Unix seconds); 0: there was none."""
    gained_gpu_s: float = 0.0
    """GPU seconds, over what `tokens` would have taken; negative: lost."""
    error_gpu_s: _Seconds = 0.0
    """Standard error of that."""
    measured_gpu_s: _Seconds = 0.0
    """Busy GPU seconds for which the gain was measured."""
    unmeasured_gpu_s: _Seconds = 0.0
    """Busy GPU seconds for which it was not."""

    @property
    def hours(self) -> float:
        """GPU hours gained."""
        return self.gained_gpu_s / _HOUR_S

    @property
    def half_width_hours(self) -> float:
        """Half the width of the 95 % interval of that."""
        return TWO_SIDED_Z * self.error_gpu_s / _HOUR_S

    @property
    def measured_hours(self) -> float:
        """Busy GPU hours of which that is the sum."""
        return self.measured_gpu_s / _HOUR_S

    @property
    def unmeasured_hours(self) -> float:
        """Busy GPU hours that add nothing to it."""
        return self.unmeasured_gpu_s / _HOUR_S

    @property
    def ratio(self) -> float | None:
        """Relative gain over the measured hours; None: none was measured."""
        return self.gained_gpu_s / self.measured_gpu_s if self.measured_gpu_s > 0 else None

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval of that; 0: none was measured."""
        known = self.measured_gpu_s > 0
        return TWO_SIDED_Z * self.error_gpu_s / self.measured_gpu_s if known else 0.0

    def updated(self, deltas: Iterable[PodDelta], gain_over: GainOver, gpus: int) -> "Gained":
        """With what the pods did in one more window; without any steps, the very same.

        Args:
            deltas: what they counted.
            gain_over: of each depth over `tokens`, by pod and bucket.
            gpus: of one engine.
        """
        after = self
        for each in deltas:
            for seconds, gain in _told(each, gain_over):
                after = after._with(each.from_s, seconds * gpus, gain)
        return after

    def _with(self, from_s: float, gpu_s: float, gain: Gain | None) -> "Gained":
        since_s = min(self.since_s, from_s) if self.since_s else from_s
        if gain is None or not gain.step_time_measured or gain.sd > MEASURED_SD:
            unmeasured = self.unmeasured_gpu_s + gpu_s
            return replace(self, since_s=since_s, unmeasured_gpu_s=unmeasured)
        return replace(
            self,
            since_s=since_s,
            gained_gpu_s=self.gained_gpu_s + gpu_s * expm1(gain.mean),
            error_gpu_s=self.error_gpu_s + gpu_s * exp(gain.mean) * gain.sd,
            measured_gpu_s=self.measured_gpu_s + gpu_s,
        )

    def to_json(self) -> str:
        """Canonical text; equal sums are equal strings."""
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read what was kept; None: it is none."""
        try:
            return _ADAPTER.validate_json(text)  # type: ignore[return-value]
        except ValidationError:
            return None


def _told(delta: PodDelta, gain_over: GainOver) -> Iterator[tuple[float, Gain | None]]:
    """Busy seconds, and the gain in them; None: it cannot be told."""
    if delta.transition_seconds > 0:
        yield delta.transition_seconds, None
    for cell, counts in delta.cells.items():
        if counts.step_seconds > 0:
            gain = gain_over(delta.pod, cell.batch_le, cell.depth)
            known = delta.counts_prompts or gain is NO_GAIN
            yield counts.step_seconds, gain if known else None


_ADAPTER: Final = TypeAdapter(Gained)


def headroom(policy: Policy, served_now: float | None, pods: int) -> float | None:
    """Tokens per second that could at least be served beside those that are; None: not measured.

    Args:
        policy: what is known, and the depths in force.
        served_now: tokens per second of all pods that can be read; None: not measured.
        pods: of these, the ready ones.
    """
    if served_now is None or not pods or not policy.evidence.tells_gain:
        return None
    # As of the last step: at rest nothing becomes less certain, so that nothing is written.
    evidence = replace(policy.evidence, now_s=policy.evidence.traffic.at_s)
    policy = replace(policy, evidence=evidence)
    known = dict(_tokens_per_second(policy))
    if not known:
        return None
    kept = {bucket: rate for bucket, rate in known.items() if _keeps_the_slo(policy, bucket)}
    if not kept:
        return 0.0
    fastest = max(kept, key=lambda bucket: kept[bucket])
    is_the_end = fastest < max(known) or fastest == max(policy.depths)
    if not is_the_end and fastest <= max(policy.evidence.traffic.shares(), default=0):
        return None
    return max(0.0, pods * kept[fastest] - served_now)


def _tokens_per_second(policy: Policy) -> Iterator[tuple[int, float]]:
    """Rate of one busy pod, by bucket, where the depth in force was measured."""
    batches = policy.evidence.traffic.log_batches()
    for bucket, depth in policy.depths.items():
        if (cell := _measured(policy, bucket)) is not None:
            log_batch = batches.get(bucket, cell.log_batch)
            seconds = policy.evidence.seconds_per_token(bucket, depth, log_batch)
            if seconds:
                yield bucket, 1 / seconds


def _measured(policy: Policy, bucket: int) -> CellTime | None:
    """The step time at the depth in force; None: it was not measured."""
    evidence = policy.evidence
    cells = evidence.table.measured_depths(bucket, evidence.traffic.kind(bucket))
    return next((cell for cell in cells if cell.depth == policy.depths.get(bucket)), None)


def _keeps_the_slo(policy: Policy, bucket: int) -> bool:
    if policy.slo is None:
        return True
    slow = policy.slo.slow_seconds(policy.evidence, bucket, policy.depths[bucket])
    return slow is not None and not policy.slo.loses(slow)
