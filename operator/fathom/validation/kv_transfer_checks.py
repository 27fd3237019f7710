"""Checks of an engine that hands its KV cache to another one. Pure.

A draft that is a model has layers of its own in that cache. vLLM's NIXL connector refuses an engine
whose KV cache has other layers, or whose draft is not the other's where the draft reads hidden
states (`compute_nixl_compatibility_hash` in
vllm/distributed/kv_transfer/kv_connector/v1/nixl/metadata.py, 0.28 to 0.33); before it looked, long
prompts ended such a decode engine (https://github.com/vllm-project/vllm/pull/49230). How many
tokens either speculates it does not compare, and it matters to some targets only:
docs/prefill-decode.md.

A request whose KV cache came from elsewhere has one token to compute, which vLLM pads to a step's
uniform length only where no depth table is set (`schedule` in vllm/v1/core/sched/scheduler.py,
0.32).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from fathom.api.choices import Drafting
from fathom.api.problem import Problem, warning
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.cuda_graphs import GraphMode
from fathom.engine.profile import EngineProfile
from fathom.manifests.template_parts import Part, by, part, parts
from fathom.validation.candidate import Candidate
from fathom.validation.merged_template import merged_template
from fathom.validation.model_input import was_read
from fathom.validation.start_checks import engine_variables

_OPTION: Final = "--kv-transfer-config"
_OFFLOADING: Final = "--kv-offloading-size"
_ALLOCATOR: Final = "PYTORCH_CUDA_ALLOC_CONF"
_REMAPS: Final = "expandable_segments:True"
_SIDE_CHANNEL: Final = "VLLM_NIXL_SIDE_CHANNEL_HOST"
_ONE_KIND_OF_CACHE: Final = frozenset(
    {"ExampleConnector", "FlexKVConnectorV1", "HF3FSKVConnector", "LMCacheConnectorV1"}
)
"""Connectors whose class is no `SupportsHMA` in 0.28 to 0.33. Of LMCacheMPConnector its package
decides."""
_HYBRID_CACHE: Final = ("--disable-hy", "--no-disable-hy")
"""Beginnings of --disable-hybrid-kv-cache-manager, and of what has it on."""
_FULL_FOR_ONE_LENGTH: Final = frozenset({GraphMode.FULL_AND_PIECEWISE, GraphMode.FULL_DECODE_ONLY})
"""Modes whose full graphs take requests of one length only, but for adaptive verification."""


def kv_transfer_warnings(candidate: Candidate) -> Iterator[Problem]:
    """What keeps engines that pass their KV cache on by NIXL from understanding each other.

    And, by whatever connector, what live depth costs the half that decodes.
    """
    sd = candidate.resource
    stated = sd.engine.arguments.object(_OPTION)
    connectors = [*_connectors(stated)]
    if _decodes(sd.spec, connectors) and _replays_one_length(sd.engine):
        yield warning(
            "spec.speculation.tuning.mode",
            "a request whose KV cache comes from another engine begins with one token, which vLLM "
            "does not pad to a full CUDA graph where depth is live: the steps that such requests "
            "join run without one, a third of all steps at 64 requests (measured). With mode "
            "Static they have it: compare tokens per second.",
        )
    nixl = [each for each in connectors if _is_nixl(each.get("kv_connector"))]
    if not nixl:
        return
    if _leaves_out_its_draft(sd.spec):
        yield warning(
            "spec.speculation.drafting",
            f"if the other half drafts by {sd.spec.draft.method}, neither can use the KV cache of "
            "the other, where the draft has layers of its own: leave drafting Enabled with the "
            "same draft on both sides, and set tokens: 1 and tuning.mode: Static where only "
            "prompts are read.",
        )
    if address := _address_of_no_pod(merged_template(sd).engine):
        yield warning(
            "spec.engine.env",
            f"every pod gives {address} as its address, and no other engine finds it there: set "
            f"{_SIDE_CHANNEL} with valueFrom.fieldRef.fieldPath: status.podIP.",
        )
    yield from _another_depth(candidate)
    fetches = any(each.get("kv_role") != "kv_producer" for each in nixl)
    # It is the outermost whose policy holds.
    if fetches and stated.get("kv_load_failure_policy") != "recompute":
        yield warning(
            "spec.engine.args",
            "a request whose KV cache cannot be fetched any more, such as when a rollout replaces "
            'the pod that has it, fails: with "kv_load_failure_policy": "recompute" in '
            f"{_OPTION} the engine reads the prompt itself instead.",
        )


def remapped_memory(candidate: Candidate) -> Iterator[Problem]:
    """An allocator of PyTorch that moves the memory which a connector has registered.

    Source: `_verify_kv_transfer_compat` in vllm/config/vllm.py, which asks the variable, and
    exempts what allocates by CuMem.
    """
    arguments = candidate.engine.arguments
    connects = arguments.object(_OPTION).get("kv_connector") or arguments.beginning(_OFFLOADING)
    exempt = arguments.beginning("--enable-sleep-mode", "--enable-cumem-allocator")
    if not connects or exempt or not was_read(candidate.engine.version):
        return
    for each in engine_variables(candidate):
        if each.name == _ALLOCATOR and _REMAPS in (each.value or ""):
            yield Problem(
                field=each.path,
                message=f"vLLM stops at start where its KV cache is handed on and {each.name} has "
                f"{_REMAPS}, for that moves memory which the connector has registered: remove it.",
            )


def hybrid_cache(candidate: Candidate) -> Iterator[Problem]:
    """A KV cache of several kinds, which the connector or an option excludes.

    Source: `__post_init__` in vllm/config/vllm.py turns the manager off for such a connector, and
    `_promote_local_kv_cache_specs` in vllm/v1/core/kv_cache_utils.py stops where some layers keep a
    state. Where it is stated to be on, `create_connector` in
    vllm/distributed/kv_transfer/kv_connector/factory.py does.
    """
    arguments, config = candidate.engine.arguments, candidate.models.target_config
    connectors = [*_connectors(arguments.object(_OPTION))]
    own = any("kv_connector_module_path" in each for each in connectors)
    names = [str(each.get("kv_connector")) for each in connectors]
    without = next((each for each in names if each in _ONE_KIND_OF_CACHE and not own), "")
    stated = arguments.beginning(*_HYBRID_CACHE)
    option = stated[-1].spelling if stated else ""
    needs = config is not None and config.hybrid is not None and bool(config.hybrid.attention)
    both = "the target keeps states and a KV cache, and"
    if not was_read(candidate.engine.version):
        return
    if without and option.startswith("--no-"):
        why, cure = f"{option} excludes connector {without}", f"remove {option}"
    elif needs and option and not option.startswith("--no-"):
        why, cure = f"{both} {option} has space for one of them", "remove it"
    elif needs and without and not option:
        why = f"{both} connector {without} takes one of them"
        cure = "use a connector that takes both, such as OffloadingConnector"
    else:
        return
    yield Problem(field="spec.engine.args", message=f"vLLM stops at start: {why}: {cure}.")


def _another_depth(candidate: Candidate) -> Iterator[Problem]:
    """States of a hybrid target are as large as the deepest depth asks, in both halves.

    The convolution's has a column for each token of it (`MambaStateShapeCalculator` in
    vllm/model_executor/layers/mamba/mamba_utils.py), and what NIXL compares does not have it.
    """
    if candidate.models.keeps_states:
        yield warning(
            "spec.speculation.maxTokens",
            "the target has Mamba or linear-attention layers, so that both halves need the same "
            "deepest depth, or requests fail or are read twice: this half's is "
            f"{candidate.engine.deepest}. vLLM does not compare them: set tokens or maxTokens of "
            "the other half to that.",
        )


def _decodes(
    spec: SpeculativeDeploymentSpec, connectors: Sequence[Mapping[str, JsonValue]]
) -> bool:
    """Whether it goes on with requests whose prompts other engines have read.

    `kv_both` does not tell. A pod's label may, as routers read it; else NIXL is there for nothing
    else, and other connectors may only keep KV caches somewhere.
    """
    roles = [each.get("kv_role") for each in connectors]
    if "kv_consumer" in roles:
        return True
    labels = part(spec.pod_template, "metadata", "labels").values()
    if "decode" in labels or "prefill" in labels:
        return "decode" in labels and "kv_both" in roles
    return any(
        _is_nixl(each.get("kv_connector")) and role == "kv_both"
        for each, role in zip(connectors, roles, strict=True)
    )


def _replays_one_length(engine: EngineProfile) -> bool:
    """Whether depth is live, and a request of another length costs a step its full CUDA graph."""
    start = engine.start
    full = start.captures_graphs and start.graph_mode.mode in _FULL_FOR_ONE_LENGTH
    return engine.live and full and not engine.spec.verifies_adaptively


def _is_nixl(name: object) -> bool:
    return isinstance(name, str) and name.startswith("Nixl")


def _leaves_out_its_draft(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether a draft is named, or comes with the target, that some engine will not load."""
    loads = spec.has_draft and not spec.draft.method.takes_no_draft
    return spec.speculation.drafting is not Drafting.ENABLED and loads


def _address_of_no_pod(engine: Part) -> str:
    """What all pods of an engine give for their address alike; empty: each may give its own.

    Neither a text as it stands is one pod's address, nor what an object of the cluster holds.
    """
    variable = by("name", parts(engine, "env")).get(_SIDE_CHANNEL, {})
    value, source = str(variable.get("value") or ""), part(variable, "valueFrom")
    if "fieldRef" in source or "$(" in value:
        return ""
    if variable:
        return f"what {', '.join(source)} says" if source else repr(value)
    read = ", or what envFrom says," if parts(engine, "envFrom") else ", vLLM's default,"
    return f"localhost{read}"


def _connectors(config: JsonValue | Mapping[str, JsonValue]) -> Iterator[Mapping[str, JsonValue]]:
    """A connector, and those within it where it is a MultiConnector."""
    if not isinstance(config, Mapping):
        return
    yield config
    extra = config.get("kv_connector_extra_config")
    children = extra.get("connectors") if isinstance(extra, dict) else None
    for child in children if isinstance(children, list) else ():
        yield from _connectors(child)
