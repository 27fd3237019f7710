"""What holds one revision's pods, and where their templates stand in it."""

from pydantic import JsonValue

from fathom.api.resource import SpeculativeDeployment
from fathom.core.cluster.kinds import LEADER_WORKER_SET, Kind
from fathom.core.cluster.manifest import Manifest
from fathom.core.plugin import PluginBundle
from fathom.manifests.children.deployment import deployment
from fathom.manifests.children.leader_worker_set import leader_worker_set


def workload(
    kind: Kind,
    sd: SpeculativeDeployment,
    *,
    revision: str,
    replicas: int,
    bundle: PluginBundle,
) -> Manifest:
    """The workload of one revision.

    Args:
        kind: LeaderWorkerSet or Deployment.
        sd: whose.
        revision: of its spec.
        replicas: to ask for.
        bundle: the plugin that its pods mount.

    Raises:
        MergeError: `podTemplate` or `workerTemplate` does not fit.
    """
    build = leader_worker_set if kind == LEADER_WORKER_SET else deployment
    return build(sd, revision=revision, replicas=replicas, bundle=bundle)


def serving_template(kind: Kind, manifest: Manifest) -> dict[str, JsonValue] | None:
    """The template of the pods that serve, of a workload as it was read; None: it has none."""
    if kind == LEADER_WORKER_SET:
        return _at(manifest, "spec", "leaderWorkerTemplate", "leaderTemplate")
    return _at(manifest, "spec", "template")


def workers_template(manifest: Manifest) -> dict[str, JsonValue] | None:
    """The template of headless workers, of a workload as it was read; None: it has none."""
    return _at(manifest, "spec", "leaderWorkerTemplate", "workerTemplate")


def _at(manifest: Manifest, *path: str) -> dict[str, JsonValue] | None:
    found: JsonValue = dict(manifest)
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
