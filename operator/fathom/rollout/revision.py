"""Which pods a spec asks for. Specs of one revision differ only in what changes live.

Not in a revision: replicas, `minTokens`, the tuning settings, metrics, rollout, and `tokens` where
depth changes live, as long as the engine names it (`fathom.engine.depth_set`). Defaults are
left out of the hash, so that a field which a later Fathom adds changes no revision of the specs
that do not use it.
"""

import hashlib
import json
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.engine.depth_set import named_depths, usual_depths
from fathom.engine.profile import EngineProfile, StartedAs
from fathom.resource import SpeculativeDeployment

_MODE: Final = "spec.speculation.tuning.mode"
_TOKENS: Final = "spec.speculation.tokens"
_MAX_TOKENS: Final = "spec.speculation.maxTokens"
_DRAFTING: Final = "spec.speculation.drafting"
_DEPTHS: Final = "spec.speculation.depths"
_OF_SPECULATION: Final = ("spec.draft", "spec.speculation")
_VERSION: Final = "spec.engine.version"
_QUANTITIES: Final = "spec.engine.resources."
_OVERLAYS: Final = ("spec.podTemplate", "spec.workerTemplate")


def revision_of(sd: SpeculativeDeployment) -> str:
    """Eight hex digits over all that needs new pods when it changes."""
    return _named(sd.engine, sd.engine.started_as)


def revisions_of(sd: SpeculativeDeployment) -> tuple[str, ...]:
    """What pods of this very spec may be called, whichever Fathom has started them.

    One may know of an engine what another does not; what else is in a revision only the spec
    decides. This Fathom's own comes first.
    """
    engine = sd.engine
    judged = tuple(StartedAs) if sd.spec.tunable else ()
    return tuple(dict.fromkeys(_named(engine, form) for form in (engine.started_as, *judged)))


def rerendered(revision: str, rendering: str) -> str:
    """The revision of pods that only another build makes necessary.

    Whoever sees its workload can tell that it is of the same spec, by the hash that stands on it.

    Args:
        revision: as the spec alone names it.
        rendering: hash of the pods as that build renders them.
    """
    return _digest(f"{revision} {rendering}")


def _named(engine: EngineProfile, form: StartedAs) -> str:
    text = json.dumps(_inputs(engine, form), sort_keys=True, separators=(",", ":"))
    return _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[: names.REVISION_LENGTH]


def changed_restart_fields(
    old: SpeculativeDeployment,
    new: SpeculativeDeployment,
    revision: str = "",
    started: StartedAs | None = None,
) -> tuple[str, ...]:
    """The fields, as the user writes them, whose change makes new pods necessary.

    With neither `revision` nor `started`, empty if and only if both specs have the same. But where
    neither drafts, the first draft that is named changes the revision alone: the plugin that counts
    can wait for the next rollout.

    Args:
        old: that pods were made from.
        new: that they are to be made from.
        revision: of those pods. Where nothing else does, it tells how they were started, be it by a
            Fathom that judged their engine otherwise. Empty: as this one would start them.
        started: how they were, as their workload shows: what they can take live is live. It may be
            otherwise than their name says, if they were made again. None: there is none.
    """
    if old.spec == new.spec:
        # Asked in each pass, and nearly always so: to write both out takes twenty times as long.
        return ()
    before, after = old.engine, new.engine
    judged = before.started_as, after.started_as
    compared = {judged}
    if judged[0] is judged[1] and new.spec.tunable:
        started = started or _started_by_name(before, revision) or judged[0]
        # Where new pods would be live, their wishes count as well.
        compared = {(started, started), *(compared if StartedAs.LIVE in judged else ())}
    changed = (_changed(before, after, started, starts) for started, starts in compared)
    return tuple(sorted(set().union(*changed)))


def _started_by_name(engine: EngineProfile, revision: str) -> StartedAs | None:
    """How pods of a revision of this engine are, as this Fathom would have them if it can."""
    forms = (engine.started_as, *StartedAs) if revision else ()
    return next((form for form in forms if _named(engine, form) == revision), None)


