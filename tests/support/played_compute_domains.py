"""NVIDIA's driver of ComputeDomains, as far as a cluster notices it.

Its controller keeps a claim template for each domain; its plugin on each GPU node publishes the
channel that such a claim asks for. No node here has a kubelet that plugins could register with, so
the plugin is played even where the controller is real.
Source: `cmd/compute-domain-controller`, `cmd/compute-domain-kubelet-plugin`, `templates` and
`deployments/helm` of github.com/kubernetes-sigs/dra-driver-nvidia-gpu.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubernetes.aio.client.exceptions import ApiException

from local_cluster.kube import MERGE_PATCH, KubeApi, Object
from support.group_watch import Look, ending, unless
from support.local_cluster import TestNamespace

DRIVER = "compute-domain.nvidia.com"
FINALIZER = "resource.nvidia.com/computeDomain"
RESOURCES = "/apis/resource.k8s.io/v1"
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
GONE, THERE = 404, 409


async def serves_claims(api: KubeApi) -> bool:
    """Whether a cluster has ResourceClaims; an older one drops them from its pods."""
    try:
        await api.request("GET", RESOURCES)
    except ApiException as error:
        if error.status != GONE:
            raise
        return False
    return True


@asynccontextmanager
async def published_channels(api: KubeApi) -> AsyncIterator[None]:
    """What the chart and the plugin on each GPU node would publish, where claims are served."""
    made: list[str] = []
    try:
        if await serves_claims(api):
            for plural, item in await _published(api):
                await api.request("POST", f"{RESOURCES}/{plural}", body=item)
                made.append(f"{RESOURCES}/{plural}/{item['metadata']['name']}")
        yield
    finally:
        for path in made:
            await api.request("DELETE", path)


async def _published(api: KubeApi) -> list[tuple[str, Object]]:
    nodes = await api.request(
        "GET", "/api/v1/nodes", query={"labelSelector": "nvidia.com/gpu.present=true"}
    )
    named = [node["metadata"]["name"] for node in nodes["items"]]
    return [("deviceclasses", _channel_class()), *(("resourceslices", _slice(n)) for n in named)]


def _channel_class() -> Object:
    of_driver = f"device.driver == '{DRIVER}'"
    attributes = f"device.attributes['{DRIVER}']"
    expression = f"{of_driver} && {attributes}.type == 'channel' && {attributes}.id == 0"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": CHANNEL_CLASS},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _slice(node: str) -> Object:
    def device(kind: str) -> Object:
        return {
            "name": f"{kind}-0",
            "attributes": {"type": {"string": kind}, "id": {"int": 0}},
        }

    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [device("daemon"), device("channel")],
        },
    }


class PlayedComputeDomains:
    """The controller, of one namespace."""

    def __init__(self, namespace: TestNamespace, *, claims: bool) -> None:
        self.namespace = namespace
        self._claims = claims
        self._kept: set[str] = set()
        """Domains with all that belongs to them, by uid."""

    async def act(self, look: Look) -> None:
        """See `Player`."""
        for domain in look.domains:
            uid = domain["metadata"]["uid"]
            if ending(domain):
                await self._release(domain)
                self._kept.discard(uid)
            elif uid not in self._kept:
                await self._keep(domain)
                self._kept.add(uid)

    async def _keep(self, domain: Object) -> None:
        path = self._path(domain)
        await self._patch(path, {"metadata": {"finalizers": [*_others(domain), FINALIZER]}})
        if self._claims:
            await unless(THERE, self.namespace.create(_template(domain)))
        await self._patch(f"{path}/status", {"status": {"status": "Ready"}})

    async def _release(self, domain: Object) -> None:
        """At once, whoever still uses it."""
        if self._claims:
            await self._release_template(_template_name(domain))
        await self._patch(self._path(domain), {"metadata": {"finalizers": _others(domain)}})

    async def _release_template(self, name: str) -> None:
        kind = "ResourceClaimTemplate"
        await unless(GONE, self.namespace.delete(kind, name))
        template = await self.namespace.get(kind, name)
        if template is not None:
            template["metadata"]["finalizers"] = []
            # No patch: it writes the opaque parameters in another way, and they are immutable.
            path = self.namespace.path(kind, name)
            await unless(GONE, self.namespace.api.request("PUT", path, body=template))

    def _path(self, domain: Object) -> str:
        return self.namespace.path("ComputeDomain", domain["metadata"]["name"])

    async def _patch(self, path: str, body: Object) -> None:
        request = self.namespace.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        await unless(GONE, request)


def _others(domain: Object) -> list[str]:
    finalizers = domain["metadata"].get("finalizers", [])
    return [each for each in finalizers if each != FINALIZER]


def _template_name(domain: Object) -> str:
    name: str = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    return name


def _template(domain: Object) -> Object:
    uid = domain["metadata"]["uid"]
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomainChannelConfig",
        "domainID": uid,
        "allocationMode": domain["spec"]["channel"]["allocationMode"],
    }
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": CHANNEL_CLASS}}],
        "config": [
            {"requests": ["channel"], "opaque": {"driver": DRIVER, "parameters": parameters}}
        ],
    }
    labels = {FINALIZER: uid, "resource.nvidia.com/computeDomainTarget": "Workload"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": _template_name(domain),
            "finalizers": [FINALIZER],
            "labels": labels,
        },
        "spec": {"spec": {"devices": devices}},
    }
