"""The Job that trains a draft: the user's template, with what it is told and where it may write."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.training import MINUTES_PER_HOUR, TrainingSpec
from fathom.cluster.manifest import Manifest
from fathom.manifests.cache import CACHE_DIRECTORY, HUB_HOME, claim_of
from fathom.manifests.intake_job import OUTPUT, output_path
from fathom.manifests.metadata import child_metadata
from fathom.manifests.strategic_merge import with_written_quantities
from fathom.manifests.template_parts import (
    Part,
    by,
    container_security,
    part,
    parts,
    pod_security,
    texts,
    texts_by_name,
)
from fathom.resource import SpeculativeDeployment
from fathom.training.evidence import Evidence

COMPONENT: Final = "training"
CONTAINER: Final = "train"
OWN_LABELS: Final = f"{names.GROUP}/"
"""Begin labels that no template may have: by one of them a Service selects pods that serve."""
_DATA: Final = "/fathom/data"
_TOLD: Final = "/fathom/told"
_EVIDENCE: Final = "evidence.json"
_HOME: Final = "/fathom/home"
_USERS: Final = frozenset({"runAsUser", "runAsNonRoot", "runAsGroup"})
_ESCALATE: Final = frozenset({"ALL", "SYS_ADMIN", "CAP_SYS_ADMIN"})
"""Capabilities that a container has only where it may gain rights."""
OWN_VOLUMES: Final = ("fathom-cache", "fathom-home", "fathom-told", "fathom-data")
"""That no template may have: the pod has them already."""


def training_job(
    sd: SpeculativeDeployment, run: str, training: TrainingSpec, evidence: Evidence
) -> Manifest:
    """Never patched: another run is another Job. It is tried once, as each try costs its GPUs.

    Args:
        sd: the spec in force.
        run: that a person approved.
        training: what that is made from.
        evidence: what the trainer is told.
    """
    metadata = part(training.template, "metadata")
    theirs = texts_by_name(metadata, "labels")
    labels = {
        **{key: value for key, value in theirs.items() if not key.startswith(OWN_LABELS)},
        names.LABEL_COMPONENT: COMPONENT,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        # With the template's labels: a queue, such as Kueue's, is chosen by one of the Job's.
        "metadata": child_metadata(sd, names.training_job(sd.metadata.name, run), labels=labels),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": training.deadline_minutes * MINUTES_PER_HOUR,
            "podFailurePolicy": {
                # A drained node is no fault of the training.
                "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    }
                ]
            },
            "template": {
                "metadata": {
                    "labels": {**labels, names.LABEL_NAME: sd.metadata.name},
                    "annotations": {
                        **texts_by_name(metadata, "annotations"),
                        names.ANNOTATION_EVIDENCE: evidence.to_json(),
                    },
                },
                "spec": _pod(sd, run, training, evidence),
            },
        },
    }


def _pod(
    sd: SpeculativeDeployment, run: str, training: TrainingSpec, evidence: Evidence
) -> dict[str, JsonValue]:
    written = with_written_quantities(dict(training.template))
    spec = dict(part(written, "spec"))
    named = "serviceAccountName" in spec
    own: dict[str, JsonValue] = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        # The operator's rights are no trainer's; who names an account wants what it may.
        "automountServiceAccountToken": named,
    }
    kinds: dict[str, JsonValue] = {
        kind: [_with_ours(each, run, training, evidence) for each in parts(spec, kind)]
        for kind in ("initContainers", "containers")
        if kind in spec
    }
    volumes = [each for each in parts(spec, "volumes") if each.get("name") not in OWN_VOLUMES]
    return {
        **own,
        **spec,
        **kinds,
        "securityContext": _security(sd, part(spec, "securityContext")),
        "volumes": [*map(dict, volumes), *_volumes(sd, training)],
        "restartPolicy": "Never",
    }


def _security(sd: SpeculativeDeployment, theirs: Part) -> dict[str, JsonValue]:
    """The pod's: what the template leaves open is the engine's. Users are named by one of both."""
    ours = pod_security(sd.spec.engine.user)
    if not _USERS.isdisjoint(theirs):
        ours = {key: value for key, value in ours.items() if key not in _USERS}
    return {**ours, **theirs}


def _container_security(theirs: Part) -> dict[str, JsonValue]:
    """A container's: what the template leaves open may do no more than the engine."""
    ours = container_security(None)
    added = texts(theirs, "capabilities", "add")
    if theirs.get("privileged") or not _ESCALATE.isdisjoint(added):
        # Kubernetes refuses both at once, or what it would grant would be nothing.
        del ours["allowPrivilegeEscalation"]
    dropped = {} if "ALL" in added else part(ours, "capabilities")
    return {**ours, **theirs, "capabilities": {**dropped, **part(theirs, "capabilities")}}


