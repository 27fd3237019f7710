"""Histories on a real API server: operators as processes, behind a proxy, with real controllers.

The deeds are the simulator's own. What they act on here is what `FaultyProxy` spoils, the processes
of the operator, and the API server, as a user or another hand does.
"""

import asyncio
import copy
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import web
from kubernetes.aio.client.exceptions import ApiException

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from local_cluster.kube import MERGE_PATCH, KubeApi, Mirror
from storms.calm import complaint
from storms.deeds import DEEDS
from storms.history import Deed, History
from storms.hub import BAD_DRAFT, BROKEN, DRAFT, GOOD, OTHER_DRAFT, SECRET, TARGET
from storms.invariants import WriteInvariants
from storms.server import Audit
from support.faulty_proxy import EVERYBODY, Asked, FaultyProxy, Scope, listening, proxy_before
from support.hub_server import HubServer, Repository, serving
from support.local_cluster import TestNamespace, is_ready
from support.operated import SPEC
from support.operator_process import Operator, account, install_crd
from support.waiting import GUARD_S

REST_S: Final = 15.0
"""For how long nothing is written at rest, and again after a restart."""
RESTART_S: Final = 1.0
"""From a process's end to the next one's start, as its kubelet does it."""
IMAGE: Final = str(SPEC["engine"]["image"])
_MIRRORED: Final = (
    SPECULATIVE_DEPLOYMENT,
    DEPLOYMENT,
    POD,
    CONFIG_MAP,
    SERVICE,
    SERVICE_ACCOUNT,
)
_GOES_ON: Final = frozenset({404, 409})
"""What a hand's request may be answered: the object is another one by now, or none."""


@dataclass(kw_only=True)
class ToldHub(HubServer):
    """A hub that knows when it told of which model."""

    takes_s: float = 0.0
    answers: list[tuple[float, str]] = field(default_factory=list)

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self.takes_s)
        answer = await super()._resolve(request)
        self.answers.append((asyncio.get_running_loop().time(), request.match_info["id"]))
        return answer


def hub() -> ToldHub:
    """It has the models of the simulator's."""

    def repository(config: Mapping[str, Any] | None) -> Repository:
        return Repository({"config.json": json.dumps(config).encode()})

    return ToldHub(
        {
            TARGET: repository(GOOD.target),
            DRAFT: repository(GOOD.draft),
            OTHER_DRAFT: repository(GOOD.draft),
            BAD_DRAFT: repository(BROKEN.draft),
        }
    )


class Objects:
    """All that is in a namespace, as watches tell of it; changes are sent, in order."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._mirrors = {kind: Mirror(api, _path(kind, namespace)) for kind in _MIRRORED}
        self._sent: asyncio.Queue[Callable[[], Awaitable[Any]]] = asyncio.Queue()

    @asynccontextmanager
    async def kept_up(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run()) for each in self._mirrors.values()]
            running.append(tasks.create_task(self._send()))
            for each in self._mirrors.values():
                await each.synced.wait()
            try:
                yield
            finally:
                for task in running:
                    task.cancel()

    def look(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return self._mirrors[kind].items.get((namespace, name))

    def each(self, kind: Kind) -> list[dict[str, Any]]:
        found = self._mirrors[kind].items
        return [found[key] for key in sorted(found)]

    def put(self, kind: Kind, body: Mapping[str, Any]) -> None:
        """Make it, or make it so whatever it is now."""
        metadata = {k: v for k, v in body["metadata"].items() if k != "resourceVersion"}
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": metadata}
        there = self.look(kind, metadata["namespace"], metadata["name"]) is not None
        name = metadata["name"] if there else ""
        path = _path(kind, metadata["namespace"], name)
        self.send("PUT" if there else "POST", path, whole)

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        self.send("DELETE", _path(kind, namespace, name))

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> None:
        """A request of somebody else than the operator."""
        sent = None if body is None else copy.deepcopy(dict(body))
        self._sent.put_nowait(
            lambda: self._api.request(method, path, body=sent, content_type=content_type)
        )

    async def carried_out(self) -> None:
        """Until all that was sent has been answered."""
        await self._sent.join()

    async def _send(self) -> None:
        while True:
            request = await self._sent.get()
            try:
                await request()
            except ApiException as error:
                if error.status not in _GOES_ON:
                    raise
            finally:
                self._sent.task_done()


class Replica:
    """One replica of the operator, started anew whenever its process ends."""

    def __init__(self, name: str, operator: Operator) -> None:
        self.name = name
        self.operator = operator
        self.process = self
        """The deeds' word for what is paused."""

    async def keep(self) -> None:
        """As its kubelet does; for ever."""
        while True:
            self.operator.start()
            running = self.operator.process
            assert running is not None
            while running.poll() is None:
                await asyncio.sleep(0.1)
            await asyncio.sleep(RESTART_S)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        process = self.operator.process
        if process is not None and process.poll() is None:
            process.send_signal(number)


