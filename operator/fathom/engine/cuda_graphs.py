"""Which CUDA graph vLLM replays for a decode step, and how many it captures. A model of it, pure.

Model Runner V2 captures a full graph for each pair of a capture size and a query length: a depth
that the startup schedule names, and one for the token before the drafts. A step of batch times
query length tokens looks only at the graphs with the next larger number of tokens. Where none of
those has the step's own query length, the step runs piecewise; beyond the largest size, without any
graph. So each depth that is named may take full graphs from the others.

Source: `_set_cudagraph_sizes` in vllm/config/vllm.py, `CudaGraphManager` in
vllm/v1/worker/gpu/cudagraph_utils.py and `SpeculatorCudaGraphManager` beside the drafters.
tests/engine/test_graphs_equal_vllms.py asks vLLM's own code the same questions.

Source: `OPTIMIZATION_LEVEL_TO_CONFIG` in vllm/config/vllm.py and `CUDAGraphMode` in
vllm/config/compilation.py; tests/engine/test_parser_matrix.py asks vLLM.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final

from fathom.engine.argument_parser import EngineArguments, EngineOption

_ANY: Final = frozenset({0})
"""One graph for every query length."""
_INTERACTIVE_TOKENS: Final = 32
"""Up to which `--performance-mode interactivity` gives each step a size of its own."""
CONFIG: Final = "--compilation-config"
_KEY: Final = "cudagraph_mode"


class GraphMode(StrEnum):
    """vLLM's `cudagraph_mode`, as it is resolved for an attention backend."""

    FULL = "FULL"
    FULL_AND_PIECEWISE = "FULL_AND_PIECEWISE"
    FULL_DECODE_ONLY = "FULL_DECODE_ONLY"
    PIECEWISE = "PIECEWISE"
    NONE = "NONE"


