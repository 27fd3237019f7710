"""Which APIs the cluster serves, of those that Fathom could use."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from pydantic import JsonValue

from fathom.adapters.ports import KubeError
from fathom.core.cluster.served import VERSION, ServedApis

GROUP_VERSIONS: Final = (
    "v1",
    "apps/v1",
    "policy/v1",
    "monitoring.coreos.com/v1",
    "leaderworkerset.x-k8s.io/v1",
    "resource.nvidia.com/v1beta1",
    "autoscaling/v2",
)
"""Asked one by one: a broken aggregated API elsewhere must not hide these."""

Get = Callable[[str], Awaitable[Mapping[str, JsonValue] | None]]


async def discover(get: Get) -> ServedApis:
    """Ask for the server's version, and for each group and version that Fathom could use.

    One that is missing, or that the server cannot show, counts as not served: an optional API that
    is broken must not stop anything. If the server may show it later, the answer says so.

    Args:
        get: reads a path; None: not found.

    Raises:
        KubeError: the server does not answer at all.
    """
    unknown: set[str] = set()

    async def shown(path: str, name: str) -> Mapping[str, JsonValue]:
        try:
            return await get(path) or {}
        except KubeError as error:
            if error.status == 0:
                raise
            if error.transient:
                unknown.add(name)
            return {}

    found: set[tuple[str, str]] = set()
    for group_version in GROUP_VERSIONS:
        path = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
        resources = (await shown(path, group_version)).get("resources")
        if isinstance(resources, list):
            found.update(
                (group_version, str(resource["kind"]))
                for resource in resources
                if isinstance(resource, dict) and "kind" in resource
            )
    version = _version(await shown("/version", VERSION))
    return ServedApis(frozenset(found), version, frozenset(unknown))


def _version(said: Mapping[str, JsonValue]) -> tuple[int, int] | None:
    """The API server's; None: it does not show it. Some write `34+` for the minor one."""
    major, minor = (str(said.get(each, "")).rstrip("+") for each in ("major", "minor"))
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None
