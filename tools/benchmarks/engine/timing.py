"""How long each part of the benchmark takes. Pure."""

from dataclasses import dataclass
from typing import Final

from local_cluster.engine.language import EASY, HARD, TRAFFIC_CLASSES
from local_cluster.engine.traffic import Phase

SWITCH_SECONDS: Final = 0.7
"""From one arm to the next: the engine looks at the depth file, and what is in flight settles."""


PRICE_TRAFFIC: Final = Phase(EASY, concurrency=2)
"""Few requests make short steps, of which the hooks are the larger share."""


@dataclass(frozen=True, slots=True)
class EngineBenchTiming:
    """Lengths in seconds, and how often. Starting the two engines comes on top."""

    phases: tuple[Phase, ...] = (
        Phase(EASY, concurrency=2),
        Phase(HARD, concurrency=8),
        Phase(EASY, concurrency=8),
        Phase(HARD, concurrency=2),
    )
    """The trace. Each change turns over what the tuner has learnt about the traffic."""
    sweep_concurrencies: tuple[int, ...] = (1, 2, 4, 8)
    sweep_rounds: int = 2
    sweep_slice_seconds: float = 1.2
    window_seconds: int = 5
    """The tuner's window: the least that the API takes."""
    learning_rounds: int = 2
    """Rounds of a phase's first half, in which every depth has its turn."""
    learning_turn_seconds: float = 35.0
    """The tuner's, in each of them."""
    learning_slice_seconds: float = 4.0
    """Each static depth's."""
    steady_rounds: int = 14
    """Rounds of a phase's second half, in which only the fastest depths go on."""
    steady_slice_seconds: float = 5.0
    """Slice of the tuner and of the depths alike: a window."""
    contenders: int = 2
    """How many static depths go on."""
    price_steps: int = 10_000
    """Steps of each engine, at least."""
    price_slice_seconds: float = 8.0
    price_rest_seconds: float = 1.5
    """Before each slice: an engine goes on spinning for a second after its last request."""
    price_seconds: float = 340.0
    """What the price is expected to take."""

    def sweep_seconds(self, depths: int) -> float:
        """What the sweep of one class at one concurrency takes."""
        return depths * self.sweep_rounds * (self.sweep_slice_seconds + SWITCH_SECONDS)

    def phase_seconds(self, depths: int) -> float:
        """What one phase of the trace takes, all arms together."""
        learning = self.learning_turn_seconds + depths * self.learning_slice_seconds
        steady = (1 + self.contenders) * self.steady_slice_seconds
        return (
            self.learning_rounds * (learning + (1 + depths) * SWITCH_SECONDS)
            + self.steady_rounds * (steady + (1 + self.contenders) * SWITCH_SECONDS)
        )  # fmt: skip

    def total_seconds(self, depths: int) -> float:
        """What all of it takes, starting the engines apart."""
        sweeps = len(TRAFFIC_CLASSES) * len(self.sweep_concurrencies)
        return (
            sweeps * self.sweep_seconds(depths)
            + len(self.phases) * self.phase_seconds(depths)
            + self.price_seconds
        )


QUICK: Final = EngineBenchTiming(
    phases=(Phase(EASY, concurrency=2), Phase(HARD, concurrency=8)),
    sweep_concurrencies=(2, 8),
    sweep_rounds=1,
    sweep_slice_seconds=0.5,
    learning_turn_seconds=10.0,
    learning_slice_seconds=1.0,
    steady_rounds=2,
    contenders=1,
    price_steps=500,
    price_slice_seconds=3.0,
    price_seconds=20.0,
)
"""Shows that everything works, in about four minutes; its numbers say little."""
