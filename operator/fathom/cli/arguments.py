"""How a resource is named on the command line, and what completes its name."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import typer

from fathom.adapters import kube_config
from fathom.adapters.kube_config import NoClusterError
from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.cli.cluster import TUNER_PREFIX, connected
from fathom.cluster.kinds import (
    RESOURCE_KINDS,
    SPECULATION_TUNER,
    SPECULATIVE_DEPLOYMENT,
    Kind,
    ObjectKey,
)
from fathom.cluster.manifest import place_of

TIMEOUT_S: Final = 2.0
"""Longer than that, nobody waits for a Tab."""
_KINDS: Final[Mapping[Kind, frozenset[str]]] = MappingProxyType(
    {
        SPECULATIVE_DEPLOYMENT: frozenset({names.PLURAL, names.SINGULAR, *names.SHORT_NAMES}),
        SPECULATION_TUNER: frozenset(
            {
                *(names.TUNER_PLURAL, names.TUNER_SINGULAR, *names.TUNER_SHORT_NAMES),
                TUNER_PREFIX.rstrip("/"),
            }
        ),
    }
)
"""What stands before the slash of a name, by what it means."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A resource as it is named by who asks for it."""

    name: str
    kind: Kind | None = None
    """None: a SpeculativeDeployment, or where there is none of that name, a SpeculationTuner."""

    def keys(self, namespace: str) -> tuple[ObjectKey, ...]:
        """Those that may be meant, in this order."""
        kinds = RESOURCE_KINDS if self.kind is None else (self.kind,)
        return tuple(ObjectKey(namespace, self.name, kind) for kind in kinds)


def names_beginning(ctx: typer.Context, incomplete: str) -> list[str]:
    """SpeculativeDeployments whose names begin so; none where the cluster does not answer in time.

    Args:
        ctx: of the command that is typed, with the options before the name.
        incomplete: what stands there of the name.
    """
    return objects_beginning(ctx, incomplete, SPECULATIVE_DEPLOYMENT)


def any_beginning(ctx: typer.Context, incomplete: str) -> list[str]:
    """The same of both kinds: a tuner as tuner/NAME where its name alone is another's."""
    deployments, tuners = _found(ctx, RESOURCE_KINDS)
    return offered(deployments, tuners, incomplete)


def offered(deployments: Sequence[str], tuners: Sequence[str], incomplete: str) -> list[str]:
    """Names of both kinds that begin so, as a command takes them."""
    alone = [*deployments, *(each for each in tuners if each not in deployments)]
    typed = [f"{TUNER_PREFIX}{each}" for each in tuners if incomplete or each in deployments]
    return [each for each in (*alone, *typed) if each.startswith(incomplete)]


def tuners_beginning(ctx: typer.Context, incomplete: str) -> list[str]:
    """The same of SpeculationTuners."""
    return objects_beginning(ctx, incomplete, SPECULATION_TUNER)


def objects_beginning(ctx: typer.Context, incomplete: str, kind: Kind) -> list[str]:
    """The same of any kind."""
    (found,) = _found(ctx, (kind,))
    return [name for name in found if name.startswith(incomplete)]


def _found(ctx: typer.Context, kinds: Sequence[Kind]) -> Sequence[list[str]]:
    """Names of each kind; of one that cannot be listed, none."""
    chosen = ctx.params
    kubeconfig = Path(chosen["kubeconfig"]) if chosen.get("kubeconfig") else None
    namespace, context = (str(chosen.get(each) or "") for each in ("namespace", "context"))
    try:
        # The client prints what it does not find.
        with redirect_stderr(StringIO()):
            return asyncio.run(_names(kinds, namespace, kubeconfig, context))
    except (NoClusterError, KubeError, TimeoutError, OSError):
        return [[] for _ in kinds]


async def _names(
    kinds: Sequence[Kind], namespace: str, kubeconfig: Path | None, context: str
) -> Sequence[list[str]]:
    async with asyncio.timeout(TIMEOUT_S), connected(kubeconfig, context) as kube:
        where = namespace or kube_config.namespace(kubeconfig, context)

        async def listed(kind: Kind) -> list[str]:
            try:
                return sorted(place_of(each)[1] for each in await kube.select(kind, where, ""))
            except KubeError:
                return []

        return await asyncio.gather(*map(listed, kinds))


def bare_name(name: str | None) -> str:
    """The name in `NAME`, `sd/NAME` or `speculativedeployments.fathom.dev/NAME`."""
    asked = _asked(name or "")
    if asked is None or asked.kind == SPECULATION_TUNER:
        raise typer.BadParameter(
            f"{name} is no SpeculativeDeployment: write its name, as it is or after sd/."
        )
    return asked.name


def _asked(name: str) -> Asked | None:
    """What is named, by its name alone or after its kind; None: nothing of ours."""
    typed, slash, bare = name.rpartition("/")
    if not slash:
        return Asked(name)
    word = typed.lower().removesuffix(f".{names.GROUP}")
    kind = next((kind for kind, words in _KINDS.items() if word in words), None)
    return Asked(bare, kind) if kind is not None and bare else None


def asked_for(name: str) -> Asked:
    """The resource of either kind that is named."""
    found = _asked(name)
    if found is None:
        raise typer.BadParameter(
            f"{name} is no SpeculativeDeployment and no SpeculationTuner: write its name, as it is "
            f"or after sd/ or {TUNER_PREFIX}."
        )
    return found


_NAME: Final = typer.Argument(
    metavar="NAME",
    help="The SpeculativeDeployment: its name, or sd/NAME.",
    autocompletion=names_beginning,
    callback=bare_name,
)
Name = Annotated[str, _NAME]


def either_name(name: str | None) -> str:
    """The argument as it is typed, unless it names nothing of ours."""
    if name:
        asked_for(name)
    return name or ""


AnyName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Its name, sd/NAME, or tuner/NAME for a SpeculationTuner.",
        autocompletion=any_beginning,
        callback=either_name,
    ),
]
OptionalName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Its name, sd/NAME, or tuner/NAME for a SpeculationTuner. Default: all of the "
        "namespace.",
        autocompletion=any_beginning,
        callback=either_name,
    ),
]
