"""What is wrong with a container of a merged template, the engine's or another. Pure.

The API server would refuse some of it, and take the rest for what it is not.
"""

from collections.abc import Collection, Iterator
from typing import Final

from fathom.api import names
from fathom.api.problem import Problem
from fathom.engine.flags import HTTP_PORT
from fathom.manifests.pod.template_parts import Part, by, part, parts

_ASKING: Final = (
    ("startupProbe",),
    ("readinessProbe",),
    ("livenessProbe",),
    ("lifecycle", "preStop"),
    ("lifecycle", "postStart"),
)
"""Where a port of the container may be asked."""


def container_problems(container: Part, volumes: Collection[str], field: str) -> Iterator[Problem]:
    """What is wrong with one container.

    Args:
        container: as what is merged in left it.
        volumes: names of the pod's.
        field: path of the list that it stands in.
    """
    name, ports = container.get("name"), parts(container, "ports")
    if not container.get("image"):
        yield Problem(
            field,
            f"the container {name} needs an image. The engine's container is called "
            f"{names.ENGINE_CONTAINER}.",
        )
    if name != names.ENGINE_CONTAINER and str(HTTP_PORT) in by("containerPort", ports):
        yield Problem(field, f"port {HTTP_PORT} is the engine's: give {name} another one.")
    for mount in parts(container, "volumeMounts"):
        if mount.get("name") not in volumes:
            yield Problem(
                field,
                f"the container {name} mounts the volume {mount.get('name')}, which there is not: "
                f"add it to {field.rpartition('.')[0]}.volumes.",
            )
    for asked in sorted(_ports_by_name(container) - by("name", ports).keys()):
        yield Problem(
            field,
            f"no port of the container {name} is called {asked!r}, which a probe or hook asks: "
            "write the port's number.",
        )
    security = part(container, "securityContext")
    if security.get("privileged") and security.get("allowPrivilegeEscalation") is False:
        yield Problem(
            field,
            f"the container {name} cannot be privileged with allowPrivilegeEscalation: false, "
            "which Fathom sets: set that to true beside it.",
        )


def _ports_by_name(container: Part) -> set[str]:
    """Names by which probes and hooks ask the container itself."""
    ports = (
        part(container, *where, how).get("port")
        for where in _ASKING
        for how in ("httpGet", "tcpSocket")
    )
    return {port for port in ports if isinstance(port, str)}
