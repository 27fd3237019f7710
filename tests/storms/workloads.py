"""What asks for the pods of a resource: Deployments, or LeaderWorkerSets of one group each."""

from collections.abc import Mapping
from typing import Any, Final

from fathom.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET

WORKLOADS: Final = (DEPLOYMENT, LEADER_WORKER_SET)
WORKLOAD_NAMES: Final = frozenset(kind.kind for kind in WORKLOADS)


def replicas_of(workload: Mapping[str, Any] | None) -> int:
    """How many it asks for; None: there is none, and so it asks for none."""
    return int(workload["spec"].get("replicas", 1)) if workload else 0


def template_of(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The template of its pods; of a group, the leader's."""
    spec = workload["spec"]
    found: Mapping[str, Any] = (
        spec["leaderWorkerTemplate"]["leaderTemplate"]
        if "leaderWorkerTemplate" in spec
        else spec["template"]
    )
    return found
