"""One decision in the making: what every check looks at, and what every answer is made of."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from fathom.api.conditions import Reason
from fathom.engine.depth import DepthDocument, Schedule, flat, nearest_depth, schedule_of
from fathom.measurement.deltas import PodDelta
from fathom.tuning import sentences
from fathom.tuning.alarms.table import standing
from fathom.tuning.convergence import Convergence
from fathom.tuning.estimate.tail import LEAST_REQUESTS
from fathom.tuning.gains import headroom
from fathom.tuning.interface import Action, Settings, TunedPod, TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import MOST_VISITS, Probe, TuningState
from fathom.tuning.policy.option import Bounds, Visit
from fathom.tuning.policy.policy import Policy

WARM_S: Final = 30.0
"""Pods that became ready more recently are still warming up."""
MOSTLY_SHARE: Final = 0.5
"""Share of the busy time that depth 0 must have before its price is mentioned."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the last move gained, relative."""

    expected: float
    measured: float

    @property
    def sentence(self) -> str:
        return f"The last move gained {self.measured:+.1%} (expected {self.expected:+.1%})."


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The snapshot, and what follows from it."""

    snapshot: TuningSnapshot
    document: DepthDocument
    state: TuningState
    """With all that was counted since the last decision."""
    deltas: tuple[PodDelta, ...]
    policy: Policy
    pins: Mapping[str, Schedule]
    convergence: Convergence
    probed: Probe | None = None
    """The probe that has just ended: its pod's depth must change by this decision."""
    verdict: Verdict | None = None
    """What the last move gained, if it has just been judged."""

    @property
    def settings(self) -> Settings:
        return self.snapshot.settings

    @property
    def now_s(self) -> float:
        return self.snapshot.now_s

    @property
    def window_seconds(self) -> float:
        return self.snapshot.settings.window_seconds

    @property
    def ready_pods(self) -> int:
        return sum(pod.ready for pod in self.snapshot.pods)

    @property
    def known_pods(self) -> frozenset[str]:
        return self.snapshot.known_pods(self.state.looks)

    @property
    def _headroom(self) -> float | None:
        measured = self.state.measured
        rate = measured.tokens_per_second if measured else None
        # What is served by pods that cannot be read is in no rate.
        return headroom(self.policy, rate, len(self.known_pods))

    def hold(
        self, reason: Reason, message: str, *, wake_after_s: float | None = None
    ) -> TuningDecision:
        """Change nothing, and say why."""
        return self.act(Action.HOLD, reason, message, self.document, wake_after_s=wake_after_s)

    def stay(self) -> TuningDecision:
        """Hold, since nothing is known to be better."""
        reason, message = self.why_stay()
        prompts = self.policy.evidence.prompts
        if prompts.steps_are_full:
            message = f"{message} {sentences.full_steps(prompts.token_budget)}"
        elif self._share_at_depth_0 > MOSTLY_SHARE:
            message = f"{message} {sentences.DEPTH_0_RULES}"
        elif prompts.are_read_again:
            message = f"{message} {sentences.PREEMPTED}"
        elif not prompts.known and any(
            not each.counts_prompts for each in self.state.looks.values()
        ):
            message = f"{message} {sentences.OLDER_PLUGIN}"
        return self.hold(reason, message)

    @property
    def _share_at_depth_0(self) -> float:
        shares = self.policy.shares
        at_0 = sum(share for bucket, share in shares.items() if not self.policy.depths[bucket])
        return at_0 / sum(shares.values()) if shares else 0.0

    def why_stay(self) -> tuple[Reason, str]:
        """What speaks for the depths in force."""
        if self.policy.slo is not None and not self.policy.slo.is_known:
            return Reason.MEASURING, (
                f"Waits until {LEAST_REQUESTS:.0f} requests have finished within some minutes: "
                "how slow the slowest of them are is what the SLO is about."
            )
        rivals = self.policy.nearest_rivals()
        if not rivals and len(self.settings.depths) > 1:
            left = {bucket: self.policy.left_out(bucket) for bucket in self.policy.shares}
            if any(left.values()):
                return sentences.stays_alone(left, self.policy.depths, self.settings.max_batch)
            return Reason.MEASURING, "Measures the step time at the depth in force."
        return sentences.stays(rivals, self.settings.max_batch, self.settings.min_gain)

    def act(
        self,
        action: Action,
        reason: Reason,
        message: str,
        document: DepthDocument,
        *,
        wake_after_s: float | None = None,
        notable: bool = False,
    ) -> TuningDecision:
        """A decision that carries this situation's state."""
        verdict = self.verdict
        return TuningDecision(
            action=action,
            reason=reason,
            message=f"{verdict.sentence} {message}" if verdict else message,
            expected_gain=verdict.expected if verdict else None,
            measured_gain=verdict.measured if verdict else None,
            document=document,
            state=replace(
                self.state,
                tokens=self.settings.tokens,
                generation=max(self.state.generation, document.generation),
            ),
            wake_after_s=wake_after_s or self.window_seconds,
            measured=self.state.measured,
            alarms=standing(self.state.watches),
            not_obeyed=self.convergence.disobeying,
            headroom_tokens_per_second=self._headroom,
            # A pod that has just been found not to obey is news, whatever is decided.
            notable=notable
            or not set(self.convergence.disobeying) <= set(self.snapshot.state.disobeying),
        )

    def next_document(self, depths: Mapping[int, int], tried: Probe | None) -> DepthDocument:
        """The document for these depths; the very same one if nothing changes."""
        most = self.settings.max_batch
        pods, ends = dict(self.pins), dict[str, int]()
        if tried is not None:
            # An engine that was made smaller has fewer buckets than when it was begun.
            own = {bucket: depth for bucket, depth in tried.depths if bucket in depths}
            pods[tried.pod] = schedule_of({**depths, **own}, most)
            ends |= {tried.pod: tried.ends_after_s} if tried.ends_after_s else {}
        document = DepthDocument(
            generation=max(self.document.generation, self.state.generation) + 1,
            schedule=schedule_of(depths, most),
            pods=pods,
            tokens=self.document.tokens,
            ends=ends,
        )
        return self.document if document.same_depths(self.document) else document

    def carrier(self, buckets: Collection[int], *, idle_for_s: float) -> str | None:
        """The pod with most of the traffic in question, of those that may carry a probe.

        Args:
            buckets: that are probed.
            idle_for_s: for so many seconds it may have made no step.
        """
        stepped = dict(self.state.stepped)
        load = {
            each.pod: sum(c.steps for cell, c in each.cells.items() if cell.batch_le in buckets)
            for each in self.deltas
        }

        def fit(pod: TunedPod) -> bool:
            return (
                pod.ready
                and pod.ready_for_s > WARM_S
                and pod.pinned_depth is None
                and pod.name not in self.convergence.disobeying
                and pod.counters is not None
                and pod.counters.live_depth
                and pod.named
                and not self.snapshot.is_stale(pod.counters)
                and self.now_s - stepped.get(pod.name, 0.0) <= idle_for_s
            )

        # Of a pod whose own speed is not kept, it would be taken for the depth's.
        known = {each.pod for each in self.state.step_times.pods}
        best = max(
            (pod for pod in self.snapshot.pods if fit(pod)),
            key=lambda pod: (pod.name in known, load.get(pod.name, 0.0), pod.name),
            default=None,
        )
        return best.name if best is not None else None

    def with_state(self, state: TuningState) -> "Situation":
        """The same situation after a change of mind."""
        return replace(self, state=state, policy=replace(self.policy, visits=state.visits))

    def noted(self, tried: Iterable[tuple[int, int]], *, failed: bool = False) -> "Situation":
        """Remember that these pairs of bucket and depth were tried under the present traffic."""
        visits = self.state.visits
        epoch = self.state.text.epoch
        for bucket, depth in tried:
            key = (bucket, depth, epoch)
            before = next((v for v in visits if (v.bucket, v.depth, v.epoch) == key), None)
            visit = Visit(
                bucket=bucket,
                depth=depth,
                at_s=self.now_s,
                epoch=epoch,
                times=before.times + 1 if before else 1,
                failed=failed or (before is not None and before.failed),
            )
            visits = (*(v for v in visits if v is not before), visit)
        return self.with_state(replace(self.state, visits=visits[-MOST_VISITS:]))