def _volumes(sd: SpeculativeDeployment, training: TrainingSpec) -> list[JsonValue]:
    told: JsonValue = {
        "path": _EVIDENCE,
        "fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_EVIDENCE}']"},
    }
    volumes: list[JsonValue] = [
        {"name": "fathom-cache", "persistentVolumeClaim": {"claimName": claim_of(sd)}},
        {"name": "fathom-home", "emptyDir": {}},
        {"name": "fathom-told", "downwardAPI": {"items": [told]}},
    ]
    if training.data_claim:
        claim: JsonValue = {"claimName": training.data_claim, "readOnly": True}
        volumes.append({"name": "fathom-data", "persistentVolumeClaim": claim})
    return volumes


def _with_ours(
    container: Part, run: str, training: TrainingSpec, evidence: Evidence
) -> dict[str, JsonValue]:
    """A container of the template, which knows the target, and only `train` data and output."""
    trains = container.get("name") == CONTAINER
    env = {**_hub(), **_variables(evidence)}
    if trains:
        env |= {"FATHOM_OUTPUT": OUTPUT}
    if trains and training.data_claim:
        env |= {"FATHOM_DATA": _DATA}
    mounts = own_mounts(run, training, trains=trains)
    theirs = by("name", parts(container, "env"))
    ours: list[JsonValue] = [
        {"name": name, "value": value} for name, value in env.items() if name not in theirs
    ]
    return {
        **container,
        "securityContext": _container_security(part(container, "securityContext")),
        "env": [*ours, *map(dict, parts(container, "env"))],
        "volumeMounts": [*map(dict, parts(container, "volumeMounts")), *mounts],
    }


def own_mounts(run: str, training: TrainingSpec, *, trains: bool) -> list[dict[str, JsonValue]]:
    """What a container of the template has mounted besides its own.

    Args:
        run: whose output it may write.
        training: with the data, if there is some.
        trains: whether it is the container that trains.
    """
    mounts: list[dict[str, JsonValue]] = [
        {"name": "fathom-cache", "mountPath": CACHE_DIRECTORY, "readOnly": True},
        {"name": "fathom-home", "mountPath": _HOME},
        {"name": "fathom-told", "mountPath": _TOLD, "readOnly": True},
    ]
    if trains:
        mounts.append({"name": "fathom-cache", "mountPath": OUTPUT, "subPath": output_path(run)})
    if trains and training.data_claim:
        mounts.append({"name": "fathom-data", "mountPath": _DATA, "readOnly": True})
    return mounts


def _hub() -> Mapping[str, str]:
    """The target is in the cache; what a trainer writes for itself is not to get there."""
    return {
        "HF_HOME": f"{_HOME}/huggingface",
        "HF_DATASETS_CACHE": f"{_HOME}/datasets",
        "HF_HUB_CACHE": f"{HUB_HOME}/hub",
        "HF_HUB_OFFLINE": "1",
    }


def _variables(evidence: Evidence) -> Mapping[str, str]:
    return {
        "FATHOM_RUN": evidence.run,
        "FATHOM_TARGET": evidence.target.id,
        "FATHOM_TARGET_COMMIT": evidence.target.commit,
        "FATHOM_DRAFT": evidence.draft.id,
        "FATHOM_DRAFT_COMMIT": evidence.draft.commit,
        "FATHOM_METHOD": evidence.method,
        "FATHOM_VLLM_VERSION": evidence.vllm_version,
        "FATHOM_EVIDENCE": f"{_TOLD}/{_EVIDENCE}",
    }
