"""Why pods roll: the first difference between two pod templates, in words.

The old template is what the API server holds. It has defaults added, and perhaps what a webhook
put in, so what only the old one has counts only where nothing else differs, and a default never.
What the new one says and the old one does not is certain.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, TypeGuard

from pydantic import JsonValue

from fathom.api import names
from fathom.cluster.diff import is_server_default, list_key, same_value
from fathom.cluster.manifest import Manifest
from fathom.rollout.value_changes import changed_options, in_words, shown
from fathom.text import HIDDEN, is_secret_variable

NOTHING_CHANGED: Final = "nothing in the pod template changed"

_Path = tuple[str, ...]
_List = Sequence[JsonValue]

_ORDER: Final = (
    "image",
    "command",
    "args",
    "env",
    "envFrom",
    "resources",
    "nodeName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "schedulerName",
    "volumes",
    "volumeMounts",
    "volumeDevices",
)
"""Places of the engine's container and of its pod, what people look for first before the rest."""

_ALWAYS: Final[tuple[_Path, ...]] = (
    ("metadata", "labels", names.LABEL_REVISION),
    ("metadata", "annotations", names.ANNOTATION_DEPTH_GENERATION),
    ("metadata", "annotations", "kubectl.kubernetes.io/restartedAt"),
    # Named by its content, so it changes with Fathom's version and for no other reason.
    ("spec", "volumes", "fathom-plugin", "configMap"),
)
"""Places that differ between any two revisions, and all below."""

_CONTAINERS: Final = {"containers": "container", "initContainers": "init container"}
_PLACE_DEPTH: Final = 2
"""Parts of the shortest path that names a place: `spec` and a field."""
_CONTAINER_DEPTH: Final = 3
"""Parts of the path of a container: `spec`, the list, its name."""


