"""What was measured where depth is not live. Pure.

Nothing is tried there. What another depth is worth is known if pods ran it: all of them before
`tokens` was edited, or the canary of such an edit. Of other depths nothing is said, however well
it could be predicted: nobody would find out whether it was true.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import exp, expm1
from typing import Final

from fathom.engine.depth import batches
from fathom.tuning.context import Situation
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.policy.policy import Policy
from fathom.tuning.policy.value import TWO_SIDED_Z, Gain

HOW_TO_TRY: Final = (
    "To try another depth, edit spec.speculation.tokens: that rolls out with a canary, which is "
    "judged by speed."
)
HOW_TO_TRY_ELSEWHERE: Final = (
    "To try another depth, start a pod with another num_speculative_tokens: replicas of different "
    "depths are compared."
)
_MOST_BATCHES: Final = 3
"""Whose step time the status tells; `fathom explain` tells of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDepth:
    """The depth that runs, beside those that ran."""

    policy: Policy
    """As of the last step: at rest nothing becomes less certain, so that nothing is written."""
    tokens: int
    max_batch: int
    speed: float
    """The pods' present mean factor over the table of step times, as a logarithm."""

    @classmethod
    def of(cls, given: Situation) -> "FixedDepth":
        """What is known of an engine whose depth is not live."""
        evidence = replace(given.policy.evidence, now_s=given.state.traffic.at_s)
        return cls(
            policy=replace(given.policy, evidence=evidence),
            tokens=given.policy.clamped(given.settings.tokens),
            max_batch=given.settings.max_batch,
            speed=given.state.step_times.speed(),
        )

    def step_seconds(self, bucket: int) -> float | None:
        """Seconds of a step at the depth that runs; None: not measured."""
        time = self.policy.evidence.step_time(bucket, self.tokens)
        return exp(time.log_seconds + self.speed) if time is not None and time.measured else None

    def gain(self, bucket: int, depth: int) -> Gain | None:
        """What another depth is worth over the one that runs; None: not both were measured."""
        gain = self.policy.evidence.gain(bucket, depth, self.tokens)
        return gain if gain is not None and gain.measured else None

    def survival(self) -> tuple[float, ...]:
        """Survival of drafts at each position, by what was drafted; empty: no position is known."""
        text = self.policy.evidence.text
        if not isinstance(text, Survival):
            return ()
        found, survival = [], 1.0
        lengths = text.lengths(self.policy.evidence.deepest, self.policy.evidence.now_s)
        for each in lengths.positions[: min(self.tokens, text.drafted())]:
            survival *= each.mean
            found.append(survival)
        return tuple(found)

    def sentences(self) -> str:
        """For the status; empty: no step was counted yet."""
        shares = self.policy.shares
        busiest = sorted(shares, key=lambda bucket: -shares[bucket])
        times = [
            f"{seconds * 1000:.1f} ms at {batches(bucket, self.max_batch)}"
            for bucket in busiest
            if (seconds := self.step_seconds(bucket)) is not None
        ]
        if not times:
            return ""
        length = self.policy.evidence.lengths(busiest[0]).at(self.tokens)
        accepted = ", ".join(f"{each:.2f}" for each in self.survival())
        positions = f" (accepted by position: {accepted})" if accepted else ""
        return (
            f"Measured at depth {self.tokens}: {length:.2f} tokens per step{positions}; a step "
            f"takes {', '.join(times[:_MOST_BATCHES])}. {self._others()}"
        )

    def _others(self) -> str:
        depths = [each for each in self.policy.bounds.depths if each != self.tokens]
        worths = {depth: self._worth(depth) for depth in depths}
        ran = [f"{depth}: {worth}" for depth, worth in worths.items() if worth]
        rest = [str(depth) for depth, worth in worths.items() if not worth]
        told = f"Tokens per second compared with it, 95 %: depth {'; '.join(ran)}. " if ran else ""
        return f"{told}Depth {', '.join(rest)}: not measured. " if rest else told

    def _worth(self, depth: int) -> str:
        """The interval over all load where it was measured; empty: nowhere."""
        shares = self.policy.shares
        gains = {
            bucket: gain for bucket in shares if (gain := self.gain(bucket, depth)) is not None
        }
        if not gains:
            return ""
        total = sum(shares[bucket] for bucket in gains)
        mean = sum(shares[bucket] * gain.mean for bucket, gain in gains.items()) / total
        # The hardware's slope and the traffic are one for all buckets, and so are their errors.
        sd = sum(shares[bucket] * gain.sd for bucket, gain in gains.items()) / total
        low, high = (expm1(mean + z * sd) * 100 for z in (-TWO_SIDED_Z, TWO_SIDED_Z))
        where = "" if len(gains) == len(shares) else f" ({self._named(gains)})"
        return f"{low:+.1f} to {high:+.1f} %{where}"

    def _named(self, buckets: Iterable[int]) -> str:
        return ", ".join(batches(each, self.max_batch) for each in sorted(buckets))