def _changed(
    old_engine: EngineProfile, new_engine: EngineProfile, started: StartedAs, starts: StartedAs
) -> set[str]:
    old, new = old_engine.spec, new_engine.spec
    before, after = _inputs(old_engine, started), _inputs(new_engine, starts)
    changed = {path for path in before | after if before.get(path) != after.get(path)}
    if old.drafts != new.drafts:
        # What speculation needs comes and goes with it.
        changed = {path for path in changed if not path.startswith(_OF_SPECULATION)} | {_DRAFTING}
    if _MODE in changed:
        # Each form sizes the engine by another field: that follows from the form, not from an
        # edit. And the form may follow from the engine instead of the mode.
        changed -= {_TOKENS, _MAX_TOKENS, _DEPTHS}
        if old.tunable == new.tunable:
            changed.remove(_MODE)
        if old.engine.version != new.engine.version:
            changed.add(_VERSION)
    if _DEPTHS in changed and old.speculation.depths == new.speculation.depths:
        # They follow from `tokens`, and from more.
        changed.remove(_DEPTHS)
        if old.speculation.tokens != new.speculation.tokens:
            changed.add(_TOKENS)
    if _MAX_TOKENS in changed and old.speculation.max_tokens == new.speculation.max_tokens:
        # Unset, it follows from `depths` or `tokens`.
        same = old.speculation.depths == new.speculation.depths
        changed = changed - {_MAX_TOKENS} | {_TOKENS if same else _DEPTHS}
    return changed


def _inputs(engine: EngineProfile, form: StartedAs) -> dict[str, JsonValue]:
    """What the pods are made from: path of the field, value; defaults left out."""
    spec = engine.spec
    document = spec.model_dump(
        mode="json",
        exclude_defaults=True,
        include={
            "model": True,
            "engine": True,
            "node_pool": True,
            "cache": True,
            "pod_template": True,
            **({"worker_template": True} if engine.layout.spans_nodes else {}),
            **({"draft": True} if spec.drafts else {}),
            **({"speculation": {"adaptive_verification"}} if spec.verifies_adaptively else {}),
        },
        exclude={
            # The version decides the form of the command, and the form is in the hash.
            "engine": {"version"},
            # One replica has it, of a revision of its own; and Jobs train.
            "draft": {"trial", "training"},
            # What claim the operator makes is no matter of the pods, only that it makes one.
            "cache": {"size", "storage_class_name", "access_modes"},
        },
    )
    return {
        **_flat("spec", document),
        **({"spec.cache.size": True} if spec.cache.size else {}),
        **_depth_of(engine, form),
    }


def _depth_of(engine: EngineProfile, form: StartedAs) -> dict[str, JsonValue]:
    spec = engine.spec
    if not spec.drafts:
        # Before the plugin counted in such engines, their pods were named without it.
        counted = {_MODE: form} if form is StartedAs.COUNTED else {}
        return {_DRAFTING: "Disabled", **counted}
    if form is not StartedAs.LIVE:
        return {_MODE: form, _TOKENS: spec.speculation.tokens}
    return {_MODE: form, **_sized_for(engine)}


def _sized_for(engine: EngineProfile) -> dict[str, JsonValue]:
    """What a tunable engine is sized for: `maxTokens`, and the depths that it names below."""
    speculation, captures = engine.spec.speculation, engine.start.captures_graphs
    named = engine.depths
    if not engine.live:
        named = named_depths(speculation, live=True, captures_graphs=captures)
    sized: dict[str, JsonValue] = {_MAX_TOKENS: speculation.effective_max_tokens}
    usual = usual_depths(speculation, captures_graphs=captures)
    return sized if named == usual else {**sized, _DEPTHS: list(named)}


def _flat(path: str, value: JsonValue) -> dict[str, JsonValue]:
    """Leaves by path. Lists and what is merged over pods are leaves: nobody reads deeper paths."""
    if not isinstance(value, dict) or path in _OVERLAYS:
        # A quantity is the same as a number and as text.
        return {path: str(value) if path.startswith(_QUANTITIES) else value}
    return {
        leaf: found
        for key, child in value.items()
        for leaf, found in _flat(f"{path}.{key}", child).items()
    }
