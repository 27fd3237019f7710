"""What an API server's answers say, and those of what stands before it. Pure."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, cast

from pydantic import JsonValue
from pydantic_core import from_json

from fathom.adapters.ports import EventType, KubeError, WatchEvent
from fathom.core.cluster.kinds import Kind
from fathom.core.cluster.manifest import Manifest

_ERROR: Final = "ERROR"
_TYPES: Final = frozenset(EventType)
_BUSY: Final = HTTPStatus.TOO_MANY_REQUESTS
_MAY_NOT_CREATE: Final = "is forbidden: ."
"""How an API server ends what it says of an apply that would create, and may only change."""


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
        # Half a picture would be taken for a whole one: nothing is there, so all is made anew.
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
