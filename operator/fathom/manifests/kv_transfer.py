"""What to see to in an engine that hands its KV cache to another one. Pure.

A draft that is a model has layers of its own in that cache. vLLM's NIXL connector refuses an engine
whose draft is not the other's, where the draft reads hidden states
(`_get_speculative_compatibility_factors` in
vllm/distributed/kv_transfer/kv_connector/v1/nixl/metadata.py, 0.28 to 0.33); before it looked, long
prompts ended such a decode engine (https://github.com/vllm-project/vllm/pull/49230). How many
tokens either speculates is its own affair.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fathom.api.problem import Problem
from fathom.api.resource import SpeculativeDeployment
from fathom.api.spec import SpeculativeDeploymentSpec, Switch
from fathom.core.engine.options import last_value
from fathom.core.foreign_json import UnreadableJsonError, parsed_json
from fathom.manifests.pod.merged_template import merged_template
from fathom.manifests.pod.template_parts import parts

_OPTION: Final = "--kv-transfer-config"
_SIDE_CHANNEL: Final = "VLLM_NIXL_SIDE_CHANNEL_HOST"


def kv_transfer_doubts(sd: SpeculativeDeployment) -> Iterator[Problem]:
    """What keeps engines that pass their KV cache on by NIXL from understanding each other."""
    stated = _stated(sd.spec)
    nixl = [each for each in _connectors(stated) if _is_nixl(each.get("kv_connector"))]
    if not nixl:
        return
    if _leaves_out_its_draft(sd.spec):
        yield Problem(
            "spec.speculation.drafting",
            f"an engine that drafts by {sd.spec.draft.method} cannot use the KV cache of one that "
            "does not, since the draft's own layers are missing in it: leave drafting Enabled with "
            "the same draft on both sides, and set tokens: 1 and tuning.mode: Static where only "
            "prompts are read.",
        )
    variables = parts(merged_template(sd).engine, "env")
    if not any(each.get("name") == _SIDE_CHANNEL for each in variables):
        yield Problem(
            "spec.engine.env",
            f"without {_SIDE_CHANNEL} vLLM tells the other engines to fetch its KV cache from "
            f"localhost: add {_SIDE_CHANNEL} with valueFrom.fieldRef.fieldPath: status.podIP.",
        )
    fetches = any(each.get("kv_role") != "kv_producer" for each in nixl)
    # It is the outermost whose policy holds.
    if fetches and stated.get("kv_load_failure_policy") != "recompute":
        yield Problem(
            "spec.engine.args",
            "a request whose KV cache cannot be fetched any more, such as when a rollout replaces "
            'the pod that has it, fails: with "kv_load_failure_policy": "recompute" in '
            f"{_OPTION} the engine reads the prompt itself instead.",
        )


def _is_nixl(name: object) -> bool:
    return isinstance(name, str) and name.startswith("Nixl")


def _leaves_out_its_draft(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether a draft is named, or comes with the target, that the engine will not load."""
    method = spec.draft.method
    named = bool(spec.draft.id) or not method.needs_draft
    return spec.speculation.drafting is Switch.DISABLED and named and not method.takes_no_draft


def _stated(spec: SpeculativeDeploymentSpec) -> Mapping[str, Any]:
    """What `engine.args` say; empty: nothing, or nothing that can be read."""
    try:
        stated = parsed_json(last_value(spec.engine.args, _OPTION) or "{}")
    except UnreadableJsonError:
        return {}
    return stated if isinstance(stated, dict) else {}


def _connectors(config: Any) -> Iterator[Mapping[str, Any]]:
    """A connector, and those within it where it is a MultiConnector."""
    if not isinstance(config, dict):
        return
    yield config
    extra = config.get("kv_connector_extra_config")
    children = extra.get("connectors") if isinstance(extra, dict) else None
    for child in children if isinstance(children, list) else ():
        yield from _connectors(child)
