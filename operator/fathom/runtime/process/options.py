from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class LogFormat(StrEnum):
    JSON = "json"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How `fathom run` runs."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; empty: all of them."""
    leader_elect: bool = True
    """Hold a lease, so that a second replica may stand by."""
    lease_name: str = "fathom-operator"
    lease_namespace: str = "fathom-system"
    health_port: int = 8080
    """Port of /healthz and /readyz; 0: none."""
    metrics_port: int = 9090
    """Port of the operator's own /metrics; 0: none."""
    page_port: int = 8081
    """Port of the page that people look at; 0: none."""
    page_host: str = "127.0.0.1"
    """The address that it listens on; empty: every one. It asks nobody who they are."""
    log_format: LogFormat = LogFormat.JSON
    kubeconfig: Path | None = None
    """None: the pod's service account, or else the user's default kubeconfig."""
