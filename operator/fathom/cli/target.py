"""The one SpeculativeDeployment that a command is about, and the annotations it writes.

Nothing else of a resource is ever written from here: what stands in `spec` belongs to whoever
applies it, and a tool that syncs it from Git would put back what it did not write.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from fathom.adapters import kube_config
from fathom.adapters.ports import KubePort
from fathom.cli.cluster import LiveResource, connected
from fathom.cli.options import refuse, refusing
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.resource import SpeculativeDeployment

_Found = TypeVar("_Found")


def on_resource(
    name: str,
    act: Callable[[KubePort, ObjectKey], Awaitable[_Found | None]],
    *,
    namespace: str,
    context: str,
    kubeconfig: Path | None,
) -> tuple[ObjectKey, _Found]:
    """Read one resource, or ask something of it.

    Args:
        name: of it.
        act: what to do; None: there is none of that name.
        namespace: where it is; empty: the context's.
        context: of the kubeconfig; empty: its current one.
        kubeconfig: None: as kubectl finds it.

    Returns:
        Which one it was, and what came of it.

    Raises:
        typer.Exit: there is none, or the cluster cannot be asked; stderr says so.
    """
    with refusing():
        key = ObjectKey(namespace or kube_config.namespace(kubeconfig, context), name)

        async def acted() -> _Found | None:
            async with connected(kubeconfig, context) as kube:
                return await act(kube, key)

        found = asyncio.run(acted())
    if found is None:
        refuse(f"There is no SpeculativeDeployment {key}.")
    return key, found


def valid(key: ObjectKey, live: LiveResource) -> SpeculativeDeployment:
    """The spec of a resource, for what needs its settings.

    Raises:
        typer.Exit: it is refused; stderr says why.
    """
    if not isinstance(live.resource, SpeculativeDeployment):
        problems = "\n".join(f"  {each}" for each in live.resource)
        refuse(f"The spec of {key} is refused, so there are no settings to explain:\n{problems}")
    return live.resource


async def annotate(kube: KubePort, key: ObjectKey, annotation: str, value: str | None) -> bool:
    """Set an annotation of a SpeculativeDeployment. Idempotent.

    Args:
        kube: the cluster.
        key: of the resource.
        annotation: its name.
        value: None: it is removed.

    Returns:
        False: there is no such resource.

    Raises:
        KubeError: it could not be written.
    """
    patch: dict[str, JsonValue] = {"metadata": {"annotations": {annotation: value}}}
    asked = await kube.merge(SPECULATIVE_DEPLOYMENT, key.namespace, key.name, patch, None)
    return asked is not None
