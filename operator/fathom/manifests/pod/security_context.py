"""What a pod may do: nothing that serving does not need.

Without `engine.user` the image decides who it runs as, since a stock image's files are root's and a
claim filled by root cannot be written to by anybody else. Even then a pod gains no privileges, and
root has no capability: it is bound by the modes of files as any user is. With `engine.user` a pod
meets the `restricted` pod security standard: docs/security.md.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

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
