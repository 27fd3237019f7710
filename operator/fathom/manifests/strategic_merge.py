"""Strategic merge over a pod template, by the schema that Kubernetes has of one.

The fields and their types stand in `pod_schema.json`, generated from the Kubernetes client. A
server may be newer than it, so what it does not know is refused only where it looks misspelt.

Objects merge key by key, and null removes a key. Lists that Kubernetes merges by a key are merged
by it; an item with `$patch: delete` removes the item of that key, and `$patch: replace` in a list
or an object replaces all of it. Every other list is replaced, but for tolerations: those are
added, since a pod that loses the node type's own never gets scheduled. Of fields that exclude each
other (the sources of a volume or of a variable, the handlers of a probe or hook) the patch's own
takes the place of the other, where the server would refuse both. No library does this without a
cluster, and only pod templates are needed here.

Source of the merge keys: `x-kubernetes-patch-merge-key` in the OpenAPI document of core/v1; of
`claims`, which has none, the key of its `x-kubernetes-list-type: map`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from fathom.api.pod_fields import QUANTITY_FIELDS
from fathom.api.problem import Problem, warning
from fathom.api.suggestions import VERY_NEAR, nearest

_ROOT: Final = "V1PodTemplateSpec"
_INT_OR_TEXT: Final = "port"
"""A field that is anything by the schema: of probes and hooks, a port's number or its name."""
_WRONG_LETTERS: Final = 1
"""Wrong letters of a misspelt name; of letters that are missing, or too many, two. Fields that
Kubernetes adds next to others have a word more, or another, such as `supplementalGroupsPolicy`."""
DIRECTIVE: Final = "$patch"
_REPLACE: Final[Mapping[str, JsonValue]] = MappingProxyType({DIRECTIVE: "replace"})
# By the name of the list, wherever in a pod template it stands; the names are unambiguous there.
_MERGE_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "containers": "name",
        "initContainers": "name",
        "ephemeralContainers": "name",
        "volumes": "name",
        "imagePullSecrets": "name",
        "hostAliases": "ip",
        "topologySpreadConstraints": "topologyKey",
        "resourceClaims": "name",
        "env": "name",
        "ports": "containerPort",
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
        "claims": "name",
    }
)
_APPENDED: Final = frozenset({"tolerations"})


def schema_problems(template: Mapping[str, JsonValue], path: str) -> Iterator[Problem]:
    """Unknown fields and values of another type.

    A field that a Kubernetes newer than the schema may know is a warning.

    Args:
        template: as its user wrote it: null and `$patch` are what strategic merge makes of them.
        path: where it stands.
    """
    return _in_object(template, _ROOT, path)


def volume_sources() -> frozenset[str]:
    """Fields of a volume of which it has one."""
    return frozenset(_types()["V1Volume"]) - {"name"}


def with_written_quantities(value: JsonValue, *, written: bool = False) -> JsonValue:
    """A part of a pod template with its quantities as Kubernetes keeps them: `8` is `"8"`.

    Server-side apply refuses numbers, by the schema of old servers.

    Args:
        value: the part, as its user wrote it.
        written: whether it is a quantity, or holds nothing else.
    """
    match value:
        case dict():
            return {
                key: with_written_quantities(each, written=written or key in QUANTITY_FIELDS)
                for key, each in value.items()
            }
        case list():
            return [with_written_quantities(each, written=written) for each in value]
        case bool():
            return value
        case int() | float() if written:
            return str(value)
    return value


@lru_cache(maxsize=1)
def _types() -> Mapping[str, Mapping[str, str]]:
    text = files("fathom.manifests").joinpath("pod_schema.json").read_text(encoding="utf-8")
    types: Mapping[str, Mapping[str, str]] = json.loads(text)
    return types


def _in_object(given: Mapping[str, JsonValue], kind: str, path: str) -> Iterator[Problem]:
    fields = _types()[kind]
    for name, value in given.items():
        where = f"{path}.{name}"
        if _is_directive(name):
            continue
        if name in fields:
            yield from _of_type(value, fields[name], name, where)
        else:
            yield _unknown(name, fields, where)


def _of_type(value: JsonValue, kind: str, field: str, path: str) -> Iterator[Problem]:
    """Whether a value, or what is in it, is what a field takes; null takes the field away."""
    if value is None:
        return
    if kind.startswith("["):
        yield from _in_list(value, kind[1:-1], field, path)
    elif kind.startswith("{") or kind in _types():
        if not isinstance(value, dict):
            yield Problem(field=path, message="must be an object.")
        elif kind in _types():
            yield from _in_object(value, kind, path)
        else:
            for key, item in value.items():
                if not _is_directive(key):
                    yield from _of_type(item, kind[1:-1], field, f"{path}.{key}")
    elif sentence := _unlike(value, kind, field):
        yield Problem(field=path, message=sentence)


