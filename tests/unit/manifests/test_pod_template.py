"""The pod: what the spec's fields do to it."""

from typing import Any

import pytest

from fathom.engine.plugin import PluginBundle, plugin_bundle
from fathom.manifests.pod_template import pod_template
from manifest_samples import resource
from support.validated import errors

BUNDLE = PluginBundle({"fathom_vllm/__init__.py": "", "x.dist-info/METADATA": ""}, "0123456789ab")


def pod(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    return pod_template(resource(changes), revision="abcd0123", bundle=BUNDLE)["spec"]  # type: ignore[return-value]


def container(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    (only,) = pod(changes)["containers"]
    return only


def env(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    variables = container(changes)["env"]
    assert len({variable["name"] for variable in variables}) == len(variables)
    return {
        variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in variables
    }


def test_a_draining_pod_has_time_to_finish() -> None:
    changes = {"engine.drainSeconds": 300}
    before = int(container(changes)["lifecycle"]["preStop"]["exec"]["command"][1])

    assert "--shutdown-timeout 300" in " ".join(container(changes)["args"])
    assert pod(changes)["terminationGracePeriodSeconds"] >= before + 300 + 10


def test_loading_may_take_as_long_as_the_user_says() -> None:
    changes = {"engine.startupMinutes": 30}
    probe = container(changes)["startupProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] == 30 * 60
    assert env(changes)["VLLM_ENGINE_READY_TIMEOUT_S"] == "1800"


def test_liveness_waits_ten_minutes() -> None:
    probe = container()["livenessProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] >= 600


@pytest.mark.parametrize(
    ("changes", "selector", "keys", "gpus"),
    [
        (
            {},
            {"nvidia.com/gpu.product": "NVIDIA-GB200"},
            ["kubernetes.io/arch", "nvidia.com/gpu"],
            {"nvidia.com/gpu": "4"},
        ),
        (
            {"nodePool.accelerator": "H200", "engine.tensorParallelSize": 8},
            {"nvidia.com/gpu.product": "NVIDIA-H200"},
            ["nvidia.com/gpu"],
            {"nvidia.com/gpu": "8"},
        ),
        (
            {
                "nodePool.accelerator": "Custom",
                "nodePool.gpusPerNode": 4,
                "nodePool.nodeSelector": {"pool": "a"},
                "nodePool.tolerations": [{"key": "team", "operator": "Exists"}],
                "engine.tensorParallelSize": 2,
                "engine.pipelineParallelSize": 2,
            },
            {"pool": "a"},
            ["nvidia.com/gpu", "team"],
            {"nvidia.com/gpu": "4"},
        ),
        (
            {
                "nodePool.accelerator": "MI325X",
                "engine.tensorParallelSize": 8,
                "engine.resources.requests": {"amd.com/gpu": 8},
            },
            {"amd.com/gpu.product-name": "AMD_Instinct_MI325_OAM"},
            ["amd.com/gpu"],
            {"amd.com/gpu": "8"},
        ),
    ],
    ids=str,
)
def test_the_node_type_decides_where_pods_go(
    changes: dict[str, Any], selector: dict[str, str], keys: list[str], gpus: dict[str, str]
) -> None:
    assert pod(changes)["nodeSelector"] == selector
    assert [toleration["key"] for toleration in pod(changes)["tolerations"]] == keys
    assert container(changes)["resources"] == {"limits": gpus}


def test_a_plugin_that_only_counts_is_found_beside_a_path_of_the_users_own() -> None:
    """It brings the scheduler that the command names: without it no engine starts."""
    variable = {"name": "PYTHONPATH", "value": "/mine"}
    changes = {
        "engine.image": "vllm/vllm-openai:v0.28.0",
        "podTemplate": {"spec": {"containers": [{"name": "vllm", "env": [variable]}]}},
    }

    assert "fathom_vllm" in " ".join(container(changes)["args"])
    assert env(changes)["PYTHONPATH"] == "/etc/fathom/plugin:/mine"


NVL = "NVIDIA-H100-NVL"
PCIE = "NVIDIA-H100-PCIe"


def test_other_products_of_the_node_type_do_in_place_of_its_own() -> None:
    changes = {"nodePool": {"accelerator": "H100", "products": [NVL, PCIE]}}
    required = pod(changes)["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]

    assert "nvidia.com/gpu.product" not in pod(changes)["nodeSelector"]
    assert required["nodeSelectorTerms"] == [
        {
            "matchExpressions": [
                {"key": "nvidia.com/gpu.product", "operator": "In", "values": [NVL, PCIE]}
            ]
        }
    ]


def test_products_of_another_vendor_are_looked_for_in_its_label() -> None:
    changes = {"nodePool": {"accelerator": "MI300X", "products": ["AMD_Instinct_MI300X_VF"]}}
    affinity = pod(changes)["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert [each["key"] for each in term["matchExpressions"]] == ["amd.com/gpu.product-name"]


def test_no_product_is_asked_for_where_nobody_labels_nodes() -> None:
    changes = {"nodePool": {"products": [], "nodeSelector": {"compute-class": "gb200"}}}

    assert pod(changes)["nodeSelector"] == {"compute-class": "gb200"}
    assert "affinity" not in pod(changes)
    # What else is known of the node type stays.
    assert "kubernetes.io/arch" in [each["key"] for each in pod(changes)["tolerations"]]


def test_groups_ask_for_product_and_nvlink_partition_at_once() -> None:
    changes = {
        "engine.tensorParallelSize": 8,
        "nodePool": {"products": ["NVIDIA-GB200", "NVIDIA-GB200-B"]},
    }
    affinity = pod(changes)["affinity"]
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]

    assert [each["key"] for each in term["matchExpressions"]] == [
        "nvidia.com/gpu.clique",
        "nvidia.com/gpu.product",
    ]
    assert "podAffinity" in affinity


@pytest.mark.parametrize(
    "pool", [{"computeDomain": "External"}, {"topologyKey": "rack"}, {"computeDomain": "Never"}]
)
def test_no_partition_is_asked_for_that_somebody_else_sees_to(pool: dict[str, Any]) -> None:
    found = pod({"engine.tensorParallelSize": 8, "nodePool": pool})

    assert "nodeAffinity" not in found["affinity"]


def test_the_users_resources_are_kept_beside_the_gpus() -> None:
    changes = {
        "engine.resources": {
            "requests": {"cpu": 8, "nvidia.com/gpu": 4},
            "limits": {"memory": "512Gi", "nvidia.com/gpu": "4"},
        }
    }

    assert errors(resource(changes)) == ()
    assert container(changes)["resources"] == {
        "requests": {"cpu": "8"},
        "limits": {"memory": "512Gi", "nvidia.com/gpu": "4"},
    }


@pytest.mark.parametrize("kind", ["limits", "requests"])
@pytest.mark.parametrize(
    ("parallel", "needed"), [({}, "4"), ({"engine.pipelineParallelSize": 2}, "4")]
)
def test_another_number_of_gpus_is_refused(
    kind: str, parallel: dict[str, Any], needed: str
) -> None:
    changes = {**parallel, "engine.resources": {kind: {"nvidia.com/gpu": 8}}}

    (problem,) = errors(resource(changes))

    assert problem.field == f"spec.engine.resources.{kind}.nvidia.com/gpu"
    assert problem.message.startswith(f"a pod of this spec gets {needed}: set spec.engine.tensor")


def test_the_token_comes_from_its_secret_and_stands_nowhere_else() -> None:
    changes = {"model.tokenSecretRef": {"name": "hf", "key": "token"}}

    assert env(changes)["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert "HF_TOKEN" not in " ".join(container(changes)["args"])


def test_the_cache_holds_the_weights() -> None:
    changes = {"cache.claimName": "weights"}

    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "weights"}} in pod(changes)[
        "volumes"
    ]
    (mount,) = [m for m in container(changes)["volumeMounts"] if m["name"] == "cache"]
    assert env(changes)["HF_HOME"].startswith(mount["mountPath"])


def test_the_plugin_is_laid_out_as_an_importable_directory() -> None:
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    mounts = {mount["name"]: mount for mount in container()["volumeMounts"]}

    assert volumes["fathom-plugin"]["configMap"] == {
        "name": "kimi-plugin-0123456789ab",
        "items": [
            {"key": "fathom_vllm--__init__.py", "path": "fathom_vllm/__init__.py"},
            {"key": "x.dist-info--METADATA", "path": "x.dist-info/METADATA"},
        ],
    }
    assert env()["PYTHONPATH"] == mounts["fathom-plugin"]["mountPath"]


def test_the_depth_document_is_mounted_so_that_it_is_refreshed() -> None:
    (mount,) = [m for m in container()["volumeMounts"] if m["name"] == "fathom-depth"]
    (volume,) = [v for v in pod()["volumes"] if v["name"] == "fathom-depth"]

    assert "subPath" not in mount
    assert "optional" not in volume["configMap"]
    assert env()["FATHOM_DEPTH_FILE"] == f"{mount['mountPath']}/depth.json"
    assert env()["FATHOM_POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert env()["FATHOM_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}


TWO_RANKS: dict[str, Any] = {"engine.dataParallelSize": 2, "engine.tensorParallelSize": 2}


@pytest.mark.parametrize(
    "changes", [{"engine.image": "vllm/vllm-openai:v0.31.0"}, TWO_RANKS], ids=str
)
def test_where_depth_is_not_live_the_plugin_counts_and_nothing_else(
    changes: dict[str, Any],
) -> None:
    variables = {
        "VLLM_ENGINE_READY_TIMEOUT_S",
        "FATHOM_COUNTERS_FILE",
        "PYTHONPATH",
    }
    assert set(env(changes)) == variables
    assert [volume["name"] for volume in pod(changes)["volumes"]] == ["shm", "fathom-plugin"]
    args = container(changes)["args"]
    assert args[args.index("--scheduler-cls") + 1] == "fathom_vllm.scheduler.LiveDepthScheduler"
    line = " ".join(args)
    assert "per_batch_size" not in line
    assert "--max-num-seqs" not in line
    assert "--compilation-config" not in line
    assert '"num_speculative_tokens":3' in line


@pytest.mark.parametrize(
    "changes",
    [
        {"speculation.tuning.mode": "Static"},
        {"speculation.tuning.mode": "Static", **TWO_RANKS},
        {"engine.image": "vllm/vllm-openai:v0.27.0"},
        {"engine.image": "vllm/vllm-openai:nightly"},
        {**TWO_RANKS, "engine.args": ["--disable-log-stats"]},
    ],
    ids=str,
)
def test_where_nothing_is_counted_the_engine_is_stock(changes: dict[str, Any]) -> None:
    assert list(env(changes)) == ["VLLM_ENGINE_READY_TIMEOUT_S"]
    assert [volume["name"] for volume in pod(changes)["volumes"]] == ["shm"]
    line = " ".join(container(changes)["args"])
    assert "fathom" not in line
    assert "per_batch_size" not in line
    assert '"num_speculative_tokens":3' in line


def test_the_users_environment_wins() -> None:
    changes = {
        "engine.env": [
            {"name": "VLLM_ENGINE_READY_TIMEOUT_S", "value": "7"},
            {"name": "A", "value": "1"},
        ]
    }

    assert env(changes)["VLLM_ENGINE_READY_TIMEOUT_S"] == "7"
    assert env(changes)["A"] == "1"


@pytest.mark.parametrize(
    ("variable", "result"),
    [
        ({"name": "PYTHONPATH", "value": "/mine"}, {"PYTHONPATH": "/etc/fathom/plugin:/mine"}),
        ({"name": "VLLM_PLUGINS", "value": "mine"}, {"VLLM_PLUGINS": "fathom,mine"}),
        (
            {
                "name": "PYTHONPATH",
                "valueFrom": {"configMapKeyRef": {"name": "paths", "key": "python"}},
            },
            {
                "FATHOM_USER_PYTHONPATH": {"configMapKeyRef": {"name": "paths", "key": "python"}},
                "PYTHONPATH": "/etc/fathom/plugin:$(FATHOM_USER_PYTHONPATH)",
            },
        ),
    ],
    ids=str,
)
def test_lists_that_both_write_to_are_joined(
    variable: dict[str, Any], result: dict[str, Any]
) -> None:
    found = env({"engine.env": [variable]})

    assert found.items() >= result.items()
    # Kubernetes expands only what stands before.
    order = list(found)
    assert [order.index(name) for name in result] == sorted(order.index(name) for name in result)


def test_pod_template_is_merged_in() -> None:
    changes = {
        "podTemplate": {
            "metadata": {
                "annotations": {"a": "b"},
                "labels": {"team": "x", "fathom.dev/name": "no"},
            },
            "spec": {
                "priorityClassName": "high",
                "containers": [
                    {"name": "vllm", "securityContext": {"runAsUser": 0}},
                    {"name": "side", "image": "busybox"},
                ],
            },
        }
    }
    template: dict[str, Any] = pod_template(resource(changes), revision="abcd0123", bundle=BUNDLE)
    engine, side = template["spec"]["containers"]

    assert template["metadata"]["annotations"] == {"a": "b"}
    assert template["metadata"]["labels"] == {
        "fathom.dev/name": "kimi",
        "fathom.dev/revision": "abcd0123",
        "fathom.dev/role": "leader",
        "team": "x",
    }
    assert template["spec"]["priorityClassName"] == "high"
    assert engine["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsUser": 0,
    }
    assert side["name"] == "side"


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (
            {"spec": {"containers": [{"image": "x"}]}},
            (
                "spec.podTemplate.spec.containers[0]: needs `name`, the key that such items are "
                "merged by."
            ),
        ),
        (
            {"containers": []},
            "spec.podTemplate.containers: a pod template has metadata and spec, nothing else.",
        ),
        (
            {"spec": {"containers": [{"name": "vllm", "$patch": "delete"}]}},
            "spec.podTemplate.spec.containers: the container vllm must stay: do not delete it.",
        ),
    ],
    ids=str,
)
def test_a_pod_template_that_does_not_fit_is_refused(
    template: dict[str, Any], sentence: str
) -> None:
    (problem,) = errors(resource({"podTemplate": template}))

    assert str(problem) == sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"engine.version": "newest"},
            "spec.engine.version: 'newest' is not a version: write vLLM's, such as 0.32.0.",
        ),
        (
            {"engine.args": ["--max-num-seqs", "many"]},
            "spec.engine.args: --max-num-seqs needs a whole number of 1 or more, not 'many'.",
        ),
        (
            {"engine.args": ["--max-num-seqs"]},
            "spec.engine.args: --max-num-seqs needs a whole number of 1 or more, not ''.",
        ),
        (
            {"metrics.prometheusLabels": {"cluster": "eu", 'x="y"} or {a': "b"}},
            (
                "spec.metrics.prometheusLabels: 'x=\"y\"} or {a' is no label of a Prometheus: "
                "write letters, digits and _, with no digit at its beginning."
            ),
        ),
    ],
    ids=str,
)
def test_other_refusals(changes: dict[str, Any], sentence: str) -> None:
    assert [str(problem) for problem in errors(resource(changes))] == [sentence]


def test_the_bundle_of_this_fathom_is_named_by_its_content() -> None:
    bundle = plugin_bundle()

    assert "fathom_vllm/scheduler.py" in bundle.files
    assert bundle == plugin_bundle()
    assert len(bundle.content) == 12
