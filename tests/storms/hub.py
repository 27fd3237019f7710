"""The hub of a history: it knows a few models, and can be slow, down, gated or of another mind."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from support.model_pairs import Pair

GOOD: Final = Pair.read("good", "llama-eagle3")
BROKEN: Final = Pair.read("broken", "llama-eagle3")
TARGET: Final = "acme/target"
DRAFT: Final = "acme/draft"
OTHER_DRAFT: Final = "acme/other-draft"
BAD_DRAFT: Final = "acme/bad-draft"
"""Preflight refuses it."""
SECRET: Final = "hf_neverShowThisToAnybody"
"""Stands in what a Prometheus or a pod says instead of metrics."""
PASSWORD: Final = "neverShowThisEither"
"""Stands in what registries, policies and engines say; it is known by what is around it alone."""
SECRETS: Final = (SECRET, PASSWORD)


def known() -> dict[str, ModelFacts]:
    """What the hub knows of each model."""
    assert GOOD.draft is not None
    assert BROKEN.draft is not None
    fits = ModelFacts(config=ModelConfig.from_json(GOOD.draft))
    broken = ModelFacts(config=ModelConfig.from_json(BROKEN.draft))
    return {
        TARGET: ModelFacts(config=ModelConfig.from_json(GOOD.target)),
        DRAFT: fits,
        OTHER_DRAFT: fits,
        BAD_DRAFT: broken,
    }


@dataclass
class Hub:
    """`ModelHub` of a history."""

    takes_s: float = 1.0
    down: bool = False
    gated: bool = False
    models: dict[str, ModelFacts] = field(default_factory=known)
    answers: list[tuple[float, str]] = field(default_factory=list)
    """When it gave the facts of which model."""

    async def look_up(self, ref: ModelRef) -> ModelFacts:
        await asyncio.sleep(self.takes_s)
        if self.down:
            return ModelFacts(absence=Absence.UNREACHABLE, explanation="the hub did not answer")
        if self.gated:
            return ModelFacts(absence=Absence.GATED, explanation=f"{ref.id} wants a token")
        missing = ModelFacts(absence=Absence.MISSING, explanation=f"there is no {ref.id}")
        found = self.models.get(ref.id, missing)
        if found.config is not None:
            self.answers.append((asyncio.get_running_loop().time(), ref.id))
        return found
