"""The operator's own account, and the kind that it serves."""

import asyncio
from pathlib import Path
from typing import Final

import yaml

from benchmarks.scale.played import manifests
from fathom.api import names
from fathom.api.crd import custom_resource_definition
from fathom.runtime.options import RunOptions
from local_cluster.errors import LocalClusterError
from local_cluster.kube import KubeApi

NAMESPACE: Final = "fathom-system"
ACCOUNT: Final = "fathom"
USER: Final = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
"""As the audit log names it."""
LEASE: Final = (
    f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RunOptions().lease_name}"
)
"""Where the operator's lease is."""
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TOKEN_SECONDS: Final = 4 * 3600
_SERVED_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1


async def install(api: KubeApi) -> str:
    """Install the CRD and the operator's account.

    It may do everything: what is measured is how much it asks for, and the tests of the cluster say
    that the chart's rights are enough.

    Args:
        api: as the administrator.

    Returns:
        The account's token.

    Raises:
        LocalClusterError: the CRD is not served.
    """
    await api.request("POST", _CRDS, body=dict(custom_resource_definition()))
    await api.request("POST", "/api/v1/namespaces", body=manifests.namespace(NAMESPACE))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    await api.request("POST", accounts, body=account)
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
    await api.request("POST", f"/apis/{rbac}/v1/clusterrolebindings", body=binding)
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": _TOKEN_SECONDS},
    }
    answer = await api.request("POST", f"{accounts}/{ACCOUNT}/token", body=asked)
    await _served(api)
    token: str = answer["status"]["token"]
    return token


def write_kubeconfig(path: Path, admin: Path, token: str) -> None:
    """The administrator's kubeconfig, for whoever this token is of."""
    config = yaml.safe_load(admin.read_text())
    (user,) = config["users"]
    config["users"] = [{"name": user["name"], "user": {"token": token}}]
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))


async def _served(api: KubeApi) -> None:
    try:
        async with asyncio.timeout(_SERVED_SECONDS):
            while True:
                found = await api.request("GET", f"{_CRDS}/{names.PLURAL}.{names.GROUP}")
                conditions = found.get("status", {}).get("conditions") or []
                if any(
                    each["type"] == "Established" and each["status"] == "True"
                    for each in conditions
                ):
                    return
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise LocalClusterError(
            f"The API server does not serve {names.PLURAL} within {_SERVED_SECONDS:.0f} s."
        ) from error
