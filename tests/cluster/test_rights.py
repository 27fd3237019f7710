"""The operator's rights on a real API server: it uses each one that the chart grants, and no more.

What misses each when it is taken away: `make rbac-mutants`.
"""

import asyncio
import os
from pathlib import Path

import pytest
from kubernetes.aio.client import ApiClient

from fathom.adapters import kube_config
from fathom.adapters.kube import Kube
from fathom.adapters.ports import SystemClock
from fathom.adapters.prometheus_query import NoLoginError
from fathom.adapters.prometheus_sources import SecretLogin
from fathom.api.names import ANNOTATION_PROMETHEUS_URL
from fathom.api.spec import PrometheusSpec
from local_cluster.cluster import LocalCluster
from rights.granted import CLUSTER_RULES, LEASE_RULES, Right, rights_in
from rights.mutants import Stage
from rights.scenarios import SCENARIOS, SERVES_BUDGETS, foreign_kinds
from support.local_cluster import TestNamespace, own_binaries
from support.operator_process import account
from support.waiting import GUARD_S, until

pytestmark = pytest.mark.cluster

GRANTED = rights_in((*CLUSTER_RULES, *LEASE_RULES))


async def test_each_right_is_used_and_nothing_is_refused(
    local_cluster: LocalCluster, namespace: TestNamespace, tmp_path: Path
) -> None:
    async with foreign_kinds(namespace):
        stage = Stage(local_cluster, tmp_path, patience_seconds=GUARD_S, at_once=len(SCENARIOS))
        ran = await asyncio.gather(*(stage.play(name) for name in SCENARIOS))

    assert [each.refused for each in ran] == [0] * len(SCENARIOS)
    used = frozenset[Right]().union(*(each.used for each in ran))
    served = {
        right for right in GRANTED if right.group != "policy" or namespace.release >= SERVES_BUDGETS
    }
    assert used == served


async def test_a_secret_is_read_once_the_printed_role_lets_it(
    namespace: TestNamespace, tmp_path: Path
) -> None:
    url = "https://prometheus.example.com"
    await namespace.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "login", "annotations": {ANNOTATION_PROMETHEUS_URL: url}},
            "stringData": {"token": "abc"},
        }
    )
    token = {"name": "login", "key": "token"}
    spec = PrometheusSpec.model_validate({"url": url, "bearerTokenSecretRef": token})
    configuration = await kube_config.load(await account(namespace, tmp_path))
    async with ApiClient(configuration) as api:
        login = SecretLogin(spec, namespace.name, Kube(api), SystemClock())
        with pytest.raises(NoLoginError) as refused:
            await login.credentials()
        _, said, commands = str(refused.value).partition("let it read this one: ")
        assert said
        binaries = await asyncio.to_thread(own_binaries)
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", commands),
            env={
                "PATH": f"{binaries.directory}:{os.environ['PATH']}",
                "KUBECONFIG": str(namespace.cluster.kubeconfig),
                # Where kubectl keeps what it discovers.
                "HOME": str(tmp_path),
            },
        )
        assert await process.wait() == 0

        async def read() -> bool:
            try:
                sent = await login.credentials()
            except NoLoginError:
                return False
            return sent.headers == {"Authorization": "Bearer abc"}

        await until(read, "the Role holds")
