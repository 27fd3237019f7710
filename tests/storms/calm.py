"""What has to be so once all faults are over, in the simulator and on a real API server. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fathom.api import names
from fathom.api.conditions import Reason
from storms.hub import BAD_DRAFT


def complaint(
    resource: Mapping[str, Any] | None,
    workloads: Sequence[Mapping[str, Any]],
    serving: Sequence[Mapping[str, Any]],
    *,
    rolled_out: Collection[str] = (),
    may_roll_back: bool = False,
) -> str:
    """What is not as it should be; empty: all is.

    Args:
        resource: as the API server has it; None: there is none.
        workloads: Deployments and LeaderWorkerSets of the resource.
        serving: its pods that are ready and stay.
        rolled_out: drafts that had every replica before they were refused.
        may_roll_back: whether something has happened for which a canary may be rolled back.
    """
    if resource is None:
        return "" if not workloads else "children of a deleted resource exist"
    spec, status = resource["spec"], resource.get("status") or {}
    generation = resource["metadata"]["generation"]
    if status.get("observedGeneration") != generation:
        return f"status is of generation {status.get('observedGeneration')}, not {generation}"
    wanted = spec.get("replicas", 1)
    asked = {each["metadata"]["name"]: each["spec"]["replicas"] for each in workloads}
    arm = _is_arm_beside(spec, serving, status)
    # Where there are GPUs for one more, the arm takes nobody's place.
    allowed = {wanted, wanted + spec.get("rollout", {}).get("maxSurge", 0)} if arm else {wanted}
    refused = spec["draft"]["id"] == BAD_DRAFT and not asked
    if not refused and not {len(serving), sum(asked.values())} <= allowed:
        return f"{len(serving)} of {wanted} replicas serve, and workloads ask for {asked}"
    if status.get("ready") != f"{len(serving)}/{wanted}":
        return f"status says {status.get('ready')} where {len(serving)} serve"
    revisions = {pod["metadata"]["labels"][names.LABEL_REVISION] for pod in serving}
    if len(revisions) > 1 and not arm:
        return f"replicas are of several revisions: {sorted(revisions)}"
    return _of_the_spec(spec, serving, status, rolled_out=rolled_out, may_roll_back=may_roll_back)


def _is_arm_beside(
    spec: Mapping[str, Any], serving: Sequence[Mapping[str, Any]], status: Mapping[str, Any]
) -> bool:
    """Whether all are of one revision but the one replica that is compared with them."""
    trained = (status.get("training") or {}).get("phase") in {"Trial", "Faster"}
    asked = "Canary" in spec.get("speculation", {}).values() or _trial_of(spec) or trained
    arm = _compared_with_others(status)
    others = [pod for pod in serving if pod["metadata"]["labels"][names.LABEL_REVISION] != arm]
    one_revision = len({pod["metadata"]["labels"][names.LABEL_REVISION] for pod in others}) == 1
    return asked and one_revision and len(serving) - len(others) == 1


def _trial_of(spec: Mapping[str, Any]) -> str:
    """The draft on trial; empty: none is."""
    trial = spec["draft"].get("trial") or {}
    return str(trial.get("id", "")) if trial.get("id") != spec["draft"]["id"] else ""


def _compared_with_others(status: Mapping[str, Any]) -> str:
    """The revision of the one replica that is compared; empty: there is none."""
    fields = ("adaptiveVerification", "drafting", "draftTrial")
    found = (status.get(field) or {} for field in fields)
    return next((each["revision"] for each in found if each.get("revision")), "")


def _of_the_spec(
    spec: Mapping[str, Any],
    serving: Sequence[Mapping[str, Any]],
    status: Mapping[str, Any],
    *,
    rolled_out: Collection[str],
    may_roll_back: bool,
) -> str:
    conditions = {each["type"]: each for each in status["conditions"]}
    degraded, draft = conditions["Degraded"], spec["draft"]["id"]
    compared = _compared_with_others(status)
    shown = [
        str(pod["spec"]["containers"][0])
        for pod in serving
        if pod["metadata"]["labels"][names.LABEL_REVISION] != compared
    ]
    if draft != BAD_DRAFT and _trial_of(spec) == BAD_DRAFT:
        told = (status.get("draftTrial") or {}).get("message", "")
        if "hidden_size" not in told:
            return f"the draft on trial does not fit, and its message is: {told}"
        if any(BAD_DRAFT in str(pod["spec"]) for pod in serving) and draft not in rolled_out:
            return "a pod with the draft on trial that does not fit serves"
    if draft == BAD_DRAFT:
        told = conditions["DraftCompatible"]["status"] == "False"
        served = any(BAD_DRAFT in each for each in shown)
        bad = "pods with the refused draft serve" if served and draft not in rolled_out else ""
        return bad if told else "the draft does not fit, and nobody says so"
    rolled_back = degraded["reason"] == Reason.ROLLED_BACK
    if degraded["status"] == "True" and not (rolled_back and may_roll_back):
        return f"it is Degraded: {degraded['reason']}: {degraded['message']}"
    wanted = (draft, spec["engine"]["image"])
    if not rolled_back and not all(each in pod for each in wanted for pod in shown):
        return "pods that serve are not those of the spec"
    return ""
