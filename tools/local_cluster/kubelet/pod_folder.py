import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PodFolder:
    """What a pod has on the host besides its volumes and its output."""

    path: Path

    @property
    def hosts(self) -> Path:
        """What its containers see as /etc/hosts."""
        return self.path / "hosts"

    def message(self, container: str) -> Path:
        """What the container leaves to be shown in its status."""
        return self.path / "messages" / container

    def make_message(self, container: str) -> Path:
        """An empty file that the container's program may write, whoever it runs as."""
        path = self.message(container)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        path.chmod(0o666)
        return path

    def make_root(self) -> Path:
        """Where the containers' roots are mounted."""
        root = self.path / "root"
        root.mkdir(parents=True, exist_ok=True)
        return root

    def remove(self) -> None:
        """All of it, but for what somebody still has mounted there."""
        self.hosts.unlink(missing_ok=True)
        shutil.rmtree(self.path / "messages", ignore_errors=True)
        # Not recursive: were a filesystem still mounted below, its files would be lost.
        for empty in (self.path / "root", self.path):
            with contextlib.suppress(OSError):
                empty.rmdir()
