"""A real operator process against a real API server, as a user with exactly the rights it needs."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.client.exceptions import ApiException

from local_cluster.control_plane.audit import AuditEvent, read_events
from local_cluster.demo.stage import CHART
from local_cluster.helm import Release, find_helm
from local_cluster.kube import Object
from rights.granted import LEASE_RULES, MODELS_RULES, NODE_RULES, Rule
from support.local_cluster import TestNamespace
from support.waiting import GUARD_S, until

CRD = Path(__file__).parents[2] / "crds" / "fathom.dev_speculativedeployments.yaml"
TUNER_CRD = CRD.with_name("fathom.dev_speculationtuners.yaml")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLUSTER_ROLE = ("ClusterRole", "fathom")
ACCOUNT = "fathom"
RULES: Sequence[Rule] = (*MODELS_RULES, *LEASE_RULES)
"""The chart's, as far as a Role can grant them."""


@dataclass
class Operator:
    """An operator that serves one namespace."""

    namespace: TestNamespace
    kubeconfig: Path
    log: Path
    leader_elect: bool = False
    """Hold a lease in that namespace."""
    page_port: int = 0
    """Where it serves its page; 0: it does not."""
    page_host: str = "127.0.0.1"
    """And at which address, as that of its pod."""
    environment: Mapping[str, str] = field(default_factory=lambda: {"HF_HUB_OFFLINE": "1"})
    """Beside this process's own; by default, as the models of most tests are on no hub."""
    arguments: Sequence[str] = ()
    """More of them."""
    pod: str = "operator-0"
    """Who holds the lease. One that is started again is the same."""
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace.name}:{ACCOUNT}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(Path(sys.executable).parent / "fathom"),
                    "run",
                    f"--kubeconfig={self.kubeconfig}",
                    f"--namespace={self.namespace.name}",
                    f"--{'' if self.leader_elect else 'no-'}leader-elect",
                    f"--lease-namespace={self.namespace.name}",
                    "--health-port=0",
                    "--metrics-port=0",
                    f"--page-port={self.page_port}",
                    f"--page-host={self.page_host}",
                    "--log-format=console",
                    *self.arguments,
                ],
                env={
                    **os.environ,
                    "POD_NAME": self.pod,
                    "POD_IP": self.page_host,
                    **self.environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """SIGKILL: nothing is said, nothing is tidied up."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(GUARD_S)

    async def terminate(self) -> int:
        """SIGTERM; the exit code."""
        process = self.process
        assert process is not None
        process.terminate()
        return await asyncio.to_thread(process.wait, GUARD_S)

    def requests(self) -> list[AuditEvent]:
        """All that this operator has asked of the API server so far."""
        log = self.namespace.cluster.audit_log
        return [event for event in read_events(log) if event.user == self.user]

    def writes(self) -> list[AuditEvent]:
        return [event for event in self.requests() if event.is_write]

    def said(self) -> str:
        return self.log.read_text()


@asynccontextmanager
async def operator_in(
    namespace: TestNamespace,
    directory: Path,
    *,
    leader_elect: bool = False,
    page_port: int = 0,
    page_host: str = "127.0.0.1",
    tuners_only: bool = False,
) -> AsyncIterator[Operator]:
    """Install the CRD, an account with the chart's rights in this namespace; start an operator."""
    await install_crd(namespace)
    rules = await asyncio.to_thread(_tuner_rules) if tuners_only else RULES
    kubeconfig = await account(namespace, directory, rules)
    operator = Operator(
        namespace,
        kubeconfig,
        directory / "operator.log",
        leader_elect,
        page_port=page_port,
        page_host=page_host,
        arguments=["--tuners-only"] if tuners_only else (),
    )
    operator.start()
    try:
        yield operator
    finally:
        if operator.process is not None and operator.process.poll() is None:
            operator.kill()


@cache
def _tuner_rules() -> Sequence[Rule]:
    """The chart's for an operator of tuners alone."""
    release = Release(CHART, "fathom", "fathom-system", {"tunersOnly": True})
    rendered = filter(None, yaml.safe_load_all(find_helm().template(release)))
    (role,) = (
        each for each in rendered if (each["kind"], each["metadata"]["name"]) == CLUSTER_ROLE
    )
    rules: Sequence[Rule] = role["rules"]
    return rules


async def install_crd(
    namespace: TestNamespace, definition: Mapping[str, Any] | None = None
) -> None:
    """Install a CRD, ours by default, unless it is there, and wait until it is served."""
    crd = yaml.safe_load(CRD.read_text()) if definition is None else definition
    try:
        await namespace.api.request("POST", CRDS, body=crd)
    except ApiException as error:
        if error.status != HTTPStatus.CONFLICT:
            raise

    async def established() -> bool:
        found = await namespace.api.request("GET", f"{CRDS}/{crd['metadata']['name']}")
        conditions = found.get("status", {}).get("conditions") or []
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    await until(established, "the CRD is established")


async def account(namespace: TestNamespace, directory: Path, rules: Sequence[Rule] = RULES) -> Path:
    """A ServiceAccount with these rights, by default the chart's; a kubeconfig with its token."""
    named = {"name": ACCOUNT}
    role = {"kind": "Role", "metadata": named, "rules": list(rules)}
    binding = {
        "kind": "RoleBinding",
        "metadata": named,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace.name}],
    }
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    await namespace.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named},
        rbac | role,
        rbac | binding,
    )
    if rules is RULES:
        await _may_see_nodes(namespace)
    token = await namespace.api.request(
        "POST",
        f"{namespace.path('ServiceAccount', ACCOUNT)}/token",
        body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    config: dict[str, Any] = yaml.safe_load(namespace.cluster.kubeconfig.read_text())
    config["users"] = [
        {"name": config["users"][0]["name"], "user": {"token": token["status"]["token"]}}
    ]
    path = directory / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def _may_see_nodes(namespace: TestNamespace) -> None:
    """What no Role can grant; it goes with the cluster."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    named = {"name": cluster_role_of(namespace)}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **named}
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace.name}
    await namespace.api.request(
        "POST", f"{rbac}/clusterroles", body={"metadata": named, "rules": NODE_RULES}
    )
    await namespace.api.request(
        "POST",
        f"{rbac}/clusterrolebindings",
        body={"metadata": named, "roleRef": role, "subjects": [account]},
    )


def cluster_role_of(namespace: TestNamespace) -> str:
    """The name of what this namespace's operator may do beyond it."""
    return f"fathom-{namespace.name}"


async def lease_in(namespace: TestNamespace) -> Object:
    """The lease of the operators of a namespace; empty: nobody has made one."""
    listed = await namespace.api.request("GET", LEASES.format(namespace.name))
    found: list[Object] = listed["items"]
    return found[0]["spec"] if found else {}
