"""Single looks at a rollout, for tests that need no cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fathom.api import names
from fathom.cluster.observed import ObservedDeployment, ObservedLeaderWorkerSet
from fathom.cluster.observed_pods import ObservedPod
from fathom.rollout.input import RolloutInput, RolloutSettings
from fathom.times import rfc3339

NOW_S = 1_800_000_000.0
SETTINGS = RolloutSettings(
    replicas=3,
    max_unavailable=1,
    max_surge=0,
    bake_s=1200.0,
    startup_s=3600.0,
    drain_s=60.0,
    paused=False,
)
PATIENCE_S = 60.0 + 3600.0 + 600.0
"""Drain, the engine's start, and finding a node for it."""


def pod(
    revision: str = "new",
    name: str = "canary",
    *,
    ready: bool = False,
    restarts: int = 0,
    fetch_restarts: int = 0,
    sidecar_restarts: int = 0,
    waiting: str = "",
    since_s: float | None = None,
) -> ObservedPod:
    """One pod: its engine, what fetches before that, and a sidecar of either kind.

    Args:
        since_s: when it became ready, or unready.
    """
    state = {"waiting": {"reason": waiting}} if waiting else {}
    engine = {"name": "vllm", "image": "vllm:new", "restartCount": restarts, "state": state}
    fetch = {"name": "fetch", "image": "vllm:new", "restartCount": fetch_restarts, "state": {}}
    sidecars = [
        {
            "name": name,
            "restartCount": sidecar_restarts,
            "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1}} if sidecar_restarts else {},
            "ready": True,
        }
        for name in ("a-proxy", "log-shipper")
    ]
    return ObservedPod.model_validate(
        {
            "metadata": {
                "name": name,
                "uid": f"uid of {name}",
                "labels": {
                    names.LABEL_REVISION: revision,
                    names.LABEL_ROLE: names.ROLE_LEADER,
                },
            },
            "spec": {
                "initContainers": [
                    {"name": "log-shipper", "restartPolicy": "Always"},
                    {"name": "fetch"},
                ],
            },
            "status": {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": str(ready),
                        "lastTransitionTime": None if since_s is None else rfc3339(since_s),
                    }
                ],
                "containerStatuses": [sidecars[0], engine],
                "initContainerStatuses": [sidecars[1], fetch],
            },
        }
    )


def deployment(
    revision: str, replicas: int, conditions: Sequence[Mapping[str, str]] = ()
) -> ObservedDeployment:
    return ObservedDeployment.model_validate(
        {
            "metadata": _metadata(revision),
            "spec": {"replicas": replicas},
            "status": {"conditions": conditions},
        }
    )


def group(revision: str, number: str = "") -> ObservedLeaderWorkerSet:
    return ObservedLeaderWorkerSet.model_validate({"metadata": _metadata(revision, number)})


def _metadata(revision: str, number: str = "") -> dict[str, Any]:
    return {"name": f"kimi-{revision}{number}", "labels": {names.LABEL_REVISION: revision}}


def given(after_s: float = 0.0, *pods: ObservedPod, **changes: Any) -> RolloutInput:
    """At two replicas of `old` and these pods, so many seconds after `NOW_S`, watched until now."""
    stable = (pod("old", "a", ready=True), pod("old", "b", ready=True))
    found = RolloutInput(
        now_s=NOW_S + after_s,
        revision="new",
        settings=SETTINGS,
        workloads=(deployment("old", 2), deployment("new", 1)),
        pods=(*stable, *pods),
        counters={},
        document=None,
        document_written_at_s=NOW_S,
        window=None,
        stable_spec_known=True,
        live=True,
        looked_at_s=NOW_S + after_s,
    )
    return replace(found, **changes)
