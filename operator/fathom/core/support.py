"""What stands against a valid spec here and now. Refused with a sentence, never guessed."""

from collections.abc import Collection
from dataclasses import dataclass

from fathom.api.conditions import Reason
from fathom.api.problem import Problem
from fathom.core.cluster.kinds import COMPUTE_DOMAIN, LEADER_WORKER_SET, SPANNING_KINDS, Kind
from fathom.core.cluster.served import ServedApis
from fathom.engine.replica_layout import ReplicaLayout


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a spec without problems cannot be carried out."""

    reason: Reason
    problem: Problem


def obstacle_to(
    layout: ReplicaLayout, served: ServedApis, usable: Collection[Kind]
) -> Obstacle | None:
    """The first thing in a valid spec that cannot be done here; None: all can.

    Args:
        layout: of each replica that is asked for.
        served: what the cluster has.
        usable: of the kinds that not every cluster has, those that the operator may use in it.
    """
    missing = next((kind for kind in _needed(layout) if kind not in usable), None)
    if missing is None:
        return None
    return Obstacle(Reason.API_MISSING, _missing(layout, missing, served))


def _needed(layout: ReplicaLayout) -> tuple[Kind, ...]:
    needed = {
        LEADER_WORKER_SET: layout.spans_nodes,
        COMPUTE_DOMAIN: layout.needs_compute_domain,
    }
    return tuple(kind for kind in SPANNING_KINDS if needed[kind])


def _missing(layout: ReplicaLayout, kind: Kind, served: ServedApis) -> Problem:
    need = _group_need(layout) if kind == LEADER_WORKER_SET else _domain_need(layout)
    if served.has(kind):
        return Problem(
            need.field,
            f"{need.why}, and the operator may not list {kind.plural}.{kind.group}: give it the "
            "rights that its chart has.",
        )
    return Problem(
        need.field,
        f"{need.why}, and this cluster does not serve {kind.api_version}: {need.advice}.",
    )


@dataclass(frozen=True, slots=True)
class _Need:
    field: str
    why: str
    advice: str


def _group_need(layout: ReplicaLayout) -> _Need:
    return _Need(
        "spec.engine.tensorParallelSize",
        f"a replica of {layout.gpus} GPUs is a group of {layout.nodes} pods, "
        "which LeaderWorkerSet keeps together",
        "install LeaderWorkerSet (github.com/kubernetes-sigs/lws), or keep tensorParallelSize × "
        "pipelineParallelSize × dataParallelSize within one node",
    )


def _domain_need(layout: ReplicaLayout) -> _Need:
    return _Need(
        "spec.nodePool.computeDomain",
        f"the {layout.nodes} nodes of a replica reach each other over NVLink through a "
        "ComputeDomain",
        "install the NVIDIA DRA driver for GPUs, or set computeDomain to External if another "
        "component makes the domain, or to Never if the nodes use another network",
    )
