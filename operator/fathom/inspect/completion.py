"""What a shell completes from the cluster. Silent: a shell that waits shows no sentence."""

import asyncio
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Final

import typer

from fathom.adapters import kube_config
from fathom.adapters.kube_config import NoClusterError
from fathom.adapters.ports import KubeError
from fathom.inspect.cluster import connected, read_all

TIMEOUT_S: Final = 2.0
"""Longer than that, nobody waits for a Tab."""


def names_beginning(ctx: typer.Context, incomplete: str) -> list[str]:
    """SpeculativeDeployments whose names begin so; none where the cluster does not answer in time.

    Args:
        ctx: of the command that is typed, with the options before the name.
        incomplete: what stands there of the name.
    """
    chosen = ctx.params
    kubeconfig = Path(chosen["kubeconfig"]) if chosen.get("kubeconfig") else None
    namespace, context = (str(chosen.get(each) or "") for each in ("namespace", "context"))
    try:
        # The client prints what it does not find.
        with redirect_stderr(StringIO()):
            found = asyncio.run(_names(namespace, kubeconfig, context))
    except (NoClusterError, KubeError, TimeoutError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]


async def _names(namespace: str, kubeconfig: Path | None, context: str) -> list[str]:
    async with asyncio.timeout(TIMEOUT_S), connected(kubeconfig, context) as kube:
        where = namespace or kube_config.namespace(kubeconfig, context)
        return [each.key.name for each in await read_all(kube, where)]
