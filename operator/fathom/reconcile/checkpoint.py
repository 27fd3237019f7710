"""What the tuning ConfigMap keeps of specs, models and rollouts, beside the tuner's state.

Anyone may have written to it, so each key is read by itself. What was only learned is begun again
where it cannot be read (`lost`). What tells which pods belong to which spec, and whether that spec
was refused, stays as it is (`unread`): to take it for absent could move a fleet.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fathom.api.bounded_json import UnreadableJsonError, parsed_json
from fathom.api.names import REVISION_LENGTH
from fathom.fetch.state import Fetched
from fathom.model_facts import ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom.quality.check import QUALITY_KEY, QualityCheck
from fathom.rollout.refresh import RefreshLog
from fathom.rollout.rollout import Rollout
from fathom.times import UnixSeconds
from fathom.training.record import TrainingRecord
from fathom_intake.model_weights import Weights

_GOOD_SPEC: Final = "lastGoodSpec.json"
_GOOD_REVISION: Final = "revision"
_ACCEPTED_SPEC: Final = "acceptedSpec.json"
_ACCEPTED_REVISION: Final = "acceptedRevision"
_STABLE_SPEC: Final = "stableSpec.json"
ROLLOUT_KEY: Final = "rollout.json"
_REFRESHES: Final = "refreshes.json"
_WEIGHTS: Final = "weights.json"
_MODELS: Final = "models.json"
_GENERATION: Final = "generation.json"
_TRAINING: Final = "training.json"
LOOK_KEY: Final = "lookedAt.json"
"""What is no reason for a write by itself."""
SPECS: Final = frozenset({_GOOD_SPEC, _ACCEPTED_SPEC, _STABLE_SPEC})
_REVISIONS: Final = frozenset({_GOOD_REVISION, _ACCEPTED_REVISION})
_HOLDING: Final = SPECS | _REVISIONS | {_MODELS}
"""What must not be taken for absent where it cannot be read."""
KEYS: Final = _HOLDING | {
    *(ROLLOUT_KEY, _REFRESHES, QUALITY_KEY, _WEIGHTS, _TRAINING, _GENERATION, LOOK_KEY),
}
"""All that is ours, beside the tuner's state."""
ABSENT: Final = "null"
"""What a key holds that is not there."""
_REVISION: Final = re.compile(f"[0-9a-f]{{{REVISION_LENGTH}}}")
_Value = TypeVar("_Value")
_TEXTS: Final = TypeAdapter(dict[str, str])
_LOOK: Final[TypeAdapter[float]] = TypeAdapter(UnixSeconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownModel:
    # What a later Fathom knows beside, this one does without.
    __pydantic_config__ = ConfigDict(extra="ignore")

    id: str
    revision: str
    config: ModelConfig
    weights: Weights


_KNOWN_MODELS: Final = TypeAdapter(tuple[_KnownModel, ...])


def models_text(models: Mapping[ModelRef, ModelFacts]) -> str:
    """Canonical text of those of which something is known; empty: of none."""
    known = tuple(
        _KnownModel(id=ref.id, revision=ref.revision, config=facts.config, weights=facts.weights)
        for ref, facts in sorted(models.items(), key=lambda item: (item[0].id, item[0].revision))
        if facts.config is not None
    )
    return _KNOWN_MODELS.dump_json(known, exclude_defaults=True).decode() if known else ""


def models_from(text: str) -> dict[ModelRef, ModelFacts] | None:
    """The models that a text tells of; None: it cannot be read."""
    try:
        known = _KNOWN_MODELS.validate_json(text)
    except ValidationError:
        return None
    return {
        ModelRef(each.id, each.revision): ModelFacts(config=each.config, weights=each.weights)
        for each in known
    }


def with_kept(
    found: Mapping[ModelRef, ModelFacts], kept: Mapping[ModelRef, ModelFacts]
) -> dict[ModelRef, ModelFacts]:
    """What is known by now of each model that was looked for."""
    return {ref: facts.or_before(kept.get(ref)) for ref, facts in found.items()}


def worth_keeping(models: Mapping[ModelRef, ModelFacts]) -> dict[ModelRef, ModelFacts]:
    """Models in use of which something is known, and that alone."""
    return {
        ref: ModelFacts(config=facts.config, weights=facts.weights)
        for ref, facts in models.items()
        if facts.config is not None
    }


def named(refs: Iterable[ModelRef]) -> str:
    """Models in words."""
    return " and ".join(ref.id for ref in refs)


@dataclass(frozen=True, slots=True)
class SeenGeneration:
    """The newest generation of a resource that was acted upon."""

    uid: str
    generation: int


_SEEN: Final = TypeAdapter(SeenGeneration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Specs as JSON; None: not known."""

    good_spec: str | None = None
    """The newest spec whose own pods became ready, past any trial."""
    good_revision: str | None = None
    """The revision that its pods were given."""
    accepted_spec: str | None = None
    """The newest spec that was carried out, as long as it is not the good one."""
    accepted_revision: str | None = None
    """The revision that its pods were given, or are to be given."""
    stable_spec: str | None = None
    """Spec of the rollout's stable revision."""
    rollout: Rollout | None = None
    """The one under way, or the one whose revision is vetoed."""
    refreshes: RefreshLog = field(default_factory=RefreshLog)
    """Replicas that were restarted for their age."""
    quality: str | None = None
    """The quality check that is under way."""
    weights: Mapping[str, Fetched] = field(default_factory=lambda: MappingProxyType({}))
    """What was fetched into the cache, by the fetch's digest."""
    models: Mapping[ModelRef, ModelFacts] = field(default_factory=lambda: MappingProxyType({}))
    """What is known of the models that these specs name."""
    training: TrainingRecord = field(default_factory=TrainingRecord)
    """The training of another draft."""
    seen: SeenGeneration | None = field(default=None, compare=False)
    """None: nothing was acted upon yet. No step by itself: it goes with the next write."""
    looked_at_s: float | None = field(default=None, compare=False)
    """When an operator looked at the canary (Unix seconds); None: there is none. It goes with the
    next write, and is no reason for one."""
    unread: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By key: what is there, matters, and cannot be read."""
    lost: tuple[str, ...] = field(default=(), compare=False)
    """Keys of what was learned and cannot be read: it is begun again."""
    voided: frozenset[str] = frozenset()
    """Keys that are written as `ABSENT`. To leave out what another wrote would not remove it."""

    @classmethod
    def of(cls, tuning: Mapping[str, str]) -> "Checkpoint":
        """Read from the ConfigMap's data. Never raises."""
        read = _CheckpointReading(tuning)
        return cls(
            good_spec=read.key(_GOOD_SPEC, _spec),
            good_revision=read.key(_GOOD_REVISION, _revision),
            accepted_spec=read.key(_ACCEPTED_SPEC, _spec),
            accepted_revision=read.key(_ACCEPTED_REVISION, _revision),
            stable_spec=read.key(_STABLE_SPEC, _spec),
            rollout=read.key(ROLLOUT_KEY, Rollout.from_json),
            refreshes=read.key(_REFRESHES, RefreshLog.read) or RefreshLog(),
            quality=read.key(QUALITY_KEY, _quality),
            weights=read.key(_WEIGHTS, _weights) or {},
            models=read.key(_MODELS, models_from) or {},
            training=read.key(_TRAINING, TrainingRecord.from_json) or TrainingRecord(),
            seen=read.key(_GENERATION, _seen),
            looked_at_s=read.key(LOOK_KEY, _look),
            unread={key: tuning[key] for key in read.unreadable if key in _HOLDING},
            lost=tuple(key for key in read.unreadable if key not in _HOLDING),
            voided=frozenset(key for key in KEYS if tuning.get(key) == ABSENT),
        )

    def without_lost(self) -> "Checkpoint":
        """With what was learned and cannot be read taken for absent."""
        return replace(self, lost=(), voided=self.voided | KEYS & set(self.lost))

    def without_unread(self) -> "Checkpoint":
        """With what matters and cannot be read taken for absent."""
        return replace(self, unread={}, voided=self.voided | self.unread.keys())

    def without_foreign(self, live: Mapping[str, str], before: "Checkpoint") -> "Checkpoint":
        """With keys of ours voided that somebody else added while this operator ran.

        Args:
            live: the ConfigMap's data.
            before: as this operator kept it last.
        """
        added = (KEYS & live.keys()) - self.data().keys() - before.data().keys()
        return replace(self, voided=self.voided | added)

    def data(self) -> dict[str, str]:
        """As data of the ConfigMap."""
        found = {
            _GOOD_SPEC: self.good_spec,
            _GOOD_REVISION: self.good_revision,
            _ACCEPTED_SPEC: self.accepted_spec,
            _ACCEPTED_REVISION: self.accepted_revision,
            _STABLE_SPEC: self.stable_spec,
            ROLLOUT_KEY: self.rollout.to_json() if self.rollout else None,
            _REFRESHES: self.refreshes.to_json() if self.refreshes.refreshes else None,
            QUALITY_KEY: self.quality,
            _WEIGHTS: _weights_text(self.weights) if self.weights else None,
            _MODELS: models_text(self.models) or None,
            _TRAINING: self.training.to_json() if self.training != TrainingRecord() else None,
            _GENERATION: _SEEN.dump_json(self.seen).decode() if self.seen else None,
            LOOK_KEY: json.dumps(self.looked_at_s) if self.looked_at_s is not None else None,
        }
        known = {key: text for key, text in found.items() if text is not None}
        return dict.fromkeys(self.voided, ABSENT) | known | dict(self.unread)

    def specs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a revision and the spec that its pods were made from, the newest first."""
        stable = self.rollout.stable if self.rollout else None
        pairs = (
            (self.accepted_revision, self.accepted_spec),
            (self.good_revision, self.good_spec),
            (stable, self.stable_spec),
        )
        return tuple((revision, spec) for revision, spec in pairs if revision and spec)

    def spec_of(self, revision: str) -> str | None:
        return next((spec for found, spec in self.specs() if found == revision), None)

    def with_accepted(self, spec: str, revision: str) -> "Checkpoint":
        """With the spec that is carried out; it is not kept twice."""
        if (spec, revision) == (self.good_spec, self.good_revision):
            return replace(self, accepted_spec=None, accepted_revision=None)
        return replace(self, accepted_spec=spec, accepted_revision=revision)

    def with_good(self, spec: str, revision: str) -> "Checkpoint":
        """With the spec whose pods became ready."""
        checkpoint = replace(self, good_spec=spec, good_revision=revision)
        if (spec, revision) == (self.accepted_spec, self.accepted_revision):
            return replace(checkpoint, accepted_spec=None, accepted_revision=None)
        return checkpoint

    def with_weights(self, found: Mapping[str, Fetched], wanted: Collection[str]) -> "Checkpoint":
        """With what was found, and without what no spec wants any more, by digest."""
        weights = {**self.weights, **found}
        return replace(self, weights={key: weights[key] for key in wanted if key in weights})

    def same_step(self, other: "Checkpoint") -> bool:
        """Whether both keep the same specs, and a rollout at the same point."""
        ours, theirs = self.rollout, other.rollout
        same = ours is theirs if ours is None or theirs is None else ours.same_step(theirs)
        return same and replace(self, rollout=None) == replace(other, rollout=None)


class _CheckpointReading:
    """Reads key by key, and notes those that are there and cannot be read."""

    def __init__(self, tuning: Mapping[str, str]) -> None:
        self._tuning = tuning
        self.unreadable: list[str] = []

    def key(self, key: str, read: Callable[[str], _Value | None]) -> _Value | None:
        """What a key holds; None: it is not there, or cannot be read."""
        text = self._tuning.get(key, ABSENT)
        if text == ABSENT:
            return None
        value = read(text)
        if value is None:
            self.unreadable.append(key)
        return value


def _spec(text: str) -> str | None:
    """A spec's text, if it is one; whether this Fathom takes it is another question."""
    try:
        return text if isinstance(parsed_json(text), dict) else None
    except UnreadableJsonError:
        return None


def _revision(text: str) -> str | None:
    return text if _REVISION.fullmatch(text) else None


def _quality(text: str) -> str | None:
    return text if QualityCheck.from_json(text) is not None else None


def _seen(text: str) -> SeenGeneration | None:
    try:
        return _SEEN.validate_json(text)
    except ValidationError:
        return None


def _look(text: str) -> float | None:
    try:
        return _LOOK.validate_json(text)
    except ValidationError:
        return None


def _weights(text: str) -> dict[str, Fetched] | None:
    try:
        texts = _TEXTS.validate_json(text)
    except ValidationError:
        return None
    found = {digest: Fetched.from_json(each) for digest, each in texts.items()}
    known = {digest: fetched for digest, fetched in found.items() if fetched is not None}
    return known if len(known) == len(found) else None


def _weights_text(weights: Mapping[str, Fetched]) -> str:
    texts = {digest: fetched.to_json() for digest, fetched in weights.items()}
    return json.dumps(texts, separators=(",", ":"), sort_keys=True)