class Replayed(StrEnum):
    """What a step gets."""

    FULL = "FULL"
    PIECEWISE = "PIECEWISE"
    NONE = "NONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """How many graphs an engine captures at its start."""

    target_full: int
    target_piecewise: int
    draft_full: int
    draft_piecewise: int

    @property
    def target(self) -> int:
        """Full and piecewise."""
        return self.target_full + self.target_piecewise

    @property
    def total(self) -> int:
        """All of them: each takes memory from the KV cache, and time at start."""
        return self.target + self.draft_full + self.draft_piecewise


@dataclass(frozen=True, slots=True)
class _FullGraphs:
    """Those that replay a whole step of decodes."""

    tokens: tuple[int, ...]
    """Numbers of tokens, ascending …"""
    query_lengths: tuple[frozenset[int], ...]
    """… and which query lengths have one of so many."""

    @classmethod
    def of(cls, by_tokens: Mapping[int, frozenset[int]]) -> "_FullGraphs":
        ascending = tuple(sorted(by_tokens))
        return cls(ascending, tuple(by_tokens[each] for each in ascending))

    @property
    def count(self) -> int:
        return sum(map(len, self.query_lengths))

    def next_group(self, tokens: int) -> frozenset[int]:
        """The query lengths of the next larger graphs, which are all that vLLM looks at."""
        at = bisect_left(self.tokens, tokens)
        return self.query_lengths[at] if at < len(self.tokens) else frozenset()


@dataclass(frozen=True, kw_only=True)
class Graphs:
    """The graphs of one engine, on Model Runner V2.

    Attributes:
        mode: as vLLM resolves it for the attention backend.
        sizes: numbers of tokens that graphs are captured for, ascending.
        max_num_seqs: the engine's.
        depths: those that the startup schedule gives to a batch of 1 to `max_num_seqs`.
        deepest: `num_speculative_tokens`.
        any_length: adaptive verification is on, so that a graph takes requests of any query length.
        of_each_kind: how many graphs the target has of each: with adapters, more than one.
    """

    mode: GraphMode
    sizes: tuple[int, ...]
    max_num_seqs: int
    depths: frozenset[int]
    deepest: int
    any_length: bool = False
    of_each_kind: int = 1

    def replayed(self, batch: int, depth: int) -> Replayed:
        """What a step of `batch` decodes gets, each of which verifies `depth` drafts."""
        query_length = depth + 1
        tokens = batch * query_length
        group = self._full.next_group(tokens)
        if query_length in group or (group == _ANY and depth <= self.deepest):
            return Replayed.FULL
        if self._piecewise and tokens <= self._piecewise[-1]:
            return Replayed.PIECEWISE
        return Replayed.NONE

    def reach(self, depth: int) -> int:
        """The largest batch that has any graph at a depth."""
        return min(max(self.sizes, default=0) // (depth + 1), self.max_num_seqs)

    def missed(self, depth: int) -> int:
        """How many batches within reach replay no full graph at a depth."""
        batches = range(1, self.reach(depth) + 1)
        return sum(self.replayed(batch, depth) is not Replayed.FULL for batch in batches)

    @cached_property
    def strays(self) -> Mapping[int, tuple[int, ...]]:
        """By depth, batches whose drafts replay a full graph although the target's step did not.

        The target runs piecewise, padded to a size. The draft's first pass looks for a graph of
        that size, finds a full one, of more requests, and replays it over what attention was told
        of fewer: on an H100 single steps then took seconds (docs/gpu.md). So with EAGLE and MTP
        drafts (`propose` in vllm/v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py).
        """
        found = {
            depth: tuple(
                batch
                for batch in range(1, self.reach(depth) + 1)
                if self._is_stray(batch, depth + 1)
            )
            for depth in sorted(self.depths)
        }
        return {depth: batches for depth, batches in found.items() if batches}

    def _is_stray(self, batch: int, query_length: int) -> bool:
        tokens = batch * query_length
        if self.replayed(batch, query_length - 1) is not Replayed.PIECEWISE:
            return False
        padded = self._piecewise[bisect_left(self._piecewise, tokens)]
        return query_length in self._full_of_one_length.next_group(padded)

    @cached_property
    def captured(self) -> Captured:
        """How many graphs, of the target and of an EAGLE draft.

        The draft's first pass captures what the target does, but for any one query length at a
        time. Its further passes capture one graph for each size up to `max_num_seqs` and each depth
        from 2 on.
        """
        piecewise = len(self._piecewise)
        further = 0
        if self.mode in _WITH_FULL_DECODES and self.deepest > 1:
            loops = sum(depth > 1 for depth in self.depths) if len(self.depths) > 1 else 1
            further = loops * sum(size <= self.max_num_seqs for size in self.sizes)
        return Captured(
            target_full=self._full.count * self.of_each_kind,
            target_piecewise=piecewise * self.of_each_kind,
            draft_full=self._full_of_one_length.count + further,
            draft_piecewise=piecewise,
        )

    @cached_property
    def _full(self) -> "_FullGraphs":
        if self.any_length and self.mode in _WITH_FULL_DECODES - {GraphMode.FULL}:
            return _FullGraphs.of(dict.fromkeys((n for n in self.sizes if n <= self._most), _ANY))
        return self._full_of_one_length

    @cached_property
    def _full_of_one_length(self) -> "_FullGraphs":
        """The same where adaptive verification is off."""
        if self.mode not in _WITH_FULL_DECODES:
            return _FullGraphs.of({})
        if self.mode is GraphMode.FULL:
            return _FullGraphs.of(dict.fromkeys(self.sizes, _ANY))
        found: dict[int, set[int]] = {}
        for query_length in {depth + 1 for depth in self.depths}:
            for size in self.sizes:
                requests = -(-size // query_length)
                tokens = requests * query_length
                if tokens <= min(self._most, self.sizes[-1]) and requests <= self.max_num_seqs:
                    found.setdefault(tokens, set()).add(query_length)
        return _FullGraphs.of({tokens: frozenset(lengths) for tokens, lengths in found.items()})

    @property
    def _most(self) -> int:
        """Tokens in the largest step of decodes."""
        return self.max_num_seqs * (self.deepest + 1)

    @cached_property
    def _piecewise(self) -> tuple[int, ...]:
        has = self.mode in {GraphMode.FULL_AND_PIECEWISE, GraphMode.PIECEWISE}
        return self.sizes if has else ()


_WITH_FULL_DECODES: Final = frozenset(
    {GraphMode.FULL, GraphMode.FULL_AND_PIECEWISE, GraphMode.FULL_DECODE_ONLY}
)


def default_sizes(
    depth_at: Sequence[int],
    deepest: int,
    *,
    ceiling: int,
    max_num_batched_tokens: int | None = None,
    interactive: bool = False,
) -> tuple[int, ...]:
    """What vLLM captures for when it is told no sizes.

    Args:
        depth_at: the startup schedule's depth at batch 1, 2, … `max_num_seqs`.
        deepest: `num_speculative_tokens`.
        ceiling: 1024 tokens on data-centre Blackwell, else 512.
        max_num_batched_tokens: the engine's; None: vLLM's own, which is beyond what it captures.
        interactive: whether it is told `--performance-mode interactivity`.
    """
    largest = min(len(depth_at) * (deepest + 1) * 2, ceiling)
    widest = {depth + 1: batch for batch, depth in enumerate(depth_at, start=1)}
    decodes = {
        requests * query_length
        for query_length, most in widest.items()
        for requests in {*_grid(min(most, ceiling)), min(most, ceiling)}
        if requests * query_length <= largest
    }
    sizes = {*decodes, *sizes_up_to(largest, max_num_batched_tokens, interactive=interactive)}
    return within(max_num_batched_tokens, sizes)


def sizes_up_to(
    largest: int, max_num_batched_tokens: int | None, *, interactive: bool
) -> tuple[int, ...]:
    """What vLLM captures for when it is told the largest size (`max_cudagraph_capture_size`)."""
    sizes = {*_grid(largest)}
    if interactive:
        sizes |= {*range(1, min(largest, _INTERACTIVE_TOKENS) + 1)}
    if max_num_batched_tokens is not None and max_num_batched_tokens <= largest:
        sizes.add(max_num_batched_tokens)
    return within(max_num_batched_tokens, sizes)


def within(max_num_batched_tokens: int | None, sizes: Iterable[int]) -> tuple[int, ...]:
    """Those that a step can have, ascending, each once: vLLM drops the others."""
    return tuple(
        sorted(
            size
            for size in {*sizes}
            if max_num_batched_tokens is None or size <= max_num_batched_tokens
        )
    )


def _grid(most: int) -> Iterable[int]:
    """1, 2, 4, the multiples of 8 below 256, then those of 16."""
    return (
        *(few for few in (1, 2, 4) if few <= most),
        *range(8, min(most + 1, 256), 8),
        *range(256, most + 1, 16),
    )


_BY_NUMBER: Final[Mapping[str, GraphMode]] = MappingProxyType(
    {"0": GraphMode.NONE, "1": GraphMode.PIECEWISE, "2": GraphMode.FULL}
)
"""vLLM takes these, too."""
_BY_LEVEL: Final[Mapping[str, GraphMode]] = MappingProxyType(
    {"0": GraphMode.NONE, "1": GraphMode.PIECEWISE}
)
"""Optimization levels with another mode than vLLM's own."""


