"""What the tuning ConfigMap keeps of specs, rollouts and refreshes, beside the tuner's state."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fathom.core.fetch import Fetched
from fathom.core.quality import QUALITY_KEY
from fathom.rollout.refresh import RefreshLog
from fathom.rollout.rollout import Rollout

_GOOD_SPEC: Final = "lastGoodSpec.json"
_GOOD_REVISION: Final = "revision"
_STABLE_SPEC: Final = "stableSpec.json"
_ROLLOUT: Final = "rollout.json"
_REFRESHES: Final = "refreshes.json"
_WEIGHTS: Final = "weights.json"
_TEXTS: Final = TypeAdapter(dict[str, str])


@dataclass(frozen=True, slots=True)
class Kept:
    """Specs as JSON; None: not known."""

    good_spec: str | None = None
    """The newest spec that could be carried out."""
    good_revision: str | None = None
    """The revision that its pods were given."""
    stable_spec: str | None = None
    """Of the rollout's stable revision."""
    rollout: Rollout | None = None
    """The one under way, or the one whose revision is vetoed."""
    refreshes: RefreshLog = field(default_factory=RefreshLog)
    """Replicas that were restarted for their age."""
    quality: str | None = None
    """The quality check that is under way."""
    weights: Mapping[str, Fetched] = field(default_factory=lambda: MappingProxyType({}))
    """What was fetched into the cache, by the fetch's digest."""

    @classmethod
    def of(cls, tuning: Mapping[str, str]) -> "Kept":
        """Read from the ConfigMap's data."""
        rollout, refreshes = tuning.get(_ROLLOUT), tuning.get(_REFRESHES)
        return cls(
            tuning.get(_GOOD_SPEC),
            tuning.get(_GOOD_REVISION),
            tuning.get(_STABLE_SPEC),
            Rollout.from_json(rollout) if rollout else None,
            RefreshLog.from_json(refreshes) if refreshes else RefreshLog(),
            tuning.get(QUALITY_KEY),
            _weights(tuning.get(_WEIGHTS, "")),
        )

    def data(self) -> dict[str, str]:
        """As data of the ConfigMap."""
        found = {
            _GOOD_SPEC: self.good_spec,
            _GOOD_REVISION: self.good_revision,
            _STABLE_SPEC: self.stable_spec,
            _ROLLOUT: self.rollout.to_json() if self.rollout else None,
            _REFRESHES: self.refreshes.to_json() if self.refreshes.refreshes else None,
            QUALITY_KEY: self.quality,
            _WEIGHTS: _weights_text(self.weights) if self.weights else None,
        }
        return {key: text for key, text in found.items() if text is not None}

    def specs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a revision and the spec that its pods were made from, the newest first."""
        stable = self.rollout.stable if self.rollout else None
        pairs = ((self.good_revision, self.good_spec), (stable, self.stable_spec))
        return tuple((revision, spec) for revision, spec in pairs if revision and spec)

    def spec_of(self, revision: str) -> str | None:
        return next((spec for found, spec in self.specs() if found == revision), None)

    def with_weights(self, found: Mapping[str, Fetched], wanted: Collection[str]) -> "Kept":
        """With what was found, and without what no spec wants any more, by digest."""
        weights = {**self.weights, **found}
        return replace(self, weights={key: weights[key] for key in wanted if key in weights})

    def same_step(self, other: "Kept") -> bool:
        """Whether both keep the same specs, and a rollout at the same point."""
        ours, theirs = self.rollout, other.rollout
        same = ours is theirs if ours is None or theirs is None else ours.same_step(theirs)
        return same and replace(self, rollout=None) == replace(other, rollout=None)


def _weights(text: str) -> dict[str, Fetched]:
    try:
        texts = _TEXTS.validate_json(text)
    except ValidationError:
        return {}
    found = {digest: Fetched.from_json(each) for digest, each in texts.items()}
    return {digest: fetched for digest, fetched in found.items() if fetched is not None}


def _weights_text(weights: Mapping[str, Fetched]) -> str:
    texts = {digest: fetched.to_json() for digest, fetched in weights.items()}
    return json.dumps(texts, separators=(",", ":"), sort_keys=True)
