from typing import Final

from fathom.api import names
from fathom.core.cluster.manifest import Manifest
from fathom.core.plugin import PluginBundle
from fathom.manifests.children.workload_metadata import workload_annotations
from fathom.manifests.metadata import child_metadata
from fathom.manifests.pod.pod_template import pod_template, selector_labels
from fathom.resource import SpeculativeDeployment

PROGRESS_MARGIN_SECONDS: Final = 600
"""For scheduling and pulling the image, before the pod's own start."""


def deployment(
    sd: SpeculativeDeployment, *, name: str, revision: str, replicas: int, bundle: PluginBundle
) -> Manifest:
    """The serving pods of one revision, one pod per replica.

    What a new Fathom changes by itself (its version, the plugin's name) stands in annotations of
    the Deployment; of the template only the plugin volume's name follows the bundle, so a running
    revision has to be applied with the bundle it was started with.

    Raises:
        MergeError: `podTemplate` does not fit.
    """
    rollout = sd.spec.rollout
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(
            sd,
            name,
            labels={names.LABEL_REVISION: revision},
            annotations=workload_annotations(sd, bundle),
        ),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector_labels(sd, revision)},
            "progressDeadlineSeconds": (
                sd.spec.engine.startup_minutes * 60 + PROGRESS_MARGIN_SECONDS
            ),
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxUnavailable": rollout.max_unavailable,
                    # A surge takes GPUs that are seldom free; only where nothing may be missing.
                    "maxSurge": 0 if rollout.max_unavailable else rollout.max_surge,
                },
            },
            "template": pod_template(sd, revision=revision, bundle=bundle),
        },
    }
