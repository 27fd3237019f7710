"""A pod's /etc/hosts, which is also its DNS.

Names of Services resolve to their addresses, and names of pods behind headless ones to the pods'.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from local_cluster.kube import Object
from local_cluster.kubelet.models import Pod

DOMAIN = "cluster.local"


@dataclass(frozen=True, slots=True)
class NamedPod:
    """A pod that asks for a name below a headless Service's, as those of a StatefulSet do."""

    namespace: str
    service: str
    hostname: str
    labels: Mapping[str, str]
    address: str
    ready: bool


def named_pod(pod: Pod) -> NamedPod | None:
    """None: nobody can ask for it by a name of its own, or not yet, or no longer."""
    spec = pod.spec
    if not (spec.hostname and spec.subdomain and pod.status.pod_ip) or pod.finished:
        return None
    return NamedPod(
        namespace=pod.metadata.namespace,
        service=spec.subdomain,
        hostname=spec.hostname,
        labels=pod.metadata.labels,
        address=pod.status.pod_ip,
        ready=pod.ready,
    )


def hosts_text(
    pod: Pod, pod_ip: str, services: Iterable[Object], named_pods: Iterable[NamedPod] = ()
) -> str:
    """The file for one pod, as of these services and pods."""
    lines = [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        f"{pod_ip} {pod.metadata.name}",
    ]
    lines += [f"{alias.ip} {' '.join(alias.hostnames)}" for alias in pod.spec.host_aliases]
    known = list(named_pods)
    for service in services:
        namespace = service["metadata"]["namespace"]
        for address, name in _names(service, known):
            names = [f"{name}.{namespace}.svc.{DOMAIN}", f"{name}.{namespace}.svc"]
            names.append(f"{name}.{namespace}")
            if namespace == pod.metadata.namespace:
                names.append(name)
            lines.append(f"{address} {' '.join(names)}")
    return "".join(f"{line}\n" for line in lines)


def _names(service: Object, named_pods: Iterable[NamedPod]) -> Iterator[tuple[str, str]]:
    """Addresses, and what each is called within the namespace."""
    spec, name = service["spec"], service["metadata"]["name"]
    address = spec.get("clusterIP")
    if address not in (None, "", "None"):
        yield address, name
    elif address == "None":
        for pod in named_pods:
            if _selects(service, pod) and (pod.ready or spec.get("publishNotReadyAddresses")):
                yield pod.address, f"{pod.hostname}.{name}"


def _selects(service: Object, pod: NamedPod) -> bool:
    selector = service["spec"].get("selector")
    place = (service["metadata"]["namespace"], service["metadata"]["name"])
    return (
        bool(selector)
        and place == (pod.namespace, pod.service)
        and selector.items() <= pod.labels.items()
    )


def write_hosts(path: Path, text: str) -> None:
    """Rewrites the file in place: containers have mounted this very inode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_text() == text:
        return
    with path.open("r+" if path.exists() else "w") as file:
        file.write(text)
        file.truncate()
