"""Stops the tug-of-war with whatever rewrites our fields, or refuses them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from pydantic import JsonValue

from fathom.cluster.kinds import CONFIG_MAP, SERVICE, Kind
from fathom.cluster.manifest import Manifest
from fathom.reconcile.operations import Apply, Create, Delete, Operation, Patch
from fathom.times import Backoff, is_over

FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0
"""Each refusal doubles the time to the next try: a policy says the same again."""
_RETRY_BACKOFF: Final = Backoff(first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S)
PATIENCE: Final = 3
"""Identical writes of one object that the API server took, before it is left alone for a while."""
FIRST_PAUSE_S: Final = 120.0
SERVICE_PAUSE_S: Final = 60.0
"""Pause of a Service: while it selects other pods than those that serve, nobody is served."""
LONGEST_PAUSE_S: Final = 3600.0
"""Each write that is changed back doubles the pause: nobody tells when the other side is mended."""
_BACKOFF: Final = Backoff(first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S)
OVER_AFTER_S: Final = 300.0
"""So long a write has to stand, until the fight counts as over. An autoscaler takes fifteen seconds
to answer, and in between the operator looks at what it wrote."""
_Place = tuple[Kind, str, bool]
"""Kind and name of an object, and whether a part of it was patched: fights over its parts may
alternate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The operations are in order. A failure that may pass by itself ends the attempt."""

    written: tuple[Operation, ...] = ()
    """Those that the API server took."""
    refused: tuple[tuple[Operation, str], ...] = ()
    """Those that it refuses for good, each with a sentence."""
    broke_off: tuple[Operation, str] | None = None
    """The one that failed in a way that may pass by itself, so that the rest was not tried."""
    outdated: bool = False
    """Whether that one found the cluster in another state than the one it was decided on."""
    raised: Exception | None = None
    """An error of our own, at which the rest was given up."""

    @property
    def tried(self) -> bool:
        """Whether anything was sent."""
        return bool(self.written or self.refused or self.broke_off)

    @property
    def failed(self) -> tuple[tuple[Operation, str], ...]:
        """Those that failed, in order, each with a sentence."""
        return (*self.refused, *((self.broke_off,) if self.broke_off else ()))

    def left(self, wanted: Sequence[Operation]) -> tuple[Operation, ...]:
        """Those of what was wanted that were not written."""
        return tuple(each for each in wanted if not any(each is done for done in self.written))


@dataclass(frozen=True, slots=True)
class Retry:
    """Tries of one write, since its first refusal."""

    at_s: float
    """Unix seconds of the last try."""
    failures: int = 1

    @property
    def pause_s(self) -> float:
        """From the last try to the next."""
        return _RETRY_BACKOFF.after(self.failures)

    def left_s(self, now_s: float) -> float:
        """Until the next try."""
        # A clock that was set back must not make it longer.
        return min(self.pause_s, max(0.0, self.at_s + self.pause_s - now_s))

    def again(self, now_s: float) -> "Retry":
        """After one more refusal."""
        return Retry(now_s, self.failures + 1)

    @property
    def lasting(self) -> bool:
        """Whether it was refused for as long as the longest pause: about a minute."""
        return self.pause_s == LONGEST_RETRY_S


@dataclass(frozen=True, slots=True)
class _Refused:
    """A write that the API server refuses, and why."""

    fingerprint: str
    sentence: str
    retry: Retry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The same thing, written again and again."""

    fingerprint: str
    times: int
    at_s: float
    """Unix seconds of the last time."""
    created: bool
    """Whether it was not there before."""
    why: str = ""
    """What was found changed back, the last time."""
    data: Mapping[str, JsonValue] = field(default_factory=dict)
    """Data of a ConfigMap."""

    def lost_in(self, live: Manifest) -> bool:
        """Whether somebody took back what was written, whatever they added."""
        found = _data(live)
        return any(found.get(key) != value for key, value in self.data.items())

    def pausing(self, kind: Kind, now_s: float) -> bool:
        if self.times < PATIENCE:
            return False
        pause_s = _BACKOFF.after(self.times - PATIENCE + 1)
        return self._within(SERVICE_PAUSE_S if kind == SERVICE else pause_s, now_s)

    def over(self, now_s: float) -> bool:
        """Whether nobody fights, where the object is as it was written.

        What somebody deletes is made again at once, however often: what serves may depend on it.
        """
        return self.created or not self._within(OVER_AFTER_S, now_s)

    def _within(self, seconds: float, now_s: float) -> bool:
        return not is_over(self.at_s, seconds, now_s)


