"""A ResourceQuota of a history, and how controllers say that it refuses their pods.

Sources, in Kubernetes: `plugin/pkg/admission/resourcequota/controller.go` for the refusal,
`manageReplicas` and `calculateStatus` in pkg/controller/replicaset for Deployments, which show the
first refusal as a condition until there is none, `recordPodEvent` in
pkg/controller/statefulset/stateful_pod_control.go for groups and pkg/controller/controller_utils.go
for Jobs, which say each in an event.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fathom.cluster.kinds import EVENT, POD
from storms.server import Objects, rfc3339

GPU: Final = "nvidia.com/gpu"
REFUSES: Final = "exceeded quota"
FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 1000.0
"""A controller that fails tries again after ever longer, twice as long each time."""
_ENDED: Final = frozenset({"Failed", "Succeeded"})


@dataclass
class _Refused:
    """Pods that something was to make."""

    owner: str
    """Its name."""
    since_s: float
    sentence: str
    """What was said first."""
    asked: tuple[Any, ...]
    """What it had and was to have then: where that is another, it is tried at once."""
    delay_s: float = FIRST_RETRY_S
    again_s: float = 0.0


@dataclass(kw_only=True)
class Quota:
    """What pods of the resource's namespace may take together."""

    objects: Objects
    namespace: str = "llm"
    name: str = "team"
    limits: dict[str, int] = field(default_factory=dict)
    """By `pods` or `requests.nvidia.com/gpu`; empty: there is no quota."""
    refused: dict[str, _Refused] = field(default_factory=dict)
    """By uid of the object for which pods were to be made."""

    def admits(self, pod: Mapping[str, Any], asked: tuple[Any, ...], now_s: float) -> bool:
        """Whether a pod can be made now. If not, it is tried again later.

        Args:
            pod: that its owner wants.
            asked: what the owner has and is to have.
            now_s: simulated seconds.
        """
        owner = pod["metadata"]["ownerReferences"][0]
        before = self.refused.get(owner["uid"])
        if before is not None and before.asked == asked and now_s < before.again_s:
            return False
        sentence = self._refusal(pod)
        if not sentence:
            self.refused.pop(owner["uid"], None)
            return True
        again = before or _Refused(owner["name"], now_s, sentence, asked)
        again.delay_s = min(LONGEST_RETRY_S, 2 * again.delay_s if before else FIRST_RETRY_S)
        again.asked, again.again_s = asked, now_s + again.delay_s
        self.refused[owner["uid"]] = again
        self._tell(pod, owner, sentence, now_s)
        return False

    def content(self, uid: str) -> None:
        """An object has all its pods."""
        self.refused.pop(uid, None)

    def conditions(self, uid: str) -> list[dict[str, Any]]:
        """What a Deployment's status says of pods that could not be made."""
        refused = self.refused.get(uid)
        if refused is None:
            return []
        condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
        changed = {"lastTransitionTime": rfc3339(refused.since_s)}
        return [{**condition, **changed, "message": refused.sentence}]

    def _refusal(self, pod: Mapping[str, Any]) -> str:
        """Empty: there is room."""
        if not self.limits or pod["metadata"]["namespace"] != self.namespace:
            return ""
        asks, used = _takes(pod), self.used()
        over = [
            key for key, most in self.limits.items() if asks[key] and used[key] + asks[key] > most
        ]
        if not over:
            return ""
        requested, limited, taken = (
            ",".join(f"{key}={amounts[key]}" for key in over)
            for amounts in (asks, self.limits, used)
        )
        return (
            f'pods "{pod["metadata"]["name"]}" is forbidden: {REFUSES}: {self.name}, requested: '
            f"{requested}, used: {taken}, limited: {limited}"
        )

    def used(self) -> dict[str, int]:
        """What pods take that have not ended."""
        used = dict.fromkeys(("pods", f"requests.{GPU}"), 0)
        for each in self.objects.each(POD):
            ended = each.get("status", {}).get("phase") in _ENDED
            if each["metadata"]["namespace"] == self.namespace and not ended:
                used = {key: used[key] + much for key, much in _takes(each).items()}
        return used

    def _tell(
        self, pod: Mapping[str, Any], owner: Mapping[str, Any], sentence: str, now_s: float
    ) -> None:
        name = pod["metadata"]["name"]
        kind, said = owner["kind"], f"Error creating: {sentence}"
        if kind in {"LeaderWorkerSet", "Pod"}:
            kind = "StatefulSet"
            said = f"create Pod {name} in StatefulSet {owner['name']} failed error: {sentence}"
        self.objects.put(
            EVENT,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{owner['name']}.refused", "namespace": self.namespace},
                "involvedObject": {"kind": kind, "name": owner["name"], "uid": owner["uid"]},
                "reason": "FailedCreate",
                "type": "Warning",
                "message": said,
                "lastTimestamp": rfc3339(now_s),
            },
        )


def _takes(pod: Mapping[str, Any]) -> dict[str, int]:
    containers = pod["spec"].get("containers", [])
    gpus = sum(
        int((each.get("resources", {}).get("limits") or {}).get(GPU, 0)) for each in containers
    )
    return {"pods": 1, f"requests.{GPU}": gpus}
