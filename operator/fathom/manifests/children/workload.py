"""What holds one revision's pods, and where their templates stand in it."""

import hashlib
import json
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.core.cluster.kinds import LEADER_WORKER_SET, Kind
from fathom.core.cluster.manifest import Manifest
from fathom.core.plugin import PluginBundle
from fathom.manifests.children.deployment import deployment
from fathom.manifests.children.leader_worker_set import leader_worker_set
from fathom.resource import SpeculativeDeployment

_HASH_LENGTH: Final = 16
"""Hex digits: two builds that differ must never seem to agree."""
_PODS: Final = ("template", "leaderWorkerTemplate")
"""Where pods stand in the spec of a workload. A change there, and nowhere else, replaces them."""


def workload(
    kind: Kind,
    sd: SpeculativeDeployment,
    *,
    name: str,
    revision: str,
    replicas: int,
    bundle: PluginBundle,
) -> Manifest:
    """A workload of one revision, with a hash of its pods: by it other builds know them.

    Args:
        kind: LeaderWorkerSet or Deployment.
        sd: whose.
        name: of the workload.
        revision: of its spec.
        replicas: to ask for.
        bundle: the plugin that its pods mount.

    Raises:
        MergeError: `podTemplate` or `workerTemplate` does not fit.
    """
    build = leader_worker_set if kind == LEADER_WORKER_SET else deployment
    manifest = build(sd, name=name, revision=revision, replicas=replicas, bundle=bundle)
    metadata = _at(manifest, "metadata") or {}
    annotations = _at(metadata, "annotations") or {}
    by = f"{annotations[names.ANNOTATION_RENDERED_BY]} {_hash_of(manifest)}"
    annotations = {**annotations, names.ANNOTATION_RENDERED_BY: by}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def rendering_of(kind: Kind, sd: SpeculativeDeployment, bundle: PluginBundle) -> str:
    """Hash of the pods as they are rendered, whatever their revision is called.

    Raises:
        MergeError: `podTemplate` or `workerTemplate` does not fit.
    """
    build = leader_worker_set if kind == LEADER_WORKER_SET else deployment
    return _hash_of(build(sd, name="", revision="", replicas=0, bundle=bundle))


def _hash_of(manifest: Manifest) -> str:
    spec = _at(manifest, "spec") or {}
    pods = {key: _without_revision(spec[key]) for key in _PODS if key in spec}
    text = json.dumps(pods, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def _without_revision(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        items = value.items()
        return {k: _without_revision(v) for k, v in items if k != names.LABEL_REVISION}
    return [_without_revision(each) for each in value] if isinstance(value, list) else value


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
