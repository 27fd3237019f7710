"""A container's log, through the API server."""

import asyncio
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException

from fathom.adapters.ports import KubeError

LONGEST_BYTES: Final = 4 << 20
"""Limit of one read; what the pods that are read this way say fits a hundred times."""
_NOTHING_YET: Final = frozenset(
    {HTTPStatus.NO_CONTENT, HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}
)
"""The pod has no node, the container waits to start, or the pod is not there."""


class PodLog:
    """`PodLogPort` against a real API server."""

    def __init__(self, api: ApiClient, timeout_s: float = 15.0) -> None:
        """Borrow a client; the caller closes it.

        Args:
            api: of the API server.
            timeout_s: seconds that a read may take.
        """
        self._api = api
        self._timeout_s = timeout_s

    async def read(self, namespace: str, pod: str, container: str) -> str:
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/log"
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await self._api.param_serialize(
                    "GET",
                    path,
                    query_params=[("container", container), ("limitBytes", str(LONGEST_BYTES))],
                    auth_settings=["BearerToken"],
                )
                response = (await self._api.call_api(*request)).response
                payload: bytes = await response.read()
        except TimeoutError as error:
            raise KubeError(0, f"no answer to GET {path} in {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, ApiException, OSError) as error:
            raise KubeError(0, f"GET {path} failed: {error}") from error
        text = payload.decode(errors="replace")
        if response.status in _NOTHING_YET:
            return ""
        if response.status != HTTPStatus.OK:
            raise KubeError(response.status, f"GET {path}: {text[:400] or response.reason}")
        return text