class Fleet:
    """Replicas of one operator that serve one namespace, and the histories in it."""

    def __init__(
        self, namespace: TestNamespace, proxy: FaultyProxy, told: ToldHub, stories: "Stories"
    ) -> None:
        self.namespace = namespace
        self.proxy = proxy
        self.hub = told
        self.objects = Objects(namespace.api, namespace.name)
        self.replicas: list[Replica] = []
        self.specs: dict[str, Mapping[str, Any]] = {}
        """What the user wrote last, by resource."""
        self.broken: dict[str, list[str]] = {}
        """What does not hold, by resource."""
        self.log: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        most_depth = SPEC["speculation"]["maxTokens"]
        self.invariants = WriteInvariants(hub=told, most_depth=most_depth)
        self._die_at: int | None = None
        self._held: Held | None = None
        proxy.watching.append(self._wrote)
        proxy.before_write.append(self._about_to_write)
        self.courses = [Course(self, name, history) for name, history in stories.items()]

    async def run(self) -> None:
        """All histories, to their ends."""
        for each in self.courses:
            each.create(each.name, each.first_spec())
        try:
            if len(self.replicas) == 1:
                await self._until_calm("at the start")
                self.say("calm", "all are ready for the first time")
            async with asyncio.TaskGroup() as tasks:
                for each in self.courses:
                    tasks.create_task(each.run())
            self.say("calm", "the last fault is over")
            await self._until_calm("after the last fault")
            self.say("calm", "all is as it should be")
            await self._rest("at rest")
            self.leader().kill()
            await self._looks_again()
            await self._rest("after a restart of the operator at rest")
            for each in self.courses:
                each.end()
        except _NeverCalmError:
            return

    def leader(self) -> Replica:
        """The one that holds the lease; without leases, the only one."""
        holder = self.invariants.holder
        return next((each for each in self.replicas if each.name == holder), self.replicas[0])

    def kill_at_write(self, number: int) -> None:
        """The operator dies with its n-th write from now."""
        self._die_at = number

    def hold(self, kind: Kind, name: str) -> "Held":
        """The next write of a kind, for a resource, stays on its way."""
        self._held = Held(kind, name)
        return self._held

    def replica(self, name: str) -> Replica:
        return next(each for each in self.replicas if each.name == name)

    def find(self, sentence: str, name: str) -> None:
        """Something does not hold."""
        self.say("broken", f"{name}: {sentence}")
        self.broken.setdefault(name, []).append(sentence)

    def say(self, what: str, sentence: str) -> None:
        self.log.append(f"{self._loop.time() - self._began_s:7.2f} {what:10} {sentence}")

    # -- writes

    def _wrote(self, audit: Audit) -> None:
        if audit.kind != "Lease":
            self.say(audit.who, f"{audit.verb} {audit.kind} {audit.name}")
        try:
            self.invariants.wrote(audit)
        except Exception as error:  # noqa: BLE001 - the proxy would tell nobody but the operator
            about = (audit.body or {}).get("involvedObject", {"name": audit.name})["name"]
            self.find(repr(error), about.partition("-")[0])

    async def _about_to_write(self, asked: Asked) -> None:
        if asked.target.kind.kind == "Lease":
            return
        if self._die_at is not None:
            self._die_at -= 1
            if self._die_at == 0:
                self._die_at = None
                self.say("dies", f"{asked.who} before it could {asked.verb} {asked.target.name}")
                self.replica(asked.who).kill()
                await asyncio.Event().wait()
        held = self._held
        if held is not None and held.concerns(asked) and not held.caught.done():
            self.say("held", f"{asked.who} wants to {asked.verb} {asked.target.name}")
            held.caught.set_result(asked)
            await held.released.wait()
            self.say("let go", f"{asked.who} wants to {asked.verb} {asked.target.name}")

    # -- the course of it

    async def _until_calm(self, when: str) -> None:
        until_s = self._loop.time() + GUARD_S
        while (left := self._complaints()) and self._loop.time() < until_s:
            await asyncio.sleep(0.5)
        for name, sentence in left.items():
            self.find(f"{GUARD_S:.0f} s {when} {sentence}", name)
        if left:
            raise _NeverCalmError

    def _complaints(self) -> dict[str, str]:
        return {each.name: found for each in self.courses if (found := each.complaint())}

    async def _looks_again(self) -> None:
        """Until an operator has looked at every resource: until then its silence says nothing."""
        since_s = self._loop.time()
        until_s = since_s + GUARD_S
        unseen = list(self.courses)
        while unseen and self._loop.time() < until_s:
            await asyncio.sleep(0.5)
            looked_at_s = self.proxy.looked_at_s
            unseen = [each for each in unseen if looked_at_s.get(each.name, since_s) <= since_s]
        for each in unseen:
            self.find("nobody looks at it after a restart of the operator", each.name)

    async def _rest(self, when: str) -> None:
        """Until nothing is written for a while; what could wait may still come at first."""
        until_s = self._loop.time() + GUARD_S
        fresh: Sequence[Asked] = ()
        while self._loop.time() < until_s:
            before = len(self.proxy.attempts)
            await asyncio.sleep(REST_S)
            fresh = self.proxy.attempts[before:]
            if not fresh:
                return
        for each in fresh:
            about = each.target.name or each.about
            self.find(f"{when} it went on: {each.verb} {each.target.kind.kind} {about}", each.about)


