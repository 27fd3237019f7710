"""What following the traffic brought over the user's own depth, in GPU hours. Pure.

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
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import exp, expm1
from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fathom.core.measurement import PodDelta
from fathom.tuning.estimate.step_table import MEASURED_SD
from fathom.tuning.policy.value import NO_GAIN, TWO_SIDED_Z, Gain

_HOUR_S: Final = 3600.0
GainOver = Callable[[str, int, int], Gain | None]
"""What a depth is worth over `tokens`, by pod, bucket and depth; None: nothing is known."""
_Seconds = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
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
