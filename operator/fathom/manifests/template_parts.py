"""Parts of a pod template: what a user merges over it, and what its pods may do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.replica_layout import Role
from fathom.manifests.group import for_worker

Part = Mapping[str, JsonValue]
POD_TEMPLATE: Final = "spec.podTemplate"
WORKER_TEMPLATE: Final = "spec.workerTemplate"
HOME: Final = "/home/vllm"
"""Where the passwd of stock images has the home of their user 2000, so that programs which ask it
and not the environment find the same."""
USER_NAME: Final = "vllm"
_WRITABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        # vLLM's, Triton's, FlashInfer's and CUDA's caches, and without a claim the weights.
        "home": HOME,
        # Sockets between vLLM's processes, torch's compiled code, temporary files.
        "tmp": "/tmp",  # noqa: S108 - a mount of the pod's own
    }
)
"""Volumes, and where they lie: all that is written to besides /dev/shm and the claim."""


def part(template: JsonValue | Part, *path: str) -> Part:
    """The object at a path; empty: there is none."""
    found: JsonValue | Part = template
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def parts(template: JsonValue | Part, *path: str) -> tuple[Part, ...]:
    """The objects in the list at a path; empty: there is none."""
    *parents, last = path
    found = part(template, *parents).get(last)
    return tuple(each for each in _members(found) if isinstance(each, Mapping))


def texts(template: JsonValue | Part, *path: str) -> tuple[str, ...]:
    """The texts in the list at a path; empty: there is none."""
    *parents, last = path
    found = part(template, *parents).get(last)
    return tuple(each for each in _members(found) if isinstance(each, str))


def texts_by_name(template: JsonValue | Part, *path: str) -> Mapping[str, str]:
    """The texts in the object at a path, such as its labels; empty: there are none."""
    return {key: each for key, each in part(template, *path).items() if isinstance(each, str)}


def by(key: str, items: Sequence[Part]) -> Mapping[str, Part]:
    """Objects by what they hold at a key, as text."""
    return {str(item[key]): item for item in items if key in item}


def _members(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class Overlay:
    field: str
    """Path of it."""
    given: Mapping[str, JsonValue]
    """As its user wrote it, as far as it concerns the pods in question."""


def overlays(spec: SpeculativeDeploymentSpec, role: Role) -> tuple[Overlay, ...]:
    """In the order in which they are merged; the last is for such pods alone."""
    if role is Role.LEADER:
        return (Overlay(POD_TEMPLATE, spec.pod_template),)
    return (
        Overlay(POD_TEMPLATE, for_worker(spec.pod_template, names.ENGINE_CONTAINER)),
        Overlay(WORKER_TEMPLATE, spec.worker_template),
    )


def pod_security(user: int | None) -> dict[str, JsonValue]:
    """The pod's `securityContext`."""
    context: dict[str, JsonValue] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if user is not None:
        # No group: the image's passwd says it, and 0 where it does not know the user. Stock images
        # let group 0 read and write what is theirs (vLLM's docs/deployment/docker.md).
        context |= {
            "runAsNonRoot": True,
            "runAsUser": user,
            "fsGroup": user,
            # Else every start walks through all files of the claim.
            "fsGroupChangePolicy": "OnRootMismatch",
        }
    return context


def container_security(user: int | None) -> dict[str, JsonValue]:
    """The engine container's `securityContext`."""
    context: dict[str, JsonValue] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    if user is not None:
        context["readOnlyRootFilesystem"] = True
    return context


def user_env(user: int | None) -> Mapping[str, str]:
    """What a user needs that the image's passwd need not know; empty: the image has its own."""
    if user is None:
        return {}
    # torch asks for the user's name while it is imported (getpass.getuser).
    return {"HOME": HOME, "USER": USER_NAME}


def writable_volumes(user: int | None) -> list[JsonValue]:
    """What takes the place of a root filesystem that cannot be written to."""
    return [{"name": name, "emptyDir": {}} for name in _written(user)]


def writable_mounts(user: int | None) -> list[JsonValue]:
    """Where the container has them."""
    return [{"name": name, "mountPath": path} for name, path in _written(user).items()]


def _written(user: int | None) -> Mapping[str, str]:
    return {} if user is None else _WRITABLE
