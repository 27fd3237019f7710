"""The replica that stays beside the others to be compared: which, and when it is there. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fathom.api.choices import Compares
from fathom.api.status import ArmState, Compared, ComparisonStatus
from fathom.fetch.state import Fetched, FetchStanding, pinned
from fathom.resource import SpeculativeDeployment
from fathom.rollout.comparison import WORDS, ArmComparison
from fathom.rollout.input import RolloutInput
from fathom.rollout.replicas import arm_of, why_no_arm
from fathom.rollout.revision import revisions_of
from fathom.rollout.rollout import Rollout, Stage
from fathom.times import rfc3339
from fathom_fetch.metrics import MODEL


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
    wanted: SpeculativeDeployment,
    before: Rollout | None,
    given: RolloutInput,
    *,
    refused: str = "",
) -> Arm | None:
    """The replica that is to be compared with all others; None: none is.

    Args:
        wanted: the spec that is carried out.
        before: the rollout or comparison as it was.
        given: this pass's view, at the revision of the other replicas.
        refused: why what it has otherwise cannot work, as a sentence; empty: it may.
    """
    spec = arm_of(wanted.spec)
    compares = wanted.spec.compares
    if spec is None or compares is None:
        return None
    made_from, draft = wanted.with_spec(spec), wanted.spec.draft.on_trial
    ours, *others = revisions_of(made_from)
    revision = ours
    # Whatever this Fathom would call it: an upgrade is no reason to begin again.
    if (
        before is not None
        and (before.arm, before.compares, before.draft) == (True, compares, draft)
        and before.stable == given.revision
    ):
        revision = before.revision
    elif before is None and ours not in given.others:
        # An operator that kept no record may have begun it.
        revision = next((each for each in others if each in given.others), ours)
    waits = refused.rstrip(".") or _why_not_yet(wanted, revision, before, given)
    lacks = compares is Compares.DRAFT and given.unplaced.get(given.revision)
    if lacks and not waits:
        waits = f"a replica goes before a draft on trial: {lacks.trouble.message.rstrip('.')}"
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


def with_target_of_others(arm: Arm, weights: FetchStanding) -> Arm:
    """The replica with another draft, at the commit of the target that the others load.

    Args:
        arm: as the spec asks for it.
        weights: where the fetch of the others stands.
    """
    if weights.fetched is None:
        return arm
    target = tuple((role, commit) for role, commit in weights.fetched.commits if role == MODEL)
    return replace(arm, sd=pinned(arm.sd, Fetched(target)))


def beside_others(
    given: RolloutInput, arm: Arm, *, draft: str, live: bool, held: str, own_depth: bool
) -> RolloutInput:
    """This pass's view for the one replica that is compared with the others.

    Args:
        given: for the others.
        arm: the one.
        draft: that it tries; empty: it has the others'.
        live: whether its depth is.
        held: what its pods wait for; empty: nothing.
        own_depth: whether the tuner chooses depths, and so one for each draft.
    """
    # A draft can wait: no replica that serves goes for it, unless the spec allows no surge at all.
    waits = given.settings.waits or arm.compares is Compares.DRAFT
    return replace(
        given,
        revision=arm.revision,
        settings=replace(given.settings, waits=waits),
        live=live,
        compares=arm.compares,
        draft=draft,
        own_depth=bool(draft) and live and own_depth,
        stable_spec_known=True,
        held=held,
    )


def arm_status(
    arm: Arm | None, rollout: Rollout | None, *, not_fetched: str, paused: bool, trained: bool
) -> Mapping[Compares, ComparisonStatus]:
    """What the status tells of it; empty: nothing is to be compared.

    Args:
        arm: the one replica.
        rollout: as it is.
        not_fetched: why its draft is not fetched, in words; empty: it is, or need not be.
        paused: whether a person holds it.
        trained: whether its draft was trained, so that `status.training` says what follows.
    """
    if arm is None:
        return {}
    found = _status(arm, rollout, paused=paused, trained=trained)
    if not_fetched:
        found = found.model_copy(update={"message": f"{found.message} But {not_fetched}"})
    return {arm.compares: found}


def _status(arm: Arm, rollout: Rollout | None, *, paused: bool, trained: bool) -> ComparisonStatus:
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
        message=(
            found.finding
            if trained and found is not None and rollout.stage is not Stage.ROLLED_BACK
            else _message(rollout, paused=paused) + _adoption(arm, found)
        ),
    )


def _adoption(arm: Arm, found: ArmComparison | None) -> str:
    """The edit that gives all replicas a draft that was found faster; empty: there is none."""
    if arm.compares is not Compares.DRAFT or found is None or found.found is not Compared.FASTER:
        return ""
    metadata, draft = arm.sd.metadata, arm.sd.spec.draft
    adopted = {"id": draft.id, "revision": draft.revision, "trial": None}
    patch = json.dumps({"spec": {"draft": adopted}}, separators=(",", ":"))
    return (
        f" In Git, or: kubectl patch speculativedeployment {metadata.name} "
        f"-n {metadata.namespace} --type merge -p '{patch}'"
    )


def _state(rollout: Rollout) -> ArmState:
    if rollout.stage is Stage.ROLLED_BACK:
        return ArmState.FAILED
    if rollout.compared is not None:
        return ArmState.COMPARED
    return ArmState.COMPARING if rollout.served else ArmState.STARTING


def _message(rollout: Rollout, *, paused: bool) -> str:
    if paused and rollout.compared is None:
        return "it is held, by rollout.paused or by annotation fathom.dev/paused."
    if rollout.stage is not Stage.ROLLED_BACK:
        return str(rollout.compared) if rollout.compared else rollout.message
    return (
        f"{rollout.message} Its place was given back; to try it once more: "
        f"`kubectl fathom retry`, or {WORDS[rollout.compares].none} and undo that."
    )