@dataclass
class Held:
    """A write that is on its way for long."""

    kind: Kind
    name: str
    """Name of the resource."""
    caught: asyncio.Future[Asked] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def concerns(self, asked: Asked) -> bool:
        return asked.target.kind == self.kind and asked.about == self.name


class _NeverCalmError(Exception):
    """Nothing more can be asked of these histories."""


class Course:
    """One history under way; deeds act on it, as on the simulator's `Storm`."""

    workload = DEPLOYMENT

    def __init__(self, fleet: Fleet, name: str, history: History) -> None:
        self.fleet = fleet
        self.name = name
        self.history = history
        self.namespace = fleet.namespace.name
        self.objects = fleet.objects
        self.hub = fleet.hub
        self.operators = fleet.replicas
        self.leader = fleet.leader
        self.kill_at_write = fleet.kill_at_write
        # What happens to one of two replicas happens to all resources; so does its API server's.
        alone = history.scenario.operators == 1
        self.server = self.scope = fleet.proxy.scope(name if alone else EVERYBODY)
        self.watches = _Watches(self.scope, fleet.proxy)
        self.cluster = _Undisturbed()
        self._second = ""

    async def run(self) -> None:
        """Do the deeds, each at its time."""
        self.scope.latency_s = self.history.scenario.latency_s
        async with asyncio.TaskGroup() as tasks:
            for each in self.history.deeds:
                tasks.create_task(self._do(each))
        self.scope.latency_s = 0.0

    async def _do(self, deed: Deed) -> None:
        await asyncio.sleep(deed.at_s)
        self.fleet.say("deed", f"{self.name}: {deed}")
        await (HERE.get(deed.what) or DEEDS[deed.what].do)(self, deed.with_)
        await self.objects.carried_out()
        if deed.over_at_s > deed.at_s:
            self.fleet.say("over", f"{self.name}: {deed}")

    def complaint(self) -> str:
        """What is not yet as it should be; empty: all is."""
        found = self.objects.look(SPECULATIVE_DEPLOYMENT, self.namespace, self.name)
        if found is not None and not _holds(found["spec"], self._spec()):
            return "the API server has not told of the newest spec yet"
        serving = [
            pod
            for pod in self.children(POD)
            if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
        ]
        if wrong := complaint(found, self.children(DEPLOYMENT), serving):
            return wrong
        for service in self.children(SERVICE):
            if service["spec"]["selector"].get(names.LABEL_NAME) != self.name:
                return f"the Service selects {service['spec']['selector']}"
        missing = [
            kind.kind for kind in (SERVICE, SERVICE_ACCOUNT, CONFIG_MAP) if not self.children(kind)
        ]
        return f"there is no {missing[0]}" if missing else ""

    def end(self) -> None:
        """What the API server itself says of who wrote what."""
        if wrong := self.complaint():
            self.fleet.find(f"at the end {wrong}", self.name)
        found = self.objects.look(SPECULATIVE_DEPLOYMENT, self.namespace, self.name) or {}
        entries = found.get("metadata", {}).get("managedFields", [])
        wrote = [each["fieldsV1"] for each in entries if each["manager"] == names.FIELD_MANAGER]
        if not wrote or any(each.keys() != {"f:status"} for each in wrote):
            self.fleet.find(f"the operator wrote {wrote or 'nothing'}", self.name)

    # -- what deeds use

    def spec(self) -> Mapping[str, Any]:
        return self._spec()

    def edit(self, changes: Mapping[str, Any]) -> None:
        """The user sets values at dotted paths below spec; None removes one."""
        patch: dict[str, Any] = {}
        spec = copy.deepcopy(dict(self._spec()))
        for path, value in changes.items():
            *parents, last = path.split(".")
            place, kept = patch, spec
            for parent in parents:
                place, kept = place.setdefault(parent, {}), kept.setdefault(parent, {})
            place[last] = value
            if value is None:
                kept.pop(last, None)
            else:
                kept[last] = value
        self._wants(self.name, spec)
        path = _path(SPECULATIVE_DEPLOYMENT, self.namespace, self.name)
        self.objects.send("PATCH", path, {"spec": patch}, MERGE_PATCH)

    def children(self, kind: Kind) -> list[dict[str, Any]]:
        return [
            each
            for each in self.objects.each(kind)
            if (each["metadata"].get("labels") or {}).get(names.LABEL_NAME) == self.name
        ]

    async def recreate(self, after_s: float) -> None:
        """Delete the resource, and make it again as it was.

        After so many seconds, or as soon as the operator is being told that it is gone.
        """
        spec, gone = self._spec(), asyncio.Event()

        def missing(asked: Asked) -> None:
            if asked.target.kind == SPECULATIVE_DEPLOYMENT and asked.about == self.name:
                gone.set()

        self.fleet.proxy.missing.append(missing)
        self.objects.remove(SPECULATIVE_DEPLOYMENT, self.namespace, self.name)
        with suppress(TimeoutError):
            async with asyncio.timeout(after_s):
                await gone.wait()
        self.fleet.proxy.missing.remove(missing)
        self.create(self.name, spec)

    async def second_resource(self, kind: Kind, _: str, for_s: float) -> None:
        """One that cannot have a child, since an object of that name is somebody else's."""
        second = f"{self.name}{kind.kind.lower()}"
        name = f"{second}-depth" if kind == CONFIG_MAP else second
        metadata = {"name": name, "namespace": self.namespace, "labels": {"app": "theirs"}}
        body: dict[str, Any] = {"metadata": metadata}
        if kind == SERVICE:
            body["spec"] = {"selector": {"app": "theirs"}, "ports": [{"port": 80}]}
        self.objects.put(kind, body)
        await self.objects.carried_out()
        self.fleet.invariants.foreign.add((kind.kind, self.namespace, name))
        before = await self.fleet.namespace.get(kind.kind, name)
        self.create(second, {**self.first_spec(), "replicas": 1})
        try:
            async with asyncio.timeout(for_s):
                while self._degraded(second) != Reason.NAME_TAKEN:
                    await asyncio.sleep(0.2)
        except TimeoutError:
            self.fleet.find(f"nobody says that {name} is taken", self.name)
        self.objects.remove(SPECULATIVE_DEPLOYMENT, self.namespace, second)
        await asyncio.sleep(GONE_S)
        if await self.fleet.namespace.get(kind.kind, name) != before:
            self.fleet.find(f"the foreign {kind.kind} {name} was touched", self.name)

    # -- inside

    def first_spec(self) -> dict[str, Any]:
        scenario = self.history.scenario
        return {
            **copy.deepcopy(dict(SPEC)),
            "replicas": scenario.replicas,
            "model": {"id": TARGET},
            "draft": {"id": scenario.draft},
            "rollout": {"canaryMinutes": scenario.canary_minutes},
        }

    def create(self, name: str, spec: Mapping[str, Any]) -> None:
        self._wants(name, spec)
        metadata = {"name": name, "namespace": self.namespace}
        path = _path(SPECULATIVE_DEPLOYMENT, self.namespace)
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": metadata,
            "spec": spec,
        }
        self.objects.send("POST", path, body)

    def _degraded(self, name: str) -> str:
        """Why a resource is, or is not; empty: nothing is said."""
        found = self.objects.look(SPECULATIVE_DEPLOYMENT, self.namespace, name) or {}
        said = found.get("status", {}).get("conditions", [])
        return "".join(each["reason"] for each in said if each["type"] == "Degraded")

    def _spec(self) -> Mapping[str, Any]:
        return self.fleet.specs.get(self.name, {})

    def _wants(self, name: str, spec: Mapping[str, Any]) -> None:
        before, after = self.fleet.specs.get(name, {}).get("draft"), spec["draft"]
        self.fleet.specs[name] = spec
        if before != after:
            now_s = asyncio.get_running_loop().time()
            self.fleet.invariants.edited_at_s.setdefault(after["id"], now_s)