@dataclass(frozen=True, slots=True)
class StatedMode:
    """What is captured, and what asks for it."""

    mode: GraphMode
    said: str
    """As the user may have written it; empty: it is vLLM's own."""

    @property
    def without_full(self) -> str:
        """What leaves an engine that captures graphs without full ones; empty: nothing."""
        return self.said if self.mode in {GraphMode.NONE, GraphMode.PIECEWISE} else ""


VLLMS_OWN: Final = StatedMode(GraphMode.FULL_AND_PIECEWISE, "")


def stated_mode(arguments: EngineArguments) -> StatedMode:
    """What `engine.args` ask for, else vLLM's own. What vLLM refuses counts as its own."""
    stated = arguments.object(CONFIG).get(_KEY)
    if stated is not None:
        text = str(stated).upper()
        mode = _BY_NUMBER.get(text) or GraphMode.__members__.get(text)
        return StatedMode(mode, f"{_KEY} {mode}") if mode else VLLMS_OWN
    levels = [level for option in arguments.options if (level := _level(option))]
    mode = _BY_LEVEL.get(levels[-1]) if levels else None
    return StatedMode(mode, f"-O{levels[-1]}") if mode else VLLMS_OWN


def _level(option: EngineOption) -> str:
    """The optimization level that an option states, such as 0 in -O0; empty: none."""
    if option.name.startswith("-O"):
        return option.name.removeprefix("-O") or option.value or ""
    return (option.value or "") if option.name.startswith("--optimization-l") else ""
