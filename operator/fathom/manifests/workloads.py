"""What holds one revision's pods, where their templates are in it, and their disruption budget."""

import hashlib
import json
from collections.abc import Iterable
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.cluster.kinds import (
    COMPUTE_DOMAIN,
    LEADER_WORKER_SET,
    POD,
    POD_DISRUPTION_BUDGET,
    Kind,
    ServedApis,
)
from fathom.cluster.manifest import Manifest
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.plugin import PluginBundle
from fathom.manifests.cache import fetched_by
from fathom.manifests.metadata import child_metadata, group_selector, serving_labels
from fathom.manifests.pod_template import pod_template, selector_labels, worker_template
from fathom.resource import SpeculativeDeployment

PROGRESS_MARGIN_SECONDS: Final = 600
"""For scheduling and pulling the image, before the pod's own start."""
_GROUP_RESTART: Final = "RecreateGroupOnPodRestart"
"""A rank that comes back alone finds no process group to join: the others wait for the old one."""
_UNHEALTHY_POLICY_SINCE: Final = (1, 27)
"""Kubernetes 1.26 has the field and drops it unless a gate is opened; older ones refuse it."""
_HASH_LENGTH: Final = 16
"""Hex digits: two builds that differ must never seem to agree."""
_PODS: Final = ("template", "leaderWorkerTemplate")
"""Where pods stand in the spec of a workload. A change there, and nowhere else, replaces them."""


def compute_domain(sd: SpeculativeDeployment, pods: Iterable[ObservedPod] = ()) -> Manifest:
    """What lets the nodes of one replica reach each other's GPUs over NVLink.

    One for all replicas and revisions: its spec can never be changed, and a node takes the channel
    of one domain at a time, so a rollout from one domain to another would have to wait for it. Its
    driver makes the claim template.

    The driver takes it away from under running pods as soon as it is deleted. So the pods own it as
    well: garbage collection deletes nothing before its last owner is gone.

    Args:
        sd: whose.
        pods: those that hold a claim to it.
    """
    metadata = child_metadata(sd, sd.metadata.name)
    if sd.metadata.uid:
        owner = metadata["ownerReferences"]
        assert isinstance(owner, list)  # noqa: S101  # child_metadata has just written it
        metadata["ownerReferences"] = [*owner, *map(_owner, pods)]
    return {
        "apiVersion": COMPUTE_DOMAIN.api_version,
        "kind": COMPUTE_DOMAIN.kind,
        "metadata": metadata,
        "spec": {
            # Not the number of nodes: another value only delays a status that nobody waits for.
            "numNodes": 0,
            "channel": {
                "resourceClaimTemplate": {"name": names.channel_claim_template(sd.metadata.name)}
            },
        },
    }


def _owner(pod: ObservedPod) -> dict[str, JsonValue]:
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "name": pod.name,
        "uid": pod.metadata.uid,
    }


def workload_annotations(sd: SpeculativeDeployment, bundle: PluginBundle) -> dict[str, str]:
    """What a new Fathom changes by itself: on the workload, where no pod rolls for it."""
    annotations = {names.ANNOTATION_RENDERED_BY: bundle.version}
    if sd.engine.has_plugin:
        annotations[names.ANNOTATION_PLUGIN] = names.plugin_config_map(
            sd.metadata.name, bundle.content
        )
    if commits := fetched_by(sd):
        annotations[names.ANNOTATION_WEIGHTS] = commits
    return annotations


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
