"""An API server on loopback, as far as Kopf and an election ask for one."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT, Kind

NOT_FOR_ALL = (
    Kind(group="", version="v1", kind="Namespace", plural="namespaces"),
    Kind(
        group="apiextensions.k8s.io",
        version="v1",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
    ),
)
"""What not every operator may see, and Kopf watches where it is let."""
BUSY = {
    "kind": "Status",
    "code": 429,
    "reason": "TooManyRequests",
    "message": "storage is (re)initializing",
    "details": {"retryAfterSeconds": 1},
}
"""What an API server from 1.31 on says of lists and watches while it fills its cache
(`errors.NewTooManyRequests` in k8s.io/apiserver/pkg/storage/cacher)."""


class ApiServer:
    """Lists resources, and nothing ever happens to them; anybody may take its lease."""

    def __init__(self, resources: Sequence[Mapping[str, Any]] = ()) -> None:
        self._resources = resources
        self.first_watch_fails = False
        """With an error of the server's, in the middle of its stream."""
        self.failed_in = "nowhere"
        """The namespace of that watch."""
        self.watches = Counter[str]()
        """Watches of resources, by namespace, since the beginning."""
        self.forbidden: set[str] = set()
        """Namespaces whose resources nobody may read."""
        self.refused = 0
        """Requests for what is forbidden."""
        self.busy = 0
        """Lists and watches of resources that are refused while the storage is filled."""
        self.watched = asyncio.Event()
        """Whether resources are watched, by a watch that goes on."""
        self.may_list = asyncio.Event()
        """Until it is set, lists of children are not answered."""
        self.may_list.set()
        self.lists: set[str] = set()
        """What was asked for, by the last part of its path."""
        self.lease: dict[str, Any] = {}
        """Empty: nobody has taken it."""
        self.lease_reads = 0
        self.lease_writes = 0
        self.lease_renewals = 0
        self.refuses_lease = False
        self.may_write_lease = asyncio.Event()
        """Until it is set, what is asked of the lease has arrived, and is not done yet."""
        self.may_write_lease.set()
        self.giving_back = asyncio.Event()
        """Whether somebody is giving the lease back."""
        self.may_give_back = asyncio.Event()
        """Until it is set, that has arrived, and is not done yet."""
        self.may_give_back.set()
        self.acted_without_lease = False
        """Whether resources were asked for before the lease was taken."""

    def application(self) -> web.Application:
        lease = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        application = web.Application()
        application.add_routes(
            [
                web.post(lease, self._take),
                web.put(f"{lease}/{{name}}", self._take),
                web.get(f"{lease}/{{name}}", self._look_at_lease),
                web.get("/{path:.*}", self._answer),
            ]
        )
        return application

    async def _look_at_lease(self, _: web.Request) -> web.Response:
        self.lease_reads += 1
        if not self.lease:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        return web.json_response(self.lease)

    async def _take(self, request: web.Request) -> web.Response:
        self.lease_writes += 1
        if self.refuses_lease:
            return web.json_response({"kind": "Status", "code": 403}, status=403)
        taking = self._taken(request.match_info["namespace"], await request.json())
        # What has arrived is done, also where nobody waits for the answer any more.
        return web.json_response(await asyncio.shield(asyncio.ensure_future(taking)))

    async def _taken(self, namespace: str, lease: dict[str, Any]) -> dict[str, Any]:
        await self.may_write_lease.wait()
        if not lease["spec"].get("holderIdentity"):
            self.giving_back.set()
            await self.may_give_back.wait()
        before = self.lease.get("spec", {}).get("holderIdentity")
        self.lease = lease
        if before and before == lease["spec"].get("holderIdentity"):
            self.lease_renewals += 1
        lease["metadata"]["namespace"] = namespace
        return lease

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        *_, plural = path.split("/")
        kinds = {SPECULATIVE_DEPLOYMENT.plural: SPECULATIVE_DEPLOYMENT}
        if "labelSelector" in request.query:
            await self.may_list.wait()
        if plural not in kinds:
            self.lists.add(plural)
            return web.json_response(_discovered(path, [*kinds.values(), *NOT_FOR_ALL]))
        self.acted_without_lease |= not self.lease
        if (namespace := _namespace(path)) in self.forbidden:
            self.refused += 1
            return web.json_response(_forbidden(namespace), status=403)
        if self.busy:
            self.busy -= 1
            return web.json_response(BUSY, status=429, headers={"Retry-After": "1"})
        if "watch" not in request.query:
            self.lists.add(plural)
            items = [
                each
                for each in self._resources
                if namespace in {"", each["metadata"]["namespace"]}
                and plural == SPECULATIVE_DEPLOYMENT.plural
            ]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        return await self._watched(request, plural)

    async def _watched(self, request: web.Request, plural: str) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        if plural == SPECULATIVE_DEPLOYMENT.plural:
            self.watches[_namespace(request.path)] += 1
            if self.first_watch_fails:
                self.first_watch_fails = False
                self.failed_in = _namespace(request.path)
                error = {"kind": "Status", "code": 500, "message": "etcdserver: leader changed"}
                line = json.dumps({"type": "ERROR", "object": error})
                await stream.write(line.encode() + b"\n")
                return stream
            self.watched.set()
        await asyncio.Event().wait()
        return stream


@asynccontextmanager
async def served(api: ApiServer) -> AsyncIterator[str]:
    """The URL of a server, until the end of the block."""
    runner = web.AppRunner(api.application(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _namespace(path: str) -> str:
    """Namespace of what a path names; empty: all."""
    _, _, rest = path.partition("/namespaces/")
    return rest.split("/")[0]


def _forbidden(namespace: str) -> dict[str, Any]:
    """What an API server says where no role grants the list."""
    return {
        "kind": "Status",
        "code": 403,
        "reason": "Forbidden",
        "message": "speculativedeployments.fathom.dev is forbidden: User "
        '"system:serviceaccount:fathom-system:fathom" cannot list resource '
        f'"speculativedeployments" in API group "fathom.dev" in the namespace "{namespace}"',
    }


def _discovered(path: str, kinds: Sequence[Kind]) -> dict[str, Any]:
    if path == "api":
        return {"versions": ["v1"]}
    if path == "apis":
        groups: dict[str, str] = {each.group: each.version for each in kinds if each.group}
        return {
            "groups": [
                {
                    "name": group,
                    "preferredVersion": {"version": version},
                    "versions": [{"version": version}],
                }
                for group, version in groups.items()
            ]
        }
    served = [each for each in kinds if path in {f"apis/{each.api_version}", "api/v1"}]
    return {
        "resources": [
            {
                "name": each.plural,
                "kind": each.kind,
                "singularName": each.kind.lower(),
                "namespaced": True,
                "verbs": ["get", "list", "watch", "patch"],
            }
            for each in served
            if path.endswith(each.api_version)
        ]
    }
