"""The chart installed by real Helm on a real API server: what is there, and what it allows.

There are no nodes here, so the operator itself does not run: the end-to-end tests do that.
"""

import asyncio
import ipaddress
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.client.exceptions import ApiException
from rich.progress import Progress

from fathom.api import names
from local_cluster.control_plane.components import start_control_plane
from local_cluster.control_plane.credentials import ADMIN
from local_cluster.control_plane.obtain import ensure_binaries
from local_cluster.helm import Helm, Release, find_helm
from local_cluster.kube import KubeApi, connect
from support.waiting import until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
NAMESPACE = "fathom-system"
RELEASE = Release(ROOT / "charts" / "fathom", "fathom", NAMESPACE, {"replicas": 0})
OPERATOR = f"system:serviceaccount:{NAMESPACE}:fathom"
BASE = ROOT / "deploy" / "kustomize"
API_PATHS = {
    "v1": "/api/v1",
    "apps/v1": "/apis/apps/v1",
    "rbac.authorization.k8s.io/v1": "/apis/rbac.authorization.k8s.io/v1",
}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MODELS = f"/apis/{names.API_VERSION}/namespaces/default/{names.PLURAL}"


@dataclass(frozen=True)
class Server:
    """An API server with its controllers, and Helm for it."""

    helm: Helm
    kubeconfig: Path
    api: KubeApi

    async def install(self, release: Release = RELEASE) -> None:
        await asyncio.to_thread(self.helm.install, release, kubeconfig=self.kubeconfig)

    async def upgrade(self) -> None:
        await asyncio.to_thread(self.helm.upgrade, RELEASE, kubeconfig=self.kubeconfig)

    async def uninstall(self) -> None:
        await asyncio.to_thread(
            self.helm.uninstall, RELEASE.name, NAMESPACE, kubeconfig=self.kubeconfig
        )

    async def may(self, user: str, verb: str, resource: str, namespace: str = "default") -> bool:
        """Whether the API server would let a user do something."""
        group_and_resource, _, subresource = resource.partition("/")
        plural, _, group = group_and_resource.partition(".")
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "resourceAttributes": {
                    "namespace": namespace,
                    "verb": verb,
                    "group": group,
                    "resource": plural,
                    "subresource": subresource,
                },
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self.api.request("POST", path, body=review)
        return bool(answer["status"]["allowed"])

    async def served(self) -> bool:
        """Whether the API server serves our kind yet."""
        try:
            await self.api.request("GET", MODELS)
        except ApiException as error:
            if error.status == 404:
                return False
            raise
        return True


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    with Progress() as progress:
        binaries = await asyncio.to_thread(ensure_binaries, progress)
    helm = await asyncio.to_thread(find_helm)
    plane = await start_control_plane(
        tmp_path_factory.mktemp("control-plane"),
        binaries,
        cluster="chart",
        services=ipaddress.IPv4Network("10.96.0.0/16"),
    )
    kubeconfig = plane.credentials.kubeconfig(ADMIN)
    try:
        async with connect(kubeconfig) as client:
            yield Server(helm, kubeconfig, KubeApi(client))
    finally:
        await asyncio.to_thread(plane.stop)


@pytest.fixture(scope="module")
async def installed(server: Server) -> AsyncIterator[Server]:
    """Once for all: whoever uninstalls it installs it again."""
    await server.install()
    await until(server.served, "the API is served")
    yield server
    await server.uninstall()


def model() -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load(
        (ROOT / "examples/gitops/models/kimi-k2.yaml").read_text()
    )
    return manifest


async def test_upgrade_of_an_unchanged_chart_changes_nothing(installed: Server) -> None:
    path = f"{CRDS}/{names.PLURAL}.{names.GROUP}"
    before = await installed.api.request("GET", path)
    await installed.upgrade()
    after = await installed.api.request("GET", path)
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["spec"] == before["spec"]


