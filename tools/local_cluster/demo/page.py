"""The operator's page of the demo's resource, kept as a file when all else is gone."""

import asyncio
from pathlib import Path
from typing import Final

import aiohttp
from kubernetes.aio.client.exceptions import ApiException

from local_cluster.demo.fleet import DemoFleet
from local_cluster.demo.stage import OPERATOR_NAMESPACE

_SERVICE: Final = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/services/fathom-page"
_WITHIN: Final = aiohttp.ClientTimeout(total=15)


async def page_url(fleet: DemoFleet, view: str = "resources") -> str:
    """Where the operator shows the resource; within reach of this machine alone.

    Args:
        fleet: whose resource.
        view: `resources`, or `reports` for what can be kept as a file.
    """
    service = await fleet.api.request("GET", _SERVICE)
    return f"http://{service['spec']['clusterIP']}/{view}/{fleet.namespace}/{fleet.name}"


async def save_page(fleet: DemoFleet, file: Path) -> str:
    """Write what the operator shows of the resource.

    Returns:
        What came of it, as a sentence: a page that cannot be had changes no verdict.
    """
    try:
        url = await page_url(fleet, "reports")
        async with fleet.http.get(url, timeout=_WITHIN, raise_for_status=True) as answer:
            await asyncio.to_thread(file.write_bytes, await answer.read())
    except (aiohttp.ClientError, ApiException, OSError, TimeoutError) as error:
        return f"The page could not be kept: {error}"
    return f"Written: {file} (what the operator has seen and decided, for a browser)"
