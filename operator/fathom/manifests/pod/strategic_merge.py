"""Strategic merge over a pod template: what `kubectl patch --type=strategic` does to one.

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

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from fathom.manifests.pod.pod_schema import volume_sources

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
