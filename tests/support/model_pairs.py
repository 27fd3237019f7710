"""Pairs of target and draft: small config.json files of our own.

They are in tests/unit/validation/pairs.

Six are good, and six are the same ones, each broken in one way.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from fathom.model_facts import NO_MODEL, ModelConfig, ModelFacts
from fathom.validation.model_input import preflight_input
from fathom.validation.model_verdict import DraftVerdict, check_draft
from fathom_intake.model_weights import Weights
from manifest_samples import resource

PAIRS: Final = Path(__file__).parents[1] / "unit" / "validation" / "pairs"
NAMES: Final = sorted(path.name for path in (PAIRS / "good").iterdir())


@dataclass(frozen=True)
class Pair:
    """A pair, and what is changed in the good manifest to ask for it."""

    spec: dict[str, Any]
    target: dict[str, Any]
    draft: dict[str, Any] | None
    directory: Path

    @classmethod
    def read(cls, kind: str, name: str) -> Self:
        """A pair by kind, good or broken, and name."""
        directory = PAIRS / kind / name

        def read(file: str) -> Any:
            return json.loads((directory / file).read_text(encoding="utf-8"))

        alone = not (directory / "draft").exists()
        return cls(
            read("spec.json"),
            read("target/config.json"),
            None if alone else read("draft/config.json"),
            directory,
        )

    def verdict(
        self,
        *,
        spec: dict[str, Any] | None = None,
        target: dict[str, Any] | None = None,
        draft: dict[str, Any] | None = None,
        target_bytes: int | None = None,
        draft_weights: Weights = Weights(),  # noqa: B008 - frozen
    ) -> DraftVerdict:
        """What a preflight says, with some values changed.

        Args:
            spec: changes to the spec, at dotted paths.
            target: changes to the target's config.json.
            draft: changes to the draft's.
            target_bytes: size of the target's weights.
            draft_weights: what is known of the draft's.
        """
        theirs = NO_MODEL
        if self.draft is not None:
            config = ModelConfig.from_json(self.draft | (draft or {}))
            theirs = ModelFacts(config=config, weights=draft_weights)
        ours = ModelFacts(
            config=ModelConfig.from_json(self.target | (target or {})),
            weights=Weights(total_bytes=target_bytes),
        )
        return check_draft(preflight_input(resource(self.spec | (spec or {})).engine, ours, theirs))


def leaves(document: Any, path: str = "") -> dict[str, Any]:
    """Every value of a document by its path."""
    if isinstance(document, dict):
        found: dict[str, Any] = {}
        for key, value in document.items():
            found |= leaves(value, f"{path}.{key}")
        return found
    return {path: document}
