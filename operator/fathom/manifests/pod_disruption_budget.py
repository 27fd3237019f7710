from fathom.api.resource import SpeculativeDeployment
from fathom.core.kinds import POD_DISRUPTION_BUDGET
from fathom.core.manifest import Manifest
from fathom.manifests.metadata import child_metadata, serving_labels


def pod_disruption_budget(sd: SpeculativeDeployment) -> Manifest:
    """What drains of nodes may take at a time: as many replicas as a rollout may, but one at least.

    With 0 no node that serves could ever be drained, and trays need maintenance. A replica that is
    missing for a rollout counts, so that both together stay within the bound.
    """
    return {
        "apiVersion": POD_DISRUPTION_BUDGET.api_version,
        "kind": POD_DISRUPTION_BUDGET.kind,
        "metadata": child_metadata(sd, sd.metadata.name),
        "spec": {
            "maxUnavailable": max(1, sd.spec.rollout.max_unavailable),
            "selector": {"matchLabels": serving_labels(sd)},
        },
    }