@pytest.mark.parametrize(
    ("verb", "resource", "allowed"),
    [
        ("list", "speculativedeployments.fathom.dev", True),
        ("patch", "speculativedeployments.fathom.dev/status", True),
        ("patch", "speculativedeployments.fathom.dev", False),
        ("update", "speculativedeployments.fathom.dev", False),
        ("patch", "speculativedeployments.fathom.dev/scale", False),
        ("patch", "deployments.apps", True),
        ("patch", "pods", True),
        # One at a time, where `rollout.refresh` is Auto.
        ("delete", "pods", True),
        ("delete", "services", False),
        ("create", "pods/exec", False),
        ("get", "secrets", False),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io", False),
        # Leases only where the operator itself lives.
        ("update", "leases.coordination.k8s.io", False),
    ],
)
async def test_operator_s_rights(
    installed: Server, verb: str, resource: str, *, allowed: bool
) -> None:
    assert await installed.may(OPERATOR, verb, resource) is allowed


async def test_operator_holds_its_lease_in_its_own_namespace(installed: Server) -> None:
    for verb in ("get", "create", "update"):
        assert await installed.may(OPERATOR, verb, "leases.coordination.k8s.io", NAMESPACE)


async def test_users_of_the_built_in_roles_get_the_same_on_models(installed: Server) -> None:
    for role in ("view", "edit"):
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"test-{role}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
            "subjects": [{"kind": "User", "name": role, "apiGroup": "rbac.authorization.k8s.io"}],
        }
        path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
        await installed.api.request("POST", path, body=binding)

    async def aggregated() -> bool:
        return await installed.may("edit", "create", "speculativedeployments.fathom.dev")

    await until(aggregated, "the role edit covers SpeculativeDeployments")
    assert await installed.may("view", "list", "speculativedeployments.fathom.dev")
    assert not await installed.may("view", "patch", "speculativedeployments.fathom.dev")
    assert not await installed.may("edit", "patch", "speculativedeployments.fathom.dev/status")


async def test_models_survive_an_uninstall_and_a_new_install(installed: Server) -> None:
    await installed.api.request("POST", MODELS, body=model())
    await installed.uninstall()
    kept = await installed.api.request("GET", f"{MODELS}/kimi-k2")
    assert kept["spec"]["speculation"]["tokens"] == 3
    await installed.install()
    again = await installed.api.request("GET", f"{MODELS}/kimi-k2")
    assert again["metadata"]["uid"] == kept["metadata"]["uid"]
    await installed.api.request("DELETE", f"{MODELS}/kimi-k2")


async def test_upgrade_brings_a_newer_api(installed: Server, tmp_path: Path) -> None:
    """Helm's own crds/ folder would leave the old definition in place."""
    await installed.uninstall()
    older = shutil.copytree(RELEASE.chart, tmp_path / "fathom")
    file = older / "files" / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml"
    definition = yaml.safe_load(file.read_text())
    definition["spec"]["names"]["categories"] = ["fathom"]
    file.write_text(yaml.safe_dump(definition))
    await installed.install(replace(RELEASE, chart=older))
    path = f"{CRDS}/{names.PLURAL}.{names.GROUP}"
    before = await installed.api.request("GET", path)
    await installed.upgrade()
    after = await installed.api.request("GET", path)
    assert before["spec"]["names"]["categories"] == ["fathom"]
    assert after["spec"]["names"]["categories"] == list(names.CATEGORIES)


async def test_the_server_takes_the_kustomize_base(installed: Server) -> None:
    """By server-side apply, which refuses a field that the server does not know, as a dry run."""
    query = {"dryRun": "All", "fieldManager": "kustomize", "force": "true"}
    for file in sorted(BASE.glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text()):
            if manifest["kind"] == "Kustomization":
                continue
            metadata = manifest["metadata"]
            place = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
            path = f"{API_PATHS[manifest['apiVersion']]}/{place}{manifest['kind'].lower()}s"
            taken = await installed.api.request(
                "PATCH",
                f"{path}/{metadata['name']}",
                body=manifest,
                query=query,
                content_type="application/apply-patch+yaml",
            )
            assert taken["metadata"]["name"] == metadata["name"]


async def test_an_empty_string_is_a_value(installed: Server) -> None:
    """An API server that takes it for null would refuse the defaults, too."""
    manifest = model()
    manifest["spec"]["draft"]["revision"] = ""
    created = await installed.api.request("POST", MODELS, body=manifest)
    assert created["spec"]["draft"]["revision"] == ""
    await installed.api.request("DELETE", f"{MODELS}/kimi-k2")
