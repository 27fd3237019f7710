"""A pod's /etc/hosts, which is also its DNS: service names resolve to service addresses."""

from collections.abc import Iterable
from pathlib import Path

from fathom_local.kube import Object
from fathom_local.kubelet.models import Pod

DOMAIN = "cluster.local"


def hosts_text(pod: Pod, pod_ip: str, services: Iterable[Object]) -> str:
    """The file for one pod, as of these services."""
    lines = [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        f"{pod_ip} {pod.metadata.name}",
    ]
    lines += [f"{alias.ip} {' '.join(alias.hostnames)}" for alias in pod.spec.host_aliases]
    for service in services:
        address = service["spec"].get("clusterIP")
        if address in (None, "", "None"):
            continue
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        names = [
            f"{name}.{namespace}.svc.{DOMAIN}",
            f"{name}.{namespace}.svc",
            f"{name}.{namespace}",
        ]
        if namespace == pod.metadata.namespace:
            names.append(name)
        lines.append(f"{address} {' '.join(names)}")
    return "".join(f"{line}\n" for line in lines)


def write_hosts(path: Path, text: str) -> None:
    """Rewrites the file in place: containers have mounted this very inode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_text() == text:
        return
    with path.open("r+" if path.exists() else "w") as file:
        file.write(text)
        file.truncate()
