"""Rules across fields of `draft.training`, and the one of `draft.trial` without drafts."""

from typing import Final

from fathom.api.problem import Rule
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.api.training import MINUTES_PER_HOUR


def _fits_its_budget(spec: SpeculativeDeploymentSpec) -> bool:
    training = spec.draft.training
    return (
        training is None or training.gpu_minutes <= training.gpu_hours_per_week * MINUTES_PER_HOUR
    )


_ABSENT: Final = "!has(self.draft.training)"

TRAINING_RULES: Final[tuple[Rule[SpeculativeDeploymentSpec], ...]] = (
    Rule(
        field="draft.trial",
        message="a draft is compared with replicas that draft: set speculation.drafting to "
        "Enabled, or leave draft.trial out.",
        cel="!has(self.draft.trial) || self.speculation.drafting != 'Disabled'",
        holds=lambda spec: spec.draft.trial is None or spec.drafts,
    ),
    Rule(
        field="draft.training",
        message="another draft is trained to take the place of one, and draft.id names none: set "
        "draft.id, or leave draft.training out.",
        cel=f"{_ABSENT} || self.draft.id != ''",
        holds=lambda spec: spec.draft.training is None or bool(spec.draft.id),
    ),
    Rule(
        field="draft.training",
        message="a trained draft is stored in the cache, and there is none: set cache.claimName or "
        "cache.size, or leave draft.training out.",
        cel=f"{_ABSENT} || self.cache.claimName != '' || self.cache.size != ''",
        holds=lambda spec: spec.draft.training is None or spec.cache.exists,
    ),
    Rule(
        field="draft.training.gpuHoursPerWeek",
        message="one training may take more: set it to gpus × deadlineMinutes / 60 or more, or "
        "lower one of those.",
        cel=f"{_ABSENT} || self.draft.training.gpus * self.draft.training.deadlineMinutes "
        f"<= self.draft.training.gpuHoursPerWeek * {MINUTES_PER_HOUR}",
        holds=_fits_its_budget,
    ),
)
