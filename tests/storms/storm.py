"""Runs one history, and says what became of it."""

import asyncio
import copy
import io
import logging
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.kinds import (
    CHILD_KINDS,
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    LEADER_WORKER_SET,
    NODE,
    POD,
    SPANNING_KINDS,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from fathom.reconcile.last_status import WATCHED_S
from fathom.rollout.canary_verdict import LONGEST_BAKE
from fathom.runtime.loop import RESYNC_S
from fathom.runtime.options import without_secrets
from manifest_samples import manifest
from storms import simulated_time
from storms.calm import complaint
from storms.canaries import Canaries
from storms.clients import Clients
from storms.cluster import BAD_IMAGES, Cluster
from storms.deeds import IMAGES, PINS, SPOIL_METRICS
from storms.history import Deed, History
from storms.hub import BAD_DRAFT, SECRETS, TARGET, Hub
from storms.invariants import (
    AFTERMATH_S,
    MOST_DEPTH,
    MOST_TASKS,
    Asked,
    BrokenError,
    Invariants,
    WriteInvariants,
)
from storms.jobs import FETCH_S, LONGEST_BACKOFF_S, bench_of
from storms.kept import keeps, undeclared
from storms.network import Network
from storms.operator_process import NAMESPACE, Operator
from storms.pace import Pace
from storms.prometheus import URL, Prometheus
from storms.said import Said
from storms.selection import Selection
from storms.server import LEASE, SERVED, Server, Target, rfc3339
from storms.simulated_deeds import BACK_OFF, DEEDS, FIGHTS, HINDERS
from storms.simulated_time import SimulatedLoop
from storms.trainings import TRAINING, Trainings
from storms.watch import Watches
from storms.workloads import WORKLOAD_NAMES, WORKLOADS

GRIDS: Final = {1: 8, 2: 24, 3: 8, 4: 40, 5: 24, 6: 28, 7: 8}
"""By `tokens`: an edit to another one needs new pods (docs/engines.md)."""
STALE_S: Final = 60.0
"""For so long after the last old read an operator may act on one."""
SETTLES_S: Final = 360.0
"""After the last fault, besides what a rollout under way takes."""
FIGHT_S: Final = 180.0
"""The same, besides what a fight takes to count as over: five minutes from the last write of ours,
which comes up to a minute after the last of theirs, and the look that finds it."""
ROLLOUT_S: Final = 900.0
"""What a rollout may take: settling, a look-up, a canary's start and bake, then the others, and
back again."""
FETCHES_S: Final = 2 * FETCH_S + LONGEST_BACKOFF_S
"""What fetches may take after the last fault, where one has failed for long."""
NODES_OF_A_GROUP: Final = 2
BENCH: Final = names.bench("kimi")
APART: Final = "other"
"""The other namespace."""
REST_S: Final = 240.0
"""For how long nothing is written at rest: several of the tuner's longest waits."""
RESTS_WITHIN_S: Final = 900.0
"""What may wait is written by then: a probe's end, a status, the last of what was learnt."""


WATCHED_ONE_IN: Final = 5
"""Histories, of which one goes on for another ten minutes of rest."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a history."""

    broken: str
    """The first invariant that did not hold; empty: all did."""
    at_s: float
    log: str
    """The history's own log: deeds, writes, refusals."""
    said: str
    """What the operators and engines logged."""
    writes: int


class Storm:
    """One history under way; deeds act on it."""

    name = "kimi"
    """Name of the resource."""
    namespace = "llm"

    @property
    def workload(self) -> Kind:
        """What asks for the pods of the resource."""
        return LEADER_WORKER_SET if self.history.scenario.groups else DEPLOYMENT

    def __init__(self, history: History, loop: SimulatedLoop, directory: Path) -> None:
        self.history = history
        self.loop = loop
        scenario = history.scenario
        served = (*SERVED, *SPANNING_KINDS) if scenario.groups else SERVED
        self.server = Server(loop, scenario.latency_s, served)
        self.objects = self.server.objects
        self.objects.keeps = keeps(fills_in=scenario.fills_in, older_crd=bool(scenario.older_crd))
        if scenario.older_crd == "refuses":
            self.server.undeclared = undeclared
        self.network = loop.network = Network(loop)
        self.watches = Watches(loop, self.objects, history.seed)
        self.server.watches = self.watches.lines
        self.hub = Hub(takes_s=scenario.hub_takes_s)
        nodes = (scenario.nodes + scenario.apart) * (NODES_OF_A_GROUP if scenario.groups else 1)
        self.cluster = Cluster(
            self.objects, self.network, directory, nodes=nodes, load=scenario.load
        )
        self.cluster.counts_revisions = scenario.fills_in
        self.prometheus = Prometheus(loop, self.network, self.cluster)
        self.invariants = Invariants(
            objects=self.objects,
            cluster=self.cluster,
            hub=self.hub,
            user_spec=self.user_spec,
            cached=scenario.cached,
        )
        self.canaries = Canaries(
            objects=self.objects,
            cluster=self.cluster,
            is_ours=self._is_ours,
            may_go_back=self._may_roll_back,
        )
        self._selection = Selection(
            objects=self.objects, cluster=self.cluster, is_ours=self._is_ours
        )
        self._clients = Clients()
        self.trainings = Trainings(self.objects)
        self._said = Said(objects=self.objects, cluster=self.cluster, is_ours=self._is_ours)
        self._pace = Pace(self._process_of)
        self._apart = WriteInvariants(hub=self.hub)
        """What is watched of the other namespace."""
        self._hindering = 0
        self._hindered_at_s = 0.0
        """When something last kept operators from writing, or from knowing what there is."""
        self.server.watching.append(self._wrote)
        self.server.before_write.append(self._about_to_write)
        self.server.asking.append(self._asked)
        self.operators: list[Operator] = []
        self.lines: list[str] = []
        self._uid = 0
        self._die_at: int | None = None
        self._failure: asyncio.Future[None] = loop.create_future()

    # -- the course of it

    async def run(self, *, die_at: int | None = None) -> None:
        """From the first moment to the last check.

        Raises:
            BrokenError: an invariant does not hold.
        """
        self._die_at = die_at
        self._create("kimi", self._first_spec())
        for index in range(self.history.scenario.operators):
            await self._start_operator(f"operator-{index}", self.namespace)
        if self.history.scenario.apart:
            spec = {**self._first_spec(), "replicas": 1}
            self._apart.edited_at_s[spec["draft"]["id"]] = self.loop.time()
            self.objects.put(SPECULATIVE_DEPLOYMENT, _resource("kimi", APART, "apart", 0.0, spec))
            await self._start_operator("apart", APART)
        background = [
            self.loop.create_task(self._look(), name="look"),
            self.loop.create_task(self._bookmarks(), name="bookmarks"),
            self.loop.create_task(self._leaks(), name="leaks"),
        ]
        if self.history.scenario.prometheus:
            background.append(self.loop.create_task(self.prometheus.scrape(), name="prometheus"))
        deeds = [
            self.loop.create_task(self._deed(deed), name=f"deed {deed}")
            for deed in self.history.deeds
        ]
        course = self.loop.create_task(self._course(deeds), name="course")
        try:
            await asyncio.wait([course, self._failure], return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
            await course
        finally:
            for task in (*background, *deeds, course):
                task.cancel()
            await asyncio.gather(*background, *deeds, course, return_exceptions=True)
            if not self._failure.done():
                self._failure.cancel()

    async def _start_operator(self, name: str, namespace: str) -> None:
        namespaces: tuple[str, ...] = ()
        if self.history.scenario.apart:
            namespaces = (namespace,)
            self.server.confined[name] = namespace
        lease_in = NAMESPACE if namespace == self.namespace else f"{namespace}-system"
        self.operators.append(
            Operator(
                name,
                self.loop,
                self.server,
                self.watches,
                self.hub,
                build=self.history.scenario.build,
                namespaces=namespaces,
                lease_in=lease_in,
            )
        )
        await asyncio.sleep(0.1)

    def end(self) -> None:
        """Nothing moves any more."""
        for operator in self.operators:
            operator.stop()
        self.cluster.stop()

    async def _course(self, deeds: list[asyncio.Task[None]]) -> None:
        if deeds:
            await asyncio.gather(*deeds)
        await asyncio.sleep(max(0.0, self.history.calm_at_s - self.loop.time()))
        # The last of the traffic, so that the tuner has nothing left to decide.
        self.cluster.load = 0
        calm_s = self.loop.time()
        wrong = "nothing was looked at"
        within_s = SETTLES_S + self._rollouts_s() + self._fights_s() + self._waits_s()
        # What a rollout that only settles will ask of the user, nobody knows yet.
        while (
            wrong or self.rollout().get("reason") == Reason.SETTLING
        ) and self.loop.time() < calm_s + within_s:
            await asyncio.sleep(15.0)
            wrong = self._complaint()
            self._decide_for_a_canary()
            self._mend_what_stays()
        if wrong:
            took_s = self.loop.time() - calm_s
            self._break(f"{took_s:.0f} s after the last fault {wrong}")
        await self._rest("at rest")
        # Does another one find something to do?
        self.leader().kill()
        await self._rest("after a restart of the operator at rest")
        if self.history.seed % WATCHED_ONE_IN == 0:
            await self._watched()
        if wrong := self._complaint():
            self._break(f"at the end {wrong}")

    async def _watched(self) -> None:
        """At rest the status says every ten minutes that somebody watches, and nothing else."""
        began = len(self.server.audits)
        await asyncio.sleep(WATCHED_S + 2 * RESYNC_S)
        fresh = [each for each in self.server.audits[began:] if each.kind != "Lease"]
        if others := [f"{each.verb} {each.kind}" for each in fresh if each.verb != "status"]:
            self._break(f"at rest it wrote more than a status: {', '.join(others)}")
        apart = (APART,) if self.history.scenario.apart else ()
        for namespace in (self.namespace, *apart):
            found = self.objects.look(SPECULATIVE_DEPLOYMENT, namespace, self.name) or {}
            # An older CRD keeps no time.
            keeps = "lastReconcileTime" in (found.get("status") or {})
            written = sum(each.namespace == namespace for each in fresh)
            if keeps and written not in (1, 2):
                self._break(f"at rest {written} writes said that somebody watches {namespace}")

    def _decide_for_a_canary(self) -> None:
        """The user reads that it waits for a decision, and makes it."""
        found = self.objects.look(SPECULATIVE_DEPLOYMENT, "llm", "kimi") or {}
        if (found.get("status") or {}).get("reason") == Reason.STABLE_SPEC_UNKNOWN:
            self.annotate({names.ANNOTATION_RETRY_ROLLOUT: f"at {self.loop.time():.0f}"})

    def _mend_what_stays(self) -> None:
        """A group that an edit would have cured, and the edit is refused or was taken back."""
        rolled_back = self.rollout().get("stage") == "RolledBack" and self._may_roll_back()
        if rolled_back or self.spec().get("draft", {}).get("id") == BAD_DRAFT:
            self.cluster.spoilt.clear()

    async def _rest(self, when: str) -> None:
        """Until nothing is written for a while; what could wait may still come at first."""
        began_s, audits = self.loop.time(), self.server.audits
        quiet_since_s = began_s
        while (left_s := quiet_since_s + REST_S - self.loop.time()) > 0:
            await asyncio.sleep(left_s)
            quiet_since_s = max(began_s, audits[-1].at_s)
            if quiet_since_s > began_s + RESTS_WITHIN_S + self._bake_s():
                fresh = [f"{each.verb} {each.kind} {each.name}" for each in audits[-5:]]
                self._break(f"{when} it went on writing: {', '.join(fresh)}")

    def _rollouts_s(self) -> float:
        if not self.invariants.restart_edits:
            return 0.0
        return (ROLLOUT_S + self._bake_s()) * (1 + self.history.scenario.replicas / 2)

    def _bake_s(self) -> float:
        """What the longest bake takes, or comparison; of short ones, nothing beside all else."""
        scenario = self.history.scenario
        return LONGEST_BAKE * 60.0 * scenario.canary_minutes if scenario.bakes_long else 0.0

    def _waits_s(self) -> float:
        """What controllers may wait that failed for a while, and the fetches of a last rollout."""
        refused_s = sum(each.with_["for_s"] for each in self.history.deeds if each.what in BACK_OFF)
        return refused_s + (FETCHES_S if self.history.scenario.cached else 0.0)

    def _fights_s(self) -> float:
        fought = any(each.what in FIGHTS for each in self.history.deeds)
        return FIGHT_S if fought else 0.0

    async def _deed(self, deed: Deed) -> None:
        await asyncio.sleep(deed.at_s)
        self.say("deed", str(deed))
        hinders = deed.what in HINDERS
        self._hindering += hinders
        await DEEDS[deed.what].do(self, deed.with_)
        self._hindering -= hinders
        if hinders:
            self._hindered_at_s = self.loop.time()
        if deed.over_at_s > deed.at_s:
            self.say("over", str(deed))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._guarded(self._look_once)
            self._guarded(self._no_crash)

    def _look_once(self) -> None:
        now_s, trouble = self.loop.time(), self.server.trouble
        if self._hindering:
            self._hindered_at_s = now_s
        if trouble.stale_s:
            self.invariants.stale_until_s = now_s + STALE_S
        self.invariants.look()
        self.canaries.look(now_s)
        chosen = self._selection.look(now_s, hindered_at_s=self._hindered_at_s)
        self._said.look(now_s, hindered_at_s=self._hindered_at_s)
        happened_at_s = max(self._hindered_at_s, self.cluster.disturbed_at_s)
        excused = (
            now_s < max(happened_at_s + AFTERMATH_S, self.invariants.stale_until_s)
            or self.user_spec(self.name) is None
        )
        least = 0 if excused else self.invariants.least_ready(now_s)
        self._clients.look(now_s, chosen, least=least)

    def _no_crash(self) -> None:
        for each in self.operators:
            if each.crash:
                self._break(f"{each.name} ended by itself: {each.crash}")

    async def _bookmarks(self) -> None:
        while True:
            await asyncio.sleep(60.0)
            self.watches.bookmark()

    async def _leaks(self) -> None:
        """What leaks does not go away again, and to count it takes long."""
        while True:
            await asyncio.sleep(10.0)
            tasks = len(asyncio.all_tasks())
            if tasks > MOST_TASKS:
                self._fail(BrokenError(f"{tasks} tasks are alive"))

    # -- what is asked at the end

    def _complaint(self) -> str:
        """What is not yet as it should be; empty: all is."""
        wrong = self._complaint_in(self.namespace)
        if not wrong and self.history.scenario.apart:
            wrong = self._complaint_in(APART)
        return wrong

    def _complaint_in(self, namespace: str) -> str:
        serving = self.cluster.serving()
        rolled_out = self.invariants.rolled_out
        return complaint(
            self.objects.look(SPECULATIVE_DEPLOYMENT, namespace, "kimi"),
            [each for kind in WORKLOADS for each in self.children(kind, namespace)],
            [pod for place, pod, _ in serving if place.startswith(f"{namespace}/kimi-")],
            rolled_out=rolled_out,
            may_roll_back=self._may_roll_back(),
        )

    def _may_roll_back(self) -> bool:
        """Whether a canary may have looked worse than it was made."""
        unreadable = any(each.what in SPOIL_METRICS for each in self.history.deeds)
        excused = self.cluster.spoilt_revisions | self.canaries.by_chance
        given_up = self.rollout().get("revision") in excused
        # What a person holds at a depth is no measure, nor is there any beside the only other.
        unmeasured = self.rollout().get("reason") == Reason.METRICS_LOST and any(
            each.what == PINS for each in self.history.deeds
        )
        return unreadable or self.cluster.canaries_suffer or given_up or unmeasured

    def serves_as_asked(self) -> bool:
        """Whether something serves, and all that does is of the image that the user asks for."""
        image = self.spec().get("engine", {}).get("image")
        pods = [pod for _, pod, _ in self.cluster.serving() if self._is_ours(pod)]
        images = {pod["spec"]["containers"][0]["image"] for pod in pods}
        return images == {image} and self.spec().get("replicas", 1) > 0

    # -- what deeds use

    def leader(self) -> Operator:
        """The one that leads; without one, the first."""
        return next((each for each in self.operators if each.leads), self.operators[0])

    def user_spec(self, name: str) -> Mapping[str, Any] | None:
        found = self.objects.look(SPECULATIVE_DEPLOYMENT, "llm", name)
        return found["spec"] if found else None

    def spec(self) -> Mapping[str, Any]:
        """Spec of the resource; empty: there is none now."""
        return self.user_spec("kimi") or {}

    def rollout(self) -> Mapping[str, Any]:
        """What the resource's status says of one; empty: nothing."""
        found = self.objects.look(SPECULATIVE_DEPLOYMENT, self.namespace, self.name) or {}
        return (found.get("status") or {}).get("rollout") or {}

    def edit(self, changes: Mapping[str, Any]) -> None:
        """The user sets values at dotted paths below spec; None removes one."""
        found = self.objects.look(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
        if found is None:
            return
        body = copy.deepcopy(found)
        for path, value in changes.items():
            *parents, last = path.split(".")
            place = body["spec"]
            for parent in parents:
                place = place.setdefault(parent, {})
            if value is None:
                place.pop(last, None)
            else:
                place[last] = value
        body = self.objects.keeps(SPECULATIVE_DEPLOYMENT, body)
        self._note_edit(found["spec"], body["spec"])
        self.objects.put(SPECULATIVE_DEPLOYMENT, body)

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of the resource; None removes one."""
        if names.ANNOTATION_RETRY_ROLLOUT in annotations:
            self.canaries.forgive()
        self._annotate(SPECULATIVE_DEPLOYMENT, "llm/kimi", annotations)

    def annotate_pod(self, place: str, annotations: Mapping[str, str | None]) -> None:
        self._annotate(POD, place, annotations)

    def _annotate(self, kind: Kind, place: str, annotations: Mapping[str, str | None]) -> None:
        found = self.objects.look(kind, *place.split("/"))
        if found is not None:
            body = copy.deepcopy(found)
            kept = {**(body["metadata"].get("annotations") or {}), **annotations}
            body["metadata"]["annotations"] = {k: v for k, v in kept.items() if v is not None}
            self.objects.put(kind, body)

    def granted(self) -> None:
        """The user asks for what another build renders otherwise."""
        self.invariants.restart_edits.append(self.loop.time())
        self.canaries.forgive()

    async def recreate(self, after_s: float) -> None:
        """Delete the resource, and make it again as it was."""
        spec = self.user_spec("kimi")
        if spec is None:
            return
        self.cluster.disturbed()
        spec = _mended(spec)
        self.objects.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
        await asyncio.sleep(after_s)
        if self.user_spec("kimi") is None:
            self._create("kimi", spec)
            self.cluster.disturbed()

    async def end_namespace(self, for_s: float) -> None:
        """Delete all that is in the namespace, and make the resource again when it is over."""
        spec = self.user_spec("kimi")
        if spec is None:
            return
        spec = _mended(spec)
        self.cluster.disturbed()

        def refuse(verb: str, kind: Kind, _: str) -> KubeError | None:
            if verb in {"create", "apply"} and kind != LEASE:
                return KubeError(403, "namespace llm is being terminated")
            return None

        with self.server.trouble.refusing(refuse):
            for kind in (SPECULATIVE_DEPLOYMENT, *CHILD_KINDS, LEADER_WORKER_SET):
                for body in self.objects.each(kind):
                    name = body["metadata"]["name"]
                    if kind != POD and body["metadata"]["namespace"] == "llm":
                        # What is somebody else's goes with it as well, and by nobody's fault.
                        self.invariants.foreign.discard((kind.kind, "llm", name))
                        self.objects.remove(kind, "llm", name)
            await asyncio.sleep(for_s)
        if self.user_spec("kimi") is None:
            self._create("kimi", spec)
            self.cluster.disturbed()

    async def second_resource(self, kind: Kind, name: str, for_s: float) -> None:
        """One that cannot have a child, since an object of that name is somebody else's."""
        place = (kind.kind, "llm", name)
        if place in self.invariants.foreign:
            return
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": "llm", "labels": {"app": "theirs"}},
        }
        if kind == CONFIG_MAP:
            body["data"] = {"theirs": "yes"}
        else:
            body["spec"] = {"selector": {"app": "theirs"}}
        self.objects.put(kind, body)
        self.invariants.foreign.add(place)
        self._create("second", {**self._first_spec(), "replicas": 1})
        await asyncio.sleep(for_s)
        self.objects.remove(SPECULATIVE_DEPLOYMENT, "llm", "second")
        await asyncio.sleep(60.0)
        left = self.objects.look(kind, "llm", name)
        if left is None and place in self.invariants.foreign:
            self._break(f"the foreign {kind.kind} {name} was deleted")
        self.invariants.foreign.discard(place)
        self.objects.remove(kind, "llm", name)

    def undisturbed(self, begins_s: float, ends_s: float) -> bool:
        """Whether a single deed is under way in a time."""
        deeds = self.history.deeds
        return sum(each.at_s < ends_s and each.over_at_s >= begins_s for each in deeds) == 1

    def fail(self, sentence: str) -> None:
        """An invariant does not hold, as a deed has found."""
        self._fail(BrokenError(sentence))

    def theirs(self, found: Mapping[str, Any], where: str, key: str) -> None:
        """Something of an object is another manager's from now on."""
        metadata = found["metadata"]
        place = found["kind"], metadata["namespace"], metadata["name"]
        self.invariants.theirs.setdefault(place, set()).add((where, key))

    async def bench(self, for_s: float) -> None:
        """Somebody measures, and takes the result away when it is over."""
        resource = self.objects.look(SPECULATIVE_DEPLOYMENT, self.namespace, self.name)
        serving = [pod for _, pod, _ in self.cluster.serving() if self._is_ours(pod)]
        if resource is None or not serving or self.objects.look(JOB, self.namespace, BENCH):
            return
        self.cluster.jobs.bench_s = for_s
        self.objects.put(JOB, bench_of(resource, serving[0], self.name))
        await asyncio.sleep(for_s)
        self.objects.remove(JOB, self.namespace, BENCH)

    def kill_at_write(self, number: int) -> None:
        """The operator dies with its n-th write from now."""
        self._die_at = number

    def children(self, kind: Kind, namespace: str = namespace) -> list[dict[str, Any]]:
        """Children of the resource in a namespace."""
        return [
            each
            for each in self.objects.each(kind)
            if (each["metadata"].get("labels") or {}).get(names.LABEL_NAME) == "kimi"
            and each["metadata"]["namespace"] == namespace
        ]

    def say(self, what: str, sentence: str) -> None:
        """A line of the history's log."""
        self.lines.append(f"{self.loop.time():8.2f} {what:10} {sentence}")

    # -- inside

    def _first_spec(self) -> dict[str, Any]:
        scenario = self.history.scenario
        spec: dict[str, Any] = manifest(
            {
                "model.id": TARGET,
                "draft.id": scenario.draft,
                "engine.tensorParallelSize": 8 if scenario.groups else 4,
                "engine.image": IMAGES[0],
                "replicas": scenario.replicas,
                "rollout.maxUnavailable": scenario.max_unavailable,
                "rollout.maxSurge": scenario.max_surge,
                "rollout.canaryMinutes": scenario.canary_minutes,
                "speculation.tokens": 3,
                "speculation.maxTokens": MOST_DEPTH,
                "speculation.tuning.mode": scenario.mode,
                **({"metrics.prometheusURL": URL} if scenario.prometheus else {}),
                **({"cache.size": "2Ti", "draft.training": TRAINING} if scenario.cached else {}),
            }
        )["spec"]
        return spec

    def _create(self, name: str, spec: Mapping[str, Any]) -> None:
        self._uid += 1
        body = _resource(name, self.namespace, f"{self._uid}", self.loop.time(), spec)
        self.invariants.edited_at_s[spec["draft"]["id"]] = self.loop.time()
        if name == self.name:
            self.canaries.edited(None, spec)
            self.invariants.asked.append(Asked.of(spec, self.loop.time()))
        self.objects.put(SPECULATIVE_DEPLOYMENT, body)

    def _note_edit(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        now_s, invariants = self.loop.time(), self.invariants
        self.canaries.edited(before, after)
        if Asked.of(before, now_s) != (asked := Asked.of(after, now_s)):
            invariants.asked.append(asked)
        if before["draft"]["id"] != after["draft"]["id"]:
            invariants.edited_at_s[after["draft"]["id"]] = now_s
        needs_pods = ("draft", "engine", "model")
        speculation = [each.get("speculation", {}) for each in (before, after)]
        mode = [each.get("tuning", {}).get("mode") for each in speculation]
        adaptive = {each.get("adaptiveVerification", "Disabled") for each in speculation}
        drafting = {each.get("drafting", "Enabled") for each in speculation}
        grids = {GRIDS[each.get("tokens", 3)] for each in speculation}
        if (
            any(before[key] != after[key] for key in needs_pods)
            or "Static" in mode
            or len(adaptive) > 1
            or len(drafting) > 1
            or len(grids) > 1
        ):
            invariants.restart_edits.append(now_s)

    def _about_to_write(self, who: str, verb: str, kind: Kind) -> None:
        if self._die_at is None or kind.kind == "Lease":
            return
        self._die_at -= 1
        if self._die_at == 0:
            self._die_at = None
            self._hindered_at_s = self.loop.time()
            self.say("dies", f"{who} before it could {verb} {kind.kind}")
            next(each for each in self.operators if each.name == who).kill()

    def _wrote(self, audit: Any) -> None:
        if audit.kind != "Lease":
            self.say(audit.who, f"{audit.verb} {audit.kind} {audit.name}{_detail(audit)}")
        self._guarded(lambda: self._wrote_one(audit))

    def _wrote_one(self, audit: Any) -> None:
        if audit.namespace.startswith(APART):
            self._apart.wrote(audit)
        else:
            self.invariants.wrote(audit)
            self.canaries.wrote(audit)
            self._said.wrote(audit)
            if wrong := self.trainings.wrote(audit):
                self._break(wrong)
        self._pace.wrote(audit)

    def _asked(self, who: str, verb: str, target: Target) -> None:
        self._guarded(lambda: self._asked_one(who, verb, target))

    def _asked_one(self, who: str, verb: str, target: Target) -> None:
        self._pace.asked(self.loop.time(), who, verb, target.kind)
        confined = self.server.confined.get(who, target.namespace)
        if target.kind != NODE and confined != target.namespace:
            where = target.namespace or "every namespace"
            self._break(f"{who}, which is there for {confined}, asked to {verb} in {where}")

    def _process_of(self, who: str) -> int:
        return next(each.starts for each in self.operators if each.name == who)

    def _is_ours(self, pod: Mapping[str, Any]) -> bool:
        labels = pod["metadata"].get("labels") or {}
        return (
            labels.get(names.LABEL_NAME) == self.name
            and pod["metadata"]["namespace"] == self.namespace
            and bool(pod["metadata"].get("ownerReferences"))
        )

    def _guarded(self, act: Any) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - what cannot be looked at may not go unnoticed
            self._fail(error)

    def _break(self, sentence: str) -> None:
        raise BrokenError(sentence)

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)


def run(history: History, *, die_at: int | None = None) -> Verdict:
    """Run a history to its end, or to the first invariant that breaks."""
    said = io.StringIO()
    _quiet(said)
    directory = Path(tempfile.mkdtemp(prefix="fathom-storm-", dir=_memory()))
    outcome: list[Verdict] = []

    async def work(loop: SimulatedLoop) -> None:
        storm = Storm(history, loop, directory)
        broken = ""
        try:
            await storm.run(die_at=die_at)
        except BrokenError as error:
            broken = str(error)
        at_s = loop.time()
        if not broken and any(each in said.getvalue() for each in SECRETS):
            broken = "a secret stands in the log"
        if not broken and "pass failed" in said.getvalue():
            broken = "a pass ended in an error of its own, see what the operator logged"
        storm.end()
        writes = [each for each in storm.server.audits if each.kind != "Lease"]
        log = "\n".join(storm.lines) + "\n"
        outcome.append(Verdict(broken, at_s, log, said.getvalue(), len(writes)))

    try:
        simulated_time.run(work)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return outcome[0]


def _resource(
    name: str, namespace: str, uid: str, at_s: float, spec: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"resource-{uid}",
            "creationTimestamp": rfc3339(at_s),
        },
        "spec": copy.deepcopy(dict(spec)),
    }


def _mended(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without what another deed would take back, which it cannot while there is none."""
    copied: dict[str, Any] = copy.deepcopy(dict(spec))
    copied["speculation"]["maxTokens"] = MOST_DEPTH
    copied["rollout"].pop("paused", None)
    if copied["engine"]["image"] in BAD_IMAGES:
        copied["engine"]["image"] = IMAGES[0]
    return copied


def _memory() -> str | None:
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() else None


def _quiet(said: io.StringIO) -> None:
    """All that is logged goes into memory: it is searched, and shown where a history fails.

    Secrets are hidden in it by what hides them in the operator's own log.
    """
    structlog.reset_defaults()
    structlog.configure(
        processors=[
            structlog.processors.format_exc_info,
            without_secrets,
            structlog.processors.KeyValueRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(said),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(said)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)


def _detail(audit: Any) -> str:
    if audit.kind == "Event":
        return f": {audit.body.get('reason')}: {audit.body.get('message')}"
    if audit.kind in WORKLOAD_NAMES and audit.after is not None:
        return f" replicas={audit.after['spec'].get('replicas')}"
    if audit.kind == "ConfigMap" and audit.name.endswith("-depth") and audit.after is not None:
        return f" {audit.after['data'].get('depth.json', '')[:160]}"
    if audit.verb == "status":
        conditions = (audit.after or {}).get("status", {}).get("conditions", [])
        shown = [f"{each['type']}={each['reason']}" for each in conditions]
        changed = _difference((audit.before or {}).get("status", {}), audit.after["status"])
        return f" ready={audit.after['status'].get('ready')} {' '.join(shown)} ({changed})"
    return ""


def _difference(before: Any, after: Any, path: str = "") -> str:
    """The fields that differ, with what they are now."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after})
        found = [_difference(before.get(key), after.get(key), f"{path}.{key}") for key in keys]
        return " ".join(each for each in found if each)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        found = [_difference(one, two, f"{path}[{index}]") for index, (one, two) in pairs]
        return " ".join(each for each in found if each)
    return "" if before == after else f"{path}={str(after)[:120]}"