GONE_S: Final = 4.0
"""Until the garbage collector has taken what was deleted with a resource."""


class _Watches:
    """What deeds set of watches."""

    def __init__(self, scope: Scope, proxy: FaultyProxy) -> None:
        self.trouble = scope.watches
        self.cut = proxy.cut


class _Undisturbed:
    """Real pods need nobody to note what happened to them."""

    def disturbed(self) -> None:
        """Nothing to note."""


async def _overtaken(course: Course, _: Mapping[str, Any]) -> None:
    """A leader stands still while its write is on its way, which arrives after its successor's."""
    fleet = course.fleet
    held = fleet.hold(DEPLOYMENT, course.name)
    try:
        async with asyncio.timeout(GUARD_S):
            asked = await held.caught
    except TimeoutError:
        fleet.find("nobody writes its Deployment", course.name)
        return
    before = fleet.replica(asked.who)
    before.pause()
    course.edit({"replicas": course.spec()["replicas"] - 1})
    began = len(fleet.proxy.audits)

    def overtaken() -> bool:
        written = fleet.proxy.audits[began:]
        return (DEPLOYMENT.kind, asked.target.name) in {(each.kind, each.name) for each in written}

    try:
        async with asyncio.timeout(GUARD_S):
            while not overtaken():
                await asyncio.sleep(0.1)
    except TimeoutError:
        fleet.find("nobody has taken over", course.name)
    held.released.set()
    await asyncio.sleep(0.5)
    before.resume()
    # For some seconds the former leader does not know what it is: there is something to do.
    course.edit({"speculation.tokens": 2})


