"""What an API server's answers say, and those of what stands before it. Pure."""

import json
from http import HTTPStatus
from typing import Final, cast

from pydantic import JsonValue
from pydantic_core import from_json

from fathom.adapters.ports import KubeError

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
