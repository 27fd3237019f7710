"""Checks of the GPUs that a spec asks for and of what a cluster offers. Pure.

On AMD's nobody has run this. Source: vLLM 0.32 and 0.33, vllm/platforms/rocm.py and what asks it,
read and not run.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from fathom.api.accelerators import AMD, VENDORS, vendor_of
from fathom.api.choices import ComputeDomainPolicy
from fathom.api.conditions import Reason
from fathom.api.problem import Problem, warning
from fathom.cluster.kinds import COMPUTE_DOMAIN, LEADER_WORKER_SET, SPANNING_KINDS, Kind, ServedApis
from fathom.engine.replica_layout import ReplicaLayout
from fathom.manifests.template_parts import part
from fathom.validation.candidate import Candidate

ROCM_BACKENDS: Final = (
    *("rocm_attn", "rocm_aiter_fa", "rocm_aiter_unified_attn", "triton_attn"),
    *("rocm_aiter_mla", "rocm_aiter_triton_mla", "triton_mla", "rocm_aiter_mla_sparse"),
)
"""Attention backends that vLLM chooses among by itself (`_get_backend_priorities`), but for those
of a KV cache of their own."""
_CUDA_IMAGE: Final = "vllm-openai"
_ROCM_IMAGE: Final = "vllm/vllm-openai-rocm"


def asked_gpus(candidate: Candidate) -> Iterator[Problem]:
    """GPUs that `engine.resources` ask for beside those that the spec makes."""
    engine = candidate.engine
    needed, resources = str(engine.layout.gpus_per_pod), engine.spec.engine.resources
    ours = vendor_of(engine.spec.node_pool).resource
    for kind, quantities in (("limits", resources.limits), ("requests", resources.requests)):
        field = f"spec.engine.resources.{kind}"
        if str(quantities.get(ours, needed)) != needed:
            yield Problem(field=f"{field}.{ours}", message=gpus_sentence(needed))
        yield from foreign_gpu_problems(quantities, ours, field)


def gpus_sentence(needed: object) -> str:
    """Why another number of GPUs is refused."""
    return (
        f"a pod of this spec gets {needed}: set spec.engine.tensorParallelSize, "
        "pipelineParallelSize and dataParallelSize, and leave this out."
    )


def foreign_gpu_problems(asked: Collection[str], ours: str, field: str) -> Iterator[Problem]:
    """GPUs of another vendor beside those that the accelerator has: no node offers both.

    Args:
        asked: names of the resources.
        ours: the accelerator's.
        field: path of the resources.
    """
    for vendor in VENDORS:
        if vendor.resource != ours and vendor.resource in asked:
            yield Problem(
                field=f"{field}.{vendor.resource}",
                message=f"spec.nodePool.accelerator asks for {ours}, and no node has both: name "
                f"the {vendor.name} accelerator there, and leave this out.",
            )


def gpu_warnings(candidate: Candidate) -> Iterator[Problem]:
    """What whose GPUs they are makes likely to go wrong."""
    spec = candidate.spec
    pool, image = spec.node_pool, spec.engine.image
    if vendor_of(pool) is not AMD:
        if "rocm" in image.lower():
            yield warning(
                "spec.nodePool.accelerator",
                f"the image's name says ROCm, and {pool.accelerator} is NVIDIA's: name the AMD "
                "accelerator, or correct spec.engine.image.",
            )
        return
    yield warning(
        "spec.nodePool.accelerator",
        f"this was never run on {pool.accelerator}, nor on any other AMD GPU: what Fathom states "
        "about depth and CUDA graphs was read in vLLM's source (docs/gpu.md).",
    )
    if _name_of(image) == _CUDA_IMAGE:
        yield warning(
            "spec.engine.image",
            f"this is vLLM for NVIDIA's GPUs: {_ROCM_IMAGE} is the one for AMD's.",
        )
    backend = spec.engine.attention_backend
    if backend and backend.lower() not in ROCM_BACKENDS:
        yield warning(
            "spec.engine.attentionBackend",
            f"vLLM does not choose {backend} on AMD's GPUs, and may not start with it: leave it "
            f"out, so that vLLM chooses, or take one of {', '.join(ROCM_BACKENDS)}.",
        )
    if pool.compute_domain is ComputeDomainPolicy.EXTERNAL:
        yield warning(
            "spec.nodePool.computeDomain",
            "a ComputeDomain is for NVLink, which AMD's GPUs have not: leave this out.",
        )
    groups = part(spec.pod_template, "spec", "securityContext").get("supplementalGroups")
    if spec.engine.user is not None and not groups:
        yield warning(
            "spec.engine.user",
            "nodes often let only root and a group open /dev/kfd and /dev/dri/render*: add that "
            "group's number to spec.podTemplate.spec.securityContext.supplementalGroups.",
        )


def _name_of(image: str) -> str:
    """Name of the repository, without its registry, tag and digest."""
    return image.partition("@")[0].rsplit("/", 1)[-1].partition(":")[0]


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
    return Problem(field=need.field, message=f"{need.why}, and {lacks}.", reason=Reason.API_MISSING)


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
