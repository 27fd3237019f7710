"""Policies that follow acceptance and never look at time."""

from collections.abc import Sequence
from typing import Final

from benchmarks.tuner.policies.learner import WindowSeen
from benchmarks.tuner.worlds.parts import FleetPart

RAISE_ABOVE: Final = 0.6
CUT_BELOW: Final = 0.4
SLOTS: Final = (1, 3, 5, 7)
EMA: Final = 0.2
HYSTERESIS: Final = 0.25


class Aimd:
    """One depth for the fleet: one deeper while most drafts are accepted, half when few are."""

    def __init__(self, fleet: FleetPart) -> None:
        self.depths = [each for each in fleet.depths if each] or list(fleet.depths)
        self.current = max(self.depths[0], fleet.tokens)

    def depth(self, bucket: int) -> int:
        del bucket
        return self.current

    def learn(self, window: Sequence[WindowSeen]) -> None:
        drafts = sum(seen.drafts for seen in window)
        if drafts <= 0:
            return
        accepted = sum(seen.tokens for seen in window) - drafts
        share = accepted / (drafts * self.current)
        if share > RAISE_ABOVE:
            self.current = next((k for k in self.depths if k > self.current), self.current)
        elif share < CUT_BELOW:
            half = self.current // 2
            self.current = max((k for k in self.depths if k <= half), default=self.depths[0])


class Slots:
    """A moving average of accepted drafts picks among few depths, with hysteresis.

    After the adaptive depth of SGLang: up a slot when nearly all of the present one is accepted,
    down when less is accepted than the slot below offers.
    """

    def __init__(self, fleet: FleetPart) -> None:
        allowed: list[int] = [each for each in SLOTS if each in fleet.depths]
        self.slots = allowed or [fleet.tokens]
        self.at = min(
            range(len(self.slots)), key=lambda index: abs(self.slots[index] - fleet.tokens)
        )
        self.accepted: float | None = None

    def depth(self, bucket: int) -> int:
        del bucket
        return self.slots[self.at]

    def learn(self, window: Sequence[WindowSeen]) -> None:
        drafts = sum(seen.drafts for seen in window)
        if drafts <= 0:
            return
        new = sum(seen.tokens for seen in window) / drafts - 1
        self.accepted = new if self.accepted is None else (1 - EMA) * self.accepted + EMA * new
        if self.accepted > self.slots[self.at] - 0.5:
            self.at = min(len(self.slots) - 1, self.at + 1)
        elif self.at and self.accepted < self.slots[self.at - 1] - HYSTERESIS:
            self.at -= 1
