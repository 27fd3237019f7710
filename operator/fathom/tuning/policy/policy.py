"""Which depth each bucket should have, and which one is worth trying. Pure, knows no pods.

A bucket moves when another depth has been measured and is better beyond doubt; what is only
predicted to be better is tried on one pod first. What decides is the lower, or the upper, end of
the error: not knowing leads to a probe and never to a move.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import expm1, inf, log, log1p, log2
from operator import itemgetter
from typing import Final

from fathom.engine.depth import Depths, nearest_depth
from fathom.tuning.estimate.step_table import MEASURED_SD
from fathom.tuning.policy.option import Bounds, DepthOption, LeftOut, Visit
from fathom.tuning.policy.slo import CHOOSE_BELOW_SHARE, Slo
from fathom.tuning.policy.value import CERTAIN_Z, Evidence, Gain

MEND_Z: Final = 1.0
"""Certainty that a move takes where the SLO is missed: to stay by mistake costs as much as to go by
mistake."""
SPEED_WEIGHT: Final = 0.1
"""Weight of speed compared with keeping an SLO that is missed."""
VISIT_AGAIN_S: Final = (60.0, 300.0, 1800.0, 7200.0, 28800.0)
"""How long a depth is left alone after it was tried once, twice, more often: of two that are worth
about the same, one would be tried for ever …"""
PROMISING_AGAIN_S: Final = 1800.0
"""… and how long at most one that seems to gain enough for a change."""
FAILED_S: Final = 1800.0
"""How long one is left alone that was slower than what it replaced."""
DEPTH_0_GAIN_FACTOR: Final = 2.0
"""How many times the smallest gain depth 0 must bring: there, other traffic goes unnoticed until
the next check."""
UNSEEN_BATCH_FACTOR: Final = 2
"""Batches so many times as large as any that is known get at most the user's own depth."""
LEAST_TOLD_SHARE: Final = 0.9
"""Share of the busy time, in steps of one depth: with less, neighbouring buckets get one depth."""
GAIN_KNOWN_SHARE: Final = 0.8
"""Share of the busy time for which the gain must be known."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The evidence, what is in force, and what was tried before."""

    evidence: Evidence
    depths: Depths
    bounds: Bounds
    visits: tuple[Visit, ...]
    slo: Slo | None = None
    """With objective Goodput."""

    @property
    def shares(self) -> dict[int, float]:
        """Share of the busy time per bucket.

        An engine that was made smaller has fewer buckets than it had traffic in.
        """
        shares = self.evidence.traffic.shares()
        return {bucket: share for bucket, share in shares.items() if bucket in self.depths}

    @property
    def measurable(self) -> dict[int, float]:
        """The same, of those where something can be measured now."""
        present = self.evidence.traffic.present()
        return {bucket: share for bucket, share in self.shares.items() if bucket in present}

    def joined(self) -> tuple[DepthOption, ...]:
        """Where many steps mix depths: moves of the buckets under load to one depth, the best.

        A batch that crosses the border between two depths makes a step that mixes them. Nobody
        knows what such steps cost, and nothing is learned from them.
        """
        shares = self.shares
        if self.evidence.prompts.told_share >= LEAST_TOLD_SHARE:
            return ()
        if len({self.depths[bucket] for bucket in shares}) < 2:  # noqa: PLR2004 - it takes two
            return ()
        found: list[tuple[float, tuple[DepthOption, ...]]] = []
        for depth in self.bounds.depths:
            options = self._all_to(depth)
            if options is not None:
                found.append((sum(each.share * each.gain.mean for each in options), options))
        return max(found, key=itemgetter(0), default=(0.0, ()))[1]

    def _all_to(self, depth: int) -> tuple[DepthOption, ...] | None:
        """Moves of all buckets under load to one depth; None: in one it may not, or is unknown."""
        options: list[DepthOption] = []
        for bucket, share in self.shares.items():
            start = self.depths[bucket]
            gain = self.gain(bucket, depth, start)
            if depth not in self.bounds.at(bucket) or gain is None:
                return None
            if depth != start:
                options.append(
                    DepthOption(bucket=bucket, start=start, to=depth, gain=gain, share=share)
                )
        return tuple(options)

    def moves(self) -> tuple[DepthOption, ...]:
        """Buckets under load that should move now, each to its best depth."""
        best = (self._best(b, share) for b, share in self.shares.items())
        return tuple(option for option in best if option is not None)

    def after(self, moves: Iterable[DepthOption]) -> dict[int, int]:
        """All buckets' depths after these moves; idle buckets follow, since they have no say.

        Survival is shared, so an idle bucket that was measured earlier moves to where it would now
        be best. One that never was takes after its nearest neighbour that was; but batches larger
        than any that was seen get at most the user's own depth: depth is dearest there.
        """
        depths = dict(self.depths)
        shares = self.shares
        for option in moves:
            depths[option.bucket] = option.to
        known = set(shares)
        for bucket in depths:
            if bucket in shares or not self.compared(bucket):
                continue
            known.add(bucket)
            best = self._best(bucket, 0.0)
            if best is not None:
                depths[bucket] = best.to
        for bucket in depths.keys() - known if known else ():
            nearest = min(known, key=lambda other: (abs(log2(bucket / other)), other))
            depth = depths[nearest]
            if bucket > UNSEEN_BATCH_FACTOR * max(known):
                depth = min(depth, self.clamped(self.bounds.tokens))
            depths[bucket] = nearest_depth(depth, self.bounds.at(bucket))
        return depths

    def nearest_rivals(self) -> tuple[DepthOption, ...]:
        """For people: in each bucket under load, the best other depth."""
        rivals: list[DepthOption] = []
        for bucket, share in self.shares.items():
            options = self.alternatives(bucket, share)
            if options:
                rivals.append(max(options, key=lambda each: each.gain.mean))
        return tuple(rivals)

    def gain_over_tokens(self, bucket: int, depth: int) -> float | None:
        """Relative gain of a depth over the user's own; None: unknown.

        With an SLO that the user's own depth misses, a slower depth is no loss.
        """
        tokens = self.clamped(self.bounds.tokens)
        gain = self.evidence.gain(bucket, depth, tokens)
        if gain is None or not self.evidence.tells_value:
            return None
        if self.slo is not None:
            slow = self.slo.slow_seconds(self.evidence, bucket, tokens)
            if slow is not None and self.slo.loses(slow):
                return max(0.0, expm1(gain.mean))
        return expm1(gain.mean)

    def gain_over(self, tokens: int) -> float | None:
        """Relative gain of the depths in force over `tokens` at every batch, weighted by load.

        Returns:
            None unless pods are alike and count prompts, and most of the load runs in buckets
            where both depths were measured, and in steps that do not mix depths.
        """
        shares = self.shares
        if not self.evidence.tells_gain:
            return None
        covered = slower = 0.0
        for bucket, share in shares.items():
            gain = self.evidence.gain(bucket, self.depths[bucket], self.clamped(tokens))
            if gain is not None and gain.step_time_measured and gain.sd <= MEASURED_SD:
                covered += share
                slower += share * (expm1(gain.mean) + 1)
        covered_share = covered * self.evidence.prompts.told_share
        if not shares or covered_share < GAIN_KNOWN_SHARE * sum(shares.values()):
            return None
        return slower / covered - 1

    def clamped(self, depth: int) -> int:
        return nearest_depth(depth, self.bounds.depths)

    @property
    def has_compared(self) -> bool:
        """Whether at least two depths were measured in some bucket."""
        return any(self.compared(bucket) for bucket in self.depths)

    def compared(self, bucket: int) -> bool:
        """Whether at least two depths were measured in a bucket."""
        kind = self.evidence.traffic.kind(bucket)
        return len(self.evidence.table.measured_depths(bucket, kind)) > 1

    def alternatives(self, bucket: int, share: float) -> list[DepthOption]:
        start = self.depths[bucket]
        options: list[DepthOption] = []
        for depth in self.bounds.at(bucket):
            if depth == start or self._failed(bucket, depth):
                continue
            gain = self.gain(bucket, depth, start)
            if gain is not None:
                options.append(
                    DepthOption(bucket=bucket, start=start, to=depth, gain=gain, share=share)
                )
        return options

    def left_out(self, bucket: int) -> Mapping[int, LeftOut]:
        """For people: depths of which something is known, and that are no alternatives."""
        start, found = self.depths[bucket], dict[int, LeftOut]()
        allowed = self.bounds.at(bucket)
        for depth in self.bounds.depths:
            if depth == start or self.evidence.gain(bucket, depth, start) is None:
                continue
            if depth not in allowed:
                found[depth] = LeftOut.BUDGET
            elif self._failed(bucket, depth):
                found[depth] = LeftOut.FAILED
            elif self.gain(bucket, depth, start) is None:
                found[depth] = LeftOut.SLO
        return found

    def gain(self, bucket: int, to: int, start: int) -> Gain | None:
        """What going to a depth gains under the objective; None: unknown, or not allowed.

        With an SLO, a depth that keeps it is worth its speed. Where the depth in force misses it,
        what counts is how much faster the slow requests get, at any depth, up to what is needed.
        """
        gain = self.evidence.gain(bucket, to, start)
        if gain is None or self.slo is None:
            return gain
        slow_to = self.slo.slow_seconds(self.evidence, bucket, to)
        slow_start = self.slo.slow_seconds(self.evidence, bucket, start)
        if slow_to is None or slow_start is None:
            return gain
        if self.slo.loses(slow_start):
            # Enough is enough: of the depths that would keep the SLO, the fastest.
            needed = log(slow_start / (CHOOSE_BELOW_SHARE * self.slo.wanted_seconds))
            mended = min(log(slow_start / slow_to), needed)
            return replace(gain, mean=mended + SPEED_WEIGHT * gain.mean)
        return gain if self.slo.allows(self.evidence, bucket, to) else None

    def steadier(self, bucket: int, depth: int, other: int) -> bool:
        """With objective Goodput: whether slow requests are faster at a depth than at another."""
        if self.slo is None:
            return False
        slow = self.slo.slow_seconds(self.evidence, bucket, depth)
        slow_other = self.slo.slow_seconds(self.evidence, bucket, other)
        return slow is not None and slow_other is not None and slow < slow_other

    def may_try(self, option: DepthOption, pods: int) -> bool:
        """With an SLO: whether one pod of so many may try a depth.

        While the SLO is missed, slow requests may be faster there, within the error; else the SLO
        is kept even where they are as slow as the error allows for. Not known is not safe.
        """
        if self.slo is None:
            return True
        kept = not self.slo.is_missed
        slow = self.slo.slow_seconds(self.evidence, option.bucket, option.to, at_most=kept)
        slow_start = self.slo.slow_seconds(self.evidence, option.bucket, option.start)
        if slow is None or slow_start is None:
            return not kept
        slower, error = log(slow / slow_start), CERTAIN_Z * option.gain.sd
        return self.slo.bears(slower + error, 1 / max(1, pods)) if kept else slower <= error

    def _best(self, bucket: int, share: float) -> DepthOption | None:
        """The depth that is certainly better, and by how much at least."""
        options = [
            option
            for option in self.alternatives(bucket, share)
            if option.gain.step_time_measured
            and option.gain.mean >= self.least_gain(option)
            and option.gain.lower(self._certainty(option)) > 0
        ]
        return max(options, key=lambda each: each.gain.lower(), default=None)

    def _certainty(self, option: DepthOption) -> float:
        """Standard errors that a move takes."""
        if self.slo is None:
            return CERTAIN_Z
        slow = self.slo.slow_seconds(self.evidence, option.bucket, option.start)
        return MEND_Z if slow is not None and self.slo.loses(slow) else CERTAIN_Z

    def least_gain(self, option: DepthOption) -> float:
        """That a change to this depth must bring, as a logarithm."""
        least = log1p(self.bounds.min_gain)
        return DEPTH_0_GAIN_FACTOR * least if option.to == 0 else least

    def _failed(self, bucket: int, depth: int) -> bool:
        visit = self._visits_now.get((bucket, depth))
        return visit is not None and visit.failed and self.evidence.now_s - visit.at_s < FAILED_S

    def may_visit(self, bucket: int, depth: int, most_s: float = inf) -> bool:
        """Whether a depth has rested for long enough since it was tried, or for `most_s`."""
        visit = self._visits_now.get((bucket, depth))
        if visit is None:
            return True
        rest_s = VISIT_AGAIN_S[min(visit.times, len(VISIT_AGAIN_S)) - 1]
        return self.evidence.now_s - visit.at_s >= min(rest_s, most_s)

    @cached_property
    def _visits_now(self) -> Mapping[tuple[int, int], Visit]:
        """Under the present traffic, by bucket and depth."""
        epoch = self.evidence.text.epoch
        return {(each.bucket, each.depth): each for each in self.visits if each.epoch == epoch}
