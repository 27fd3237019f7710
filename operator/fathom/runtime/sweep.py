"""Finds resources that no watch told of, and forgets those that are gone."""

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

_ANY_NAME: Final = "any"
_log: Final = structlog.get_logger(__name__)


async def sweep(
    kube: KubePort,
    namespaces: Sequence[str],
    loops: Loops,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Every few minutes, for ever, list all there is.

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
                _tell(namespace, error)
                continue
            there = (Meta.model_validate(each["metadata"]) for each in found)
            loops.listed(namespace, [ObjectKey(each.namespace, each.name) for each in there])


async def tell_what_is_refused(kube: KubePort, namespaces: Sequence[str]) -> None:
    """Say at once, and not only at the first sweep, which resources may not be listed.

    Args:
        kube: to ask.
        namespaces: to look into; empty: all.
    """
    for namespace in namespaces or ("",):
        try:
            # The cheapest list there is.
            await kube.named(SPECULATIVE_DEPLOYMENT, namespace, _ANY_NAME)
        except KubeError as error:
            if error.forbidden:
                _tell(namespace, error)


def _tell(namespace: str, error: KubeError) -> None:
    if not error.forbidden:
        _log.warning("resources not listed", namespace=namespace, error=error.message)
        return
    where, otherwise = "any namespace", ""
    if namespace:
        where = f"namespace {namespace}"
        otherwise = ", or take the namespace out of the chart's `namespaces`"
    _log.warning(
        f"new resources in {where} are not seen: this operator may not list speculativedeployments "
        f"there. Let `helm upgrade` make its role anew{otherwise}. They are seen once they may be "
        "listed",
        namespace=namespace,
        error=error.message,
    )
