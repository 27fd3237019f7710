"""Checks of what a cluster offers. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from fathom.api.conditions import Reason
from fathom.api.problem import Problem
from fathom.core.cluster.kinds import COMPUTE_DOMAIN, LEADER_WORKER_SET, SPANNING_KINDS, Kind
from fathom.core.cluster.served import ServedApis
from fathom.engine.replica_layout import ReplicaLayout
from fathom.validation.candidate import Candidate


def needed_apis(candidate: Candidate) -> Iterator[Problem]:
    """The first API that a spec needs and the cluster lacks, or may not be used in it."""
    layout, cluster = candidate.engine.layout, candidate.cluster
    if cluster is None:
        return
    missing = next((kind for kind in _needed(layout) if kind not in cluster.usable), None)
    if missing is not None:
        yield _missing(layout, missing, cluster.served)


def _needed(layout: ReplicaLayout) -> tuple[Kind, ...]:
    needed = {
        LEADER_WORKER_SET: layout.spans_nodes,
        COMPUTE_DOMAIN: layout.needs_compute_domain,
    }
    return tuple(kind for kind in SPANNING_KINDS if needed[kind])


def _missing(layout: ReplicaLayout, kind: Kind, served: ServedApis) -> Problem:
    need = _group_need(layout) if kind == LEADER_WORKER_SET else _domain_need(layout)
    if served.has(kind):
        lacks = (
            f"the operator may not list {kind.plural}.{kind.group}: give it the rights that its "
            "chart has"
        )
    else:
        lacks = f"this cluster does not serve {kind.api_version}: {need.advice}"
    return Problem(need.field, f"{need.why}, and {lacks}.", reason=Reason.API_MISSING)


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
