"""The pods of one replica: the one that serves and, over several nodes, its headless workers."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.accelerators import preset_for, vendor_of
from fathom.api.spec import EngineSpec, NodePoolSpec
from fathom.engine.flags import COMMAND, HTTP_PORT, engine_args
from fathom.engine.plugin import PluginBundle
from fathom.engine.profile import EngineProfile
from fathom.engine.replica_layout import Role
from fathom.manifests.cache import CACHE_DIRECTORY, claim_of
from fathom.manifests.config_maps import code_volume
from fathom.manifests.engine_env import PLUGIN_DIRECTORY, engine_env, with_ours
from fathom.manifests.group import (
    container_claims,
    group_affinity,
    in_an_nvlink_partition,
    resource_claims,
    watched_worker,
)
from fathom.manifests.strategic_merge import merged, with_written_quantities
from fathom.manifests.template_parts import (
    Overlay,
    Part,
    container_security,
    overlays,
    part,
    parts,
    pod_security,
    writable_mounts,
    writable_volumes,
)
from fathom.resource import SpeculativeDeployment
from fathom_vllm.environment import DEPTH_DIRECTORY, DEPTH_KEY

HTTP_PORT_NAME: Final = "http"
"""Name of the port that answers, unless `podTemplate` gives it another."""
PLUGIN_VOLUME: Final = "fathom-plugin"
DEPTH_VOLUME: Final = "fathom-depth"
PRE_STOP_SECONDS: Final = 5
"""Endpoints need a moment to drop a terminating pod; until then it must go on accepting."""
GRACE_MARGIN_SECONDS: Final = 15
"""After the drain, for the engine to leave by itself before it is killed."""
STARTUP_PERIOD_SECONDS: Final = 5
LIVENESS_PERIOD_SECONDS: Final = 30
LIVENESS_FAILURES: Final = 20
"""Ten minutes: a long prefill or a graph capture may keep /health waiting, and a restart costs
more than any of them."""


def pod_template(
    sd: SpeculativeDeployment, *, revision: str, bundle: PluginBundle
) -> dict[str, JsonValue]:
    """The template of a serving pod, `podTemplate` merged in.

    Raises:
        MergeError: `podTemplate` does not fit.
    """
    return _template(sd, revision, Role.LEADER, bundle)


def worker_template(
    sd: SpeculativeDeployment, *, revision: str, bundle: PluginBundle
) -> dict[str, JsonValue]:
    """The template of a headless worker: the same engine, which no client reaches.

    Raises:
        MergeError: `podTemplate` or `workerTemplate` does not fit.
    """
    return _template(sd, revision, Role.WORKER, bundle)


def _template(
    sd: SpeculativeDeployment, revision: str, role: Role, bundle: PluginBundle
) -> dict[str, JsonValue]:
    built = built_template(sd, role, revision=revision, bundle=bundle)
    return with_overlays(sd.engine, built, overlays(sd.spec, role))


def built_template(
    sd: SpeculativeDeployment, role: Role, *, revision: str, bundle: PluginBundle
) -> dict[str, JsonValue]:
    """The template of a pod before anything is merged in."""
    labels = {**selector_labels(sd, revision), names.LABEL_ROLE: role.value}
    return _built(sd, labels, role, bundle)


def with_overlays(
    engine: EngineProfile, built: Mapping[str, JsonValue], given: Sequence[Overlay]
) -> dict[str, JsonValue]:
    """A template that was built, with what is merged over it.

    Raises:
        MergeError: one of them does not fit.
    """
    result = dict(built)
    patches = [each for each in given if each.given]
    if not patches:
        return result
    for each in patches:
        patch = {key: with_written_quantities(value) for key, value in each.given.items()}
        result = merged(result, patch, each.field)
    if engine.has_plugin:
        result = _with_our_variables(result)
    # Selectors stand on these, so no merge may change them.
    metadata = built["metadata"]
    return merged(result, {"metadata": metadata})


def _with_our_variables(template: Part) -> dict[str, JsonValue]:
    containers: list[JsonValue] = [
        {**each, "env": with_ours(parts(each, "env"))}
        if each.get("name") == names.ENGINE_CONTAINER
        else dict(each)
        for each in parts(template, "spec", "containers")
    ]
    return {**template, "spec": {**part(template, "spec"), "containers": containers}}


def _built(
    sd: SpeculativeDeployment, labels: dict[str, JsonValue], role: Role, bundle: PluginBundle
) -> dict[str, JsonValue]:
    spec = sd.spec
    return {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": sd.metadata.name,
            "automountServiceAccountToken": False,
            # A Service called `vllm` would put VLLM_PORT into every pod, and vLLM reads that.
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": (
                PRE_STOP_SECONDS + spec.engine.drain_seconds + GRACE_MARGIN_SECONDS
            ),
            "securityContext": pod_security(spec.engine.user),
            "nodeSelector": _node_selector(spec.node_pool),
            "tolerations": node_tolerations(spec.node_pool),
            **_affinity(sd),
            "containers": [_container(sd.engine, role)],
            "volumes": _volumes(sd, role, bundle),
            **resource_claims(sd),
        },
    }


def selector_labels(sd: SpeculativeDeployment, revision: str) -> dict[str, JsonValue]:
    """Labels that tell the pods of one revision from all others."""
    return {
        names.LABEL_NAME: sd.metadata.name,
        names.LABEL_REVISION: revision,
        names.LABEL_ROLE: names.ROLE_LEADER,
    }


def _container(engine: EngineProfile, role: Role) -> dict[str, JsonValue]:
    spec = engine.spec
    http: JsonValue = {"name": HTTP_PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"}
    serves = role is Role.LEADER
    return {
        "name": names.ENGINE_CONTAINER,
        "image": spec.engine.image,
        "command": list(COMMAND),
        "args": list(engine_args(engine, role)),
        "env": engine_env(engine, role),
        **({"ports": [http]} if serves else {}),
        "resources": _resources(engine),
        "securityContext": container_security(spec.engine.user),
        # vLLM leaves no message: the end of its log is what a crashed pod says of itself.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **(_watched_leader(spec.engine) if serves else watched_worker(spec.engine)),
        "volumeMounts": _volume_mounts(engine, role),
    }


def _watched_leader(engine: EngineSpec) -> dict[str, JsonValue]:
    """Probes of an engine that answers requests."""
    # By number: `podTemplate` may give the port another name.
    health: dict[str, JsonValue] = {"httpGet": {"path": "/health", "port": HTTP_PORT}}
    return {
        "startupProbe": {
            **health,
            "periodSeconds": STARTUP_PERIOD_SECONDS,
            "timeoutSeconds": STARTUP_PERIOD_SECONDS,
            "failureThreshold": engine.startup_minutes * 60 // STARTUP_PERIOD_SECONDS,
        },
        "readinessProbe": {
            **health,
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "livenessProbe": {
            **health,
            "periodSeconds": LIVENESS_PERIOD_SECONDS,
            "timeoutSeconds": LIVENESS_PERIOD_SECONDS,
            "failureThreshold": LIVENESS_FAILURES,
        },
        # By exec: API servers before 1.30 refuse preStop.sleep.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(PRE_STOP_SECONDS)]}}},
    }


def _resources(engine: EngineProfile) -> dict[str, JsonValue]:
    spec = engine.spec
    vendor = vendor_of(spec.node_pool)
    limits = _quantities(spec.engine.resources.limits)
    requests = _quantities(spec.engine.resources.requests)
    if vendor is not None:
        limits[vendor.resource] = str(engine.layout.gpus_per_pod)
        # Must equal the limit, which is its default.
        requests.pop(vendor.resource, None)
    return {
        **({"limits": limits} if limits else {}),
        **container_claims(engine.layout),
        **({"requests": requests} if requests else {}),
    }


def _quantities(quantities: Mapping[str, int | str]) -> dict[str, JsonValue]:
    """Quantities as Kubernetes keeps them: `8` and `"8"` are one."""
    return {name: str(quantity) for name, quantity in quantities.items()}


def _node_selector(pool: NodePoolSpec) -> dict[str, JsonValue]:
    vendor, product = vendor_of(pool), preset_for(pool).product
    asked = vendor is not None and product and pool.products is None
    own: dict[str, JsonValue] = {vendor.product_label: product} if vendor and asked else {}
    return {**own, **pool.node_selector}


def _affinity(sd: SpeculativeDeployment) -> dict[str, JsonValue]:
    affinity = group_affinity(sd)
    expressions = in_an_nvlink_partition(sd.engine.layout)
    products, vendor = sd.spec.node_pool.products, vendor_of(sd.spec.node_pool)
    if products and vendor is not None:
        values: JsonValue = list(products)
        expressions.append({"key": vendor.product_label, "operator": "In", "values": values})
    if expressions:
        term: JsonValue = {"matchExpressions": expressions}
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    return {"affinity": affinity} if affinity else {}


def node_tolerations(pool: NodePoolSpec) -> list[JsonValue]:
    """What lets a pod onto the nodes that replicas run on."""
    tolerations: list[JsonValue] = []
    if preset_for(pool).architecture == "arm64":
        tolerations.append(
            {
                "key": "kubernetes.io/arch",
                "operator": "Equal",
                "value": "arm64",
                "effect": "NoSchedule",
            }
        )
    if (vendor := vendor_of(pool)) is not None:
        tolerations.append({"key": vendor.resource, "operator": "Exists", "effect": "NoSchedule"})
    tolerations.extend(
        toleration.model_dump(mode="json", exclude_defaults=True) for toleration in pool.tolerations
    )
    return tolerations


def _volumes(sd: SpeculativeDeployment, role: Role, bundle: PluginBundle) -> list[JsonValue]:
    name, spec = sd.metadata.name, sd.spec
    volumes: list[JsonValue] = [
        _shared_memory(spec.engine.shared_memory),
        *writable_volumes(spec.engine.user),
    ]
    if claim := claim_of(sd):
        volumes.append({"name": "cache", "persistentVolumeClaim": {"claimName": claim}})
    if sd.engine.has_plugin:
        plugin = names.plugin_config_map(name, bundle.content)
        volumes.append(code_volume(PLUGIN_VOLUME, plugin, bundle))
    if sd.engine.live and role is Role.LEADER:
        volumes.append(
            {
                "name": DEPTH_VOLUME,
                "configMap": {
                    "name": names.depth_config_map(name),
                    "items": [{"key": DEPTH_KEY, "path": DEPTH_KEY}],
                },
            }
        )
    return volumes


def _shared_memory(limit: str) -> dict[str, JsonValue]:
    """Container runtimes give /dev/shm 64 MiB, in which an engine's workers cannot talk.

    Unlimited by default: what is written counts as the container's memory, so its limit holds, and
    a size that is too small for a model shows only when it is served.
    """
    memory: dict[str, JsonValue] = {"medium": "Memory"}
    if limit:
        memory["sizeLimit"] = limit
    return {"name": "shm", "emptyDir": memory}


def _volume_mounts(engine: EngineProfile, role: Role) -> list[JsonValue]:
    spec = engine.spec
    mounts: list[JsonValue] = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a mount
        *writable_mounts(spec.engine.user),
    ]
    if spec.cache.exists:
        mounts.append({"name": "cache", "mountPath": CACHE_DIRECTORY})
    if engine.has_plugin:
        mounts.append({"name": PLUGIN_VOLUME, "mountPath": PLUGIN_DIRECTORY, "readOnly": True})
    if engine.live and role is Role.LEADER:
        # The directory, never a subPath: such mounts are not refreshed.
        mounts.append({"name": DEPTH_VOLUME, "mountPath": DEPTH_DIRECTORY, "readOnly": True})
    return mounts
