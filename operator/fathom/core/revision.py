"""Which pods a spec asks for. Specs of one revision differ only in what changes live.

Not in a revision: replicas, `minTokens`, the tuning settings, metrics, rollout, and `tokens` where
depth changes live. Defaults are left out of the hash, so that a field which a later Fathom adds
changes no revision of the specs that do not use it.
"""

import hashlib
import json
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.capability import live_depth

_MODE: Final = "spec.speculation.tuning.mode"
_TOKENS: Final = "spec.speculation.tokens"
_MAX_TOKENS: Final = "spec.speculation.maxTokens"
_VERSION: Final = "spec.engine.version"
_QUANTITIES: Final = "spec.engine.resources."


def revision_of(spec: SpeculativeDeploymentSpec) -> str:
    """Eight hex digits over all that needs new pods when it changes."""
    text = json.dumps(_inputs(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[: names.REVISION_LENGTH]


def changed_restart_fields(
    old: SpeculativeDeploymentSpec, new: SpeculativeDeploymentSpec
) -> tuple[str, ...]:
    """The fields, as the user writes them, whose change makes new pods necessary.

    Empty if and only if both specs have the same revision.
    """
    before, after = _inputs(old), _inputs(new)
    changed = {path for path in before | after if before.get(path) != after.get(path)}
    if _MODE in changed:
        # Each form sizes the engine by another field: that follows from the form, not from an
        # edit. And the form may follow from the engine instead of the mode.
        changed -= {_TOKENS, _MAX_TOKENS}
        if old.tunable == new.tunable:
            changed.remove(_MODE)
        if old.engine.version != new.engine.version:
            changed.add(_VERSION)
    if _MAX_TOKENS in changed and old.speculation.max_tokens == new.speculation.max_tokens:
        # Unset, it follows from `tokens`.
        changed = changed - {_MAX_TOKENS} | {_TOKENS}
    return tuple(sorted(changed))


def _inputs(spec: SpeculativeDeploymentSpec) -> dict[str, JsonValue]:
    """What the pods are made from: path of the field, value; defaults left out."""
    live = live_depth(spec)
    document = spec.model_dump(
        mode="json",
        exclude_defaults=True,
        include={
            "model": True,
            "draft": True,
            "engine": True,
            "node_pool": True,
            "cache": True,
            "pod_template": True,
            "speculation": {"adaptive_verification"},
        },
        exclude={
            # The version decides the form of the command, and the form is in the hash.
            "engine": {"version"},
            # What claim the operator makes is no matter of the pods, only that it makes one.
            "cache": {"size", "storage_class_name", "access_modes"},
        },
    )
    return {
        **_flat("spec", document),
        **({"spec.cache.size": True} if spec.cache.size else {}),
        _MODE: "live" if live else "static",
        (_MAX_TOKENS if live else _TOKENS): (
            spec.speculation.effective_max_tokens if live else spec.speculation.tokens
        ),
    }


def _flat(path: str, value: JsonValue) -> dict[str, JsonValue]:
    """Leaves by path. Lists and the pod template are leaves: nobody reads deeper paths."""
    if not isinstance(value, dict) or path == "spec.podTemplate":
        # A quantity is the same as a number and as text.
        return {path: str(value) if path.startswith(_QUANTITIES) else value}
    return {
        leaf: found
        for key, child in value.items()
        for leaf, found in _flat(f"{path}.{key}", child).items()
    }
