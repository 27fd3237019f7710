"""How a resource is reached, scraped, drained and named: Service, PodMonitor, budget, account."""

from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.cluster.kinds import POD_DISRUPTION_BUDGET, POD_MONITOR, ServedApis
from fathom.cluster.manifest import Manifest
from fathom.engine.flags import HTTP_PORT
from fathom.manifests.metadata import child_metadata, group_selector, serving_labels
from fathom.manifests.pod_template import HTTP_PORT_NAME
from fathom.manifests.template_parts import parts
from fathom.resource import SpeculativeDeployment

SCRAPES_PER_WINDOW: Final = 2
"""A counter's growth within a window needs two looks at it."""
SHORTEST_INTERVAL_S: Final = 5
LONGEST_INTERVAL_S: Final = 30
"""What is common: dashboards and alarms expect it."""
_UNHEALTHY_POLICY_SINCE: Final = (1, 27)
"""Kubernetes 1.26 has the field and drops it unless a gate is opened; older ones refuse it."""


def pod_monitor(sd: SpeculativeDeployment) -> Manifest:
    """Scrapes each leader's own /metrics, often enough for the tuner's windows.

    The Prometheus operator adds the labels `namespace` and `pod`, by which Fathom finds them again.
    """
    labels = sd.spec.metrics.pod_monitor_labels
    window_s = sd.spec.speculation.tuning.window_seconds
    interval_s = min(LONGEST_INTERVAL_S, max(SHORTEST_INTERVAL_S, window_s // SCRAPES_PER_WINDOW))
    return {
        "apiVersion": POD_MONITOR.api_version,
        "kind": POD_MONITOR.kind,
        "metadata": child_metadata(
            sd,
            sd.metadata.name,
            labels=labels,
            # Others may add labels, so one that is left over is no difference by itself.
            annotations={names.ANNOTATION_LABELS: ",".join(sorted(labels))} if labels else None,
        ),
        "spec": {
            "selector": {"matchLabels": serving_labels(sd.metadata.name)},
            "podMetricsEndpoints": [
                {**_port(sd), "path": "/metrics", "interval": f"{interval_s}s"}
            ],
        },
    }


def _port(sd: SpeculativeDeployment) -> dict[str, JsonValue]:
    """Which of a pod's ports: by name, or by number where `podTemplate` says anything of ports.

    There a name may belong to another container's port, or to the engines of one revision only. By
    number it is `targetPort`, deprecated and in every release: an API server refuses `portNumber`
    where the CRD is older than 2025. By name elsewhere, since the series' label `endpoint` follows.
    """
    says = any("ports" in each for each in parts(sd.spec.pod_template, "spec", "containers"))
    return {"targetPort": HTTP_PORT} if says else {"port": HTTP_PORT_NAME}


def service(sd: SpeculativeDeployment) -> Manifest:
    """Where clients reach the model: the leaders of every revision."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(sd, sd.metadata.name),
        "spec": {
            "selector": serving_labels(sd.metadata.name),
            # By number: `podTemplate` may give the port another name.
            "ports": [
                {"name": "http", "port": HTTP_PORT, "targetPort": HTTP_PORT, "protocol": "TCP"}
            ],
        },
    }


def service_account(sd: SpeculativeDeployment) -> Manifest:
    """An identity of the pods' own, with no rights and no token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": child_metadata(sd, sd.metadata.name),
        "automountServiceAccountToken": False,
    }


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
    serving: dict[str, JsonValue] = {"matchLabels": serving_labels(sd.metadata.name)}
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
