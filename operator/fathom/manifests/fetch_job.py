"""The Job that fetches weights into the cache."""

from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.accelerators import preset_for
from fathom.cluster.manifest import Manifest
from fathom.fetch.state import COMPONENT, CONTAINER, Fetch, FetchProgram
from fathom.manifests.cache import CACHE_DIRECTORY, HUB_HOME
from fathom.manifests.config_maps import code_volume
from fathom.manifests.engine_env import hub_token
from fathom.manifests.metadata import child_metadata
from fathom.manifests.pod_template import node_tolerations
from fathom.manifests.template_parts import (
    container_security,
    pod_security,
    user_env,
    writable_mounts,
    writable_volumes,
)
from fathom.resource import SpeculativeDeployment
from fathom_fetch.metrics import PORT

PROGRAM_DIRECTORY: Final = "/etc/fathom/fetch"
BACKOFF_LIMIT: Final = 1000
"""Restarts before Kubernetes gives up. They come five minutes apart in the end, so this is days: a
hub that is down, or access that is not granted yet, shall need nobody to start the Job again."""

_FROM_POD_TEMPLATE: Final = (
    *("imagePullSecrets", "securityContext", "hostAliases", "dnsConfig", "dnsPolicy"),
    *("priorityClassName", "schedulerName", "runtimeClassName"),
)
"""What of `podTemplate.spec` a pod needs to start and to reach a hub from where the engine does."""


def fetch_job(sd: SpeculativeDeployment, fetch: Fetch, program: FetchProgram) -> Manifest:
    """Runs in the engine's image, where its claim is mounted, on any node of its architecture.

    Never patched: another fetch is another Job.
    """
    name = names.fetch_job(sd.metadata.name, fetch.digest)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": child_metadata(sd, name, labels={names.LABEL_COMPONENT: COMPONENT}),
        "spec": {
            "backoffLimit": BACKOFF_LIMIT,
            "template": {
                "metadata": {
                    "labels": {
                        names.LABEL_NAME: sd.metadata.name,
                        names.LABEL_COMPONENT: COMPONENT,
                    }
                },
                "spec": _pod(sd, fetch, program),
            },
        },
    }


def _pod(sd: SpeculativeDeployment, fetch: Fetch, program: FetchProgram) -> dict[str, JsonValue]:
    template = sd.spec.pod_template.get("spec")
    template = template if isinstance(template, dict) else {}
    from_template: dict[str, JsonValue] = {
        key: template[key] for key in _FROM_POD_TEMPLATE if key in template
    }
    found = from_template.pop("securityContext", None)
    own_security = found if isinstance(found, dict) else {}
    return {
        "serviceAccountName": sd.metadata.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # In the same pod, so that one place tells of all attempts.
        "restartPolicy": "OnFailure",
        # As the engine: what it fetches has to be the engine's to read, and to add to.
        "securityContext": {**pod_security(sd.spec.engine.user), **own_security},
        "nodeSelector": node_selector(sd),
        "tolerations": node_tolerations(sd.spec.node_pool),
        "containers": [_container(sd, fetch)],
        "volumes": [
            *writable_volumes(sd.spec.engine.user),
            {"name": "cache", "persistentVolumeClaim": {"claimName": fetch.claim}},
            code_volume(
                "fathom-fetch", names.fetch_config_map(sd.metadata.name, program.content), program
            ),
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


def _container(sd: SpeculativeDeployment, fetch: Fetch) -> dict[str, JsonValue]:
    return {
        "name": CONTAINER,
        "image": sd.spec.engine.image,
        "command": ["python3", "-m", "fathom_fetch", *_arguments(fetch)],
        "env": _env(sd),
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        # No limits: one of CPU would slow down what unpacks and checks, and of memory also what a
        # slow volume has not taken yet counts. Where a quota wants some, a LimitRange has them.
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
        "securityContext": container_security(sd.spec.engine.user),
        # It leaves a message itself, unless it is killed.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *writable_mounts(sd.spec.engine.user),
            {"name": "cache", "mountPath": CACHE_DIRECTORY},
            {"name": "fathom-fetch", "mountPath": PROGRAM_DIRECTORY, "readOnly": True},
        ],
    }


def _arguments(fetch: Fetch) -> list[JsonValue]:
    arguments: list[JsonValue] = []
    for role, ref in fetch.by_role.items():
        arguments += [f"--{role}", ref.id]
        if ref.revision:
            arguments += [f"--{role}-revision", ref.revision]
    return [*arguments, "--whole"] if fetch.whole else arguments


def _env(sd: SpeculativeDeployment) -> list[JsonValue]:
    """The user's own reach a hub through the same proxies and mirrors as the engine would."""
    user: dict[str, JsonValue] = {
        each.name: each.model_dump(mode="json", exclude_defaults=True)
        for each in sd.spec.engine.env
        if each.name != "PYTHONPATH"
    }
    values = {"HF_HOME": HUB_HOME, **user_env(sd.spec.engine.user)}
    own: list[dict[str, JsonValue]] = [
        {"name": name, "value": value} for name, value in values.items()
    ]
    own += hub_token(sd.spec.model.token_secret_ref)
    return [
        *(variable for variable in own if variable["name"] not in user),
        {"name": "PYTHONPATH", "value": PROGRAM_DIRECTORY},
        *user.values(),
    ]


def cache_claim(sd: SpeculativeDeployment) -> Manifest:
    """The claim for the weights, where the spec asks for one by its size.

    Nobody owns it: weights of a terabyte must not go with a resource that was deleted by mistake,
    or to be made again. A resource of the same name finds it again.
    """
    cache = sd.spec.cache
    metadata = child_metadata(sd, names.cache_claim(sd.metadata.name))
    metadata.pop("ownerReferences", None)
    spec: dict[str, JsonValue] = {
        "accessModes": [mode.value for mode in cache.access_modes],
        "resources": {"requests": {"storage": cache.size}},
    }
    if cache.storage_class_name:
        spec["storageClassName"] = cache.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": spec,
    }
