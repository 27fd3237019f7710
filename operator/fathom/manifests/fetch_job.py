"""The Job that fetches weights into the cache."""

from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.cluster.manifest import Manifest
from fathom.fetch.state import COMPONENT, Fetch, FetchProgram
from fathom.manifests.cache import HUB_HOME
from fathom.manifests.engine_env import hub_token
from fathom.manifests.metadata import child_metadata
from fathom.manifests.program_job import Program, program_job
from fathom.manifests.template_parts import user_env
from fathom.resource import SpeculativeDeployment
from fathom_fetch.metrics import PORT

PROGRAM_DIRECTORY: Final = "/etc/fathom/fetch"
BACKOFF_LIMIT: Final = 1000
"""Restarts before Kubernetes gives up. They come five minutes apart in the end, so this is days: a
hub that is down, or access that is not granted yet, shall need nobody to start the Job again."""


def fetch_job(sd: SpeculativeDeployment, fetch: Fetch, program: FetchProgram) -> Manifest:
    """Never patched: another fetch is another Job."""
    return program_job(
        sd,
        Program(
            component=COMPONENT,
            job=names.fetch_job(sd.metadata.name, fetch.digest),
            config_map=names.fetch_config_map(sd.metadata.name, program.content),
            directory=PROGRAM_DIRECTORY,
            code=program,
            claim=fetch.claim,
            # In the same pod, so that one place tells of all attempts.
            restart_policy="OnFailure",
            policy={"backoffLimit": BACKOFF_LIMIT},
            container={
                "command": ["python3", "-m", "fathom_fetch", *_arguments(fetch)],
                "env": _env(sd),
                "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
                # No limits: one of CPU would slow down what unpacks and checks, and of memory also
                # what a slow volume has not taken yet counts. Where a quota wants some, a
                # LimitRange has them.
                "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
            },
        ),
    )


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
