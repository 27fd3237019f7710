"""What is known of the clusters of this machine, across commands."""

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from local_cluster.control_plane.components import ControlPlane
from local_cluster.errors import LocalClusterError
from local_cluster.network import ClusterNetwork
from local_cluster.paths import state_dir
from local_cluster.processes import ProcessRecord

FILE_NAME = "cluster.json"
AGENTS = ("kubelet", "service_proxy")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
MEMORY_FILESYSTEM = Path("/dev/shm")  # noqa: S108 - pods' memory volumes belong on a tmpfs


class ClusterState(BaseModel):
    """A cluster that was started, wholly or in part."""

    model_config = ConfigDict(frozen=True)

    name: str
    network: ClusterNetwork
    owner: ProcessRecord | None = None
    """The command that the cluster ends with; None for one that stays until it is taken down."""
    control_plane: ControlPlane | None = None
    agents: tuple[ProcessRecord, ...] = ()
    """Those of `AGENTS` that were started."""

    @property
    def directory(self) -> Path:
        return cluster_directory(self.name)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        if self.control_plane is None:
            raise LocalClusterError(f"The cluster {self.name} has no control plane yet.")
        return self.control_plane.kubeconfig

    @property
    def pod_logs(self) -> Path:
        """One folder per pod, `NAMESPACE_NAME`; in it one file per container."""
        return self.directory / "pod-logs"

    @property
    def memory_directory(self) -> Path:
        """Memory volumes of the pods."""
        return MEMORY_FILESYSTEM / f"fathom-local-{self.name}"

    @property
    def processes(self) -> tuple[ProcessRecord, ...]:
        """All that were started."""
        plane = () if self.control_plane is None else self.control_plane.processes
        return (*plane, *self.agents)

    @property
    def running(self) -> bool:
        """Whether every part still runs."""
        complete = tuple(agent.name for agent in self.agents) == AGENTS
        return complete and all(record.find() is not None for record in self.processes)

    def save(self) -> None:
        """Replaces what is on disk, all at once."""
        self.directory.mkdir(parents=True, exist_ok=True)
        new = self.directory / f"{FILE_NAME}.new"
        new.write_text(self.model_dump_json(indent=2))
        new.rename(self.directory / FILE_NAME)


def cluster_directory(name: str) -> Path:
    """Where a cluster keeps everything.

    Raises:
        LocalClusterError: the name cannot be one.
    """
    if not NAME.fullmatch(name):
        raise LocalClusterError(
            f'"{name}" cannot name a cluster: use 1 to 32 of a-z, 0-9 and "-", and begin and end '
            "with a letter or digit."
        )
    return state_dir() / name


def load_state(name: str) -> ClusterState | None:
    """What is known of a cluster, or None."""
    path = cluster_directory(name) / FILE_NAME
    return ClusterState.model_validate_json(path.read_text()) if path.exists() else None


def all_states() -> list[ClusterState]:
    """All clusters that were started and not yet removed."""
    files = sorted(state_dir().glob(f"*/{FILE_NAME}"))
    return [ClusterState.model_validate_json(path.read_text()) for path in files]


@contextmanager
def locked() -> Iterator[None]:
    """Lets one command at a time choose addresses or change a cluster."""
    state_dir().mkdir(parents=True, exist_ok=True)
    with (state_dir() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
