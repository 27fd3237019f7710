"""The replica that stays beside the others to be compared: which, and when it is there. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from fathom.api.choices import Compares
from fathom.api.status import ArmState, ComparisonStatus
from fathom.resource import SpeculativeDeployment
from fathom.rollout.comparison import NONE
from fathom.rollout.input import RolloutInput
from fathom.rollout.replicas import arm_of, why_no_arm
from fathom.rollout.revision import revisions_of
from fathom.rollout.rollout import Rollout, Stage
from fathom.times import rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One replica that is to be compared, as the spec asks for it."""

    compares: Compares
    """What it has otherwise than the others."""
    sd: SpeculativeDeployment
    """What it is made from."""
    revision: str
    waits: str
    """Why it is not there, in words; empty: it is, or comes now."""


def wanted_arm(
    wanted: SpeculativeDeployment, before: Rollout | None, given: RolloutInput
) -> Arm | None:
    """The replica that is to be compared with all others; None: none is.

    Args:
        wanted: the spec that is carried out.
        before: the rollout or comparison as it was.
        given: this pass's view, at the revision of the other replicas.
    """
    spec = arm_of(wanted.spec)
    compares = wanted.spec.compares
    if spec is None or compares is None:
        return None
    made_from = wanted.with_spec(spec)
    ours, *others = revisions_of(made_from)
    revision = ours
    # Whatever this Fathom would call it: an upgrade is no reason to begin again.
    if (
        before is not None
        and (before.arm, before.compares) == (True, compares)
        and before.stable == given.revision
    ):
        revision = before.revision
    elif before is None and ours not in given.others:
        # An operator that kept no record may have begun it.
        revision = next((each for each in others if each in given.others), ours)
    waits = _why_not_yet(wanted, revision, before, given)
    return Arm(compares=compares, sd=made_from, revision=revision, waits=waits)


def _why_not_yet(
    wanted: SpeculativeDeployment, revision: str, before: Rollout | None, given: RolloutInput
) -> str:
    if obstacle := why_no_arm(wanted.spec):
        return obstacle
    if not given.ready(given.revision) and not given.asked(given.revision):
        return f"no replica of revision {given.revision} is there to compare it with"
    if before is not None:
        under_way = before.on_trial or before.arm
        goes_on = under_way and (before.revision, before.stable) == (revision, given.revision)
        if before.stage is Stage.ROLLED_BACK and not before.arm:
            return f"revision {before.revision} was rolled back: see Degraded"
        return "" if goes_on else "a rollout is under way, and goes first"
    others = set(given.others) - {revision}
    if others or given.ready(given.revision) + given.asked(revision) < wanted.spec.replicas:
        return "it begins when every replica is ready"
    return ""


def arm_status(arm: Arm | None, rollout: Rollout | None) -> Mapping[Compares, ComparisonStatus]:
    """What the status tells of it; empty: nothing is to be compared."""
    return {} if arm is None else {arm.compares: _status(arm, rollout)}


def _status(arm: Arm, rollout: Rollout | None) -> ComparisonStatus:
    if rollout is None or not rollout.arm:
        message = f"{arm.waits or 'it begins'}."
        return ComparisonStatus(state=ArmState.WAITING, message=message)
    found = rollout.compared
    return ComparisonStatus(
        state=_state(rollout),
        revision=rollout.revision,
        pod=rollout.watch.pod if rollout.watch else "",
        result=found.found if found else None,
        percent=found.percent if found else "",
        interval_percent=found.interval_percent if found else "",
        since=rfc3339(found.at_s) if found else "",
        reason=rollout.reason,
        message=_message(rollout),
    )


def _state(rollout: Rollout) -> ArmState:
    if rollout.stage is Stage.ROLLED_BACK:
        return ArmState.FAILED
    if rollout.compared is not None:
        return ArmState.COMPARED
    return ArmState.COMPARING if rollout.served else ArmState.STARTING


def _message(rollout: Rollout) -> str:
    if rollout.stage is not Stage.ROLLED_BACK:
        return str(rollout.compared) if rollout.compared else rollout.message
    off = f"spec.speculation.{rollout.compares} to {NONE[rollout.compares]}"
    return (
        f"{rollout.message} Its place was given back; to try it once more: "
        f"`kubectl fathom retry`, or {off} and back."
    )
