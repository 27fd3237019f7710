"""Which depths a tunable engine names at its start, and the sizes of its CUDA graphs. Pure.

vLLM replays a step of decodes as one full graph only if the next larger size that it captured for
belongs to the step's query length, which is the depth and one (`fathom.engine.cuda_graphs`).
Depths 0 to 7 share no size below 840 tokens, so that all of them together lose a third of their
graphs to each other. Depths whose query lengths divide one small number, the grid, share all its
multiples.

A pod keeps what it was started with, whatever a later spec or a later Fathom would start it with.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import ceil, lcm, sqrt
from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationError

from fathom.api.spec import MAX_TOKENS_LIMIT, SpeculationSpec
from fathom.engine.argument_parser import EngineArguments
from fathom.engine.depth import DepthRange, Schedule

WIDEST_GRID: Final = 48
"""Tokens: a step is padded to the next multiple."""
_ALONE: Final = sqrt(2)
"""Times its next query length: gains are flat near the best depth, and a length that doubles from
one to the next is never further away."""
_EXACT_TOKENS: Final = 48
"""Tokens up to which each step has a size of its own, in whole grids, two at most: small steps are
padded by the largest share, and each size costs a graph for each depth that has one."""
_FINE_TOKENS: Final = 256
_FINE_STEP: Final = 8
_COARSE_STEP: Final = 16
"""Up to that many tokens vLLM's own sizes are 8 apart, and 16 beyond (vllm/config/vllm.py)."""
BASE_DEPTH: Final = 3
_OPTION: Final = "--speculative-config"
_Depth = Annotated[int, Field(ge=0, le=MAX_TOKENS_LIMIT)]


def named_depths(
    speculation: SpeculationSpec, *, live: bool, captures_graphs: bool
) -> tuple[int, ...]:
    """The depths that an engine is asked for, ascending; 0 and `tokens` are among them.

    All up to `maxTokens` where no graph is captured, and where depth is not live, as long as the
    user names none.

    Args:
        speculation: the user's.
        live: whether its depth is.
        captures_graphs: whether it captures CUDA graphs.
    """
    if speculation.depths is not None:
        return tuple(sorted({0, *speculation.depths}))
    fits = live and captures_graphs
    return _fitting(speculation, speculation.tokens, fits=fits)


def usual_depths(speculation: SpeculationSpec, *, captures_graphs: bool) -> tuple[int, ...]:
    """What the same engine, tuned live, would have if `tokens` and `depths` wanted no others."""
    return _fitting(speculation, 1, fits=captures_graphs)


def _fitting(speculation: SpeculationSpec, tokens: int, *, fits: bool) -> tuple[int, ...]:
    deepest = speculation.effective_max_tokens
    if not fits:
        # No depth takes graphs from another.
        return tuple(range(deepest + 1))
    return _on(grid_of(tokens, deepest), deepest)


@lru_cache
def grid_of(tokens: int, deepest: int) -> int:
    """The smallest grid that holds `tokens`, reaches deepest, and leaves no depth alone.

    It is one for all `tokens` that the smallest of all such grids holds.
    """
    holding = lcm(2, tokens + 1)

    def order(grid: int) -> tuple[bool, int, int]:
        depths = _on(grid, deepest)
        return _leaves_alone(depths, deepest), -depths[-1], grid

    return min(range(holding, max(WIDEST_GRID, holding) + 1, holding), key=order)


def richer_tokens(speculation: SpeculationSpec) -> int | None:
    """The `tokens` next to the user's whose set leaves no depth alone; None: theirs does not.

    Args:
        speculation: of an engine that captures graphs and whose depth is live.
    """

    def leaves_alone(tokens: int) -> bool:
        deepest = speculation.model_copy(update={"tokens": tokens}).effective_max_tokens
        return _leaves_alone(_on(grid_of(tokens, deepest), deepest), deepest)

    if speculation.depths is not None or not leaves_alone(speculation.tokens):
        return None
    within = range(max(1, speculation.min_tokens), (speculation.max_tokens or MAX_TOKENS_LIMIT) + 1)
    return min(
        (each for each in within if not leaves_alone(each)),
        key=lambda each: (abs(each - speculation.tokens), -each),
        default=None,
    )


