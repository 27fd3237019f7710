"""The addresses of a cluster, and the bridge that carries them.

Pods hang off one bridge per cluster. Nothing is forwarded: pods reach each other, the host, and
service addresses, which are the host's own. An `unreachable` route of last resort keeps a packet
for an address that is not there from leaving through the machine's default route.
"""

import ipaddress
import json
import os
import subprocess
from collections.abc import Collection, Mapping

from pydantic import BaseModel, ConfigDict, Field

from local_cluster.errors import LocalClusterError

COMMAND_SECONDS = 10.0
LAST_RESORT_METRIC = 4_000_000
MAX_CLUSTERS = 64
FIRST_POD_HOST = 16
ALL_PODS = "10.244.0.0/16"
ALL_SERVICES = "10.96.0.0/16"
PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})


class ClusterNetwork(BaseModel):
    """The addresses of one cluster; all follow from its index."""

    model_config = ConfigDict(frozen=True)

    index: int = Field(ge=0, lt=MAX_CLUSTERS)

    @property
    def bridge(self) -> str:
        """Interface name; also what links the cluster to its pods' veth pairs."""
        return f"fathom{self.index}"

    @property
    def pods(self) -> ipaddress.IPv4Network:
        return ipaddress.IPv4Network(f"10.244.{self.index}.0/24")

    @property
    def services(self) -> ipaddress.IPv4Network:
        return ipaddress.IPv4Network(f"10.96.{self.index}.0/24")

    @property
    def gateway(self) -> ipaddress.IPv4Address:
        """The host, as pods see it; the API server listens here."""
        return self.pods[1]


def choose_network(taken: Collection[int]) -> ClusterNetwork:
    """A network that neither another cluster nor the machine uses.

    Raises:
        LocalClusterError: none is free.
    """
    routed = [
        ipaddress.ip_network(route["dst"])
        for route in json.loads(run_ip("-json", "-4", "route", "show", "table", "all") or "[]")
        if route["dst"] != "default"
    ]
    for index in range(MAX_CLUSTERS):
        network = ClusterNetwork(index=index)
        in_use = any(
            known.overlaps(network.pods) or known.overlaps(network.services) for known in routed
        )
        if index not in taken and not in_use:
            return network
    raise LocalClusterError(
        f"All of 10.244.0-{MAX_CLUSTERS - 1}.0/24 or 10.96.0-{MAX_CLUSTERS - 1}.0/24 are in use "
        "(see `ip route`). Stop a cluster with `fathom local down --name NAME`."
    )


def create_network(network: ClusterNetwork) -> None:
    """Creates the bridge and the routes of last resort; idempotent."""
    require_root()
    if not _link_exists(network.bridge):
        run_ip("link", "add", network.bridge, "type", "bridge")
    run_ip("addr", "replace", f"{network.gateway}/{network.pods.prefixlen}", "dev", network.bridge)
    run_ip("link", "set", network.bridge, "up")
    for subnet in (network.pods, network.services):
        run_ip(
            *("route", "replace", "unreachable", str(subnet)),
            *("metric", str(LAST_RESORT_METRIC)),
        )


def delete_network(network: ClusterNetwork) -> None:
    """Removes what `create_network` made, and the service addresses on it; idempotent."""
    if _link_exists(network.bridge):
        run_ip("link", "del", network.bridge)
    routes = run_ip("-4", "route", "show", "type", "unreachable")
    for subnet in (network.pods, network.services):
        if str(subnet) in routes:
            run_ip(
                *("route", "del", "unreachable", str(subnet)),
                *("metric", str(LAST_RESORT_METRIC)),
            )


def way_past_proxies(environment: Mapping[str, str]) -> str:
    """What lets kubectl, Helm and browsers reach the clusters where a proxy leads out.

    Returns:
        A sentence with the command; empty where there is no proxy, or it is kept out already.
    """
    proxies = sorted(name for name in environment if name.upper() in PROXIES and environment[name])
    name = "no_proxy" if "no_proxy" in environment else "NO_PROXY"
    kept_out = [each.strip() for each in environment.get(name, "").split(",") if each.strip()]
    missing = [each for each in (ALL_PODS, ALL_SERVICES) if each not in kept_out]
    if not proxies or not missing or "*" in kept_out:
        return ""
    return (
        f"{' and '.join(proxies)} lead{'s' if len(proxies) == 1 else ''} to a proxy: downloads "
        "take it, and clusters are on this machine. For kubectl, Helm and a browser: "
        f"export {name}={','.join((*kept_out, *missing))}"
    )


def require_root() -> None:
    """Checks for the privilege that namespaces and interfaces need.

    Raises:
        LocalClusterError: not root.
    """
    if os.geteuid() != 0:
        raise LocalClusterError(
            "`fathom local` gives each pod a network namespace and mounts, which needs root. Run "
            'it as root, for example with: sudo --preserve-env env "PATH=$PATH" fathom local …'
        )


def run_ip(*arguments: str, stdin: str | None = None) -> str:
    """Runs iproute2's `ip`.

    Raises:
        LocalClusterError: it is missing, fails, or hangs.
    """
    try:
        done = subprocess.run(
            ["ip", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise LocalClusterError(
            "Not on PATH: ip. Install with: apt-get install -y iproute2"
        ) from error
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        detail = str(error.stderr or error).strip()
        raise LocalClusterError(f"`ip {' '.join(arguments)}` failed: {detail}") from error
    return done.stdout


def _link_exists(name: str) -> bool:
    links = json.loads(run_ip("-json", "link", "show") or "[]")
    return any(link["ifname"] == name for link in links)
