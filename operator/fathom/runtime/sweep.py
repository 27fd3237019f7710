"""Finds resources that no watch told of."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from fathom.adapters.ports import KubeError, KubePort
from fathom.core.cluster.kinds import SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.core.cluster.metadata import Meta
from fathom.runtime.loops import Loops

SWEEP_S: Final = 300.0
"""Kopf lists once and then trusts its stream: what was lost never comes again. A loop looks at its
resource by itself, but a resource whose creation was missed has none."""

_log: Final = structlog.get_logger(__name__)


async def sweep(
    kube: KubePort,
    namespaces: Sequence[str],
    loops: Loops,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Every few minutes, for ever, give each resource that has no loop one.

    Args:
        kube: to list from.
        namespaces: to look into; empty: all.
        loops: is told of what is there.
        sleep: waits so many seconds.
    """
    while True:
        await sleep(SWEEP_S)
        for namespace in namespaces or ("",):
            try:
                found = await kube.select(SPECULATIVE_DEPLOYMENT, namespace, "")
            except KubeError as error:
                _log.warning("resources not listed", namespace=namespace, error=error.message)
                continue
            for each in found:
                metadata = Meta.model_validate(each["metadata"])
                loops.found(ObjectKey(metadata.namespace, metadata.name))
