"""Accelerator CPU: what an engine without GPUs is, gets, and cannot be."""

from dataclasses import replace
from typing import Any

import pytest

from fathom.engine.plugin import PluginBundle
from fathom.health import gained_in_words
from fathom.manifests.pod_template import node_tolerations, pod_template
from fathom.reconcile.tuning_report import gained_status
from fathom.tuning.gains import Gained
from manifest_samples import resource
from support.validated import errors, warnings

BUNDLE = PluginBundle({"fathom_vllm/__init__.py": ""}, "0123456789ab")
CPU = {
    "nodePool.accelerator": "CPU",
    "engine.image": "vllm/vllm-openai-cpu:v0.32.0",
    "engine.tensorParallelSize": 1,
    "engine.resources": {"requests": {"cpu": "2"}},
}
RUNNER = "VLLM_USE_V2_MODEL_RUNNER"


def pod(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    template = pod_template(resource(CPU | (changes or {})), revision="abcd0123", bundle=BUNDLE)
    spec: Any = template["spec"]
    return dict(spec)


def test_its_pods_ask_for_processors_and_nothing_of_gpus() -> None:
    spec = pod({"nodePool.nodeSelector": {"zone": "a"}})
    (container,) = spec["containers"]

    assert container["resources"] == {"requests": {"cpu": "2"}}
    assert spec["nodeSelector"] == {"zone": "a"}
    assert spec["tolerations"] == []
    assert "affinity" not in spec
    assert {"name": RUNNER, "value": "0"} in container["env"]


def test_a_limit_alone_is_a_request_too() -> None:
    (container,) = pod({"engine.resources": {"limits": {"cpu": 1}}})["containers"]

    assert container["resources"] == {"limits": {"cpu": "1"}}


def test_pods_on_gpus_are_told_of_no_model_runner() -> None:
    template: Any = pod_template(resource(), revision="abcd0123", bundle=BUNDLE)

    names = [each["name"] for each in template["spec"]["containers"][0]["env"]]
    assert RUNNER not in names
    assert node_tolerations(resource().spec.node_pool) != []


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--async-scheduling"],
        ["-O3", "--cudagraph-capture-sizes", "1", "8"],
        ['--compilation-config={"cudagraph_mode":"FULL"}'],
    ],
    ids=str,
)
def test_depth_is_live_without_graphs_whatever_the_arguments_say(args: list[str]) -> None:
    """tests/engine/test_without_gpus.py asks vLLM."""
    sd = resource({**CPU, "engine.args": args})

    assert errors(sd) == ()
    assert sd.engine.live
    assert sd.engine.added_sizes == ()
    assert sd.engine.captured is not None
    assert sd.engine.captured.total == 0
    assert sd.engine.start.model_runner_v1 == "accelerator CPU in spec.nodePool"
    assert sd.engine.start.synchronous == "accelerator CPU in spec.nodePool"
    assert sd.engine.depths == tuple(range(8))


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (
            {"engine.env": [{"name": RUNNER, "value": "1"}]},
            "spec.engine.env[0]: without GPUs Fathom was run with vLLM's Model Runner V1 alone",
        ),
        (
            {"draft.method": "dspark"},
            "selects vLLM's Model Runner V1, which in vLLM 0.32.0 does not have method dspark",
        ),
        (
            {"engine.resources": {"requests": {"cpu": 2}, "limits": {"nvidia.com/gpu": 1}}},
            "accelerator asks for no GPU, and the engine uses none: name the NVIDIA accelerator",
        ),
        (
            {
                "podTemplate": {
                    "spec": {
                        "containers": [
                            {"name": "vllm", "resources": {"limits": {"amd.com/gpu": 1}}}
                        ]
                    }
                }
            },
            "name the AMD accelerator there",
        ),
    ],
    ids=str,
)
def test_what_it_cannot_be_is_refused(changes: dict[str, Any], refusal: str) -> None:
    """What the API server refuses: tests/unit/api/test_cel_rules.py."""
    (found,) = errors(resource(CPU | changes))

    assert refusal in str(found)


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        (
            {"engine.image": "mirror.example.com/vllm/vllm-openai:v0.32.0"},
            "spec.engine.image: this is vLLM for GPUs, which does not start without one:",
        ),
        (
            {"engine.attentionBackend": "FLASH_ATTN"},
            "spec.engine.attentionBackend: vLLM has its own on processors, and passes over FLASH_",
        ),
        (
            {"nodePool.computeDomain": "External"},
            "spec.nodePool.computeDomain: a ComputeDomain is for GPUs, and accelerator CPU uses",
        ),
    ],
    ids=str,
)
def test_what_is_of_gpus_is_doubted(changes: dict[str, Any], doubt: str) -> None:
    (found,) = warnings(resource(CPU | changes))

    assert str(found).startswith(doubt)
    assert warnings(resource(CPU)) == ()


def test_vllms_image_for_processors_is_doubted_where_there_are_gpus() -> None:
    (found,) = warnings(resource({"engine.image": CPU["engine.image"]}))

    assert str(found).startswith(
        "spec.engine.image: this is vLLM for processors, which uses no GPU"
    )


def test_what_it_gains_is_a_share_and_no_gpu_hours() -> None:
    gained = Gained(since_s=1.7e9, gained_gpu_s=360.0, error_gpu_s=36.0, measured_gpu_s=3600.0)

    on_gpus, without = (gained_status(gained, on_gpus=each) for each in (True, False))
    assert on_gpus is not None
    assert without is not None
    assert "GPU hours" in gained_in_words(on_gpus)
    assert gained_in_words(without) == "+10.0 % ± 2.0 since 2023-11-14T22:13:20Z"
    unknown = gained_status(replace(gained, measured_gpu_s=0.0), on_gpus=False)
    assert unknown is not None
    assert gained_in_words(unknown) == "not measured since 2023-11-14T22:13:20Z"
