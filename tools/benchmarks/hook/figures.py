"""What the benchmark measures, and what follows from it. Pure: both processes read it."""

import json
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

BATCHES: Final = (1, 16, 64, 256, 1024)
BOUNDS_US: Final = {256: 40.0, 1024: 100.0}
"""Microseconds that the hook may add to a step, by batch."""
STAT_SECONDS: Final = 0.5
"""How long the depth file's `stat` takes where its disk is slow."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """One kind of step at one batch, both schedulers in turn: each figure is a round's median."""

    batch: int
    kind: str
    without_us: list[float]
    added_us: list[float]
    """With the hook, less without it in the same round."""

    @property
    def step_us(self) -> float:
        """A step without the hook."""
        return median(self.without_us)

    @property
    def hook_us(self) -> float:
        """What the hook adds."""
        return median(self.added_us)

    @property
    def interval_us(self) -> tuple[float, float]:
        """95 % for the median of `added_us`, whatever its distribution."""
        ordered = sorted(self.added_us)
        # Ranks by the normal approximation of the binomial: enough from ten rounds on.
        margin = int(len(ordered) / 2 - 0.98 * len(ordered) ** 0.5)
        return ordered[max(margin, 0)], ordered[-1 - max(margin, 0)]

    @property
    def ratio(self) -> float:
        """A step with the hook, in steps without it."""
        return 1 + self.hook_us / self.step_us

    @property
    def bound_us(self) -> float | None:
        """What the hook may add at this batch."""
        return BOUNDS_US.get(self.batch)

    @property
    def holds(self) -> bool:
        """Whether it keeps to that."""
        return self.bound_us is None or self.hook_us <= self.bound_us


@dataclass(frozen=True, slots=True)
class SlowStat:
    """Steps while every `stat` of the depth file takes half a second."""

    steps: int
    stats: int
    """How often it was asked meanwhile."""
    longest_ms: float
    """The longest step."""

    @property
    def holds(self) -> bool:
        """Whether no step waited for one."""
        return self.stats > 0 and self.longest_ms < STAT_SECONDS * 1000


@dataclass(frozen=True, slots=True)
class Figures:
    """All of it."""

    rounds: list[Rounds]
    slow_stat: SlowStat
    load_per_processor: float
    """What the machine did, this benchmark included; above 1 it did much else."""

    @property
    def is_disturbed(self) -> bool:
        """Whether others took so much of the machine that its caches were not the benchmark's."""
        return self.load_per_processor > 1

    @property
    def holds(self) -> bool:
        """Whether every bound is kept."""
        return all(each.holds for each in self.rounds) and self.slow_stat.holds

    def to_json(self) -> str:
        """Text from which `from_json` makes the same figures."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Figures":
        """The figures that `to_json` wrote."""
        wire = json.loads(text)
        return cls(
            [Rounds(**each) for each in wire["rounds"]],
            SlowStat(**wire["slow_stat"]),
            wire["load_per_processor"],
        )
