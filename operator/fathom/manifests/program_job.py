"""A Job that runs a program of Fathom's in the engine's image, where the cache is mounted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.accelerators import preset_for
from fathom.cluster.manifest import Manifest
from fathom.engine.plugin import DeliveredCode
from fathom.manifests.cache import CACHE_DIRECTORY
from fathom.manifests.config_maps import code_volume
from fathom.manifests.metadata import child_metadata
from fathom.manifests.pod_template import node_tolerations
from fathom.manifests.template_parts import (
    container_security,
    part,
    pod_security,
    writable_mounts,
    writable_volumes,
)
from fathom.resource import SpeculativeDeployment

_FROM_POD_TEMPLATE: Final = (
    *("imagePullSecrets", "securityContext", "hostAliases", "dnsConfig", "dnsPolicy"),
    *("priorityClassName", "schedulerName", "runtimeClassName"),
)
"""What of `podTemplate.spec` a pod needs to start and to reach a hub from where the engine does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is run, and how its pod differs from another program's."""

    component: str
    """Its label, and the name of its container."""
    job: str
    config_map: str
    """That holds its code."""
    directory: str
    """Where its code lies in the pod."""
    code: DeliveredCode
    claim: str
    restart_policy: str
    policy: Mapping[str, JsonValue]
    """How often the Job tries, and for how long."""
    container: Mapping[str, JsonValue]
    """Command, variables and resources."""
    mounts: tuple[JsonValue, ...] = ()
    """Besides the cache and its code."""


def program_job(sd: SpeculativeDeployment, program: Program) -> Manifest:
    """Runs in the engine's image, where its claim is mounted, on any node of its architecture."""
    labels: dict[str, JsonValue] = {
        names.LABEL_NAME: sd.metadata.name,
        names.LABEL_COMPONENT: program.component,
    }
    component = {names.LABEL_COMPONENT: program.component}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": child_metadata(sd, program.job, labels=component),
        "spec": {
            **program.policy,
            "template": {"metadata": {"labels": labels}, "spec": _pod(sd, program)},
        },
    }


def _pod(sd: SpeculativeDeployment, program: Program) -> dict[str, JsonValue]:
    template = part(sd.spec.pod_template, "spec")
    from_template = {key: template[key] for key in _FROM_POD_TEMPLATE if key in template}
    own_security = part(from_template, "securityContext")
    from_template.pop("securityContext", None)
    code = f"fathom-{program.component}"
    return {
        "serviceAccountName": sd.metadata.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": program.restart_policy,
        # As the engine: what it writes has to be the engine's to read, and to add to.
        "securityContext": {**pod_security(sd.spec.engine.user), **own_security},
        "nodeSelector": node_selector(sd),
        "tolerations": node_tolerations(sd.spec.node_pool),
        "containers": [_container(sd, program, code)],
        "volumes": [
            *writable_volumes(sd.spec.engine.user),
            {"name": "cache", "persistentVolumeClaim": {"claimName": program.claim}},
            code_volume(code, program.config_map, program.code),
        ],
        **from_template,
    }


def node_selector(sd: SpeculativeDeployment) -> dict[str, JsonValue]:
    """The image's architecture, and what the user requires of nodes, such as a zone.

    No GPU: a node without one can fetch as well, and is easier to have.
    """
    architecture = preset_for(sd.spec.node_pool).architecture
    own: dict[str, JsonValue] = {"kubernetes.io/arch": architecture} if architecture else {}
    return {**own, **sd.spec.node_pool.node_selector}


def _container(sd: SpeculativeDeployment, program: Program, code: str) -> dict[str, JsonValue]:
    return {
        "name": program.component,
        "image": sd.spec.engine.image,
        **program.container,
        "securityContext": container_security(sd.spec.engine.user),
        # It leaves a message itself, unless it is killed.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *writable_mounts(sd.spec.engine.user),
            {"name": "cache", "mountPath": CACHE_DIRECTORY},
            {"name": code, "mountPath": program.directory, "readOnly": True},
            *program.mounts,
        ],
    }