def within_bounds(tried: Probe, settings: Settings) -> bool:
    """Whether what was begun may still be chosen."""
    return all(depth in settings.depths for _, depth in tried.depths)


def clamped(depth: int, settings: Settings) -> int:
    """The nearest depth that may be chosen."""
    return nearest_depth(depth, settings.depths)


def bounds_of(settings: Settings, pods: Iterable[TunedPod], known_budget: float) -> Bounds:
    """What may be chosen. The token budget is what the engines report, the smallest of several.

    Args:
        settings: what the spec allows.
        pods: as they were read.
        known_budget: tokens in a step, as pods reported before; 0: not known.
    """
    reported = (pod.counters.token_budget for pod in pods if pod.counters is not None)
    known = round(known_budget)
    return Bounds(
        depths=settings.depths,
        tokens=settings.tokens,
        min_gain=settings.min_gain,
        token_budget=min((each for each in reported if each > 0), default=known) or None,
    )


def pins(settings: Settings, pods: Iterable[TunedPod]) -> dict[str, Schedule]:
    """Overrides that are asked for: by people, within the spec's bounds; by quality checks.

    None for a pod that would not find it.
    """

    def within(depth: int, *, checked: bool) -> int:
        # Which of these its engine has is not asked here: it may have others than the rest.
        return max(0 if checked else settings.min_tokens, min(depth, settings.max_tokens))

    return {
        pod.name: flat(within(pod.pinned_depth, checked=pod.checked), settings.max_batch)
        for pod in pods
        if pod.pinned_depth is not None and pod.named
    }
