"""Paths of an API server, what its answers say, and which APIs it serves. No I/O of its own."""

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import quote

import aiohttp
from pydantic import JsonValue
from pydantic_core import from_json

from fathom.adapters.ports import EventType, KubeError, WatchEvent
from fathom.cluster.kinds import VERSION, Kind, ServedApis
from fathom.cluster.manifest import Manifest

_ERROR: Final = "ERROR"
_TYPES: Final = frozenset(EventType)
OK: Final = range(200, 300)
_BUSY: Final = HTTPStatus.TOO_MANY_REQUESTS
_MAY_NOT_CREATE: Final = "is forbidden: ."
"""How an API server ends what it says of an apply that would create, and may only change."""
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


def answer_of(method: str, path: str, *, status: int, reason: str, payload: bytes) -> Manifest:
    """The object in an answer.

    Raises:
        KubeError: the API server refused, or what answered is none, or nests too deep.
    """
    try:
        answer = parsed(payload)
    except RecursionError as error:
        # Whoever may write a podTemplate can nest it as deep as the API server takes.
        message = f"the answer to {method} {path} nests too deep to be read"
        raise KubeError(0, message) from error
    except ValueError:
        answer = None
    if status not in OK:
        raise refusal(status, reason, payload, answer)
    if not isinstance(answer, dict):
        raise no_api_server(method, path)
    return answer


def no_answer(
    server: str, method: str, path: str, *, timeout_s: float, error: Exception
) -> KubeError:
    """Why an API server could not be asked.

    Args:
        server: its URL.
        method: of the request.
        path: of the request.
        timeout_s: seconds that it had.
        error: what it ended with.
    """
    request = f"{method} {path}"
    if isinstance(error, TimeoutError):
        return KubeError(0, f"no answer to {request} in {timeout_s:g} s from {server}")
    match error:
        case aiohttp.ClientProxyConnectionError():
            why = f"the proxy {error.host}:{error.port} to {server} cannot be reached"
        case aiohttp.ClientConnectorCertificateError(certificate_error=failed):
            said = str(getattr(failed, "verify_message", failed)).rstrip(".")
            why = f"the certificate of {server} is not trusted: {said}"
        case aiohttp.ClientConnectorSSLError():
            why = f"{server} does not answer by TLS: {error.os_error}"
        case aiohttp.ClientConnectorDNSError():
            why = f"the host of {server} is not known: {error.os_error.strerror}"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            why = f"{server} refuses connections: it does not run, or has another address"
        case aiohttp.InvalidURL():
            why = f"the server {server!r} is no URL"
        case _:
            why = f"the request to {server} failed: {error}"
    return KubeError(0, f"{why} ({request})")


def refusal(status: int, reason: str, payload: bytes, told: JsonValue) -> KubeError:
    """What an API server refused with.

    Args:
        status: of HTTP.
        reason: that stands beside it.
        payload: the answer.
        told: the same, decoded.
    """
    page = payload.decode(errors="replace")[:200]
    message = str((told.get("message") if isinstance(told, dict) else page) or reason)
    if status == HTTPStatus.FORBIDDEN and message.endswith(_MAY_NOT_CREATE):
        message = (
            f"{message.removesuffix(_MAY_NOT_CREATE)}may not be created by this account: give it "
            "the rights of the chart's role."
        )
    return KubeError(status, message)


def again_after_s(status: int, headers: Mapping[str, str]) -> float | None:
    """When a server that is too busy wants to be asked again; None: it is not, or does not say.

    It has done nothing of what was asked by then. `storage is (re)initializing`, it says of lists
    and watches while it fills its cache, from Kubernetes 1.31 on.
    """
    told = headers.get("Retry-After", "")
    # What stands before a server may say 0, and everybody would ask without a pause.
    return max(1.0, float(told)) if status == _BUSY and told.isdecimal() else None


def kept(sent: Manifest, found: Manifest) -> Manifest:
    """What was sent, without the fields that an answer has not: those that no schema declares."""
    return cast("Manifest", _kept(sent, found))


def _kept(sent: JsonValue, found: JsonValue) -> JsonValue:
    if isinstance(sent, dict) and isinstance(found, dict):
        return {name: _kept(value, found[name]) for name, value in sent.items() if name in found}
    if isinstance(sent, list) and isinstance(found, list) and len(sent) == len(found):
        return [_kept(*each) for each in zip(sent, found, strict=True)]
    return sent


def decoded(payload: bytes) -> JsonValue:
    """None: it is not JSON, or nests too deep."""
    try:
        return parsed(payload)
    except (RecursionError, ValueError):
        return None


def parsed(payload: bytes) -> JsonValue:
    """JSON; keys, and short texts that come again, are the same strings in all objects."""
    try:
        return cast("JsonValue", from_json(payload, cache_strings="all"))
    except ValueError:
        # It nests deeper than two hundred, or has half a character in it: Python's reads that.
        return cast("JsonValue", json.loads(payload))


def no_api_server(method: str, path: str) -> KubeError:
    """Something in between has answered, such as a proxy with a page to sign in."""
    return KubeError(0, f"the answer to {method} {path} is not an API server's")


def items_of(kind: Kind, path: str, found: Manifest) -> tuple[Manifest, ...]:
    """The objects of a list.

    Raises:
        KubeError: it is none.
    """
    if "items" not in found:
        # Half a picture would be taken for a whole one: nothing is there, so all is made again.
        raise no_api_server("GET", path)
    items = cast("list[Manifest]", found["items"] or [])
    # Items of a list do not repeat what the list says of all of them.
    named: Manifest = {"apiVersion": kind.api_version, "kind": kind.kind}
    return tuple(named | item for item in items)


def watch_event(path: str, line: bytes) -> WatchEvent:
    """One line of a watch.

    Raises:
        KubeError: it is an error, such as 410, or not an API server's.
    """
    told = decoded(line)
    found = told.get("object") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(found, dict):
        raise no_api_server("GET", path)
    if told.get("type") == _ERROR:
        code = found.get("code")
        raise KubeError(code if isinstance(code, int) else 0, str(found.get("message")))
    if told.get("type") not in _TYPES:
        raise no_api_server("GET", path)
    metadata = cast("Mapping[str, JsonValue]", found.get("metadata") or {})
    version = str(metadata.get("resourceVersion", ""))
    return WatchEvent(EventType(str(told["type"])), found, version)


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
    return ServedApis(kinds=frozenset(found), version=version, unknown=frozenset(unknown))


def _version(said: Mapping[str, JsonValue]) -> tuple[int, int] | None:
    """The API server's; None: it does not show it. Some write `34+` for the minor one."""
    major, minor = (str(said.get(each, "")).rstrip("+") for each in ("major", "minor"))
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def path_of(kind: Kind, namespace: str, name: str = "", subresource: str = "") -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = ["namespaces", namespace] if namespace else []
    parts = [*place, kind.plural, name, subresource]
    return "/".join([root, *(quote(part, safe="") for part in parts if part)])


def with_metadata(
    body: Mapping[str, JsonValue], more: Mapping[str, JsonValue]
) -> Mapping[str, JsonValue]:
    metadata = cast("Mapping[str, JsonValue]", body.get("metadata") or {})
    return {**body, "metadata": {**metadata, **more}}
