from pydantic import JsonValue

from fathom.api.resource import SpeculativeDeployment
from fathom.core.kinds import POD_DISRUPTION_BUDGET
from fathom.core.manifest import Manifest
from fathom.core.nodes_per_replica import spans_nodes
from fathom.manifests.metadata import child_metadata, group_selector, serving_labels


def pod_disruption_budget(sd: SpeculativeDeployment) -> Manifest:
    """What drains of nodes may take at a time: as many replicas as a rollout may, but one at least.

    With 0 no node that serves could ever be drained, and trays need maintenance. A replica that is
    missing for a rollout counts, so that both together stay within the bound.

    Where a replica is a group, every pod of it counts: to evict a worker is to restart its group.
    A Job's pod must not count: Kubernetes knows no scale of a Job, and then lets nobody be evicted.
    """
    serving: dict[str, JsonValue] = {"matchLabels": serving_labels(sd)}
    return {
        "apiVersion": POD_DISRUPTION_BUDGET.api_version,
        "kind": POD_DISRUPTION_BUDGET.kind,
        "metadata": child_metadata(sd, sd.metadata.name),
        "spec": {
            "maxUnavailable": max(1, sd.spec.rollout.max_unavailable),
            "selector": group_selector(sd) if spans_nodes(sd.spec) else serving,
        },
    }
