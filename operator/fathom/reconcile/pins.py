"""The depth that a person holds one pod at, by an annotation."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from fathom.api import names
from fathom.api.spec import MAX_TOKENS_LIMIT
from fathom.core.cluster.observed_pods import ObservedPod
from fathom.core.cluster.snapshot import Snapshot

_ANY_DEPTH: Final = range(MAX_TOKENS_LIMIT + 1)


@dataclass(frozen=True, slots=True)
class BadPin:
    """A pin annotation that is not a depth this engine can be held at."""

    pod: str
    value: str
    message: str


def bad_pins(snapshot: Snapshot, named: Collection[int]) -> tuple[BadPin, ...]:
    """Pins that are ignored, with the sentence that says why.

    Args:
        snapshot: this pass's view.
        named: the depths that the spec asks for, of engines whose arguments do not say.
    """
    found = []
    for pod in snapshot.objects.leaders:
        value = pod.metadata.annotations.get(names.ANNOTATION_PIN_DEPTH)
        if value is not None and pinned_depth(pod, named) is None:
            depths = ", ".join(map(str, sorted(pod.spec.named_depths or named)))
            message = (
                f"annotation {names.ANNOTATION_PIN_DEPTH}={value!r} of pod {pod.name} is ignored: "
                f"write one of {depths}, which its engine has, or remove it."
            )
            found.append(BadPin(pod.name, value, message))
    return tuple(found)


def pinned_depth(pod: ObservedPod, named: Collection[int] = _ANY_DEPTH) -> int | None:
    """The depth a person holds this pod at; None: none, or not one that its engine has.

    Args:
        pod: whose annotations.
        named: the depths that its engine has if its arguments do not say.
    """
    value = pod.metadata.annotations.get(names.ANNOTATION_PIN_DEPTH, "")
    if not (value.isascii() and value.isdecimal()):
        return None
    return int(value) if int(value) in (pod.spec.named_depths or named) else None
