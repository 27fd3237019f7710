"""What the tuner remembers of rollouts: the canary that runs, and what was rolled out when."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fathom.tuning.comparison import Comparison


@dataclass(frozen=True, slots=True)
class Canary:
    """One pod with a schedule of its own."""

    pod: str
    depths: tuple[tuple[int, int], ...]
    """Pairs of bucket and depth."""
    started_at_s: float


@dataclass(frozen=True, slots=True)
class Rolls:
    """The canary, what it has shown, and the past week's promotions."""

    canary: Canary | None = None
    comparison: Comparison = field(default_factory=Comparison)
    tried: int = 0
    """Canaries of the present campaign."""
    fruitless: int = 0
    """Campaigns in a row that ended without a promotion."""
    promoted_at_s: tuple[float, ...] = ()
    rest_until_s: float = 0.0

    def may_roll(self, now_s: float, most: int, within_s: float, cooldown_s: float) -> bool:
        """Whether a canary may be started: none runs, and neither rest nor budget forbids it."""
        recent = [at_s for at_s in self.promoted_at_s if now_s - at_s < within_s]
        rested = all(now_s - at_s >= cooldown_s for at_s in recent)
        return self.canary is None and len(recent) < most and rested and now_s >= self.rest_until_s

    def promotions(self, now_s: float, within_s: float) -> int:
        """How many there were of late."""
        return sum(now_s - at_s < within_s for at_s in self.promoted_at_s)

    def promoted(
        self, before: Mapping[int, int], after: Mapping[int, int], now_s: float, within_s: float
    ) -> "Rolls":
        """After a promotion, at this moment, from some depths per bucket to others."""
        recent = [at_s for at_s in self.promoted_at_s if now_s - at_s < within_s]
        return replace(
            self,
            canary=None,
            comparison=self.comparison.rebased(before, after),
            tried=0,
            fruitless=0,
            promoted_at_s=(*recent, now_s),
        )