def _in_list(value: JsonValue, inner: str, field: str, path: str) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(field=path, message="must be a list.")
        return
    for index, item in enumerate(value):
        where = f"{path}[{index}]"
        if item is None:
            yield Problem(field=where, message="this is empty: remove it.")
        else:
            yield from _of_type(item, inner, field, where)


def _is_directive(key: str) -> bool:
    """Whether it is one of strategic merge, which has its own sentences for unknown ones."""
    return key.startswith("$")


def _unlike(value: JsonValue, kind: str, field: str) -> str:
    """Why a value is no such text, number or truth value; empty: it is one."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or isinstance(value, float)
    text = isinstance(value, str)
    match kind:
        case "int":
            fits, expected = whole, "must be a whole number"
        case "bool":
            fits, expected = isinstance(value, bool), "must be true or false"
        case "object":
            fits = field != _INT_OR_TEXT or whole or text
            expected = "must be the number of a port, or its name"
        case _:
            fits, expected = text or (number and field in QUANTITY_FIELDS), "must be text"
    if fits:
        return ""
    if isinstance(value, dict | list):
        return f"{expected}."
    if expected == "must be text":
        return f"{json.dumps(value)} is not text: put it in quotes."
    return f"{expected} (found {json.dumps(value)})."


def _unknown(name: str, fields: Mapping[str, str], path: str) -> Problem:
    if meant := _meant(name, fields):
        return Problem(field=path, message=f"unknown field. Did you mean {meant}?")
    sentence = "no field of a pod that this Fathom knows: a newer Kubernetes may; others refuse it."
    return warning(path, sentence)


def _meant(name: str, fields: Iterable[str]) -> str:
    """The field that a name is taken for; empty: it looks like no other."""
    return nearest(name, fields, max(VERY_NEAR, 1 - _WRONG_LETTERS / max(1, len(name))))


_ALTERNATIVES: Final = (
    frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"}),
    frozenset({"value", "valueFrom"}),
    frozenset({"secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef"}),
    volume_sources(),
)
"""Fields of which an object has one, wherever in a pod template it stands."""


class MergeError(ValueError):
    """The patch does not fit; the message is a sentence that names the place."""


def merged(
    base: Mapping[str, JsonValue], patch: Mapping[str, JsonValue], path: str = ""
) -> dict[str, JsonValue]:
    """The base with the patch applied; neither is changed.

    Raises:
        MergeError: with the path of what does not fit, below `path`.
    """
    match patch.get(DIRECTIVE, "merge"):
        case "replace":
            return {key: value for key, value in patch.items() if key != DIRECTIVE}
        case "delete":
            return {}
        case "merge":
            pass
        case other:
            raise MergeError(f"{path}: {other!r} is not a $patch directive.")
    result = {key: value for key, value in base.items() if not _is_replaced(key, patch)}
    for key, value in patch.items():
        where = f"{path}.{key}" if path else key
        if key == DIRECTIVE:
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _value(key, base.get(key), value, where)
    return result


def _is_replaced(key: str, patch: Mapping[str, JsonValue]) -> bool:
    """Whether a patch has something else in place of a field."""
    return any(
        patch.get(other) is not None
        for alternatives in _ALTERNATIVES
        if key in alternatives
        for other in alternatives - {key}
    )


def _value(key: str, base: JsonValue, patch: JsonValue, path: str) -> JsonValue:
    if key.startswith(("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys")):
        raise MergeError(f"{path}: this directive is not supported; write the result instead.")
    if isinstance(base, dict) and not isinstance(patch, dict):
        raise MergeError(f"{path}: must be an object.")
    if isinstance(base, list) and not isinstance(patch, list):
        raise MergeError(f"{path}: must be a list.")
    if isinstance(patch, dict):
        return merged(base if isinstance(base, dict) else {}, patch, path)
    if isinstance(patch, list):
        return _list(key, base if isinstance(base, list) else [], patch, path)
    return patch


def _list(
    key: str, base: Sequence[JsonValue], patch: Sequence[JsonValue], path: str
) -> list[JsonValue]:
    if _REPLACE in patch:
        return [item for item in patch if item != _REPLACE]
    if key in _APPENDED:
        return [*base, *(item for item in patch if item not in base)]
    merge_key = _MERGE_KEYS.get(key)
    if merge_key is None:
        return list(patch)
    result = {_item(item, merge_key, path)[merge_key]: item for item in base}
    for index, change in enumerate(patch):
        item = _item(change, merge_key, f"{path}[{index}]")
        name = item[merge_key]
        if item.get(DIRECTIVE) == "delete":
            result.pop(name, None)
            continue
        old = result.get(name)
        result[name] = merged(old if isinstance(old, dict) else {}, item, f"{path}[{index}]")
    return list(result.values())


def _item(item: JsonValue, merge_key: str, path: str) -> Mapping[str, JsonValue]:
    if not isinstance(item, dict):
        raise MergeError(f"{path}: must be an object.")
    if not isinstance(item.get(merge_key), str | int):
        raise MergeError(f"{path}: needs `{merge_key}`, the key that such items are merged by.")
    return item
