"""The specs of a resource, parsed: the newest, and the last good one, for when it is bad. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pydantic import JsonValue, ValidationError

from fathom.api.bounded_json import UnreadableJsonError, parsed_json
from fathom.api.choices import AutoOrNever, Switch, TuningMode
from fathom.api.problem import Problem
from fathom.api.spec import MAX_REPLICAS, RolloutSpec
from fathom.cluster.manifest import Manifest
from fathom.resource import Metadata, SpeculativeDeployment, known_part, parse
from fathom.training.record import ON_TRIAL, TrainingRecord

_SPECS_KEPT: Final = 4096
"""Specs of all resources: one of each at rest, three of one in a rollout. With fewer than there
are, each reconcile would find that the last one's are already forgotten. One takes about 20 KB."""
RUN_OF_TRIAL: Final = "run"
"""Field of a `draft.trial` that no user wrote: the training that it came of. No release reads it as
a part of the spec."""
_BOUNDS: Final = ("maxUnavailable", "maxSurge")
"""Fields of `rollout` that hold for whatever is rolled out, and back."""


def good_spec_text(resource: Manifest) -> str:
    """The newest spec as it is kept for bad days, without replicas: they follow the newest."""
    spec = resource.get("spec")
    found = {k: v for k, v in spec.items() if k != "replicas"} if isinstance(spec, dict) else {}
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


def without_ended_trial(text: str, record: TrainingRecord) -> str:
    """A spec that was kept, without a trained draft that is not on trial any more.

    What its user wrote stays, and so does a draft of the run that is on trial.

    Args:
        text: of `good_spec_text`.
        record: of the training.
    """
    try:
        spec = parsed_json(text)
    except UnreadableJsonError:
        return text
    draft = spec.get("draft") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(draft, dict):
        return text
    trial = draft.get("trial")
    run = trial.get(RUN_OF_TRIAL) if isinstance(trial, dict) else None
    if run is None or (record.phase in ON_TRIAL and run == record.begun):
        return text
    served = {key: value for key, value in draft.items() if key != "trial"}
    return json.dumps({**spec, "draft": served}, sort_keys=True, separators=(",", ":"))


def with_max_tokens(resource: Manifest, tokens: int) -> Manifest:
    """A resource whose spec parses, had its user written this `maxTokens`."""
    spec = resource.get("spec")
    written = spec if isinstance(spec, dict) else {}
    return {**resource, "spec": _with_value(written, ("speculation", "maxTokens"), tokens)}


def earlier_spec(resource: Manifest, last_good: str | None) -> SpeculativeDeployment | None:
    """The resource as it was when its spec was last good.

    How many replicas there are, how many may be missing or more, and what else is to be held or
    stopped by now, the newest says, as far as it can be read. None: no such spec is known, or this
    Fathom no longer takes it.
    """
    if last_good is None:
        return None
    try:
        spec = parsed_json(last_good)
    except UnreadableJsonError:
        return None
    if not isinstance(spec, dict):
        return None
    earlier = _parsed(_document(resource, _followed(resource.get("spec"), spec)))
    return earlier if isinstance(earlier, SpeculativeDeployment) else None


def newest_of(resource: Manifest) -> SpeculativeDeployment | tuple[Problem, ...]:
    """A resource of a cluster as its user wrote it, or what is wrong with it."""
    try:
        return _parsed(_document(resource, resource.get("spec")))
    except RecursionError:
        return parse(resource)


def _document(resource: Manifest, spec: JsonValue) -> str:
    """What a spec is read from: the rest moves with each write of the status."""
    document: Manifest = {**resource, "spec": spec}
    document.pop("status", None)
    if isinstance(metadata := resource.get("metadata"), dict):
        document["metadata"] = {k: v for k, v in metadata.items() if k in Metadata.model_fields}
    return json.dumps(document, sort_keys=True)


@lru_cache(maxsize=_SPECS_KEPT)
def _parsed(document: str) -> SpeculativeDeployment | tuple[Problem, ...]:
    """Each pass asks for the same few specs several times, and to parse one takes a millisecond."""
    # What only another release wrote down is read as the resource itself is: without it.
    return parse(known_part(json.loads(document)).known)


@dataclass(frozen=True, slots=True)
class _Stop:
    """A field by which a user stops what Fathom does by itself."""

    path: tuple[str, ...]
    unset: JsonValue
    """What it is where it is not written."""
    moves: tuple[tuple[JsonValue, JsonValue], ...]
    """What an earlier spec has, and what it takes over from the newest."""


# Nothing that sets something going: that is part of the spec which is not carried out. A pause ends
# as it began.
_STOPS: Final = (
    _Stop(("rollout", "paused"), unset=False, moves=((False, True), (True, False))),
    _Stop(
        ("rollout", "refresh"),
        unset=AutoOrNever.NEVER,
        moves=((AutoOrNever.AUTO, AutoOrNever.NEVER),),
    ),
    _Stop(
        ("speculation", "tuning", "mode"),
        unset=TuningMode.AUTO,
        moves=((TuningMode.AUTO, TuningMode.ADVISE),),
    ),
    _Stop(
        ("speculation", "tuning", "probing"),
        unset=Switch.ENABLED,
        moves=((Switch.ENABLED, Switch.DISABLED),),
    ),
)


def _followed(newest: JsonValue, earlier: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """An earlier spec, with what it takes over from the newest."""
    if not isinstance(newest, dict):
        return earlier
    replicas = whole_number(newest.get("replicas"))
    if replicas is not None:
        earlier = {**earlier, "replicas": replicas}
    for bound, value in _bounds_of(newest).items():
        earlier = _with_value(earlier, ("rollout", bound), value)
    for stop in _STOPS:
        move = (_value_of(stop, earlier), _value_of(stop, newest))
        for before, after in stop.moves:
            if move == (before, after):
                earlier = _with_value(earlier, stop.path, after)
    return earlier


def _bounds_of(spec: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """How many replicas a rollout may have missing, or more; empty: nothing that can be kept to."""
    rollout = spec.get("rollout", {})
    if not isinstance(rollout, dict):
        return {}
    try:
        bounds = RolloutSpec.model_validate({k: v for k, v in rollout.items() if k in _BOUNDS})
    except ValidationError:
        return {}
    unavailable, surge = bounds.max_unavailable, bounds.max_surge
    return dict(zip(_BOUNDS, (unavailable, surge), strict=True)) if unavailable + surge else {}


def _value_of(stop: _Stop, spec: JsonValue) -> JsonValue:
    """None: it cannot be read."""
    for key in stop.path:
        if not isinstance(spec, dict):
            return None
        if key not in spec:
            return stop.unset
        spec = spec[key]
    return spec


def _with_value(
    spec: dict[str, JsonValue], path: Sequence[str], value: JsonValue
) -> dict[str, JsonValue]:
    key, *deeper = path
    below = spec.get(key, {})
    if deeper and isinstance(below, dict):
        value = _with_value(below, deeper, value)
    return {**spec, key: value}


def whole_number(value: JsonValue) -> int | None:
    right = isinstance(value, int) and not isinstance(value, bool)
    return value if right and isinstance(value, int) and 0 <= value <= MAX_REPLICAS else None
