from typing import Any

import pytest

from fathom.cluster.observed import ObservedNode
from fathom.cluster.observed_pods import ObservedToleration, PodSpec, Taint
from fathom.cluster.pod_failures import why_no_node
from fathom.engine.plugin import PluginBundle
from fathom.manifests.pod_template import pod_template
from manifest_samples import resource

GB200 = "NVIDIA-GB200"
H100 = "NVIDIA-H100-80GB-HBM3"


def pod(**changes: Any) -> PodSpec:
    """The pod of a replica of four GPUs, as it is rendered."""
    bundle = PluginBundle({}, "abc")
    template = pod_template(resource(changes), revision="abc", bundle=bundle)
    return PodSpec.model_validate(template["spec"])


def node(
    product: str | None = GB200,
    gpus: int = 4,
    taints: tuple[str, ...] = ("nvidia.com/gpu=present:NoSchedule",),
    **labels: str,
) -> ObservedNode:
    carried = {**labels, **({"nvidia.com/gpu.product": product} if product else {})}
    return ObservedNode.model_validate(
        {
            "metadata": {"name": "n", "labels": carried},
            "spec": {"taints": [_taint(each) for each in taints]},
            "status": {"allocatable": {"nvidia.com/gpu": str(gpus)} if gpus else {}},
        }
    )


AMD_POOL: Any = {"accelerator": "MI300X"}


def amd_node(product: str, gpus: int) -> ObservedNode:
    return ObservedNode.model_validate(
        {
            "metadata": {"name": "n", "labels": {"amd.com/gpu.product-name": product}},
            "spec": {"taints": [_taint("amd.com/gpu:NoSchedule")]},
            "status": {"allocatable": {"amd.com/gpu": str(gpus)}},
        }
    )


def _taint(text: str) -> dict[str, str]:
    key, effect = text.split(":")
    key, _, value = key.partition("=")
    return {"key": key, "value": value, "effect": effect}


def test_a_pod_that_would_fit_leaves_the_word_to_the_scheduler() -> None:
    assert why_no_node(pod(), [node(), node(H100)]) == ""


def test_nodes_that_are_not_known_tell_nothing() -> None:
    assert why_no_node(pod(), []) == ""


def test_another_accelerator() -> None:
    nodes = [node(H100)] * 12 + [node(None)] * 3 + [node("NVIDIA-L4")]

    assert why_no_node(pod(), nodes) == (
        "0 nodes carry nvidia.com/gpu.product=NVIDIA-GB200; 12 carry NVIDIA-H100-80GB-HBM3, "
        "3 carry none, 1 carries NVIDIA-L4: correct nodePool.accelerator or "
        "nodePool.products, or add such nodes."
    )


def test_nodes_that_nobody_has_labelled() -> None:
    assert why_no_node(pod(), [node(None)] * 2) == (
        "of 2 nodes none carries nvidia.com/gpu.product: install GPU Feature Discovery, which sets "
        "it, or set nodePool.products: []."
    )


def test_none_of_several_products() -> None:
    asked = pod(nodePool={"accelerator": "H100", "products": ["NVIDIA-H100-NVL", H100]})

    assert why_no_node(asked, [node(H100)]) == ""
    assert why_no_node(asked, [node()]) == (
        "0 nodes carry nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3 or NVIDIA-H100-NVL; "
        "1 carries NVIDIA-GB200: correct nodePool.accelerator or nodePool.products, or add such "
        "nodes."
    )


def test_affinity_that_may_be_met_otherwise_counts_for_nothing() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    affinity = {"affinity": {"nodeAffinity": required}}

    assert why_no_node(pod(podTemplate={"spec": affinity}), [node(zone="b")]) == ""


def test_a_label_of_the_users_own() -> None:
    asked = pod(nodePool={"nodeSelector": {"zone": "a"}})

    assert why_no_node(asked, [node(zone="b")] * 2) == (
        "0 nodes carry zone=a; 2 carry b: correct nodePool.nodeSelector, or add such nodes."
    )
    assert why_no_node(asked, [node()]) == (
        "of 1 node none carries zone: correct nodePool.nodeSelector."
    )


