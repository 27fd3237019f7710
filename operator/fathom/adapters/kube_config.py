"""How to reach the API server, and as whom."""

from pathlib import Path
from typing import Final

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class NoClusterError(Exception):
    """There is neither a kubeconfig nor a service account that can be used."""


async def load(kubeconfig: Path | None) -> Configuration:
    """Read a kubeconfig, the pod's service account, or the user's default kubeconfig.

    Raises:
        NoClusterError: with a sentence that says what was looked for.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None and IN_CLUSTER.exists():
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=None if kubeconfig is None else str(kubeconfig),
                client_configuration=configuration,
            )
    except (config.ConfigException, OSError) as error:
        where = f"{kubeconfig}" if kubeconfig else "a service account and the default kubeconfig"
        raise NoClusterError(f"no cluster to talk to: looked at {where}: {error}.") from error
    return configuration


def client(configuration: Configuration) -> ApiClient:
    """An API client of its own; nothing global. The caller closes it."""
    return ApiClient(configuration)
