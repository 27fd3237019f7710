"""A pod's network: a namespace with one interface on the cluster's bridge."""

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path

from local_cluster.kubelet.containers import runner
from local_cluster.kubelet.problem import CREATE_CONTAINER_ERROR, PodProblem
from local_cluster.network import FIRST_POD_HOST, ClusterNetwork

START_SECONDS = 20.0
RUNNER = (sys.executable, "-I", "-S", str(Path(runner.__file__).absolute()))


class AddressPool:
    """Pod addresses, handed out in turn, so that one just given back rests a while."""

    def __init__(self, network: ClusterNetwork) -> None:
        hosts = list(network.pods.hosts())
        self._free = [str(address) for address in hosts[FIRST_POD_HOST - 1 :]]

    def take(self) -> str:
        """A free address.

        Raises:
            PodProblem: there is none.
        """
        if not self._free:
            raise PodProblem(CREATE_CONTAINER_ERROR, "All pod addresses are in use.")
        return self._free.pop(0)

    def give_back(self, address: str) -> None:
        """The inverse of `take`."""
        self._free.append(address)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Namespaces that a pod's containers join; held by a process that does nothing."""

    holder: asyncio.subprocess.Process
    address: str

    @property
    def pid(self) -> int:
        return self.holder.pid

    async def close(self) -> None:
        """Lets the namespaces go; with the last container gone the interface goes too."""
        with contextlib.suppress(ProcessLookupError):
            self.holder.kill()
        await self.holder.wait()


async def create_sandbox(network: ClusterNetwork, address: str, hostname: str) -> Sandbox:
    """Makes the namespaces and connects them.

    Raises:
        PodProblem: the kernel or `ip` refused.
    """
    holder = await asyncio.create_subprocess_exec(
        *RUNNER,
        "sandbox",
        hostname,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    sandbox = Sandbox(holder, address)
    try:
        async with asyncio.timeout(START_SECONDS):
            if holder.stdout is not None:
                # It closes at the exec that follows the creation of the namespaces.
                await holder.stdout.read()
            await _connect(network, sandbox)
    except BaseException:
        await sandbox.close()
        raise
    return sandbox


async def _connect(network: ClusterNetwork, sandbox: Sandbox) -> None:
    # Interface names are at most 15 characters; a pid is unique while its process lives.
    outside = f"{network.bridge}p{sandbox.pid}"
    await _ip(
        [],
        f"link add {outside} type veth peer name eth0 netns {sandbox.pid}\n"
        f"link set {outside} master {network.bridge} up\n",
    )
    await _ip(
        ["nsenter", f"--net=/proc/{sandbox.pid}/ns/net"],
        "link set lo up\n"
        f"addr add {sandbox.address}/{network.pods.prefixlen} dev eth0\n"
        "link set eth0 up\n"
        f"route add {network.services} via {network.gateway}\n",
    )


async def _ip(prefix: list[str], commands: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *prefix,
        "ip",
        "-batch",
        "-",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate(commands.encode())
    if process.returncode != 0:
        raise PodProblem(
            CREATE_CONTAINER_ERROR,
            f"The pod's network could not be set up: {errors.decode().strip()}",
        )