def test_labels_that_no_node_carries_together() -> None:
    asked = pod(nodePool={"nodeSelector": {"zone": "a"}})

    assert why_no_node(asked, [node(H100, zone="a"), node(zone="b")]) == (
        "no node carries nvidia.com/gpu.product=NVIDIA-GB200 and zone=a at once: correct "
        "nodePool.nodeSelector."
    )


def test_taints_that_are_not_tolerated() -> None:
    cordoned = node(taints=("node.kubernetes.io/unschedulable:NoSchedule",))
    reserved = node(taints=("sku=gpu:NoSchedule", "other:PreferNoSchedule"))

    assert why_no_node(pod(), [reserved, reserved, cordoned]) == (
        "all 3 nodes repel the pod by taints: sku=gpu:NoSchedule on 2, "
        "node.kubernetes.io/unschedulable:NoSchedule on 1. Add what is meant for such pods to "
        "nodePool.tolerations; node.kubernetes.io/ taints mark cordoned or failing nodes."
    )
    tolerated = pod(
        nodePool={"tolerations": [{"key": "sku", "operator": "Exists", "effect": "NoSchedule"}]}
    )
    assert why_no_node(tolerated, [reserved, cordoned]) == ""


def test_arm_nodes_are_tolerated_where_the_accelerator_is_on_one() -> None:
    arm = node(taints=("kubernetes.io/arch=arm64:NoSchedule", "nvidia.com/gpu=true:NoSchedule"))

    assert why_no_node(pod(), [arm]) == ""


def test_a_node_with_too_few_gpus() -> None:
    assert why_no_node(pod(), [node(gpus=1), node(gpus=2)]) == (
        "a replica needs 4 nvidia.com/gpu, and the largest of 2 nodes that match has 2: lower "
        "engine.tensorParallelSize × pipelineParallelSize, or correct nodePool."
    )


def test_a_node_whose_device_plugin_is_missing() -> None:
    assert why_no_node(pod(), [node(gpus=0)]) == (
        "a replica needs 4 nvidia.com/gpu, and the node that matches has 0: check NVIDIA's device "
        "plugin there."
    )


def test_a_pod_that_asks_for_gpus_of_another_vendor() -> None:
    asked = pod(nodePool=AMD_POOL)

    assert why_no_node(asked, [node(), amd_node("AMD_Instinct_MI300X_OAM", 8)]) == ""
    assert why_no_node(asked, [amd_node("AMD_Instinct_MI355_OAM", 8)]) == (
        "0 nodes carry amd.com/gpu.product-name=AMD_Instinct_MI300X_OAM; 1 carries "
        "AMD_Instinct_MI355_OAM: correct nodePool.accelerator or nodePool.products, or add such "
        "nodes."
    )
    assert why_no_node(asked, [node()]) == (
        "of 1 node none carries amd.com/gpu.product-name: install AMD's node labeller, which sets "
        "it, or set nodePool.products: []."
    )
    assert why_no_node(asked, [amd_node("AMD_Instinct_MI300X_OAM", 0)]) == (
        "a replica needs 4 amd.com/gpu, and the node that matches has 0: check AMD's device plugin "
        "there."
    )


def test_the_rarest_kinds_are_only_counted() -> None:
    nodes = [node(f"NVIDIA-{i}") for i in range(7)]

    assert "1 carries NVIDIA-3 and 3 more kinds: correct" in why_no_node(pod(), nodes)


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "value": "b"}, True),
        ({"key": "a", "value": "b", "effect": "NoSchedule"}, True),
        ({"key": "a", "value": "b", "effect": "NoExecute"}, False),
        ({"key": "a", "value": "c"}, False),
        ({"key": "a"}, False),
        ({"key": "c", "operator": "Exists"}, False),
    ],
)
def test_tolerations_are_read_as_the_scheduler_reads_them(
    toleration: dict[str, str], *, tolerates: bool
) -> None:
    taint = Taint(key="a", value="b", effect="NoSchedule")

    assert ObservedToleration.model_validate(toleration).tolerates(taint) is tolerates
