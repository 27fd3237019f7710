"""Which of the children that need an API of their own a spec asks for, and which are left out."""

from collections.abc import Collection, Mapping
from typing import Final

from fathom.api.choices import AutoOrNever
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.cluster.kinds import OPTIONAL_KINDS, POD_DISRUPTION_BUDGET, POD_MONITOR, Kind
from fathom.core.cluster.served import ServedApis

_CONSEQUENCE: Final[Mapping[Kind, str]] = {
    POD_DISRUPTION_BUDGET: "draining nodes may take more replicas at a time than "
    "rollout.maxUnavailable.",
    POD_MONITOR: "a Prometheus has to be told to scrape port http of the pods.",
}


def wanted_optional(spec: SpeculativeDeploymentSpec) -> frozenset[Kind]:
    """The optional kinds that a spec asks for."""
    asked = {
        POD_DISRUPTION_BUDGET: spec.rollout.pod_disruption_budget,
        POD_MONITOR: spec.metrics.pod_monitor,
    }
    return frozenset(kind for kind, choice in asked.items() if choice is AutoOrNever.AUTO)


def skipped(
    spec: SpeculativeDeploymentSpec, served: ServedApis, usable: Collection[Kind]
) -> tuple[str, ...]:
    """One sentence for each thing that is left out; empty: nothing is.

    Args:
        spec: what is asked for.
        served: what the cluster has.
        usable: the optional kinds that the operator may use in it.
    """
    left_out = wanted_optional(spec).difference(usable)
    return tuple(
        f"No {kind.kind}, as {_cause(kind, served)}: {_CONSEQUENCE[kind]}"
        for kind in OPTIONAL_KINDS
        if kind in left_out
    )


def _cause(kind: Kind, served: ServedApis) -> str:
    if served.has(kind):
        return f"the operator may not list {kind.plural}.{kind.group}, which its chart allows"
    return f"this cluster does not serve {kind.api_version}"
