"""Jobs of a history, and their pods: those that fetch weights, and benches.

A Job's pod is made again when it goes, or its node does. The container of a fetch is started again
after ever longer; what it has fetched by then stays in the cache. A bench takes a replica's place,
and ends by itself.
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from fathom.api import names
from fathom.cluster.kinds import JOB, NODE, POD
from fathom_fetch.metrics import BYTES, COMMIT, DRAFT, MODEL, PORT, PRESENT_BYTES, TOTAL_BYTES
from storms.hub import PASSWORD
from storms.network import Connection, Network, Request
from storms.quota import GPU, REFUSES
from storms.server import Objects, rfc3339

if TYPE_CHECKING:
    from storms.cluster import Cluster

FETCH_S: Final = 40.0
PULL_S: Final = 5.0
MODEL_BYTES: Final = 64 << 30
DIES_AFTER_S: Final = 60.0
"""After which the pods of a node that answers no more are to go."""
FIRST_BACKOFF_S: Final = 10.0
LONGEST_BACKOFF_S: Final = 300.0
"""A kubelet starts a container that has ended again after so long, twice as long each time."""
GATED: Final = "it is gated"
LAST_WORDS: Final = f"acme/draft cannot be fetched: {GATED}. Authorization: Bearer {PASSWORD}"
_TAKES_S: Final = {"training": 90.0, "intake": 10.0}
"""What each takes, by the component of its Job."""
_ENDED: Final = frozenset({"Failed", "Succeeded"})


@dataclass
class _Run:
    """What runs of one pod."""

    job: str
    """Its uid."""
    fetches: tuple[tuple[str, str], ...]
    """Pairs of a role and a model with its revision; empty: it fetches nothing."""
    serial: int
    component: str
    """`training` or `intake`; another one fetches, or is a bench."""
    node: str | None = None
    ready_s: float = 0.0
    """When its container is started (again)."""
    at_s: float = 0.0
    """Until when it has been accounted for."""
    running: bool = False
    restarts: int = 0
    phase: str = "Pending"

    @property
    def takes_gpus(self) -> bool:
        """Whether it is a bench: trainings have nodes of their own."""
        return not self.fetches and self.component not in _TAKES_S


@dataclass(kw_only=True)
class Jobs:
    """The controller of Jobs, and the kubelets of their pods."""

    objects: Objects
    network: Network
    cluster: "Cluster"
    slower: float = 1.0
    """Times as long as a fetch takes otherwise."""
    fails: bool = False
    """Whether the hub gives nothing."""
    leaves: str = ""
    """The message of an intake's pod."""
    trainer_fails: bool = False
    bench_s: float = 600.0
    """That a bench takes."""
    fetched: set[str] = field(default_factory=set)
    """Commits that lie in the cache."""
    _left_s: dict[Any, float] = field(default_factory=dict)
    """By what is fetched: seconds that it still takes."""
    _runs: dict[str, _Run] = field(default_factory=dict)
    """By pod's place."""
    _serial: int = 0

    # -- what others ask

    def held(self) -> set[str]:
        """Nodes whose GPUs a bench has."""
        runs = self._runs.values()
        return {
            each.node for each in runs if each.node and each.takes_gpus and each.phase not in _ENDED
        }

    def fetching(self) -> list[str]:
        """Pods that fetch, by place."""
        runs = self._runs.items()
        return [place for place, each in sorted(runs) if each.fetches and each.phase not in _ENDED]

    def of_fetches(self) -> list[dict[str, Any]]:
        """Jobs that fetch."""
        return [job for job in self.objects.each(JOB) if _fetches(job)]

    def node_of(self, place: str) -> str:
        """Where a pod is; empty: nowhere."""
        run = self._runs.get(place)
        return (run.node or "") if run else ""

    def causes(self) -> list[str]:
        """Why pods wait for weights, in words of the status."""
        found = []
        for job in self.of_fetches():
            uid = job["metadata"]["uid"]
            if _finished(job):
                continue
            runs = [each for each in self._runs.values() if each.job == uid]
            if uid in self.cluster.quota.refused:
                found.append(REFUSES)
            elif any(each.restarts and not each.running for each in runs):
                found.append(GATED)
            else:
                found.append("weights")
        return found

    # -- the controller

    def step(self) -> None:
        """Make what is to be made, and let run what is there."""
        jobs = self.objects.each(JOB)
        if not jobs and not self._runs:
            return
        now_s = self.cluster.now_s()
        for job in jobs:
            if not _finished(job):
                self._reconcile(job, now_s)
        for place in list(self._runs):
            self._live(place, self._runs[place], now_s)

    def _reconcile(self, job: Mapping[str, Any], now_s: float) -> None:
        uid = job["metadata"]["uid"]
        own = [
            pod
            for pod in self.objects.each(POD)
            if any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences") or ())
        ]
        phases = {pod.get("status", {}).get("phase") for pod in own}
        if "Succeeded" in phases:
            self._finish(job, "Complete", "", now_s)
        elif "Failed" in phases and not job["spec"].get("backoffLimit", 6):
            self._finish(job, "Failed", "Job has reached the specified backoff limit", now_s)
        elif all(_goes(pod) or pod["status"]["phase"] in _ENDED for pod in own):
            self._make(job, now_s)

    def _make(self, job: Mapping[str, Any], now_s: float) -> None:
        metadata, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
        name = f"{metadata['name']}-{self._serial + 1:04d}"
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": dict(template["metadata"].get("labels") or {}),
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        if not self.cluster.quota.admits(pod, ("pod",), now_s):
            return
        self._serial += 1
        place = f"{metadata['namespace']}/{name}"
        self._runs[place] = _Run(
            metadata["uid"],
            _fetches(job),
            self._serial,
            str(metadata["labels"].get(names.LABEL_COMPONENT, "")),
        )
        self.objects.put(POD, pod)

    def _finish(self, job: Mapping[str, Any], how: str, why: str, now_s: float) -> None:
        condition = {"type": how, "status": "True", "lastTransitionTime": rfc3339(now_s)}
        status = {"conditions": [{**condition, "message": why} if why else condition]}
        self.objects.put(JOB, {**job, "status": status})

    # -- the kubelets

    def _live(self, place: str, run: _Run, now_s: float) -> None:
        namespace, name = place.split("/")
        pod = self.objects.look(POD, namespace, name)
        if pod is None or not self._has_node(run) or (_goes(pod) and not self._silent(run)):
            self._remove(place, run)
            return
        if self._silent(run):
            self._end(run)
            if now_s - self.cluster.silent[str(run.node)] >= DIES_AFTER_S and not _goes(pod):
                leaving = copy.deepcopy(pod)
                leaving["metadata"]["deletionTimestamp"] = rfc3339(now_s)
                self.objects.put(POD, leaving)
            return
        if run.phase not in _ENDED:
            self._run(run, now_s)
        status = self._status(pod, run)
        if pod.get("status") != status:
            self.objects.put(POD, {**pod, "status": status})

    def _has_node(self, run: _Run) -> bool:
        return run.node is None or self.objects.look(NODE, "", run.node) is not None

    def _silent(self, run: _Run) -> bool:
        return run.node in self.cluster.silent

    def _run(self, run: _Run, now_s: float) -> None:
        if run.node is None:
            there = [node for node, is_there in self.cluster.nodes.items() if is_there]
            free = self.cluster.free_nodes() if run.takes_gpus else there
            if not free:
                return
            run.node, run.ready_s = free[0], now_s + PULL_S
        if now_s < run.ready_s:
            return
        if not run.running:
            run.running, run.at_s, run.phase = True, now_s, "Running"
            if run.fetches:
                self.network.listen(f"{_ip(run)}:{PORT}", lambda c, r: self._page(run, c, r))
        elif run.fetches:
            self._fetch(run, now_s)
        elif now_s - run.ready_s >= _TAKES_S.get(run.component, self.bench_s):
            fails = run.component == "training" and self.trainer_fails
            run.phase = "Failed" if fails else "Succeeded"

    def _fetch(self, run: _Run, now_s: float) -> None:
        if self.fails:
            self._end(run)
            backoff_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0**run.restarts)
            run.restarts += 1
            run.ready_s = now_s + backoff_s
            return
        left_s = self._left_s.get(run.fetches, FETCH_S) - (now_s - run.at_s) / self.slower
        self._left_s[run.fetches], run.at_s = max(0.0, left_s), now_s
        if left_s <= 0:
            self._end(run)
            run.phase = "Succeeded"
            self.fetched |= {_commit(model) for _, model in run.fetches}

    def _end(self, run: _Run) -> None:
        run.running = False
        self.network.forget(f"{_ip(run)}:{PORT}")

    def _remove(self, place: str, run: _Run) -> None:
        self._end(run)
        del self._runs[place]
        self.objects.remove(POD, *place.split("/"))

    async def _page(self, run: _Run, connection: Connection, asked: Request) -> None:
        del asked
        done = 1 - self._left_s.get(run.fetches, FETCH_S) / FETCH_S
        lines = [
            f'{family}{{role="{role}"}} {much}'
            for family, much in (
                (TOTAL_BYTES, MODEL_BYTES),
                (PRESENT_BYTES, int(done * MODEL_BYTES)),
            )
            for role, _ in run.fetches
        ]
        connection.respond(200, "\n".join([*lines, ""]).encode())

    def _status(self, pod: Mapping[str, Any], run: _Run) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": str(run.running)}]
        if run.node is None:
            message = f"0/3 nodes are available: 3 Insufficient {GPU}."
            conditions.append({"type": "PodScheduled", "status": "False", "message": message})
        crash = {"terminated": {"exitCode": 1, "reason": "Error", "message": LAST_WORDS}}
        state: dict[str, Any] = {"running": {}} if run.running else {}
        if run.phase == "Succeeded":
            message = self.leaves if run.component == "intake" else ""
            message = _result(run) if run.fetches else message
            state = {"terminated": {"exitCode": 0, "message": message}}
        elif not run.running and run.restarts:
            state = {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {
            "name": pod["spec"]["containers"][0]["name"],
            "restartCount": run.restarts,
            "state": state,
            "lastState": crash if run.restarts else {},
        }
        return {
            "phase": run.phase,
            "podIP": _ip(run) if run.node is not None else "",
            "conditions": conditions,
            "containerStatuses": [container],
        }


def bench_of(resource: Mapping[str, Any], replica: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The Job that `fathom bench` makes, as far as the operator and the cluster can tell.

    Args:
        resource: that is measured.
        replica: a pod of it that serves.
        name: of the resource.
    """
    labels = {names.LABEL_BENCH: name}
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": name,
        "uid": resource["metadata"]["uid"],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.bench(name),
            "namespace": resource["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": labels},
                "spec": {**replica["spec"], "restartPolicy": "Never"},
            },
        },
    }


def _fetches(job: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What a Job's command line says is to be fetched; empty: it is no fetch."""
    command = job["spec"]["template"]["spec"]["containers"][0].get("command") or []
    told = dict(pairwise(command))
    return tuple(
        (role, f"{told[f'--{role}']}@{told.get(f'--{role}-revision', 'main')}")
        for role in (MODEL, DRAFT)
        if f"--{role}" in told and "fathom_fetch" in command
    )


def _commit(model: str) -> str:
    return hashlib.sha1(model.encode()).hexdigest()


def _result(run: _Run) -> str:
    return json.dumps(
        {role: {COMMIT: _commit(model), BYTES: MODEL_BYTES} for role, model in run.fetches}
    )


def _finished(job: Mapping[str, Any]) -> bool:
    return bool((job.get("status") or {}).get("conditions"))


def _goes(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _ip(run: _Run) -> str:
    return f"10.1.{run.serial // 250}.{run.serial % 250 + 1}"
