from typing import Final

from pydantic import JsonValue

from fathom.core.cluster.kinds import POD_DISRUPTION_BUDGET
from fathom.core.cluster.manifest import Manifest
from fathom.core.cluster.served import ServedApis
from fathom.manifests.metadata import child_metadata, group_selector, serving_labels
from fathom.resource import SpeculativeDeployment

_UNHEALTHY_POLICY_SINCE: Final = (1, 27)
"""Kubernetes 1.26 has the field and drops it unless a gate is opened; older ones refuse it."""


def pod_disruption_budget(sd: SpeculativeDeployment, served: ServedApis) -> Manifest:
    """What drains of nodes may take at a time: as many replicas as a rollout may, but one at least.

    With 0 no node that serves could ever be drained, and trays need maintenance. A replica that is
    missing for a rollout counts, so that both together stay within the bound.

    A pod that is not ready serves nobody, so it may always go: else two of two replicas that crash
    would keep their nodes from being drained for ever, and each other from being evicted.

    Where a replica is a group, every pod of it counts: to evict a worker is to restart its group.
    A Job's pod must not count: Kubernetes knows no scale of a Job, and then lets nobody be evicted.
    """
    always: dict[str, JsonValue] = (
        {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
        if served.since(_UNHEALTHY_POLICY_SINCE)
        else {}
    )
    serving: dict[str, JsonValue] = {"matchLabels": serving_labels(sd)}
    return {
        "apiVersion": POD_DISRUPTION_BUDGET.api_version,
        "kind": POD_DISRUPTION_BUDGET.kind,
        "metadata": child_metadata(sd, sd.metadata.name),
        "spec": {
            "maxUnavailable": max(1, sd.spec.rollout.max_unavailable),
            **always,
            "selector": group_selector(sd) if sd.engine.layout.spans_nodes else serving,
        },
    }
