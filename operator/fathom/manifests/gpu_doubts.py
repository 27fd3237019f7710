"""What to see to where the GPUs are AMD's, on which nobody has run this. Pure.

Source: vLLM 0.32 and 0.33, vllm/platforms/rocm.py and what asks it, read and not run.
"""

from collections.abc import Iterator
from typing import Final

from fathom.api.accelerators import AMD, vendor_of
from fathom.api.choices import ComputeDomainPolicy
from fathom.api.problem import Problem
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.manifests.pod.template_parts import part

ROCM_BACKENDS: Final = (
    *("rocm_attn", "rocm_aiter_fa", "rocm_aiter_unified_attn", "triton_attn"),
    *("rocm_aiter_mla", "rocm_aiter_triton_mla", "triton_mla", "rocm_aiter_mla_sparse"),
)
"""Attention backends that vLLM chooses among by itself (`_get_backend_priorities`), but for those
of a KV cache of their own."""
_CUDA_IMAGE: Final = "vllm-openai"
_ROCM_IMAGE: Final = "vllm/vllm-openai-rocm"


def gpu_doubts(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    """What to see to in a spec because of whose GPUs it asks for."""
    pool, image = spec.node_pool, spec.engine.image
    if vendor_of(pool) is not AMD:
        if "rocm" in image.lower():
            yield Problem(
                "spec.nodePool.accelerator",
                f"the image's name says ROCm, and {pool.accelerator} is NVIDIA's: name the AMD "
                "accelerator, or correct spec.engine.image.",
            )
        return
    yield Problem(
        "spec.nodePool.accelerator",
        f"nobody has run this on {pool.accelerator}, or on any GPU of AMD's: what is said of "
        "depth and CUDA graphs was read in vLLM's source (docs/gpu.md).",
    )
    if _name_of(image) == _CUDA_IMAGE:
        yield Problem(
            "spec.engine.image",
            f"this is vLLM for NVIDIA's GPUs: {_ROCM_IMAGE} is the one for AMD's.",
        )
    backend = spec.engine.attention_backend
    if backend and backend.lower() not in ROCM_BACKENDS:
        yield Problem(
            "spec.engine.attentionBackend",
            f"vLLM does not choose {backend} on AMD's GPUs, and may not start with it: leave it "
            f"out, so that vLLM chooses, or take one of {', '.join(ROCM_BACKENDS)}.",
        )
    if pool.compute_domain is ComputeDomainPolicy.EXTERNAL:
        yield Problem(
            "spec.nodePool.computeDomain",
            "a ComputeDomain is for NVLink, which AMD's GPUs have not: leave this out.",
        )
    groups = part(spec.pod_template, "spec", "securityContext").get("supplementalGroups")
    if spec.engine.user is not None and not groups:
        yield Problem(
            "spec.engine.user",
            "nodes often let only root and a group open /dev/kfd and /dev/dri/render*: add that "
            "group's number to spec.podTemplate.spec.securityContext.supplementalGroups.",
        )


def _name_of(image: str) -> str:
    """Of the repository, without its registry, tag and digest."""
    return image.partition("@")[0].rsplit("/", 1)[-1].partition(":")[0]
