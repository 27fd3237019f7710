"""Which depth each bucket should have, and which one is worth trying. Pure, knows no pods.

A bucket moves when another depth has been measured and is better beyond doubt; what is only
predicted to be better is tried on one pod first. What decides is the lower, or the upper, end of
the error: not knowing leads to a probe and never to a move.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp, expm1, log, log1p, log2, sqrt
from typing import Final

from fathom.core.depth import nearest_depth
from fathom.tuning.buckets import Depths
from fathom.tuning.slo import ENTER, Slo
from fathom.tuning.state import Visit
from fathom.tuning.step_table import MEASURED_SD
from fathom.tuning.step_time import STEP_SD
from fathom.tuning.value import Evidence, Gain, Z

RETURN_Z: Final = 3.0
"""Certainty asked for going back to a depth that was left a short while ago."""
RETURN_S: Final = 600.0
MEND_Z: Final = 1.0
"""The same where the SLO is missed: to stay by mistake costs as much as to go by mistake."""
FARTHEST_GUESS: Final = 2
"""Tokens that a probe may be away from what was measured while the slope is a guess."""
SPEED_COUNTS: Final = 0.1
"""Weight of speed beside keeping an SLO that is missed."""
HORIZON_S: Final = 3600.0
"""How long what a probe teaches is counted as useful: an hour, after which load has moved on."""
PROBE_SD: Final = 0.012
"""Error of a contrast between two depths on one pod, however many steps the probe has."""
OVERHEAD: Final = 0.002
"""What any probe costs the probed pod: two changes of depth, steps that mix both."""
VISIT_AGAIN_S: Final = (60.0, 300.0, 1800.0)
"""How long a depth is left alone after it was tried once, twice, more often."""
SENTINEL_S: Final = (10.0, 900.0)
"""A fleet at depth 0 looks for drafts' worth no more and no less often than this."""
LEAST_MISSED: Final = 0.3
"""What drafts gain (log) once traffic has turned, at least: it may be of a kind that was never
seen, and what EAGLE 3.1 is published to gain is 0.5 to 0.7 (1.66 to 2.03 times)."""
BLIND: Final = 2.0
"""How many times the smallest gain depth 0 must bring: there, other traffic goes unnoticed until
the next look."""
CONTROL_AGAIN_S: Final = 1800.0
"""How old the step time at the user's own depth may be."""
LEAST_CONTROL_SHARE: Final = 0.1
GAIN_COVERAGE: Final = 0.8
"""Share of the busy time for which the gain must be known."""


@dataclass(frozen=True, slots=True)
class Option:
    """One bucket at another depth."""

    bucket: int
    start: int
    to: int
    gain: Gain
    share: float
    """Of the busy time."""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What a probe would be, before it is begun."""

    seconds: float
    pods: int
    """Pods that profit by what it teaches; it costs one of them."""


@dataclass(frozen=True, slots=True)
class Bounds:
    depths: tuple[int, ...]
    """What may be chosen, ascending."""
    tokens: int
    """The user's own: one of them."""
    min_gain: float


