"""etcd, the API server, the controllers and the scheduler as processes of this machine."""

import asyncio
import ipaddress
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from pydantic import BaseModel, ConfigDict

from local_cluster.control_plane.audit import write_policy
from local_cluster.control_plane.binaries import Binaries
from local_cluster.control_plane.credentials import (
    ADMIN,
    CONTROLLER_MANAGER,
    KUBELET,
    SCHEDULER,
    Credentials,
    create_credentials,
)
from local_cluster.errors import LocalClusterError
from local_cluster.processes import (
    ProcessRecord,
    daemon_environment,
    last_lines,
    start_daemon,
    stop_processes,
)

READY_SECONDS = 600.0
"""Ten times what a slow machine takes; a part of it that ends by itself is told at once."""
POLL_SECONDS = 0.1
LOOPBACK = ipaddress.IPv4Address("127.0.0.1")
TOKENS_ALWAYS_BOUND = (1, 22)
"""The release from which on tokens are bound without a feature gate."""
SECURE_PORT_ONLY = (1, 24)
"""The release from which on the controllers have no port without encryption, nor a flag for it."""
# What has nothing to do here: there is no cloud, no disk to attach, no node to approve. Each
# would poll the API server for ever.
UNUSED_CONTROLLERS = (
    "attachdetach",
    "bootstrapsigner",
    "cloud-node-lifecycle",
    "csrapproving",
    "csrcleaner",
    "csrsigning",
    "endpointslicemirroring",
    "horizontalpodautoscaling",
    "nodeipam",
    "persistentvolume-binder",
    "persistentvolume-expander",
    "pv-protection",
    "pvc-protection",
    "route",
    "service",
    "serviceaccount-token",
    "tokencleaner",
    "ttl",
)


class ControlPlane(BaseModel):
    """A control plane's place, addresses and processes."""

    model_config = ConfigDict(frozen=True)

    directory: Path
    version: str = "1.20.2"
    """Version of Kubernetes, such as 1.36.2. A cluster that was started before this was noted, and
    is to be taken down, can be of no other."""
    address: ipaddress.IPv4Address
    port: int
    credentials: Credentials
    processes: tuple[ProcessRecord, ...]
    """In the order of their start."""

    @property
    def release(self) -> tuple[int, int]:
        """Release of Kubernetes, such as (1, 36)."""
        return _release(self.version)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.credentials.kubeconfig(ADMIN)

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    def stop(self) -> None:
        """Ends the processes, last started first; idempotent."""
        for record in reversed(self.processes):
            stop_processes([record])


async def start_control_plane(
    directory: Path,
    binaries: Binaries,
    *,
    cluster: str,
    services: ipaddress.IPv4Network,
    address: ipaddress.IPv4Address = LOOPBACK,
    controllers: bool = True,
    started: Callable[[ControlPlane], None] = lambda _: None,
) -> ControlPlane:
    """Starts an empty control plane and waits until its API server is ready.

    Args:
        directory: where its data, logs and credentials go; what is there is deleted.
        binaries: the programs.
        cluster: its name in the kubeconfigs.
        services: the network that Services get their addresses from.
        address: where the API server listens.
        controllers: also start the controller-manager and the scheduler, without which no
            Deployment makes a pod.
        started: called after each process, with all so far: for who must find them if this
            command is killed before they are complete.

    Raises:
        LocalClusterError: a part did not start; none is left running then.
    """
    version = await asyncio.to_thread(binaries.version)
    release = _release(version)
    await asyncio.to_thread(_empty, directory)
    etcd_port, peer_port, port = _free_ports(address)
    credentials = await asyncio.to_thread(
        create_credentials,
        directory / "credentials",
        cluster=cluster,
        address=address,
        port=port,
        service=services[1],
    )
    write_policy(
        directory / "audit-policy.yaml",
        quiet_users=["system:apiserver", CONTROLLER_MANAGER, SCHEDULER, KUBELET],
    )
    etcd = f"http://{LOOPBACK}:{etcd_port}"
    peers = f"http://{LOOPBACK}:{peer_port}"
    commands = {
        "etcd": [
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--logger=zap",
            # With one member no election can be lost; the ticks only cost.
            "--heartbeat-interval=1000",
            "--election-timeout=5000",
        ],
        "kube-apiserver": [
            f"--etcd-servers={etcd}",
            f"--bind-address={address}",
            f"--advertise-address={address}",
            f"--secure-port={port}",
            f"--tls-cert-file={credentials.server_certificate}",
            f"--tls-private-key-file={credentials.server_key}",
            f"--kubelet-certificate-authority={credentials.ca_certificate}",
            f"--kubelet-client-certificate={credentials.server_certificate}",
            f"--kubelet-client-key={credentials.server_key}",
            # Nobody here knows the nodes by name.
            "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={credentials.tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={credentials.service_account_public_key}",
            f"--service-account-signing-key-file={credentials.service_account_key}",
            f"--service-cluster-ip-range={services}",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            "--profiling=false",
            f"--audit-policy-file={directory / 'audit-policy.yaml'}",
            f"--audit-log-path={directory / 'audit.log'}",
            *(admission_flags(release, controllers=controllers)),
        ],
    }
    if controllers:
        commands |= controller_commands(release, credentials)
    plane = ControlPlane(
        directory=directory,
        version=version,
        address=address,
        port=port,
        credentials=credentials,
        processes=(),
    )

    def start(name: str, flags: list[str]) -> None:
        nonlocal plane
        record = _start(directory, binaries, name, flags)
        plane = plane.model_copy(update={"processes": (*plane.processes, record)})
        started(plane)

    # A controller does not wait for an API server that is late, it exits.
    starts = iter(commands.items())
    try:
        for name, flags in _take(starts, 2):
            start(name, flags)
        await _wait_ready(plane)
        for name, flags in starts:
            start(name, flags)
    except BaseException:
        stop_processes(list(reversed(plane.processes)))
        raise
    return plane


