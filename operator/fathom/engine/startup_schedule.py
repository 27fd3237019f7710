"""The depth schedule that a tunable engine starts with: it names every depth that may come."""

from collections.abc import Sequence
from typing import Final

from fathom.engine.depth import DepthRange, Schedule

BASE_DEPTH: Final = 3


def startup_schedule(depths: Sequence[int], max_batch: int) -> Schedule:
    """A schedule over batches 1 to `max_batch` that names each of these depths.

    vLLM captures CUDA graphs for the depths that this schedule names, and for no others. All but
    the base stand at one batch each, near the top, where they are rarely in force; and the plugin
    puts the depth document in force before the first step, which begins with `tokens`. This depends
    on what the engine is sized for and on nothing that is live, so that changing `tokens` changes
    no pod.

    With fewer batches than depths not every depth finds a place: those nearest to the base are
    named, and the engine runs the others without full CUDA graphs.
    """

    def from_base(depth: int) -> tuple[int, int]:
        return abs(depth - BASE_DEPTH), depth

    base, *others = sorted(depths, key=from_base)[:max_batch]
    room = max_batch - len(others)
    # Shallower at larger batches, should one of them ever be in force.
    return (
        DepthRange(1, room, base),
        *(
            DepthRange(batch, batch, depth)
            for batch, depth in enumerate(sorted(others, reverse=True), start=room + 1)
        ),
    )
