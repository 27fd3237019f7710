"""An API server alone: schemas, validation, apply, RBAC; nothing that makes pods of Deployments.

Needs no root, and takes any version: what `KUBEBUILDER_ASSETS` names, else the cached one.
"""

import asyncio
import ipaddress
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from local_cluster.control_plane.binaries import API_SERVER
from local_cluster.control_plane.components import ControlPlane, start_control_plane
from local_cluster.control_plane.obtain import ensure_binaries
from local_cluster.progress import setup_progress

SERVICES = ipaddress.IPv4Network("10.96.0.0/16")
"""Room for a Service of each of some thousand resources."""


@asynccontextmanager
async def api_server() -> AsyncIterator[ControlPlane]:
    """An empty API server on loopback, for as long as the context lasts.

    Raises:
        LocalClusterError: it cannot be built or does not start.
    """
    with setup_progress() as progress:
        binaries = await asyncio.to_thread(ensure_binaries, progress, programs=API_SERVER)
    with tempfile.TemporaryDirectory(prefix="fathom-api-server-") as directory:
        plane = await start_control_plane(
            Path(directory) / "control-plane",
            binaries,
            cluster="api-server",
            services=SERVICES,
            controllers=False,
        )
        try:
            yield plane
        finally:
            await asyncio.to_thread(plane.stop)
