"""Whether a live object already is what was rendered, and if not, where it first differs.

The API server adds defaults, and webhooks add sidecars and tolerations: what is live may hold more
than what was rendered, never less. So this asks whether the rendered object is contained in the
live one. Ours as a whole are only lists of plain values, such as a container's arguments, what a
ConfigMap holds, and selectors: there more means fewer pods.

What a later spec no longer renders is thus not seen. Pods have no need of it: another pod template
is another revision, and its workload another object.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.pod_fields import QUANTITY_FIELDS
from fathom.core.cluster.quantities import same_quantity
from fathom.core.cluster.server_defaults import is_nothing, is_server_default
from fathom.core.counted import counted

_LIST_KEYS: Final = ("name", "uid", "mountPath", "containerPort", "port", "key", "type")
"""Fields that identify an item of a list of objects, in the order in which they are tried."""

_SELECTORS: Final = ("spec.selector", "spec.selector.matchLabels")
"""Selectors of a Service, and of what selects pods by labels as a Deployment does."""
_EXACT: Final = frozenset({"data", *_SELECTORS})
"""Places whose every entry is ours: an addition there is a difference."""


def first_difference(rendered: JsonValue, live: JsonValue, path: str = "") -> str | None:
    """The first place where `live` lacks what `rendered` says, in words; None: it lacks nothing."""
    if isinstance(rendered, dict) and isinstance(live, dict):
        return _in_mapping(rendered, live, path)
    if isinstance(rendered, list):
        if not isinstance(live, list):
            return None if not rendered and live is None else f"{path} is {_shown(live)}"
        return _in_list(rendered, live, path)
    if same_value(rendered, live, path):
        return None
    return f"{path} is {_shown(live)} and should be {_shown(rendered)}"


def _in_mapping(
    rendered: Mapping[str, JsonValue], live: Mapping[str, JsonValue], path: str
) -> str | None:
    if path in _EXACT and (extra := sorted(live.keys() - rendered.keys())):
        return f"{path}.{extra[0]} should not be there"
    if path == "metadata" and _labels_named(live) and not _labels_named(rendered):
        return "the labels that were asked for before should not be there"
    for key, value in rendered.items():
        below = f"{path}.{key}" if path else key
        if is_nothing(key, value) and (key not in live or is_server_default(key, live[key], live)):
            continue
        if key not in live:
            return f"{below} is missing"
        if (found := first_difference(value, live[key], below)) is not None:
            return found
    return None


def selector_patch(
    rendered: Mapping[str, JsonValue], live: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """The merge patch that makes a selector what was rendered, where more was added; empty: none.

    An apply takes out what others added from Kubernetes 1.22 on only: before, each key had an
    owner.
    """
    for path in _SELECTORS:
        ours, theirs = (_at(each, path) for each in (rendered, live))
        if ours is None or theirs is None or not theirs.keys() - ours.keys():
            continue
        added: dict[str, JsonValue] = dict.fromkeys(sorted(theirs.keys() - ours.keys()))
        patch: JsonValue = {**ours, **added}
        for part in reversed(path.split(".")):
            patch = {part: patch}
        assert isinstance(patch, dict)  # noqa: S101 - a path has parts
        return patch
    return {}


def _at(manifest: Mapping[str, JsonValue], path: str) -> Mapping[str, JsonValue] | None:
    found: JsonValue = dict(manifest)
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _labels_named(metadata: Mapping[str, JsonValue]) -> bool:
    annotations = metadata.get("annotations")
    return isinstance(annotations, dict) and names.ANNOTATION_LABELS in annotations


def _in_list(rendered: Sequence[JsonValue], live: Sequence[JsonValue], path: str) -> str | None:
    key = list_key(rendered, live)
    if key is not None:
        return _by_key(key, rendered, live, path)
    if len(rendered) < len(live) and all(isinstance(item, dict) for item in (*rendered, *live)):
        return _in_order(rendered, live, path)
    if len(rendered) != len(live):
        entries = counted(len(live), "entry", "entries")
        return f"{path} has {entries} and should have {len(rendered)}"
    pairs = enumerate(zip(rendered, live, strict=True))
    found = (first_difference(ours, theirs, f"{path}[{i}]") for i, (ours, theirs) in pairs)
    return next((each for each in found if each is not None), None)


def _by_key(
    key: str, rendered: Sequence[JsonValue], live: Sequence[JsonValue], path: str
) -> str | None:
    by_key = {str(item[key]): item for item in live if isinstance(item, dict)}
    for item in rendered:
        assert isinstance(item, dict)  # noqa: S101  # _keyed_by has seen it
        name = str(item[key])
        if name not in by_key:
            return f"{path}[{name}] is missing"
        if (found_in := first_difference(item, by_key[name], f"{path}[{name}]")) is not None:
            return found_in
    return None


def _in_order(rendered: Sequence[JsonValue], live: Sequence[JsonValue], path: str) -> str | None:
    """Of objects that only their content tells apart, such as tolerations: others stand between."""
    rest = iter(live)
    for index, ours in enumerate(rendered):
        where = f"{path}[{index}]"
        if all(first_difference(ours, theirs, where) is not None for theirs in rest):
            return f"{where} is missing"
    return None


def list_key(first: Sequence[JsonValue], second: Sequence[JsonValue]) -> str | None:
    """The field that tells the items of both lists apart; None: there is none."""
    return next((k for k in _LIST_KEYS if _keyed_by(first, k) and _keyed_by(second, k)), None)


def _keyed_by(items: Sequence[JsonValue], key: str) -> bool:
    """Whether every item is an object with this field, each value once."""
    values = [str(item[key]) for item in items if isinstance(item, dict) and key in item]
    return len(values) == len(items) == len(set(values)) > 0


def same_value(rendered: JsonValue, live: JsonValue, path: str) -> bool:
    """Whether two leaves are equal, quantities by what they stand for.

    Args:
        rendered: one of them.
        live: the other one.
        path: where they stand, dotted: only some places hold quantities.
    """
    if rendered == live and isinstance(rendered, bool) == isinstance(live, bool):
        return True
    return not QUANTITY_FIELDS.isdisjoint(path.split(".")) and same_quantity(rendered, live)


def _shown(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004  # one line of a message
