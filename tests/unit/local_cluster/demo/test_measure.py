"""The comparison of two depths, on a machine that is made up."""

import itertools
from collections.abc import Callable

from local_cluster.demo.compare import Ratio
from local_cluster.demo.measure import compare

SLICE_SECONDS = 4.0


class Machine:
    """Says how fast each depth is, and moves its clock by a slice each time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.depths: list[int | None] = []
        self._noise = itertools.cycle((1.0, 1.01, 0.99))

    async def rate(self, depth: int | None) -> float:
        self.depths.append(depth)
        self.now_s += SLICE_SECONDS
        return (130.0 if depth is None else 100.0) * next(self._noise)

    def clock(self) -> float:
        return self.now_s


def never(_: Ratio) -> bool:
    return False


def after(pairs: int) -> Callable[[Ratio], bool]:
    return lambda ratio: ratio.pairs >= pairs


async def test_slices_are_taken_in_turn_until_the_interval_is_enough() -> None:
    machine = Machine()
    said: list[str] = []
    pairs = await compare(
        machine.rate,
        None,
        3,
        enough=after(4),
        limit_seconds=1e9,
        progress=said.append,
        clock=machine.clock,
    )
    # ABBA: what drifts steadily favours neither.
    assert machine.depths == [None, 3, 3, None, None, 3, 3, None]
    assert (min(pairs.ours), max(pairs.theirs)) > (120, 100)
    assert len(pairs.ours) == len(pairs.theirs) == 4
    assert 1.28 < pairs.ratio.estimate < 1.32
    assert said[0] == "pair 1, tuned; so far no interval yet"
    assert said[-1].startswith("pair 4, tuned; so far 1.3")


async def test_a_comparison_that_nothing_decides_ends_at_its_limit() -> None:
    machine = Machine()
    pairs = await compare(
        machine.rate, 7, 1, enough=never, limit_seconds=5 * SLICE_SECONDS, clock=machine.clock
    )
    # The third pair had begun by then, and half a pair would be nothing.
    assert len(machine.depths) == 6
    assert pairs.ratio.pairs == 3


async def test_there_are_two_pairs_however_slow_the_machine() -> None:
    machine = Machine()
    pairs = await compare(machine.rate, None, 3, enough=never, limit_seconds=0, clock=machine.clock)
    assert pairs.ratio.pairs == 2
