"""`fathom bench` against a real API server, with no more rights than its page names."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.job.prompts import share_gpt
from benchmarks.job.truth import compared
from fathom.api import names
from fathom.measurement.bench_result import RESULT_KEY, DepthBench
from local_cluster.engine.language import EASY
from local_cluster.images import BASE_PATH
from support.help_examples import examples
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource
from support.operator_process import account, install_crd
from support.waiting import guarded, until

pytestmark = pytest.mark.cluster

FATHOM = str(Path(sys.executable).with_name("fathom"))
LOAD = Path(__file__).parents[1] / "support" / "simulated_load.py"
PROMPTS, TOKENS = 20, 96
RIGHTS = (
    {"apiGroups": ["fathom.dev"], "resources": ["speculativedeployments"], "verbs": ["get"]},
    {
        "apiGroups": ["batch"],
        "resources": ["jobs"],
        "verbs": ["get", "create", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
)


async def fathom(kubeconfig: Path, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        FATHOM,
        *arguments,
        f"--kubeconfig={kubeconfig}",
        env={**os.environ, "COLUMNS": "160"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with guarded(f"fathom {arguments[0]} ends"):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def resource_of(namespace: TestNamespace, **changes: Any) -> Resource:
    """One that nobody operates, and what its operator would have made and said."""
    await install_crd(namespace)
    resource = Resource(namespace)
    await resource.apply({**SPEC, **changes})
    await namespace.create({"kind": "ServiceAccount", "metadata": {"name": resource.name}})
    replicas = (await resource.get())["spec"]["replicas"]
    status = {"observedGeneration": 1, "readyReplicas": replicas}
    await namespace.patch(names.KIND, f"{resource.name}/status", {"status": status})
    return resource


async def no_pods(namespace: TestNamespace) -> bool:
    return await namespace.all_of("Pod") == []


async def nothing_left(namespace: TestNamespace) -> bool:
    kinds = ("Job", "Pod", "ConfigMap")
    found = [each for kind in kinds for each in await namespace.all_of(kind)]
    return not any("-bench" in each["metadata"]["name"] for each in found)


def with_load(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The same, whose image has a `vllm` that makes the load: `support.simulated_load`."""
    pod = spec["podTemplate"]["spec"]
    (vllm,) = pod["containers"]
    mount = {"name": "load", "mountPath": "/opt/load", "readOnly": True}
    path = {"name": "PATH", "value": f"/opt/load:{Path(sys.executable).parent}:{BASE_PATH}"}
    return {
        **spec,
        "podTemplate": {
            "spec": {
                **pod,
                "volumes": [{"name": "load", "configMap": {"name": "load", "defaultMode": 0o755}}],
                "containers": [{**vllm, "volumeMounts": [mount], "env": [path]}],
            }
        },
    }


AS_IN_HELP = examples()["bench"][-4:]
"""--depths and --concurrency."""


async def give(namespace: TestNamespace, name: str, data: Mapping[str, str]) -> None:
    await namespace.create({"kind": "ConfigMap", "metadata": {"name": name}, "data": data})


async def test_a_bench_measures_each_depth_and_finds_the_acceptance_that_is_known(
    namespace: TestNamespace, tmp_path: Path
) -> None:
    """The same with a real engine and vLLM's own load: `make bench-job`."""
    resource = await resource_of(namespace, **with_load(SPEC))
    await give(namespace, "load", {"vllm": LOAD.read_text()})
    await give(namespace, "prompts", {"easy.json": share_gpt(EASY, PROMPTS)})
    kubeconfig = await account(namespace, tmp_path, RIGHTS)

    code, out, err = await fathom(
        *(kubeconfig, "bench", resource.name, "-n", namespace.name),
        *("--prompts", "configmap:prompts/easy.json", "--num-prompts", str(PROMPTS)),
        *("--output-tokens", str(TOKENS), *AS_IN_HELP),
    )

    assert code == 0, out + err
    kept = await namespace.get("ConfigMap", f"{resource.name}-bench")
    assert kept is not None
    found = DepthBench.from_json(kept["data"][RESULT_KEY])
    assert found is not None
    assert found.not_measured == ()
    assert {row.depth for row in found.rows} == {None, 0, 3}
    (drafting,) = compared(found, {"easy": "easy"}, TOKENS)
    assert drafting.row.acceptance is not None
    assert drafting.row.acceptance.mean == pytest.approx(drafting.truth, abs=0.1)
    assert drafting.row.over_depth_0
    assert drafting.row.over_true_off
    assert await namespace.all_of("Deployment") == []
    await until(lambda: no_pods(namespace), "the pod goes with its Job")


async def test_an_image_without_vllms_load_is_told_for_each_depth(
    namespace: TestNamespace, tmp_path: Path
) -> None:
    resource = await resource_of(namespace)
    kubeconfig = await account(namespace, tmp_path, RIGHTS)

    code, out, err = await fathom(
        *(kubeconfig, "bench", resource.name, "-n", namespace.name),
        *("--depths", "1,4", "--concurrency", "1", "--no-true-off"),
    )

    assert code == 1, err
    for depth in (1, 4):
        assert f"random 1024, 1 at a time, depth {depth}: vllm bench serve cannot be sta" in out
    await until(lambda: nothing_left(namespace), "pod and code go with their Job")


async def test_without_room_nothing_is_left_and_the_user_is_told_what_it_needs(
    namespace: TestNamespace, tmp_path: Path
) -> None:
    resource = await resource_of(namespace, nodePool={"nodeSelector": {"zone": "nowhere"}})
    kubeconfig = await account(namespace, tmp_path, RIGHTS)

    code, _, err = await fathom(
        kubeconfig, "bench", resource.name, "-n", namespace.name, "--room-minutes", "0.05"
    )

    assert code == 2, err
    assert "There is no capacity for the bench" in err
    assert "what a replica needs: 1 nvidia.com/gpu on one node" in err
    await until(lambda: nothing_left(namespace), "pod and code go with their Job")
