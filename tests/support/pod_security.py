"""The pod security standards of Kubernetes, as far as a pod template can break them.

Source: kubernetes.io/docs/concepts/security/pod-security-standards. Of the fields that an engine's
pod never sets (sysctls, AppArmor, SELinux, procMount, ports of the host) nothing is looked at.
"""

from collections.abc import Mapping
from typing import Any, Final

_RESTRICTED_VOLUMES: Final = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_BASELINE_CAPABILITIES: Final = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)


def below_baseline(found: Mapping[str, Any]) -> list[str]:
    """What keeps a pod from `baseline`."""
    host = [name for name in ("hostNetwork", "hostPID", "hostIPC") if found.get(name)]
    paths = [volume["name"] for volume in found["volumes"] if "hostPath" in volume]
    own = [container.get("securityContext", {}) for container in found["containers"]]
    added = [name for each in own for name in each.get("capabilities", {}).get("add", [])]
    profiles = [
        each["seccompProfile"]["type"]
        for each in (found["securityContext"], *own)
        if "seccompProfile" in each
    ]
    return [
        *host,
        *paths,
        *(name for name in added if name not in _BASELINE_CAPABILITIES),
        *(name for name in profiles if name == "Unconfined"),
        *("privileged" for each in own if each.get("privileged")),
    ]


def below_restricted(found: Mapping[str, Any]) -> list[str]:
    """What keeps a pod from `restricted`."""
    whole = found["securityContext"]
    missing = below_baseline(found)
    missing += [
        kind
        for volume in found["volumes"]
        for kind in volume
        if kind != "name" and kind not in _RESTRICTED_VOLUMES
    ]
    for container in found["containers"]:
        own = container.get("securityContext", {})
        capabilities = own.get("capabilities", {})
        if own.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
            missing.append("runAsNonRoot")
        if own.get("runAsUser", whole.get("runAsUser")) == 0:
            missing.append("runAsUser")
        if own.get("allowPrivilegeEscalation") is not False:
            missing.append("allowPrivilegeEscalation")
        if "ALL" not in capabilities.get("drop", []):
            missing.append("capabilities.drop")
        missing += [name for name in capabilities.get("add", []) if name != "NET_BIND_SERVICE"]
        if own.get("seccompProfile", whole.get("seccompProfile")) is None:
            missing.append("seccompProfile")
    return missing
