"""One decision in the making: what every check looks at, and what every answer is made of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fathom.api.conditions import Reason
from fathom.api.spec import Objective
from fathom.core.depth import DepthDocument, Schedule, flat, nearest_depth
from fathom.core.measurement import PodDelta, pooled_cells
from fathom.tuning import sentences
from fathom.tuning.alarms.watching import standing, watched
from fathom.tuning.buckets import depths_of, schedule_of
from fathom.tuning.checks.convergence import Obedience, obedience
from fathom.tuning.estimate.measured import measure
from fathom.tuning.estimate.tail import LEAST_REQUESTS
from fathom.tuning.estimate.text_spread import ByText
from fathom.tuning.estimate.traffic import steps_in
from fathom.tuning.interface import Action, Settings, TuningDecision, TuningSnapshot
from fathom.tuning.learning import observe
from fathom.tuning.policy.ledger import Ledger
from fathom.tuning.policy.option import Bounds
from fathom.tuning.policy.policy import Policy
from fathom.tuning.policy.slo import Slo, mean_slope
from fathom.tuning.policy.value import Evidence
from fathom.tuning.state import MOST_VISITS, Probe, Trial, TuningState, Visit


@dataclass(frozen=True, slots=True)
class Situation:
    """The snapshot, and what follows from it."""

    snapshot: TuningSnapshot
    document: DepthDocument
    state: TuningState
    """With all that was counted since the last decision."""
    deltas: tuple[PodDelta, ...]
    policy: Policy
    pins: Mapping[str, Schedule]
    obedience: Obedience

    @property
    def settings(self) -> Settings:
        return self.snapshot.settings

    @property
    def now_s(self) -> float:
        return self.snapshot.now_s

    @property
    def window_seconds(self) -> float:
        return self.snapshot.settings.window_seconds

    def hold(
        self, reason: Reason, message: str, *, wake_after_s: float | None = None
    ) -> TuningDecision:
        """Change nothing, and say why."""
        return self.act(Action.HOLD, reason, message, self.document, wake_after_s=wake_after_s)

    def stay(self) -> TuningDecision:
        """Hold, since nothing is known to be better."""
        return self.hold(*self.why_stay())

    def why_stay(self) -> tuple[Reason, str]:
        """What speaks for the depths in force."""
        if self.policy.slo is not None and not self.policy.slo.is_known:
            return Reason.MEASURING, (
                f"Waits until {LEAST_REQUESTS:.0f} requests have finished within some minutes: "
                "how slow the slowest of them are is what the SLO is about."
            )
        rivals = self.policy.nearest_rivals()
        if not rivals and len(self.settings.depths) > 1:
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
        return TuningDecision(
            action=action,
            reason=reason,
            message=message,
            document=document,
            state=replace(
                self.state,
                tokens=self.settings.tokens,
                generation=max(self.state.generation, document.generation),
            ),
            wake_after_s=wake_after_s or self.window_seconds,
            measured=self.state.measured,
            alarms=standing(self.state.watches),
            not_obeyed=self.obedience.disobeying,
            # A pod that has just been found deaf is news, whatever is decided.
            notable=notable
            or not set(self.obedience.disobeying) <= set(self.snapshot.state.disobeying),
        )

    def next_document(self, depths: Mapping[int, int], tried: Probe | None) -> DepthDocument:
        """The document for these depths; the very same one if nothing changes."""
        most = self.settings.max_batch
        pods = dict(self.pins)
        if tried is not None:
            # An engine that was made smaller has fewer buckets than when it was begun.
            own = {bucket: depth for bucket, depth in tried.depths if bucket in depths}
            pods[tried.pod] = schedule_of({**depths, **own}, most)
        document = DepthDocument(
            generation=max(self.document.generation, self.state.generation) + 1,
            schedule=schedule_of(depths, most),
            pods=pods,
        )
        return self.document if document.same_depths(self.document) else document

    def with_state(self, state: TuningState) -> "Situation":
        """The same situation after a change of mind."""
        return replace(
            self,
            state=state,
            policy=replace(self.policy, visits=state.visits, left=state.left),
        )

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


def pins(snapshot: TuningSnapshot) -> dict[str, Schedule]:
    """Overrides that are asked for: by people, within the spec's bounds; by quality checks."""
    settings = snapshot.settings

    def within(depth: int, *, checked: bool) -> int:
        # Which of these its engine has is not asked here: it may have others than the rest.
        return max(0 if checked else settings.min_tokens, min(depth, settings.max_tokens))

    return {
        pod.name: flat(within(pod.pinned_depth, checked=pod.checked), settings.max_batch)
        for pod in snapshot.pods
        if pod.pinned_depth is not None
    }


