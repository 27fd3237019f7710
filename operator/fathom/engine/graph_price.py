"""What live depth costs in CUDA graphs, and where they would not fit together. Pure."""

from dataclasses import dataclass
from typing import Final

from fathom.api.choices import Method
from fathom.engine.capture_sizes import sets_graphs
from fathom.engine.cuda_graphs import Graphs
from fathom.engine.profile import EngineProfile

DRAFTS_AFTER_THE_TARGET: Final = frozenset({Method.EAGLE, Method.EAGLE3, Method.MTP})
"""Whose first pass goes over the tokens of the target's step, with graphs of the same sizes."""


@dataclass(frozen=True, slots=True)
class GraphPrice:
    """What live depth costs in graphs."""

    live: Graphs
    static: Graphs
    """Of the same engine without live depth, at `tokens`."""
    counts_draft: bool
    """Whether the draft's graphs are known: those of EAGLE and MTP drafts."""

    @property
    def captured(self) -> tuple[int, int]:
        """How many graphs live depth captures, and how many the engine would have without."""
        live, static = self.live.captured, self.static.captured
        return (live.total, static.total) if self.counts_draft else (live.target, static.target)


def graph_price(engine: EngineProfile) -> GraphPrice | str:
    """What an engine captures and replays; or why that is not known.

    Args:
        engine: whose depth is live.
    """
    if not engine.start.captures_graphs:
        return "none, as --enforce-eager asks"
    if sets_graphs(engine.arguments):
        return "as engine.args set them, which may leave depths without full ones"
    return GraphPrice(
        live=engine.graphs,
        static=engine.static_graphs,
        counts_draft=engine.spec.draft.method in DRAFTS_AFTER_THE_TARGET,
    )
