"""Finds resources that no watch told of, and forgets those that are gone."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import structlog

from fathom.adapters.ports import KubeError, KubePort
from fathom.core.cluster.kinds import SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.core.cluster.manifest import place_of
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
    """Every few minutes, for ever, list all there is. What fails is told and tried again.

    Args:
        kube: to list from.
        namespaces: to look into; empty: all.
        loops: is told of what is there.
        sleep: waits so many seconds.
    """
    while True:
        await sleep(SWEEP_S)
        for namespace in namespaces or ("",):
            with _told(namespace):
                found = await kube.select(SPECULATIVE_DEPLOYMENT, namespace, "")
                # Whatever else is wrong with one of them is its own loop's to tell.
                loops.listed(namespace, [ObjectKey(*place_of(each)) for each in found])


async def tell_what_is_refused(kube: KubePort, namespaces: Sequence[str]) -> None:
    """Say at once, and not only at the first sweep, which resources may not be listed.

    Args:
        kube: to ask.
        namespaces: to look into; empty: all.
    """
    for namespace in namespaces or ("",):
        with _told(namespace):
            try:
                # The cheapest list there is.
                await kube.named(SPECULATIVE_DEPLOYMENT, namespace, _ANY_NAME)
            except KubeError as error:
                if error.forbidden:
                    raise


@contextmanager
def _told(namespace: str) -> Iterator[None]:
    """Tell what fails, and go on: the next sweep may find what this one has missed."""
    try:
        yield
    except KubeError as error:
        _tell(namespace, error)
    except Exception:  # noqa: BLE001  # the last resort, logged with its traceback
        _log.exception("resources not listed", namespace=namespace)


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
