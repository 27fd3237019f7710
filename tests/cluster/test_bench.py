"""`fathom bench` against a real API server, with no more rights than its page names."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from support.local_cluster import TestNamespace, eventually
from support.operated import SPEC, Resource
from support.operator_process import account, install_crd

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

FATHOM = str(Path(sys.executable).with_name("fathom"))
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
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def resource_of(namespace: TestNamespace, **changes: Any) -> Resource:
    """One that nobody operates, and the account that its operator would have made."""
    await install_crd(namespace)
    resource = Resource(namespace)
    await resource.apply({**SPEC, **changes})
    await namespace.create({"kind": "ServiceAccount", "metadata": {"name": resource.name}})
    return resource


async def nothing_left(namespace: TestNamespace) -> bool:
    kinds = ("Job", "Pod", "ConfigMap")
    found = [each for kind in kinds for each in await namespace.all_of(kind)]
    return not any("-bench" in each["metadata"]["name"] for each in found)


async def test_an_engine_is_held_at_each_depth_and_what_it_says_is_read(
    namespace: TestNamespace, tmp_path: Path
) -> None:
    """The engine is simulated, and its image has no load generator: that is what is said of it."""
    resource = await resource_of(namespace)
    kubeconfig = await account(namespace, tmp_path, RIGHTS)

    code, out, err = await fathom(
        *(kubeconfig, "bench", resource.name, "-n", namespace.name),
        *("--depths", "1,4", "--concurrency", "1", "--no-true-off"),
    )

    assert code == 1, err
    for depth in (1, 4):
        assert f"random 1024, 1 at a time, depth {depth}: vllm bench serve cannot be sta" in out
    await eventually(lambda: nothing_left(namespace), "pod and code go with their Job")


async def test_without_room_nothing_is_left_and_the_user_is_told_what_it_needs(
    namespace: TestNamespace, tmp_path: Path
) -> None:
    resource = await resource_of(namespace, nodePool={"nodeSelector": {"zone": "nowhere"}})
    kubeconfig = await account(namespace, tmp_path, RIGHTS)

    code, _, err = await fathom(
        kubeconfig, "bench", resource.name, "-n", namespace.name, "--room-minutes", "0.05"
    )

    assert code == 2, err
    assert "There is no room for the bench" in err
    assert "needs what a replica needs, 1 nvidia.com/gpu on one node" in err
    await eventually(lambda: nothing_left(namespace), "pod and code go with their Job")