async def _watches_end(course: Course, _: Mapping[str, Any]) -> None:
    """With the words by which an API server says that it knows no more of so long ago."""
    course.watches.cut(_GONE)


_GONE: Final = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",'
    b'"message":"too old resource version","reason":"Expired","code":410}}\n'
)

HERE: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], Awaitable[None]]]] = {
    "operator is paused in a write": _overtaken,
    "watches end": _watches_end,
}
"""Deeds that are not the simulator's, or that more can be made of here."""

Stories = Mapping[str, History]
"""Histories by the names of their resources: one word each."""


@asynccontextmanager
async def fleet_in(
    namespace: TestNamespace, directory: Path, stories: Stories, replicas: Sequence[str]
) -> AsyncIterator[Fleet]:
    """Operators behind a proxy, in a namespace, with the resources of some histories.

    Args:
        namespace: theirs alone.
        directory: for their kubeconfigs and logs.
        stories: what happens.
        replicas: their names; a single one holds no lease.
    """
    await install_crd(namespace)
    kubeconfig = await account(namespace, directory)
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    async with AsyncExitStack() as stack:
        told = await stack.enter_async_context(serving(hub()))
        proxy = await stack.enter_async_context(
            proxy_before(cluster["server"], cluster["certificate-authority"])
        )
        fleet = Fleet(namespace, proxy, told, stories)
        await stack.enter_async_context(fleet.objects.kept_up())
        for name in replicas:
            url = await stack.enter_async_context(listening(proxy, name))
            own = {**config, "clusters": [{**config["clusters"][0], "cluster": {"server": url}}]}
            path = directory / f"{name}.kubeconfig"
            path.write_text(yaml.safe_dump(own))
            operator = Operator(
                namespace,
                path,
                directory / f"{name}.log",
                leader_elect=len(replicas) > 1,
                environment={
                    "POD_NAME": name,
                    "HF_ENDPOINT": told.endpoint,
                    "HF_HUB_OFFLINE": "0",
                    "HF_TOKEN": SECRET,
                    "HF_HOME": str(directory / "hub"),
                },
            )
            fleet.replicas.append(Replica(name, operator))
        keeping = [asyncio.create_task(each.keep()) for each in fleet.replicas]
        try:
            yield fleet
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            for each in fleet.replicas:
                each.operator.kill()


def _holds(found: Any, wanted: Any) -> bool:
    """Whether what was asked for is there, defaults beside."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            value is None or _holds(found.get(key), value) for key, value in wanted.items()
        )
    return bool(found == wanted)


def _path(kind: Kind, namespace: str, name: str = "") -> str:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{namespace}/{kind.plural}" + (f"/{name}" if name else "")
