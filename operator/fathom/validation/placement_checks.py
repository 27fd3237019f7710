"""Checks of what pods ask of their nodes, and of what a cluster offers. Pure.

On AMD's GPUs nobody has run this. Source: vLLM 0.32 and 0.33, vllm/platforms/rocm.py and what asks
it, read and not run.

What the API server refuses for certain is from Kubernetes' pkg/apis/core/validation/validation.go
and pkg/apis/core/helper/helpers.go; tests/cluster/test_refused_by_the_server.py asks a real one.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.accelerators import AMD, VENDORS, Vendor, vendor_of
from fathom.api.choices import ComputeDomainPolicy
from fathom.api.conditions import Reason
from fathom.api.pod_fields import amount_of
from fathom.api.problem import Problem, warning
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.api.suggestions import VERY_NEAR, nearest
from fathom.cluster.kinds import COMPUTE_DOMAIN, LEADER_WORKER_SET, SPANNING_KINDS, Kind, ServedApis
from fathom.engine.replica_layout import ReplicaLayout
from fathom.manifests.template_parts import Part, part, parts
from fathom.validation.candidate import Candidate
from fathom.validation.merged_template import QUALIFIED_NAME, toleration_problems

ROCM_BACKENDS: Final = (
    *("rocm_attn", "rocm_aiter_fa", "rocm_aiter_unified_attn", "triton_attn"),
    *("rocm_aiter_mla", "rocm_aiter_triton_mla", "triton_mla", "rocm_aiter_mla_sparse"),
)
"""Attention backends that vLLM chooses among by itself (`_get_backend_priorities`), but for those
of a KV cache of their own."""
_PARTS_OF_GPUS: Final = ("nvidia.com/mig-", "nvidia.com/gpu.shared")
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES: Final = "hugepages-"
NO_GPU_CLAIM: Final = (
    "claims for GPUs (resourceClaims) are not supported yet: leave out the claim and this line, "
    "and Fathom asks for GPUs by {}."
)
_CUDA_IMAGE: Final = "vllm-openai"
_ROCM_IMAGE: Final = "vllm/vllm-openai-rocm"
_CPU_IMAGE: Final = "vllm/vllm-openai-cpu"


def asked_gpus(candidate: Candidate) -> Iterator[Problem]:
    """GPUs that `engine.resources` ask for beside those that the spec makes."""
    engine = candidate.engine
    needed, resources = str(engine.layout.gpus_per_pod), engine.spec.engine.resources
    vendor = vendor_of(engine.spec.node_pool)
    for kind, quantities in (("limits", resources.limits), ("requests", resources.requests)):
        field = f"spec.engine.resources.{kind}"
        ours = vendor.resource if vendor else ""
        if (found := str(quantities.get(ours, needed))) != needed:
            claimed = found == "0" and "resourceClaims" in part(engine.spec.pod_template, "spec")
            message = NO_GPU_CLAIM.format(ours) if claimed else gpus_sentence(needed)
            yield Problem(field=f"{field}.{ours}", message=message)
        yield from foreign_gpu_problems(quantities, vendor, field)


def asked_resources(candidate: Candidate) -> Iterator[Problem]:
    """Resources that the API server refuses, unless `podTemplate` says others in their place."""
    spec = candidate.spec
    containers = parts(spec.pod_template, "spec", "containers")
    if any(
        each.get("name") == names.ENGINE_CONTAINER and "resources" in each for each in containers
    ):
        return
    asked: Part = spec.engine.resources.model_dump(mode="json")
    yield from resource_problems(asked, "spec.engine.resources")


def resource_problems(resources: Part, field: str) -> Iterator[Problem]:
    """What a container asks for and the API server refuses, but for GPUs.

    Source: `ValidateContainerResourceRequirements`, `validateContainerResourceName` and
    `ValidateResourceQuantityValue`.

    Args:
        resources: its requests and limits.
        field: path of them.
    """
    gpus = {vendor.resource for vendor in VENDORS}
    requests, limits = (
        {name: each for name, each in part(resources, kind).items() if name not in gpus}
        for kind in ("requests", "limits")
    )
    for kind, asked in (("requests", requests), ("limits", limits)):
        for name, quantity in asked.items():
            if sentence := _bad_resource(name) or _bad_quantity(name, quantity):
                yield Problem(field=f"{field}.{kind}.{name}", message=sentence)
    for name, request in requests.items():
        if sentence := _request_problem(name, request, limits.get(name)):
            yield Problem(field=f"{field}.requests.{name}", message=sentence)
    asked_for = {*requests, *limits}
    if any(map(_is_huge_page, asked_for)) and asked_for.isdisjoint({"cpu", "memory"}):
        yield Problem(
            field=field,
            message="Kubernetes refuses hugepages for a container that asks for neither cpu nor "
            "memory: add limits.memory.",
        )


def _bad_resource(name: str) -> str:
    if "/" in name:
        if QUALIFIED_NAME.fullmatch(name) and not name.startswith("requests."):
            return ""
        return (
            f"{name} is no name of a resource: write a domain in lower case, / and a name, such as "
            "rdma/ib."
        )
    if name in _STANDARD or _is_huge_page(name):
        return ""
    meant = nearest(name, _STANDARD, VERY_NEAR)
    return f"Kubernetes knows no resource {name}: " + (
        f"did you mean {meant}?"
        if meant
        else f"write {', '.join(_STANDARD)}, {_HUGE_PAGES}2Mi, or a name with its domain, such as "
        "rdma/ib."
    )


def _bad_quantity(name: str, quantity: JsonValue) -> str:
    amount = amount_of(quantity)
    if amount is None:
        return f"{quantity!r} is no quantity: write a number and a unit, such as 16Gi, 500m or 4."
    if amount < 0:
        return f"a quantity is not below 0 (found {quantity})."
    if "/" in name and amount % 1:
        return f"{name} comes in whole ones (found {quantity}): write a whole number."
    return ""


def _request_problem(name: str, request: JsonValue, limit: JsonValue) -> str:
    """What is wrong with a request, compared with its limit; empty: nothing."""
    shared = "/" not in name and not _is_huge_page(name)
    if limit is None and shared:
        return ""
    if limit is None:
        return f"Kubernetes refuses a request for {name} without a limit: set limits.{name}."
    asked, most = amount_of(request), amount_of(limit)
    if asked is None or most is None or asked == most or (shared and asked < most):
        return ""
    if not shared:
        return (
            f"for {name} the request, {request}, must be the limit, {limit}: leave out "
            f"requests.{name}."
        )
    return (
        f"the request, {request}, is above the limit, {limit}, which Kubernetes refuses: lower it, "
        f"or raise limits.{name}."
    )


def _is_huge_page(name: str) -> bool:
    return name.startswith(_HUGE_PAGES)


def tolerations(candidate: Candidate) -> Iterator[Problem]:
    """Tolerations that the API server refuses."""
    pool = candidate.spec.node_pool
    asked = [each.model_dump(mode="json", by_alias=True) for each in pool.tolerations]
    yield from toleration_problems(asked, "spec.nodePool.tolerations")


def gpus_sentence(needed: object) -> str:
    """Why another number of GPUs is refused."""
    return (
        f"a pod of this spec gets {needed}: set spec.engine.tensorParallelSize, "
        "pipelineParallelSize and dataParallelSize, and leave this out."
    )


def foreign_gpu_problems(
    asked: Collection[str], vendor: Vendor | None, field: str
) -> Iterator[Problem]:
    """GPUs of another vendor, or parts of GPUs, beside those that the accelerator has.

    Of what two of them let a container see, the kubelet keeps one (`deviceRunContainerOptions` in
    pkg/kubelet/cm/devicemanager/pod_devices.go).

    Args:
        asked: names of the resources.
        vendor: of the accelerator's; None: it has none.
        field: path of the resources.
    """
    why = (
        f"asks for {vendor.resource}, and no node has both"
        if vendor
        else "asks for no GPU, and the engine uses none"
    )
    for other in VENDORS:
        if other != vendor and other.resource in asked:
            yield Problem(
                field=f"{field}.{other.resource}",
                message=f"spec.nodePool.accelerator {why}: name the {other.name} accelerator "
                "there, and leave this out.",
            )
    for name in sorted(each for each in asked if each.startswith(_PARTS_OF_GPUS)):
        seen = (
            f"next to {vendor.resource}, and the engine then sees what one of the two gives it: "
            "leave it out. Engines have whole GPUs."
            if vendor
            else "and the engine does not use it: leave it out."
        )
        yield warning(f"{field}.{name}", f"the pod waits for a node that has it {seen}")


def gpu_warnings(candidate: Candidate) -> Iterator[Problem]:
    """What whose GPUs they are makes likely to go wrong."""
    spec = candidate.spec
    pool, image = spec.node_pool, spec.engine.image
    vendor = vendor_of(pool)
    if vendor is None:
        yield from _warnings_without_gpus(spec)
        return
    if _name_of(image) == _name_of(_CPU_IMAGE):
        yield warning(
            "spec.engine.image",
            "this is vLLM for processors, which uses no GPU: set spec.nodePool.accelerator to CPU, "
            "or correct the image.",
        )
    if vendor is not AMD:
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


def _warnings_without_gpus(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    image, pool = spec.engine.image, spec.node_pool
    if _name_of(image) in {_CUDA_IMAGE, _name_of(_ROCM_IMAGE)}:
        yield warning(
            "spec.engine.image",
            f"this is vLLM for GPUs, which does not start without one: {_CPU_IMAGE} is the one for "
            "processors.",
        )
    if spec.engine.attention_backend:
        yield warning(
            "spec.engine.attentionBackend",
            f"vLLM has its own on processors, and passes over {spec.engine.attention_backend}: "
            "leave it out.",
        )
    if pool.compute_domain is ComputeDomainPolicy.EXTERNAL:
        yield warning(
            "spec.nodePool.computeDomain",
            f"a ComputeDomain is for GPUs, and accelerator {pool.accelerator} uses none: leave "
            "this out.",
        )


def _name_of(image: str) -> str:
    """Name of the repository, without its registry, tag and digest."""
    return image.partition("@")[0].rsplit("/", 1)[-1].partition(":")[0]


def needed_apis(candidate: Candidate) -> Iterator[Problem]:
    """The first API that a spec needs and the cluster lacks, or may not be used in it."""
    layout, cluster = candidate.engine.layout, candidate.cluster
    if cluster is None:
        return
    missing = next((kind for kind in needed_kinds(layout) if kind not in cluster.usable), None)
    if missing is not None:
        yield _missing(layout, missing, cluster.served)


def needed_kinds(layout: ReplicaLayout) -> tuple[Kind, ...]:
    """The APIs that a replica needs and not every cluster has."""
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