@dataclass(frozen=True, slots=True)
class Policy:
    """The evidence, what is in force, and what was tried before."""

    evidence: Evidence
    depths: Depths
    bounds: Bounds
    visits: tuple[Visit, ...]
    left: tuple[Visit, ...]
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

    def moves(self) -> tuple[Option, ...]:
        """Buckets under load that should move now, each to its best depth."""
        best = (self._best(b, share) for b, share in self.shares.items())
        return tuple(option for option in best if option is not None)

    def after(self, moves: Iterable[Option]) -> dict[int, int]:
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
            if bucket in shares or not self._compared(bucket):
                continue
            known.add(bucket)
            best = self._best(bucket, 0.0)
            if best is not None:
                depths[bucket] = best.to
        for bucket in depths:
            if bucket not in known and known:
                nearest = min(known, key=lambda other: (abs(log2(bucket / other)), other))
                depths[bucket] = depths[nearest]
                if bucket > 2 * max(known):
                    depths[bucket] = min(depths[nearest], self._clamped(self.bounds.tokens))
        return depths

    def experiments(self, probe: ProbePlan) -> tuple[Option, ...]:
        """The depth most worth trying in each bucket under load, if it is worth more than it costs.

        Worth: what knowing it better gains all pods for an hour. Cost: what the probed pod is
        expected to lose in the meantime.
        """
        wanted: list[tuple[float, Option]] = []
        for bucket, share in self.measurable.items():
            options = [
                (worth, option)
                for option in self._alternatives(bucket, share)
                if self._may_visit(bucket, option.to)
                and self._in_reach(bucket, option.to)
                and self._may_try(option, probe.pods)
                and (worth := self.worth(option, probe)) > 0
            ]
            if options:
                wanted.append(max(options, key=lambda each: each[0]))
        return tuple(option for _, option in wanted)

    def worth(self, option: Option, probe: ProbePlan) -> float:
        """Pod-seconds of throughput that a probe gains by what it teaches, less what it costs."""
        kind = self.evidence.traffic.kind(option.bucket)
        time = self.evidence.table.estimate(option.bucket, option.to, kind)
        if time is None:
            return 0.0
        steps = max(1.0, option.share * probe.seconds / exp(time.log_seconds))
        dispersion = self.evidence.step_times.dispersion(option.bucket)
        noise = sqrt(dispersion * (PROBE_SD**2 + STEP_SD**2 / steps))
        taught = option.gain.knowledge_gradient(log1p(self.bounds.min_gain), noise)
        cost = option.gain.expected_loss + OVERHEAD
        return option.share * (taught * HORIZON_S * probe.pods - cost * probe.seconds)

    def sentinel(self, seconds: float, pods: int, rested_s: float | None) -> tuple[Option, ...]:
        """Where nothing is drafted any more, a look now and then at what would be accepted.

        At depth 0 there is no acceptance to measure: without this, the tuner would never learn that
        speculation pays again. Looks every T seconds cost cost/T; until the next one, traffic that
        turns loses gain/2 for T of every 1/turns seconds. T = √(2·cost / (turns·gain)) is least.

        Args:
            seconds: what a look is expected to take.
            pods: how many there are; one of them looks.
            rested_s: since the last look ended; None: there was none yet, so that what one costs is
                a guess, and the first comes soon.
        """
        shares = self.measurable
        if any(self.depths[bucket] for bucket in self.shares):
            return ()
        best = (
            max(
                (
                    each
                    for each in self._alternatives(bucket, share)
                    if each.to > 0 and self._may_try(each, pods)
                ),
                key=lambda each: each.gain.mean,
                default=None,
            )
            for bucket, share in shares.items()
        )
        options = tuple(option for option in best if option is not None)
        least, most = SENTINEL_S
        blind_s = self.evidence.now_s - self.evidence.text.at_s
        if rested_s is None:
            return options if blind_s >= least else ()
        loss = sum(each.share * (each.gain.expected_loss + OVERHEAD) for each in options)
        turns_per_s = self.evidence.text.turns_per_s
        best_s = sqrt(2 * seconds * loss / max(1, pods) / (turns_per_s * self._missed(shares)))
        rest_s = min(most, max(least, best_s))
        return options if min(rested_s, blind_s) >= rest_s else ()

    def _missed(self, shares: Mapping[int, float]) -> float:
        """What drafts would gain if as much of them were accepted as is normal here."""
        normal = replace(self.evidence, text=self.evidence.text.normal(self.evidence.now_s))
        missed = 0.0
        for bucket, share in shares.items():
            gains = (normal.gain(bucket, depth, 0) for depth in self.bounds.depths if depth)
            best = max((each.mean for each in gains if each is not None), default=0.0)
            missed += share * max(0.0, best)
        return max(LEAST_MISSED, missed)

    def control(self, pods: int) -> tuple[Option, ...]:
        """Buckets in which the user's own depth was never measured, or long ago.

        Args:
            pods: how many there are; one of them runs it.
        """
        tokens = self._clamped(self.bounds.tokens)
        wanted: list[Option] = []
        for bucket, share in self.measurable.items():
            gain = self.evidence.gain(bucket, tokens, self.depths[bucket])
            cell = self.evidence.table.at(bucket, tokens, self.evidence.traffic.kind(bucket))
            if (
                gain is not None
                and share >= LEAST_CONTROL_SHARE
                and tokens != self.depths[bucket]
                and (cell is None or self.evidence.now_s - cell.at_s > CONTROL_AGAIN_S)
                and self._may_visit(bucket, tokens)
            ):
                option = Option(bucket, self.depths[bucket], tokens, gain, share)
                wanted += [option] if self._may_try(option, pods) else []
        return tuple(wanted)

    def ends(self, pods: int) -> tuple[Option, ...]:
        """Where the shallowest or the deepest draft was never measured, to look at it once.

        Between depths that were measured a line says enough; beyond them, a cliff may hide that no
        line foretells: depths 2 to 7 padded to one captured graph, and depth 1 to half of it.

        Args:
            pods: how many there are; one of them looks.
        """
        wanted: list[Option] = []
        drafting = [depth for depth in self.bounds.depths if depth]
        ends = {drafting[0], drafting[-1]}
        for bucket, share in self.measurable.items():
            if share < LEAST_CONTROL_SHARE or not (self.depths[bucket] and self._compared(bucket)):
                continue
            kind = self.evidence.traffic.kind(bucket)
            unseen = [
                each
                for each in self._alternatives(bucket, share)
                if each.to in ends
                and self.evidence.table.at(bucket, each.to, kind) is None
                and self._conceivable(each) > log1p(self.bounds.min_gain)
                and self._may_visit(bucket, each.to)
                and self._may_try(each, pods)
            ]
            if unseen:
                wanted.append(max(unseen, key=self._conceivable))
        return tuple(wanted)

    def _conceivable(self, option: Option) -> float:
        """What an end would gain (log) if a cliff lay between it and the nearest measured depth.

        A shallower one's steps could take as much less as they have fewer tokens, and a deeper
        one's no longer.
        """
        table, kind = self.evidence.table, self.evidence.traffic.kind(option.bucket)
        depths = (cell.depth for cell in table.measured_depths(option.bucket, kind))
        nearest = min(depths, key=lambda depth: abs(depth - option.to))
        cliff = max(0.0, log((nearest + 1) / (option.to + 1)))
        gain = self.evidence.gain(option.bucket, nearest, option.start)
        length, _ = self.evidence.lengths(option.bucket).log_ratio(option.to, nearest)
        return length + cliff + (gain.mean if gain is not None else 0.0)

    def nearest_rivals(self) -> tuple[Option, ...]:
        """For people: in each bucket under load, the best other depth."""
        rivals: list[Option] = []
        for bucket, share in self.shares.items():
            options = self._alternatives(bucket, share)
            if options:
                rivals.append(max(options, key=lambda each: each.gain.mean))
        return tuple(rivals)

    def gain_over_tokens(self, bucket: int, depth: int) -> float | None:
        """Relative gain of a depth over the user's own; None: unknown.

        With an SLO that the user's own depth misses, a slower depth is no loss.
        """
        tokens = self._clamped(self.bounds.tokens)
        gain = self.evidence.gain(bucket, depth, tokens)
        if gain is None:
            return None
        if self.slo is not None:
            slow = self.slo.slow_seconds(self.evidence, bucket, tokens)
            if slow is not None and self.slo.loses(slow):
                return max(0.0, expm1(gain.mean))
        return expm1(gain.mean)

    def gain_over(self, tokens: int) -> float | None:
        """Relative gain of the depths in force over `tokens` at every batch, weighted by load.

        Returns:
            None unless most of the load runs in buckets where both depths were measured.
        """
        shares = self.shares
        covered = slower = 0.0
        for bucket, share in shares.items():
            gain = self.evidence.gain(bucket, self.depths[bucket], self._clamped(tokens))
            if gain is not None and gain.step_time_measured and gain.sd <= MEASURED_SD:
                covered += share
                slower += share * (expm1(gain.mean) + 1)
        if not shares or covered < GAIN_COVERAGE * sum(shares.values()):
            return None
        return slower / covered - 1

    def _clamped(self, depth: int) -> int:
        return nearest_depth(depth, self.bounds.depths)

    @property
    def has_compared(self) -> bool:
        """Whether at least two depths were measured in some bucket."""
        return any(self._compared(bucket) for bucket in self.depths)

    def _compared(self, bucket: int) -> bool:
        """Whether at least two depths were measured in a bucket."""
        kind = self.evidence.traffic.kind(bucket)
        return len(self.evidence.table.measured_depths(bucket, kind)) > 1

    def _alternatives(self, bucket: int, share: float) -> list[Option]:
        start = self.depths[bucket]
        options: list[Option] = []
        for depth in self.bounds.depths:
            if depth == start or self._failed(bucket, depth):
                continue
            gain = self.gain(bucket, depth, start)
            if gain is not None:
                options.append(Option(bucket, start, depth, gain, share))
        return options

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
            needed = log(slow_start / (ENTER * self.slo.wanted_seconds))
            mended = min(log(slow_start / slow_to), needed)
            return replace(gain, mean=mended + SPEED_COUNTS * gain.mean)
        return gain if self.slo.allows(self.evidence, bucket, to) else None

    def steadier(self, bucket: int, depth: int, other: int) -> bool:
        """With objective Goodput: whether slow requests are faster at a depth than at another."""
        if self.slo is None:
            return False
        slow = self.slo.slow_seconds(self.evidence, bucket, depth)
        slow_other = self.slo.slow_seconds(self.evidence, bucket, other)
        return slow is not None and slow_other is not None and slow < slow_other

    def _may_try(self, option: Option, pods: int) -> bool:
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
        slower, error = log(slow / slow_start), Z * option.gain.sd
        return self.slo.bears(slower + error, 1 / max(1, pods)) if kept else slower <= error

    def _best(self, bucket: int, share: float) -> Option | None:
        """The depth that is certainly better, and by how much at least."""
        options = [
            option
            for option in self._alternatives(bucket, share)
            if option.gain.step_time_measured
            and option.gain.mean >= self._least_gain(option)
            and option.gain.lower(self._certainty(option)) > 0
        ]
        return max(options, key=lambda each: each.gain.lower(), default=None)

    def _certainty(self, option: Option) -> float:
        """Standard errors that a move takes."""
        if self._just_left(option.bucket, option.to):
            return RETURN_Z
        if self.slo is None:
            return Z
        slow = self.slo.slow_seconds(self.evidence, option.bucket, option.start)
        return MEND_Z if slow is not None and self.slo.loses(slow) else Z

    def _least_gain(self, option: Option) -> float:
        least = log1p(self.bounds.min_gain)
        return BLIND * least if option.to == 0 else least

    def _just_left(self, bucket: int, depth: int) -> bool:
        return any(
            visit.bucket == bucket
            and visit.depth == depth
            and visit.epoch == self.evidence.text.epoch
            and self.evidence.now_s - visit.at_s < RETURN_S
            for visit in self.left
        )

    def _failed(self, bucket: int, depth: int) -> bool:
        visit = self._visit(bucket, depth)
        return (
            visit is not None
            and visit.failed
            and self.evidence.now_s - visit.at_s < VISIT_AGAIN_S[-1]
        )

    def _may_visit(self, bucket: int, depth: int) -> bool:
        visit = self._visit(bucket, depth)
        if visit is None:
            return True
        rest = VISIT_AGAIN_S[min(visit.times, len(VISIT_AGAIN_S)) - 1]
        return self.evidence.now_s - visit.at_s >= rest

    def _visit(self, bucket: int, depth: int) -> Visit | None:
        epoch = self.evidence.text.epoch
        return next(
            (v for v in self.visits if (v.bucket, v.depth, v.epoch) == (bucket, depth, epoch)), None
        )

    def _in_reach(self, bucket: int, depth: int) -> bool:
        """Whether the slope is known well enough to look that far; the next one always is."""
        table, kind = self.evidence.table, self.evidence.traffic.kind(bucket)
        known = table.measured_depths(bucket, kind)
        if len(known) > 1 or table.compared_elsewhere(bucket, kind):
            return True
        anchors = [cell.depth for cell in known] or [self.depths[bucket]]
        return any(
            abs(depth - anchor) <= FARTHEST_GUESS
            or not any(
                min(depth, anchor) < each < max(depth, anchor) for each in self.bounds.depths
            )
            for anchor in anchors
        )


def expected_gain_sd(options: Iterable[Option]) -> float:
    """Its error: all buckets have the traffic and the hardware's slope in common."""
    return sum(option.share * option.gain.sd for option in options)


def expected_gain(options: Iterable[Option]) -> float:
    """Relative gain over all load, weighted by busy time."""
    return sum(option.share * expm1(option.gain.mean) for option in options)
