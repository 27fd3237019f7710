from typing import Final

from fathom.api import names
from fathom.core.cluster.kinds import LEADER_WORKER_SET
from fathom.core.cluster.manifest import Manifest
from fathom.core.plugin import PluginBundle
from fathom.manifests.children.workload_metadata import workload_annotations
from fathom.manifests.metadata import child_metadata
from fathom.manifests.pod.pod_template import pod_template, worker_template
from fathom.resource import SpeculativeDeployment

_GROUP_RESTART: Final = "RecreateGroupOnPodRestart"
"""A rank that comes back alone finds no process group to join: the others wait for the old one."""


def leader_worker_set(
    sd: SpeculativeDeployment, *, name: str, revision: str, replicas: int, bundle: PluginBundle
) -> Manifest:
    """One replica of one revision where it spans several nodes: a group of pods.

    Its rollout strategy only ever repairs drift: a new revision has sets of its own, as it has a
    Deployment of its own elsewhere, so that canary and rollback are the same.

    Raises:
        MergeError: `podTemplate` or `workerTemplate` does not fit.
    """
    rollout = sd.spec.rollout
    return {
        "apiVersion": LEADER_WORKER_SET.api_version,
        "kind": LEADER_WORKER_SET.kind,
        "metadata": child_metadata(
            sd,
            name,
            labels={names.LABEL_REVISION: revision},
            annotations=workload_annotations(sd, bundle),
        ),
        "spec": {
            "replicas": replicas,
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {
                    "maxUnavailable": rollout.max_unavailable,
                    "maxSurge": 0 if rollout.max_unavailable else rollout.max_surge,
                },
            },
            "leaderWorkerTemplate": {
                "size": sd.engine.layout.nodes,
                "restartPolicy": _GROUP_RESTART,
                "leaderTemplate": pod_template(sd, revision=revision, bundle=bundle),
                "workerTemplate": worker_template(sd, revision=revision, bundle=bundle),
            },
        },
    }
