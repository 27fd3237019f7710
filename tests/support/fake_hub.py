"""A hub of a test's own: it knows what it is told, at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fathom.model_facts import Absence, ModelFacts
from fathom.model_refs import ModelRef


@dataclass
class FakeHub:
    models: Mapping[ModelRef, ModelFacts] = field(default_factory=dict)
    asked: list[ModelRef] = field(default_factory=list)

    async def look_up(self, ref: ModelRef) -> ModelFacts:
        self.asked.append(ref)
        missing = ModelFacts(absence=Absence.MISSING, explanation="there is no such model")
        return self.models.get(ref, missing)
