"""The environment of the engine container.

On one node NCCL finds NVLink by itself. Told to use NVLink between nodes there, it looks for an
IMEX channel that such a pod rightly lacks, and `ncclCommInitRank` fails (ai-dynamo/dynamo,
recipes/deepseek-v4.1-flash/README.md). So nothing of this is a default for everybody.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from fathom.api.accelerators import preset_for
from fathom.api.pod_fields import EnvVar, SecretKeyRef
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.profile import EngineProfile
from fathom.engine.replica_layout import Role
from fathom.engine.start import MODEL_RUNNER_VARIABLE
from fathom.manifests.cache import HUB_HOME, compile_cache, offline
from fathom.manifests.template_parts import Part, by, overlays, part, user_env
from fathom_vllm.bundle import STAT_LOGGER_NAME
from fathom_vllm.environment import (
    COUNTERS_FILE,
    DEFAULT_COUNTERS_FILE,
    DEFAULT_DEPTH_FILE,
    DEPTH_FILE,
    POD_NAME,
    POD_UID,
)

NVLINK: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NCCL_MNNVL_ENABLE": "1",
        "NCCL_NVLS_ENABLE": "1",
        "NCCL_CUMEM_ENABLE": "1",
        "UCX_CUDA_IPC_ENABLE_MNNVL": "y",
    }
)
"""Without these a replica over two trays that has its claims fails anyway: "invalid resource
handle ... NCCL_MNNVL_CLIQUE_ID: unset" (ai-dynamo/dynamo, recipes/deepseek-v4-pro-0813, revision
555e6b6)."""

INTERFACE: Final[Mapping[str, str]] = MappingProxyType(
    {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
)
"""The pod's own interface, as every common CNI calls it. A pod with more of them, such as the RDMA
interfaces of GKE, else lets NCCL and Gloo choose, and they may choose one that leads nowhere."""
PLUGIN_DIRECTORY: Final = "/etc/fathom/plugin"
OURS: Final = frozenset({"PYTHONPATH", POD_NAME, DEPTH_FILE, COUNTERS_FILE})
"""Variables without which the plugin does nothing."""
_Variable = dict[str, JsonValue]
_SHARED: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"PYTHONPATH": (PLUGIN_DIRECTORY, ":"), "VLLM_PLUGINS": (STAT_LOGGER_NAME, ",")}
)
"""Lists that the user and the operator both write to where the plugin is: what is ours in them, and
what stands between two members."""


def fabric_env(engine: EngineProfile, role: Role = Role.LEADER) -> Mapping[str, str]:
    """Variables by name; empty for a replica on one node."""
    if not engine.layout.spans_nodes:
        return {}
    return {
        **(NVLINK if engine.layout.over_nvlink else {}),
        **({} if _on_host_network(engine.spec, role) else INTERFACE),
    }


def _on_host_network(spec: SpeculativeDeploymentSpec, role: Role) -> bool:
    """Whether the interfaces are the node's, whose names nobody here knows."""
    pods = (part(each.given, "spec") for each in overlays(spec, role))
    stated = [pod["hostNetwork"] for pod in pods if "hostNetwork" in pod]
    return bool(stated) and stated[-1] is True


def engine_env(engine: EngineProfile, role: Role = Role.LEADER) -> list[JsonValue]:
    """What serving needs, then the user's own, which win over ours of the same name.

    Each of ours stands with its why in docs/environment.md.
    """
    spec = engine.spec
    user = {variable.name: _variable(variable) for variable in spec.engine.env}
    own = [
        # vLLM's own limit is ten minutes, whatever the startup probe allows.
        _value("VLLM_ENGINE_READY_TIMEOUT_S", str(spec.engine.startup_minutes * 60)),
        *(
            _value(*each)
            for each in {**user_env(spec.engine.user), **fabric_env(engine, role)}.items()
        ),
    ]
    if not preset_for(spec.node_pool).has_gpus:
        own.append(_value(MODEL_RUNNER_VARIABLE, "0"))
    own += hub_token(spec.model.token_secret_ref)
    if spec.cache.exists:
        own.append(_value("HF_HOME", HUB_HOME))
        own.append(_value("VLLM_CACHE_ROOT", compile_cache(spec)))
    if offline(engine):
        own.append(_value("HF_HUB_OFFLINE", "1"))
    shared: list[_Variable] = []
    if engine.live and role is Role.LEADER:
        own.append(_from_pod(POD_NAME, "metadata.name"))
        own.append(_from_pod(POD_UID, "metadata.uid"))
        own.append(_value(DEPTH_FILE, DEFAULT_DEPTH_FILE))
    if engine.has_plugin and role is Role.LEADER:
        own.append(_value(COUNTERS_FILE, DEFAULT_COUNTERS_FILE))
    if engine.has_plugin:
        # Every rank reads the same arguments, and those name the scheduler.
        shared += _shared("PYTHONPATH", user.pop("PYTHONPATH", None))
        # Unset, every plugin is loaded; set, only those it lists.
        if (plugins := user.pop("VLLM_PLUGINS", None)) is not None:
            shared += _shared("VLLM_PLUGINS", plugins)
    return [
        *(variable for variable in own if variable["name"] not in user),
        *shared,
        *user.values(),
    ]


def hub_token(secret: SecretKeyRef | None) -> list[_Variable]:
    """What lets a hub's client in where a token is needed; empty: no token is given."""
    if secret is None:
        return []
    reference: JsonValue = {"name": secret.name, "key": secret.key}
    return [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}}]


def _from_pod(name: str, field: str) -> _Variable:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def with_ours(env: Sequence[Part]) -> list[JsonValue]:
    """Variables of an engine with the plugin, with what is ours in those that both write to.

    Args:
        env: as `podTemplate` left them.
    """
    joined = [
        made
        for name, variable in by("name", env).items()
        if name in _SHARED and not _holds_ours(name, variable)
        for made in _shared(name, variable)
    ]
    replaced = {made["name"] for made in joined}
    return [*(dict(each) for each in env if each.get("name") not in replaced), *joined]


def _holds_ours(name: str, variable: Part) -> bool:
    ours, separator = _SHARED[name]
    return ours in str(variable.get("value", "")).split(separator)


def _shared(name: str, user: Part | None) -> list[_Variable]:
    """A variable that the user and the operator both write to; ours comes first."""
    ours, separator = _SHARED[name]
    if user is None:
        return [_value(name, ours)]
    if "valueFrom" not in user:
        return [_value(name, separator.join([ours, str(user.get("value", ""))]))]
    # Kubernetes puts an earlier variable into a later one.
    users_own = f"FATHOM_USER_{name}"
    return [
        {**user, "name": users_own},
        _value(name, f"{ours}{separator}$({users_own})"),
    ]


def _variable(variable: EnvVar) -> _Variable:
    dumped: _Variable = variable.model_dump(mode="json", exclude_defaults=True)
    return dumped


def _value(name: str, value: str) -> _Variable:
    return {"name": name, "value": value}
