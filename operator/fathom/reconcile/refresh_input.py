"""What a refresh depends on, gathered from one pass."""

from typing import Final

from fathom.api.choices import AutoOrNever
from fathom.api.conditions import AlarmKind
from fathom.core.cluster.snapshot import Snapshot
from fathom.core.plan import Plan
from fathom.reconcile.desired_state import DesiredState
from fathom.rollout.refresh import Refresh, RefreshInput, next_refresh
from fathom.rollout.rollout import Stage
from fathom.tuning.interface import TuningDecision

_BY_SPEC: Final = "rollout.paused holds everything but scaling."
LOADING_S: Final = 3600.0
"""A replica that is restarted is missing for about so long: that time must be quiet as well."""


def refresh_of(
    desired: DesiredState,
    snapshot: Snapshot,
    decision: TuningDecision,
    plan: Plan,
    *,
    checking: bool,
) -> Refresh:
    """Whether to restart a replica now.

    Args:
        desired: what this pass carries out.
        snapshot: this pass's view.
        decision: the tuner's, with its alarms.
        plan: what becomes of the Deployments.
        checking: whether a quality check is under way.
    """
    spec, now_s = desired.sd.spec, snapshot.now_s
    rollout, load = desired.rollout, decision.state.load
    alarms = {each.kind: each for each in decision.alarms}
    decay = alarms.get(AlarmKind.ACCEPTANCE_DECAY)
    rolling = rollout is not None and rollout.stage is not Stage.ROLLED_BACK
    return next_refresh(
        RefreshInput(
            now_s=now_s,
            auto=spec.rollout.refresh is AutoOrNever.AUTO,
            paused=desired.paused or (_BY_SPEC if spec.rollout.paused else ""),
            decay_since_s=decay.since_s if decay else None,
            decay_after_s=decay.older_than_s if decay else None,
            busy=rolling or plan.progress.moving or checking,
            trough=load.is_trough(now_s) and load.is_trough(now_s + LOADING_S),
            replicas=spec.replicas,
            max_unavailable=spec.rollout.max_unavailable,
            pods=snapshot.objects.standing,
            log=desired.checkpoint.refreshes,
        )
    )
