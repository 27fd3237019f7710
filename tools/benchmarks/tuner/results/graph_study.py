"""What an arrangement of CUDA graphs is worth: the same worlds under each of them.

An arrangement is which depths an engine names and which sizes it captures. All of them live through
the same courses, and are scored by the same clairvoyant: it has every depth, each on an engine of
its own, at the step times that vLLM's own sizes for that depth give it. So a missing depth, a step
without its full graph and padding all count, and so does what the tuner does not find.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from benchmarks.tuner.outcome import outcome_of_depths
from benchmarks.tuner.policies import hindsight
from benchmarks.tuner.simulate import CLAIRVOYANT, LIVE, USER, simulate
from benchmarks.tuner.worlds.parts import GraphsPart
from benchmarks.tuner.worlds.world import SimulatedWorld
from fathom.api.choices import Objective

_TOKENS: Final = 3
_MAX_TOKENS: Final = 7


@dataclass(frozen=True, slots=True)
class Arrangement:
    name: str
    graphs: GraphsPart

    def of(self, world: SimulatedWorld) -> SimulatedWorld:
        """The world with engines that are arranged so; its draws stay as they are.

        The user asks for 3 of up to 7, as the arrangements do, and for throughput; traffic is
        closed.
        """
        bounds = {
            "tokens": _TOKENS,
            "min_tokens": min(_TOKENS, world.fleet.min_tokens),
            "max_tokens": _MAX_TOKENS,
        }
        aim = {"objective": Objective.THROUGHPUT, "tpot_milliseconds": None}
        return world.model_copy(
            update={
                "fleet": world.fleet.model_copy(update={**bounds, **aim, "graphs": self.graphs}),
                "step_time": world.step_time.model_copy(update={"graph_sizes": ()}),
                "traffic": world.traffic.model_copy(update={"mode": "closed"}),
            }
        )


ARRANGEMENTS: Final = (
    Arrangement("3 only, a static engine", GraphsPart(depths="tokens", sizes="vllm")),
    Arrangement("0…7 on vLLM's own sizes", GraphsPart(depths="all", sizes="vllm")),
    Arrangement("0, 1, 3, 7 on vLLM's own sizes", GraphsPart(depths="set", sizes="vllm")),
    Arrangement("0, 1, 3, 7 on 8", GraphsPart(depths="set", sizes="grid")),
    Arrangement("0, 1, 2, 3, 5, 7 on 24", GraphsPart(depths=(0, 1, 2, 3, 5, 7), sizes="grid")),
)


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GraphRun(_Figures):
    """One arrangement in one world and seed."""

    arrangement: str
    world: str
    seed: int
    allowed: float
    """The best that can be done with its depths, over the clairvoyant's tokens."""
    tuned: float
    """What the tuner makes, over the clairvoyant's."""
    at_tokens: float
    """The user's own depth, over the same on a static engine."""


class Spread(_Figures):
    mean: float
    worst: float

    @classmethod
    def of(cls, shares: Sequence[float]) -> Self:
        return cls(mean=float(np.mean(shares)), worst=min(shares))


class GraphRow(_Figures):
    """One arrangement in all worlds and seeds."""

    arrangement: str
    allowed: Spread
    tuned: Spread
    worst_world: str
    """In which the tuner makes the smallest share."""
    at_tokens: Spread


class GraphReport(_Figures):
    """What `--graphs --json` writes."""

    rows: tuple[GraphRow, ...]
    runs: tuple[GraphRun, ...]


def graph_run(arrangement: Arrangement, world: SimulatedWorld, seed: int) -> GraphRun:
    (campaign,) = simulate(arrangement.of(world), seed, (LIVE,))
    cut, course = campaign.cut, campaign.course
    made = {name: float(each.tokens.sum()) for name, each in campaign.outcomes.items()}
    best = made[CLAIRVOYANT]
    allowed = outcome_of_depths(course, cut.depth(hindsight.most_allowed(cut)))
    static = outcome_of_depths(course.ideal, cut.depth(hindsight.static(cut, _TOKENS)))
    return GraphRun(
        arrangement=arrangement.name,
        world=world.name,
        seed=seed,
        allowed=float(allowed.tokens.sum()) / best,
        tuned=made[LIVE] / best,
        at_tokens=made[USER] / float(static.tokens.sum()),
    )


def graph_report(runs: Iterable[GraphRun]) -> GraphReport:
    """A row for each arrangement, in the order in which they come."""
    runs = tuple(runs)
    names = dict.fromkeys(run.arrangement for run in runs)
    rows = (_row(name, [run for run in runs if run.arrangement == name]) for name in names)
    return GraphReport(rows=tuple(rows), runs=runs)


def _row(arrangement: str, runs: Sequence[GraphRun]) -> GraphRow:
    return GraphRow(
        arrangement=arrangement,
        allowed=Spread.of([run.allowed for run in runs]),
        tuned=Spread.of([run.tuned for run in runs]),
        worst_world=min(runs, key=lambda run: run.tuned).world,
        at_tokens=Spread.of([run.at_tokens for run in runs]),
    )