def _empty(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


def _take(items: Iterator[tuple[str, list[str]]], count: int) -> Iterator[tuple[str, list[str]]]:
    for _ in range(count):
        yield next(items)


def _release(version: str) -> tuple[int, int]:
    major, minor, _ = version.split(".")
    return int(major), int(minor)


def admission_flags(release: tuple[int, int], *, controllers: bool) -> list[str]:
    """Flags of an API server of this release, such as (1, 36)."""
    if not controllers:
        # Nobody makes the service account that this plugin would demand of each pod.
        return ["--disable-admission-plugins=ServiceAccount"]
    flags = ["--enable-priority-and-fairness=false"]
    if release < TOKENS_ALWAYS_BOUND:
        # With it a pod gets the projected token volume of a current cluster.
        flags.append("--feature-gates=BoundServiceAccountTokenVolume=true")
    return flags


def controller_commands(release: tuple[int, int], credentials: Credentials) -> dict[str, list[str]]:
    """The flags of the controllers and the scheduler of this release, by program."""
    common = ["--leader-elect=false", "--secure-port=0", "--profiling=false"]
    if release < SECURE_PORT_ONLY:
        common.append("--port=0")
    return {
        "kube-controller-manager": [
            f"--kubeconfig={credentials.kubeconfig(CONTROLLER_MANAGER)}",
            f"--root-ca-file={credentials.ca_certificate}",
            "--controllers=*," + ",".join(f"-{name}" for name in UNUSED_CONTROLLERS),
            "--kube-api-qps=100",
            "--kube-api-burst=200",
            "--node-monitor-period=10s",
            "--node-monitor-grace-period=60s",
            *common,
        ],
        "kube-scheduler": [
            f"--kubeconfig={credentials.kubeconfig(SCHEDULER)}",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
            *common,
        ],
    }


def _start(directory: Path, binaries: Binaries, name: str, flags: list[str]) -> ProcessRecord:
    environment = daemon_environment() | {"GOGC": os.environ.get("GOGC", "100")}
    return start_daemon(
        name,
        [str(binaries.path(name)), *flags],
        log=directory / "logs" / f"{name}.log",
        env=environment,
    )


async def _wait_ready(plane: ControlPlane) -> None:
    verify = ssl.create_default_context(cafile=str(plane.credentials.ca_certificate))
    url = f"https://{plane.address}:{plane.port}/readyz"
    deadline = time.monotonic() + READY_SECONDS
    async with httpx.AsyncClient(verify=verify, trust_env=False, timeout=2.0) as client:
        while time.monotonic() < deadline:
            for record in plane.processes:
                if record.find() is None:
                    raise LocalClusterError(_did_not_start(plane, record.name, "exited"))
            try:
                if (await client.get(url)).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(POLL_SECONDS)
    reason = f"was not ready within {READY_SECONDS:.0f} s"
    raise LocalClusterError(_did_not_start(plane, "kube-apiserver", reason))


def _did_not_start(plane: ControlPlane, name: str, what: str) -> str:
    log = plane.directory / "logs" / f"{name}.log"
    return f"{name} {what}; the end of {log}:\n{last_lines(log)}"


def _free_ports(address: ipaddress.IPv4Address) -> tuple[int, int, int]:
    """Three ports that were free a moment ago: two on loopback, one on `address`."""
    sockets = [socket.socket() for _ in range(3)]
    try:
        for opened, host in zip(sockets, (LOOPBACK, LOOPBACK, address), strict=True):
            opened.bind((str(host), 0))
        etcd, peer, server = (opened.getsockname()[1] for opened in sockets)
    finally:
        for opened in sockets:
            opened.close()
    return etcd, peer, server
