"""`fathom check --image` against a real API server, with no more rights than its page names."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.test_bench import fathom, give
from support import played_vllm
from support.local_cluster import TestNamespace
from support.operated import SPEC
from support.operator_process import account
from support.waiting import until

pytestmark = pytest.mark.cluster

RIGHTS: tuple[Mapping[str, Any], ...] = (
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
)
WITH_VLLM: Mapping[str, Any] = {
    "spec": {
        "volumes": [{"name": "vllm", "configMap": {"name": "vllm"}}],
        "containers": [
            {"name": "vllm", "volumeMounts": [{"name": "vllm", "mountPath": "/opt/played/vllm"}]}
        ],
    }
}


def written(folder: Path, seqs: int, pod_template: Mapping[str, Any]) -> str:
    """A manifest of a resource that is not in the cluster, with an engine that is played."""
    engine = {
        **SPEC["engine"],
        "args": [f"--max-num-seqs={seqs}", "--enforce-eager"],
        "env": [{"name": "PYTHONPATH", "value": "/opt/played"}],
    }
    spec = {**SPEC, "engine": engine, "podTemplate": dict(pod_template)}
    document = {
        "apiVersion": "fathom.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": "sd"},
        "spec": spec,
    }
    file = folder / "sd.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(file)


async def nothing_left(namespace: TestNamespace) -> bool:
    kinds = ("Job", "Pod", "ConfigMap")
    found = [each for kind in kinds for each in await namespace.all_of(kind)]
    return not any("-check-" in each["metadata"]["name"] for each in found)


@pytest.mark.parametrize(
    ("seqs", "code", "said"),
    [
        (16, 0, "engine: vLLM 0.32.0 takes the arguments (its parser and its configuration)."),
        (2000, 2, "refuses the arguments (its configuration): max_num_seqs is too high."),
    ],
)
async def test_the_images_vllm_is_asked_in_a_job_of_which_nothing_is_left(
    seqs: int, code: int, said: str, namespace: TestNamespace, tmp_path: Path
) -> None:
    kubeconfig = await account(namespace, tmp_path, RIGHTS)
    await give(namespace, "vllm", {"__init__.py": inspect.getsource(played_vllm)})
    file = written(tmp_path, seqs, WITH_VLLM)

    found, out, err = await fathom(
        kubeconfig, "check", "--offline", "--image", "-n", namespace.name, file
    )

    assert (found, err) == (code, "")
    assert said in " ".join(out.split())
    await until(lambda: nothing_left(namespace), "pod and code go with their Job")


async def test_an_image_without_vllm_is_a_sentence(
    namespace: TestNamespace, tmp_path: Path
) -> None:
    kubeconfig = await account(namespace, tmp_path, RIGHTS)
    file = written(tmp_path, 16, {})

    code, out, err = await fathom(
        kubeconfig, "check", "--offline", "--image", "-n", namespace.name, file
    )

    assert (code, out) == (2, "")
    assert err == "The image fathom.local/shell:v0.32.0 cannot ask vLLM: it has no vLLM.\n"
    await until(lambda: nothing_left(namespace), "pod and code go with their Job")


async def test_who_may_make_no_job_is_told_so(namespace: TestNamespace, tmp_path: Path) -> None:
    kubeconfig = await account(namespace, tmp_path, RIGHTS[1:])

    code, _, err = await fathom(
        *(kubeconfig, "check", "--offline", "--image", "-n", namespace.name),
        written(tmp_path, 16, {}),
    )

    assert code == 2
    assert err.startswith('The API server does not let you do this: jobs.batch "sd-check-')
