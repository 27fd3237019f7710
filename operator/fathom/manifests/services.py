"""How a resource is reached, scraped and named: Service, PodMonitor, account."""

from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.cluster.kinds import POD_MONITOR
from fathom.cluster.manifest import Manifest
from fathom.engine.flags import HTTP_PORT
from fathom.manifests.metadata import child_metadata, serving_labels
from fathom.manifests.pod_template import HTTP_PORT_NAME
from fathom.manifests.template_parts import parts
from fathom.resource import SpeculativeDeployment

SCRAPES_PER_WINDOW: Final = 2
"""A counter's growth within a window needs two looks at it."""
SHORTEST_INTERVAL_S: Final = 5
LONGEST_INTERVAL_S: Final = 30
"""What is common: dashboards and alarms expect it."""


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