class _Weight(IntEnum):
    """How likely a difference is what somebody changed; less is likelier."""

    STATED = 0
    ONLY_BEFORE = 1
    """Removed, or never ours."""
    WITHOUT_EFFECT = 2
    """It differs between any two revisions, or means the same to the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    path: _Path
    before: str | None
    """As shown; None: it was not there. Empty: the path says it all."""
    after: str | None
    weight: _Weight
    of_workers: bool = False

    @property
    def rank(self) -> int:
        heading, _ = _place(self.path)
        metadata = self.path[0] == "metadata"
        return _ORDER.index(heading) if heading in _ORDER else len(_ORDER) + metadata

    @property
    def sentence(self) -> str:
        heading, name = _place(self.path)
        colon = ":" if name or self.before or self.after else ""
        whose = "workers' " if self.of_workers else ""
        return f"{whose}{heading}{colon} {in_words(name, self.before, self.after)}"


def first_change(
    before: Manifest, after: Manifest, workers: tuple[Manifest, Manifest] | None = None
) -> str:
    """The first difference, such as `image: vllm:v0.32.0 became vllm:v0.33.0`; no full stop.

    First is what the new template states before what only the old one has, and then image, command
    and arguments, environment, resources, placement, volumes, the rest. Never empty: where nothing
    differs that is what is said.

    Args:
        before: the pod template as the API server holds it.
        after: the pod template as it is rendered.
        workers: both of a group's workers, of which only what differs there alone is said; None:
            there are none.
    """
    changes = [*_changes((), before, after)]
    if workers is not None:
        changes += (replace(each, of_workers=True) for each in _changes((), *workers))
    first = min(changes, key=lambda each: (each.weight, each.of_workers, each.rank), default=None)
    return first.sentence if first else NOTHING_CHANGED


def _place(path: _Path) -> tuple[str, str]:
    """Where people look for it, and its name there: `volumes` and `cache.emptyDir.medium`."""
    kind = _CONTAINERS.get(path[1]) if len(path) > _CONTAINER_DEPTH else None
    if kind is None:
        heading, rest = path[1], path[2:]
    elif path[1:3] == ("containers", names.ENGINE_CONTAINER):
        heading, rest = path[3], path[4:]
    else:
        heading, rest = f"{kind} {path[2]}, {path[3]}", path[4:]
    return heading, ".".join(rest).replace(".[", "[")


def _changes(path: _Path, before: JsonValue, after: JsonValue) -> Iterator[_Change]:
    """Every difference, in the order of the new template. None stands for what is not there."""
    old, new = _something(before), _something(after)
    present = [each for each in (old, new) if each is not None]
    if all(_is_list(each) for each in present):
        yield from _in_lists(path, _as_list(old), _as_list(new))
    elif all(isinstance(each, Mapping) for each in present) and (
        len(present) > 1 or len(path) < _PLACE_DEPTH or _is_flat(present[0])
    ):
        yield from _in_mappings(path, _as_mapping(old), _as_mapping(new))
    elif len(present) == 1 and isinstance(present[0], Mapping):
        yield _named_change(path, was=new is None)
    elif not same_value(new, old, ".".join(path)):
        yield _change(path, old, new)


def _in_mappings(
    path: _Path, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]
) -> Iterator[_Change]:
    for key in dict.fromkeys([*after, *before]):
        old, new = before.get(key), after.get(key)
        if _something(new) is None and is_server_default(key, old, before):
            continue
        yield from _changes((*path, key), old, new)


def _in_lists(path: _Path, before: _List, after: _List) -> Iterator[_Change]:
    if len(path) == _CONTAINER_DEPTH + 1 and path[1] in _CONTAINERS:
        if path[-1] in {"command", "args"}:
            yield from _in_command_lines(path, before, after)
            return
        if path[-1] == "env":
            yield from _in_env(path, before, after)
            return
    key = list_key(before or after, after or before)
    if key is not None:
        old, new = _by(key, before), _by(key, after)
        for name in new | old:
            where = (*path, name)
            if name in old and name in new:
                yield from _changes(where, old[name], new[name])
            else:
                yield _named_change(where, was=name in old)
    elif len(before) == len(after):
        for index, (theirs, ours) in enumerate(zip(before, after, strict=True)):
            where = path if isinstance(ours, str) else (*path, f"[{index}]")
            yield from _changes(where, theirs, ours)
    else:
        yield from _members(path, before, after)


def _members(path: _Path, before: _List, after: _List) -> Iterator[_Change]:
    """Items of lists that nothing but their content tells apart."""
    added = [each for each in after if not any(_same(path, old, each) for old in before)]
    removed = [each for each in before if not any(_same(path, each, new) for new in after)]
    for item in added:
        yield _change(path, None, item)
    for item in removed:
        yield _change(path, item, None)
    if not added and not removed:
        yield _change(path, list(before), list(after))


def _in_command_lines(path: _Path, before: _List, after: _List) -> Iterator[_Change]:
    old, new = [str(each) for each in before], [str(each) for each in after]
    changes = changed_options(old, new)
    # The list is ours as a whole: what it lacks was taken out.
    weight = _Weight.STATED if new else _Weight.ONLY_BEFORE
    for each in changes:
        yield _Change(path=(*path, each.name), before=each.before, after=each.after, weight=weight)
    if old != new and not changes:
        yield _Change(
            path=(*path, "only order or spelling"),
            before="",
            after="",
            weight=_Weight.WITHOUT_EFFECT,
        )


def _in_env(path: _Path, before: _List, after: _List) -> Iterator[_Change]:
    # Of two with one name the last one wins, as in the container.
    old, new = _by("name", before), _by("name", after)
    for name in new | old:
        theirs, ours = old.get(name), new.get(name)
        where = (*path, name)
        if not _same(where, theirs, ours):
            weight = _Weight.ONLY_BEFORE if ours is None else _Weight.STATED
            yield _Change(
                path=where, before=_variable(theirs), after=_variable(ours), weight=weight
            )


def _variable(variable: JsonValue) -> str | None:
    """An environment variable's value, or where it comes from."""
    if not isinstance(variable, Mapping):
        return None
    source = variable.get("valueFrom")
    if not isinstance(source, Mapping) or not source:
        value = variable.get("value") or ""
        return HIDDEN if value and is_secret_variable(str(variable["name"])) else shown(value)
    kind, reference = next(iter(source.items()))
    fields = ("name", "key", "containerName", "resource", "fieldPath")
    values = _as_mapping(reference)
    return f"from {kind} {'/'.join(str(values[field]) for field in fields if field in values)}"


def _change(path: _Path, before: JsonValue, after: JsonValue) -> _Change:
    weight = _Weight.ONLY_BEFORE if after is None else _Weight.STATED
    if any(path[: len(each)] == each for each in _ALWAYS):
        weight = _Weight.WITHOUT_EFFECT
    old, new = (None if value is None else shown(value) for value in (before, after))
    return _Change(path=path, before=old, after=new, weight=weight)


def _named_change(path: _Path, *, was: bool) -> _Change:
    """What came or went as a whole, too large to be shown."""
    return _change(path, "" if was else None, None if was else "")


def _same(path: _Path, before: JsonValue, after: JsonValue) -> bool:
    return next(_changes(path, before, after), None) is None


def _by(key: str, items: _List) -> dict[str, JsonValue]:
    return {str(item[key]): item for item in items if isinstance(item, Mapping) and key in item}


def _something(value: JsonValue) -> JsonValue:
    """The value; None for {}, [] and empty text, which are how nothing is written."""
    return None if value in ({}, [], "") else value


def _is_flat(value: JsonValue) -> bool:
    return isinstance(value, Mapping) and not any(
        isinstance(each, Mapping) or _is_list(each) for each in value.values()
    )


def _is_list(value: JsonValue) -> TypeGuard[_List]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _as_list(value: JsonValue) -> _List:
    return value if _is_list(value) else ()


def _as_mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, Mapping) else {}