def _leaves_alone(depths: tuple[int, ...], deepest: int) -> bool:
    """Whether some depth is further than `_ALONE` times its query length from all of these."""
    lengths = [depth + 1 for depth in depths if depth]
    return any(
        min(max(length, other) / min(length, other) for other in lengths) > _ALONE
        for length in range(2, deepest + 2)
    )


def _on(grid: int, deepest: int) -> tuple[int, ...]:
    return tuple(depth for depth in range(deepest + 1) if grid % (depth + 1) == 0)


def capture_sizes(depths: Sequence[int], max_num_seqs: int, ceiling: int) -> tuple[int, ...]:
    """The sizes, in tokens, with which every step of these depths finds its full graph.

    Multiples of the grid, as far apart as vLLM's own at least. Small steps have sizes of their own,
    and so have steps whose next multiple takes more requests than the engine does, or is beyond the
    ceiling.

    None, where the depths share no grid that is narrow enough: padding would cost more than graphs
    that are missed.

    Args:
        depths: that the engine names.
        max_num_seqs: the engine's.
        ceiling: the largest size that vLLM would choose on this GPU.
    """
    lengths = [depth + 1 for depth in depths]
    grid = lcm(*lengths)
    if grid > max(WIDEST_GRID, lcm(2, max(lengths))):
        return ()
    fine, coarse = (grid * ceil(step / grid) for step in (_FINE_STEP, _COARSE_STEP))
    largest = min(2 * max_num_seqs * max(lengths), ceiling)

    def step(tokens: int) -> int:
        return fine if tokens <= _FINE_TOKENS else coarse

    def one_by_one() -> Iterator[range]:
        yield range(1, fine * max(1, min(2, _EXACT_TOKENS // fine)))
        for top in (largest, *(max_num_seqs * length for length in lengths)):
            if top <= largest and top % step(top):
                last = top // step(top) * step(top)
                yield range(last + 1, last + step(top) + 1)

    def is_step(tokens: int) -> bool:
        return any(tokens % length == 0 and tokens // length <= max_num_seqs for length in lengths)

    alone = {tokens for each in one_by_one() for tokens in each if is_step(tokens)}
    return tuple(
        tokens for tokens in range(1, largest + 1) if tokens % step(tokens) == 0 or tokens in alone
    )


def startup_schedule(depths: Sequence[int], max_batch: int, base: int = BASE_DEPTH) -> Schedule:
    """A schedule over batches 1 to `max_batch` that names each of these depths.

    vLLM captures CUDA graphs for the depths that this schedule names, and for no others. All but
    the base stand at one batch each, near the top, where they are rarely in force; and the plugin
    puts the depth document in force before the first step, which begins with `tokens`. This depends
    on what the engine is sized for and on nothing that is live, so that changing `tokens` changes
    no pod.

    With fewer batches than depths not every depth finds a place: those nearest to the base are
    named, and the engine runs the others without full CUDA graphs.

    Args:
        depths: to name.
        max_batch: the engine's `max_num_seqs`.
        base: the depth of all other batches.
    """

    def from_base(depth: int) -> tuple[int, int]:
        return abs(depth - base), depth

    first, *others = sorted(depths, key=from_base)[:max_batch]
    room = max_batch - len(others)
    # Shallower at larger batches, should one of them ever be in force.
    return (
        DepthRange(1, room, first),
        *(
            DepthRange(batch, batch, depth)
            for batch, depth in enumerate(sorted(others, reverse=True), start=room + 1)
        ),
    )


class _SpeculativeConfig(BaseModel):
    schedule: Annotated[
        tuple[tuple[int, int, _Depth], ...],
        Field(alias="num_speculative_tokens_per_batch_size", min_length=1),
    ]


def depths_in(arguments: EngineArguments) -> frozenset[int] | None:
    """The depths of the schedule in these arguments.

    None: they hold none, or one with so few batches that some depths may have found no place.
    """
    try:
        config = _SpeculativeConfig.model_validate_json(arguments.value(_OPTION) or "")
    except ValidationError:
        return None
    depths = frozenset(depth for _, _, depth in config.schedule)
    _, batches, _ = config.schedule[-1]
    return depths if len(depths) < batches else None
