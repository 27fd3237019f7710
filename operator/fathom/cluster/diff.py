"""Whether a live object already is what was rendered, and if not, where it first differs.

The API server adds defaults, and webhooks add sidecars and tolerations: what is live may hold more
than what was rendered, never less. So this asks whether the rendered object is contained in the
live one. Ours as a whole are only lists of plain values, such as a container's arguments, what a
ConfigMap holds, and selectors: there more means fewer pods.

What a later spec no longer renders is thus not seen. Pods have no need of it: another pod template
is another revision, and its workload another object.

Sources: the defaulting functions of core/v1 in Kubernetes, `pkg/apis/core/v1/defaults.go` and
`zz_generated.defaults.go`; the types of `k8s.io/api/core/v1`. A server is asked about every field
by tests/cluster/test_zeros_on_the_server.py.
"""

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Final

from kubernetes.utils.quantity import parse_quantity
from pydantic import JsonValue

from fathom.api import names
from fathom.api.pod_fields import QUANTITY_FIELDS
from fathom.text import counted

_VALUES: Final[Mapping[str, JsonValue]] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "procMount": "Default",
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
    "scheme": "HTTP",
    "path": "/",
    "protocol": "TCP",
    "apiVersion": "v1",
    "defaultMode": 0o644,
    "expirationSeconds": 3600,
    "volumeMode": "Filesystem",
    "iscsiInterface": "default",
    "storageMode": "ThinProvisioned",
    "keyring": "/etc/ceph/keyring",
    "pool": "rbd",
}
"""By the field's name: it means one thing wherever it stands in a pod template."""

_VALUES_BESIDE: Final[Mapping[str, tuple[str, JsonValue]]] = {
    "fsType": ("gateway", "xfs"),
    "user": ("image", "admin"),
}
"""Those that hold only where another field tells what object it is: of scaleIO, of rbd."""

_SAME_AS: Final = {"serviceAccount": "serviceAccountName", "hostPort": "containerPort"}
"""Fields that are filled in from another one beside them."""

_PULLED: Final = {"imagePullPolicy": "image", "pullPolicy": "reference"}
"""How an image is pulled: of containers, of volumes. It follows from the image's tag."""

_NOTHING_AT_ZERO: Final = frozenset(
    {
        *("chapAuthDiscovery", "chapAuthSession", "hostIPC", "hostNetwork", "hostPID", "hostPort"),
        *("initialDelaySeconds", "partition", "readOnly", "sslEnabled"),
        *("stdin", "stdinOnce", "tty"),
        *("timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
        "generation",
    }
)
"""Fields of a pod whose false or 0 is what their absence means: `omitempty` on what is no pointer.
The server drops it, or has its own default instead. No other rule tells them from those that it
keeps, such as allowPrivilegeEscalation, whose absence means true."""

_EMPTY: Final[tuple[JsonValue, ...]] = (None, {}, [], "")
_THOUSANDTHS: Final = 1000
"""What is finer the API server rounds up (`SetDefaults_ResourceList`)."""
_LIST_KEYS: Final = ("name", "uid", "mountPath", "containerPort", "port", "key", "type")
"""Fields that identify an item of a list of objects, in the order in which they are tried."""
_SELECTORS: Final = ("spec.selector", "spec.selector.matchLabels")
"""Selectors of a Service, and of what selects pods by labels as a Deployment does."""
_EXACT: Final = frozenset({"data", *_SELECTORS})
"""Places whose every entry is ours: an addition there is a difference."""


def is_nothing(field: str, value: JsonValue) -> bool:
    """Whether to write this is to write nothing: null, {}, [], "", and the zeros of some fields."""
    return value in _EMPTY or (field in _NOTHING_AT_ZERO and not value)


def is_server_default(field: str, value: JsonValue, beside: Mapping[str, JsonValue]) -> bool:
    """Whether a field would hold this value had nobody set it.

    Args:
        field: its name.
        value: what it holds.
        beside: the object it stands in.
    """
    if value in _EMPTY:
        return True
    if isinstance(value, Mapping):
        return all(is_server_default(key, each, value) for key, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return False
    return value == _default_of(field, beside)


def _default_of(field: str, beside: Mapping[str, JsonValue]) -> JsonValue:
    """None: it has none."""
    if field in _SAME_AS:
        return beside.get(_SAME_AS[field])
    if field in _PULLED:
        return _pull_policy(str(beside.get(_PULLED[field], "")))
    telling, value = _VALUES_BESIDE.get(field, (None, None))
    return value if telling in beside else _VALUES.get(field)


def _pull_policy(image: str) -> str:
    name = image.rsplit("/", 1)[-1]
    newest = "@" not in name and (":" not in name or name.endswith(":latest"))
    return "Always" if newest else "IfNotPresent"


def same_quantity(one: JsonValue, other: JsonValue) -> bool:
    """Whether both are quantities, and of one value."""
    ours = _value(one)
    return ours is not None and ours == _value(other)


def _value(quantity: JsonValue) -> Decimal | None:
    try:
        # As text, since the parser takes true for 1.
        found: Decimal = parse_quantity(str(quantity))  # type: ignore[no-untyped-call] # the client has no types
        # It also takes NaN, which cannot always be compared.
        if not found.is_finite():
            return None
        return (found * _THOUSANDTHS).to_integral_value(ROUND_CEILING)
    except (ValueError, ArithmeticError):
        return None


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
    """First missing item of a list without keys, such as tolerations; others may be in between."""
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