@dataclass(frozen=True, slots=True)
class ApplyGuard:
    """What was written: the very same is written again less and less often.

    A webhook or another controller that puts its own value back would otherwise be answered for
    ever, and each answer may restart pods.
    """

    _written: Mapping[_Place, _Written] = field(default_factory=dict)
    _refused: Mapping[tuple[Kind, str], _Refused] = field(default_factory=dict)

    def settled(self, wanted: Sequence[Operation], now_s: float) -> Self:
        """Without the objects that need no write, and have needed none for a while."""
        pending = {(each.kind, each.name) for each in wanted}
        written = {
            place: seen
            for place, seen in self._written.items()
            if place[:2] in pending or not seen.over(now_s)
        }
        refused = {key: seen for key, seen in self._refused.items() if key in pending}
        return replace(self, _written=written, _refused=refused)

    def after(self, outcome: Outcome, now_s: float) -> Self:
        """After some operations were tried."""
        guard = self
        for each in outcome.written:
            guard = guard.wrote(each, now_s)
        for each, sentence in outcome.refused:
            guard = guard.refused(each, sentence, now_s)
        return guard

    def retry_after_s(self, now_s: float) -> float:
        """Seconds until a write that was refused may be tried again; infinity: none was."""
        return min(
            (each.retry.left_s(now_s) for each in self._refused.values()), default=float("inf")
        )

    def refusal(self, operation: Operation, now_s: float) -> str | None:
        """Why this write is not tried again now; None: it may be."""
        refused = self._refused_before(operation)
        if refused is not None and refused.retry.left_s(now_s) > 0:
            return refused.sentence
        if isinstance(operation, Delete) or not self._seen(operation).pausing(
            operation.kind, now_s
        ):
            return None
        return _fight(operation.kind, operation.name, operation.why)

    def fights(self, now_s: float) -> tuple[str, ...]:
        """Sentences: what is as it was written, for now, and was changed back each time so far."""
        return tuple(
            _fight(kind, name, seen.why)
            for (kind, name, _), seen in sorted(self._written.items())
            if seen.times > PATIENCE and not seen.over(now_s)
        )

    def refused(self, operation: Operation, sentence: str, now_s: float) -> Self:
        """With a write that the API server refuses for good."""
        before = self._refused_before(operation)
        retry = Retry(now_s) if before is None else before.retry.again(now_s)
        refused = _Refused(_fingerprint(operation), sentence, retry)
        key = operation.kind, operation.name
        return replace(self, _refused={**self._refused, key: refused})

    def _refused_before(self, operation: Operation) -> _Refused | None:
        refused = self._refused.get((operation.kind, operation.name))
        # What a ConfigMap of ours holds moves with every measurement.
        moves = operation.kind == CONFIG_MAP
        if refused is None or not (moves or refused.fingerprint == _fingerprint(operation)):
            return None
        return refused

    def wrote(self, operation: Operation, now_s: float) -> Self:
        """With a write that the API server took; one that it refused changed nothing."""
        key = operation.kind, operation.name
        refused = {place: seen for place, seen in self._refused.items() if place != key}
        if isinstance(operation, Delete):
            return replace(self, _refused=refused)
        seen = self._seen(operation)
        again = replace(
            seen,
            times=seen.times + 1,
            at_s=now_s,
            created=isinstance(operation, Create),
            why=operation.why,
            data={} if isinstance(operation, Patch) else _data(operation.manifest),
        )
        written = {**self._written, _place(operation): again}
        return replace(self, _written=written, _refused=refused)

    def _seen(self, operation: Create | Apply | Patch) -> _Written:
        fingerprint = _fingerprint(operation)
        seen = self._written.get(_place(operation))
        if seen is not None and seen.fingerprint == fingerprint:
            return seen
        if seen is not None and isinstance(operation, Apply) and seen.lost_in(operation.live):
            # What a ConfigMap holds has moved meanwhile, and it is the same fight.
            return replace(seen, fingerprint=fingerprint)
        return _Written(fingerprint=fingerprint, times=0, at_s=0.0, created=False)


def _place(operation: Create | Apply | Patch) -> _Place:
    return operation.kind, operation.name, isinstance(operation, Patch)


def _fight(kind: Kind, name: str, why: str) -> str:
    again = "once a minute" if kind == SERVICE else "less and less often"
    return (
        f"{kind.kind} {name} was written {PATIENCE} times and is changed back by something else: "
        f"{why}. It is written again {again}; find the webhook or controller that does this, and "
        "exempt objects labelled app.kubernetes.io/managed-by=fathom."
    )


def _data(manifest: Manifest) -> Mapping[str, JsonValue]:
    """What a ConfigMap holds; of other kinds nothing."""
    data = manifest.get("data")
    return data if isinstance(data, dict) else {}


def _fingerprint(operation: Operation) -> str:
    match operation:
        case Create(manifest=content) | Apply(manifest=content) | Patch(patch=content):
            text = json.dumps(content, sort_keys=True)
        case Delete():
            text = "deleted"
    return hashlib.sha256(text.encode()).hexdigest()
