"""Whose an object is. A name of ours or a label of ours makes nothing ours: anybody can write both.

What is not ours is never written to, deleted or counted (docs/design/0022).
"""

from dataclasses import dataclass

from fathom.api import names
from fathom.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET, PERSISTENT_VOLUME_CLAIM, POD, Kind
from fathom.cluster.manifest import Meta
from fathom.cluster.observed_pods import LABEL_GROUP_INDEX, LABEL_GROUP_SET


@dataclass(frozen=True, slots=True)
class Taken:
    """A name that the resource needs, and that something else bears."""

    kind: Kind
    name: str
    left_behind: bool
    """By an earlier resource of the same name, with which it goes."""

    @property
    def key(self) -> tuple[Kind, str]:
        return self.kind, self.name

    def __str__(self) -> str:
        what = f"{self.kind.kind} {self.name}"
        if self.left_behind:
            return (
                f"{what} is left from an earlier resource of this name, and goes by itself; delete "
                "it if it stays."
            )
        return (
            f"{what} exists and does not belong to this resource, so it is left as it is: delete "
            "or rename it, or give the resource another name."
        )


def ours(kind: Kind, child: Meta, resource: Meta) -> bool:
    """Whether an object is a child of this resource.

    Args:
        kind: of the object.
        child: the object's.
        resource: the SpeculativeDeployment's.
    """
    if kind == POD:
        return _of_a_workload(child, resource)
    if kind == PERSISTENT_VOLUME_CLAIM:
        return _kept_for(child, resource)
    return any(owner.controller and owner.uid == resource.uid for owner in child.owner_references)


def left_behind(child: Meta, resource: Meta) -> bool:
    """Whether it was the child of an earlier resource of the same name, with which it goes."""
    return any(
        owner.kind == names.KIND and owner.controller and owner.uid != resource.uid
        for owner in child.owner_references
    )


def workload_of(pod: Meta, resource: str) -> tuple[Kind, str] | None:
    """The workload that made an engine's pod, by the pod's labels; None: it is no engine's.

    Args:
        pod: the pod's.
        resource: name of the SpeculativeDeployment.
    """
    revision = pod.labels.get(names.LABEL_REVISION)
    if not revision:
        return None
    group_set = pod.labels.get(LABEL_GROUP_SET, "")
    own = names.is_group_set(group_set, resource, revision)
    name = group_set if own else names.revision_child(resource, revision)
    return (LEADER_WORKER_SET if group_set else DEPLOYMENT), name


def _of_a_workload(pod: Meta, resource: Meta) -> bool:
    """By the name of its ReplicaSet or StatefulSet, which the operator does not read.

    That tells also when the workload has gone before its pods. Of a pod that is no engine nothing
    counts but what it mounts.
    """
    if names.LABEL_ROLE not in pod.labels and LABEL_GROUP_INDEX not in pod.labels:
        return True
    if (workload := workload_of(pod, resource.name)) is None:
        return False
    _, name = workload
    return any(
        owner.controller and (owner.name == name or owner.name.startswith(f"{name}-"))
        for owner in pod.owner_references
    )


def _kept_for(claim: Meta, resource: Meta) -> bool:
    """Nobody owns it, so that weights outlive their resource; its labels say for which it is."""
    return (
        not any(owner.controller for owner in claim.owner_references)
        and claim.labels.get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER
        and claim.labels.get(names.LABEL_NAME) == resource.name
    )