def _slo(settings: Settings, state: TuningState) -> Slo | None:
    wanted = settings.tpot_slo_seconds
    if settings.objective is not Objective.GOODPUT or wanted is None:
        return None
    return Slo(wanted, state.tail, state.by_text)


def _by_text(state: TuningState, policy: Policy) -> ByText:
    """With one more window, where there is an SLO and requests were finished."""
    if policy.slo is None:
        return state.by_text
    spread = state.tail.slow_over_mean()
    slope = mean_slope(policy.evidence, state.tail)
    if spread is None or slope is None:
        return state.by_text
    return state.by_text.updated(slope, spread, policy.evidence.now_s)


def _entered(
    state: TuningState, deltas: tuple[PodDelta, ...], policy: Policy, settings: Settings
) -> Ledger:
    """The ledger after this window; another `tokens` opens a new one."""
    ledger = state.ledger if state.tokens in {None, settings.tokens} else Ledger()
    at_s = max((each.to_s for each in deltas), default=0.0)
    return ledger.updated(deltas, policy.gain_over_tokens, at_s)


def _deepest(settings: Settings, state: TuningState, in_force: Iterable[int]) -> int:
    """The deepest that anything is asked about: bounds may have been wider when it was begun."""
    trial = state.trial.changes if state.trial else ()
    probe = state.probe.depths if state.probe else ()
    return max(
        settings.max_tokens,
        settings.tokens,
        *in_force,
        *(cell.depth for cell in state.step_times.cells),
        *(each.depth for each in state.tail.ran),
        *(max(change.start, change.to) for change in trial),
        *(depth for _, depth in probe),
    )


def assess(snapshot: TuningSnapshot, document: DepthDocument) -> Situation:
    """Take in what was counted since the last decision, and see where that leaves us."""
    settings = snapshot.settings
    seen = observe(snapshot)
    state = seen.state
    depths = depths_of(document.schedule, settings.max_batch)
    policy = Policy(
        evidence=Evidence(
            state.text,
            state.step_times,
            state.traffic,
            snapshot.now_s,
            deepest=_deepest(settings, state, depths.values()),
        ),
        depths={bucket: clamped(depth, settings) for bucket, depth in depths.items()},
        bounds=Bounds(
            depths=settings.depths,
            tokens=settings.tokens,
            min_gain=settings.min_gain,
        ),
        visits=state.visits,
        left=state.left,
        slo=_slo(settings, state),
    )
    measured = measure(
        seen.deltas,
        snapshot.now_s,
        policy.gain_over(settings.tokens),
        by_position=not settings.drafts_are_cut,
    )
    state = replace(
        state,
        watches=watched(
            state.watches,
            snapshot=snapshot,
            document=document,
            deltas=seen.deltas,
            policy=policy,
            acceptance=state.acceptance,
        ),
        ledger=_entered(state, seen.deltas, policy, settings),
        by_text=_by_text(state, policy) if seen.deltas else state.by_text,
        measured=measured or state.measured,
        generation=max(state.generation, document.generation),
        probe=_progress(state.probe, seen.deltas, snapshot, document),
        trial=_trial_progress(state.trial, seen.deltas, policy.depths),
    )
    found = obedience(snapshot, document, state)
    return Situation(
        snapshot=snapshot,
        document=document,
        state=replace(state, disobeying=found.disobeying),
        deltas=seen.deltas,
        policy=policy,
        pins=pins(snapshot),
        obedience=found,
    )


def _progress(
    probe: Probe | None,
    deltas: tuple[PodDelta, ...],
    snapshot: TuningSnapshot,
    document: DepthDocument,
) -> Probe | None:
    """The probe with what was seen of it; None if the document does not hold it."""
    if probe is None or probe.pod not in document.pods:
        return None
    counters = next((pod.counters for pod in snapshot.pods if pod.name == probe.pod), None)
    in_force_at_s = probe.in_force_at_s
    if not in_force_at_s and counters and counters.depth_generation == document.generation:
        in_force_at_s = counters.at_s
    own = [each for each in deltas if each.pod == probe.pod]
    steps = steps_in(pooled_cells(own), probe.depths)
    return replace(
        probe,
        in_force_at_s=in_force_at_s,
        steps=probe.steps + steps,
        looks=probe.looks + (1 if steps and in_force_at_s else 0),
    )


def _trial_progress(
    trial: Trial | None, deltas: tuple[PodDelta, ...], depths: Mapping[int, int]
) -> Trial | None:
    """The trial with what was seen of it; None if the move is not in the document."""
    if trial is None or any(depths.get(each.bucket) != each.to for each in trial.changes):
        return None
    pairs = [(each.bucket, each.to) for each in trial.changes]
    return replace(trial, steps=trial.steps + steps_in(pooled_cells(deltas), pairs))
