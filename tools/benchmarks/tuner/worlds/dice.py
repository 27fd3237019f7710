"""What worlds that nobody chose are drawn with."""

from collections.abc import Sequence
from math import exp, log
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Dice:
    """The same draws for the same numbers."""

    def __init__(self, *numbers: int) -> None:
        """Begin, with that of a world and one of its format."""
        self._rng = np.random.default_rng(numbers)

    def one_of(self, values: Sequence[T]) -> T:
        return values[int(self._rng.integers(len(values)))]

    def chance(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)

    def between(self, least: float, most: float) -> float:
        return round(float(self._rng.uniform(least, most)), 4)

    def factor(self, least: float, most: float) -> float:
        """Uniform in its logarithm."""
        return round(exp(float(self._rng.uniform(log(least), log(most)))), 4)

    def whole(self, least: int, most: int) -> int:
        return int(self._rng.integers(least, most + 1))
