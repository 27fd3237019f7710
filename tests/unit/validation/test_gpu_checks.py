"""What a user has to see to about GPUs: AMD's, and parts of one."""

from typing import Any

import pytest

from manifest_samples import resource
from support.validated import errors, warnings

ROCM = "vllm/vllm-openai-rocm:v0.32.0"
AMD = {"nodePool.accelerator": "MI300X", "engine.image": ROCM}
NEVER_RUN = "spec.nodePool.accelerator: this was never run on MI300X, nor on any other AMD GPU:"


def doubts(changes: dict[str, Any]) -> list[str]:
    sd = resource(changes)
    assert errors(sd) == ()
    return [str(each) for each in warnings(sd)]


def test_it_is_said_that_nobody_has_run_it() -> None:
    (said,) = doubts(AMD)

    assert said.startswith(NEVER_RUN)
    assert resource(AMD).engine.live


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        (
            {"engine.image": "mirror.example.com:5000/vllm-openai:v0.32.0"},
            "spec.engine.image: this is vLLM for NVIDIA's GPUs: vllm/vllm-openai-rocm is",
        ),
        (
            {"engine.attentionBackend": "FLASHMLA"},
            "spec.engine.attentionBackend: vLLM does not choose FLASHMLA on AMD's GPUs, and may",
        ),
        (
            {"nodePool.computeDomain": "External"},
            "spec.nodePool.computeDomain: a ComputeDomain is for NVLink, which AMD's GPUs have not",
        ),
        ({"engine.user": 2000}, "spec.engine.user: nodes often let only root and a group open"),
    ],
    ids=str,
)
def test_what_is_nvidias_is_doubted_with_its_field(changes: dict[str, Any], doubt: str) -> None:
    first, second = doubts({**AMD, **changes})

    assert first.startswith(NEVER_RUN)
    assert second.startswith(doubt)


@pytest.mark.parametrize(
    "changes",
    [
        {"engine.attentionBackend": "TRITON_MLA"},
        {"engine.resources.limits": {"amd.com/gpu": 4}},
        {
            "podTemplate": {
                "spec": {
                    "containers": [
                        {"name": "vllm", "resources": {"requests": {"amd.com/gpu": "4"}}}
                    ]
                }
            }
        },
        {"engine.image": "registry.example.com/team/vllm:v0.32.0"},
        {
            "engine.user": 2000,
            "podTemplate": {"spec": {"securityContext": {"supplementalGroups": [109]}}},
        },
    ],
    ids=str,
)
def test_what_is_in_order_there_is_not(changes: dict[str, Any]) -> None:
    assert len(doubts({**AMD, **changes})) == 1


def test_an_image_for_amds_gpus_beside_nvidias() -> None:
    (said,) = doubts({"engine.image": ROCM})

    assert said == (
        "spec.nodePool.accelerator: the image's name says ROCm, and GB200 is NVIDIA's: name the "
        "AMD accelerator, or correct spec.engine.image."
    )


def test_gpus_by_a_claim_are_not_taken_for_another_number() -> None:
    none = {"engine.resources": {"limits": {"nvidia.com/gpu": 0}}}
    claims = {"podTemplate": {"spec": {"resourceClaims": [{"name": "gpu"}]}}}

    (claimed,) = errors(resource({**none, **claims}))
    assert claimed.message.startswith("claims for GPUs (resourceClaims) are not supported yet: ")
    (other,) = errors(resource(none))
    assert other.message.startswith("a pod of this spec gets 4: ")


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.18gb", "nvidia.com/gpu.shared"])
def test_parts_of_gpus_are_not_asked_for_next_to_whole_ones(name: str) -> None:
    (said,) = doubts({"engine.resources": {"limits": {name: "1"}}})

    assert said.startswith(f"spec.engine.resources.limits.{name}: the pod waits for a node that")
    assert doubts({"engine.resources": {"limits": {"rdma/ib": "1"}}}) == []


def test_the_template_of_workers_is_judged_where_the_other_is_only_doubted() -> None:
    container = {"name": "vllm", "resources": {"limits": {"nvidia.com/mig-1g.18gb": 1}}}
    found = errors(
        resource(
            {
                "engine.tensorParallelSize": 8,
                "podTemplate": {"spec": {"containers": [container]}},
                "workerTemplate": {"spec": {"restartPolicy": "Never"}},
            }
        )
    )
    assert [each.field for each in found] == ["spec.workerTemplate.spec.restartPolicy"]
