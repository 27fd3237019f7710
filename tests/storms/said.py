"""Does the status say what is missing, and why, also while faults go on?"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fathom.api import names
from fathom.cluster.kinds import JOB, SPECULATIVE_DEPLOYMENT
from storms.cluster import NO_TAG, Cluster, Container
from storms.invariants import BrokenError
from storms.pace import HOUR_S
from storms.quota import REFUSES
from storms.server import Audit, Objects
from storms.workloads import WORKLOADS

SAID_S: Final = 120.0
"""Within so long after it came to be so, and after whatever kept the operator from it: an operator
looks once a minute."""
OFTEN: Final = 12
"""Writes of the status in an hour, from which on what comes and goes is told of once in five
minutes (docs/design/0004-what-is-written-when.md)."""
COMES_AND_GOES_S: Final = 300.0
LOOK_S: Final = 5.0


@dataclass(kw_only=True)
class Said:
    """Watches what the status of the resource says of its replicas."""

    objects: Objects
    cluster: Cluster
    is_ours: Callable[[Mapping[str, Any]], bool]
    """Whether a pod is the resource's."""
    _since_s: dict[str, float] = field(default_factory=dict, init=False)
    """By what is not said: since when."""
    _looked_s: float = field(default=0.0, init=False)
    _written: deque[float] = field(default_factory=lambda: deque(maxlen=OFTEN), init=False)

    def wrote(self, audit: Audit) -> None:
        """Remember when the status was written."""
        if audit.verb == "status" and audit.name == "kimi":
            self._written.append(audit.at_s)

    def look(self, now_s: float, *, hindered_at_s: float) -> None:
        """Look at it.

        Args:
            now_s: simulated seconds.
            hindered_at_s: when something last kept the operator from saying it.

        Raises:
            BrokenError: the status has been silent for too long.
        """
        if now_s < self._looked_s + LOOK_S:
            return
        self._looked_s = now_s
        unsaid = set(self._unsaid())
        self._since_s = {each: self._since_s.get(each, now_s) for each in unsaid}
        often = len(self._written) == OFTEN and now_s - self._written[0] < HOUR_S
        most_s = SAID_S + (COMES_AND_GOES_S if often else 0.0)
        for each, since_s in self._since_s.items():
            lasts_s = now_s - max(since_s, hindered_at_s)
            if lasts_s > most_s:
                raise BrokenError(f"for {lasts_s:.0f} s {each}")

    def _unsaid(self) -> list[str]:
        found = self.objects.look(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
        if found is None or "status" not in found:
            return []
        status, wanted = found["status"], found["spec"].get("replicas", 1)
        ours = [
            (pod, self.cluster.containers[place])
            for place, pod in self.cluster.pods()
            if self.is_ours(pod)
        ]
        serving = sum(each.leads and each.ready and each.leaves_at_s is None for _, each in ours)
        unsaid = []
        if status.get("ready") != f"{serving}/{wanted}":
            unsaid.append(f"the status says {status.get('ready')}, where {serving} serve")
        if self._bench_in_the_way(ours):
            unsaid.append("a bench keeps its place beside a replica that finds none")
        if serving < wanted:
            told = " ".join(str(each.get("message")) for each in status["conditions"])
            told += str(status.get("rollout"))
            causes = {_cause(self.cluster, pod, each) for pod, each in ours}
            causes |= {*self._refused(), *self.cluster.jobs.causes()}
            unsaid += [f"no word of {each!r}" for each in causes if each and each not in told]
        return unsaid

    def _refused(self) -> list[str]:
        """What a quota refuses, in words of the status: pods of what the resource asks for."""
        asked = {
            each["metadata"]["uid"]
            for kind in WORKLOADS
            for each in self.objects.each(kind)
            if each["metadata"]["name"].startswith("kimi-")
        }
        leaders = {each["metadata"]["uid"] for _, each in self.cluster.pods() if self.is_ours(each)}
        return [REFUSES for uid in self.cluster.quota.refused if uid in asked | leaders]

    def _bench_in_the_way(self, ours: Sequence[tuple[Mapping[str, Any], Container]]) -> bool:
        waits = any(each.node is None and not _goes(pod) for pod, each in ours)
        return waits and any(
            not (job.get("status") or {}).get("conditions")
            for job in self.objects.each(JOB)
            if names.LABEL_BENCH in job["metadata"]["labels"]
        )


def _goes(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _cause(cluster: Cluster, pod: Mapping[str, Any], container: Container) -> str:
    """Why a pod does not serve, in words of the status; empty: it does, or only starts."""
    image = cluster.image(pod["spec"]["containers"][0]["image"])
    if container.ready or container.ended or _goes(pod):
        return ""
    if container.node is None:
        return "nvidia.com/gpu"
    if not image.pulls:
        return NO_TAG
    if image.crashes and container.restarts > 1:
        return "exited with code 1"
    return ""
