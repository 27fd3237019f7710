"""The counters as the API server's process reads them. Pure but for the file."""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fathom_vllm.buckets import bucket_count, first_batch, first_context, last_batch, last_context
from fathom_vllm.counters import (
    BLOCK_WORDS,
    BLOCKS,
    CELL_WORDS,
    CONTEXT_WORDS,
    DRAFTS,
    ERRORS,
    GENERATION,
    GONE,
    HEADER_WORDS,
    HOOK_SECONDS,
    IDLE,
    LIVE,
    LOOKED_AT,
    MAGIC,
    MAX_BATCH,
    MAX_DEPTH,
    PID,
    READY,
    READY_SCHEDULE,
    REJECTIONS,
    SCHEDULE,
    SEEN,
    STALL_SECONDS,
    STALLS,
    STATES,
    STEP_KINDS,
    TOKEN_BUDGET,
    TRANSITION_PREFILL,
    TRANSITION_SECONDS,
    TRANSITION_TOKENS,
    TRANSITIONS,
    WATCH_ERRORS,
    WORD,
    word_count,
)


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Sums over the steps of one cell."""

    batch_ge: int
    batch_le: int
    depth: int
    kind: str
    steps: float
    seconds: float
    tokens: float
    requests: float
    prefill: float


@dataclass(frozen=True, slots=True)
class DraftTally:
    """Sums over the drafts verified in one (batch bucket, depth)."""

    batch_ge: int
    batch_le: int
    depth: int
    drafts: float
    accepted: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ContextTally:
    """Sums over the drafts verified in one range of contexts: those of `DraftSums`."""

    context_ge: int
    context_le: int | None
    """None: the range has no end."""
    drafts: float
    tokens: float
    accepted: float
    first_accepted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the engines of one pod have counted since they started: mostly there is one."""

    pid: int
    max_batch: int
    max_depth: int
    token_budget: int
    """0: not known."""
    live: bool
    idle: bool
    generation: int
    """In force for the last step that was scheduled."""
    ready: int
    """In force for the next step, however soon it comes."""
    schedule_hash: int
    """Hash of the schedule of `generation`; 0: not known."""
    ready_schedule_hash: int
    """Hash of the schedule of `ready`."""
    seen: bool
    """Whether a depth document was ever obeyed."""
    gone: bool
    """Whether it is gone since, and depth went back to the user's."""
    looked_at_s: float
    """When the depth file was last looked at, or its watch began (`time.monotonic`)."""
    rejections: float
    errors: float
    hook_seconds: float
    transitions: float
    transition_seconds: float
    transition_tokens: float
    transition_prefill: float
    stalls: float
    stall_seconds: float
    steps: tuple[StepCounts, ...]
    drafts: tuple[DraftTally, ...]
    contexts: tuple[ContextTally, ...]


def read_counts(path: str) -> Counts | None:
    """Read the counters of a pod's engines, added up.

    Args:
        path: the first engine's file; those of other ranks lie beside it (`rank_path`).

    Returns:
        The counts, or None when no engine of this layout's version has created a file yet.
    """
    first = Path(path)
    files = (first, *sorted(first.parent.glob(f"{first.name}.rank*")))
    engines = [words for each in files if (words := _read_words(each)) is not None]
    if not engines:
        return None
    # Engines of one pod are of one size, and with it their files.
    alike = [words for words in engines if len(words) == len(engines[0])]
    return _counts(alike[0] if len(alike) == 1 else _added(alike))


def _added(engines: list[list[float]]) -> list[float]:
    columns = enumerate(zip(*engines, strict=True))
    return [min(each) if at in STATES else sum(each) for at, each in columns]


def _read_words(path: Path) -> list[float] | None:
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as map_,
        ):
            if len(map_) < HEADER_WORDS * WORD or map_[: len(MAGIC)] != MAGIC:
                return None
            whole = len(map_) - len(map_) % WORD
            with memoryview(map_) as view, view[:whole].cast("d") as doubles:
                words: list[float] = list(doubles)
    except (OSError, ValueError):  # absent, or still empty
        return None
    whole_file = word_count(int(words[MAX_BATCH]), int(words[MAX_DEPTH]))
    return words if len(words) == whole_file else None


def _counts(words: list[float]) -> Counts:
    max_batch, max_depth = int(words[MAX_BATCH]), int(words[MAX_DEPTH])
    blocks = list(_blocks(words, max_batch, max_depth))
    return Counts(
        pid=int(words[PID]),
        max_batch=max_batch,
        max_depth=max_depth,
        token_budget=int(words[TOKEN_BUDGET]),
        live=bool(words[LIVE]),
        idle=bool(words[IDLE]),
        generation=int(words[GENERATION]),
        ready=int(words[READY]),
        schedule_hash=int(words[SCHEDULE]),
        ready_schedule_hash=int(words[READY_SCHEDULE]),
        seen=bool(words[SEEN]),
        gone=bool(words[GONE]),
        looked_at_s=words[LOOKED_AT],
        rejections=words[REJECTIONS],
        errors=words[ERRORS] + words[WATCH_ERRORS],
        hook_seconds=words[HOOK_SECONDS],
        transitions=words[TRANSITIONS],
        transition_seconds=words[TRANSITION_SECONDS],
        transition_tokens=words[TRANSITION_TOKENS],
        transition_prefill=words[TRANSITION_PREFILL],
        stalls=words[STALLS],
        stall_seconds=words[STALL_SECONDS],
        steps=tuple(
            StepCounts(*batches, depth, kind, *block[at : at + CELL_WORDS])
            for batches, depth, block in blocks
            for at, kind in zip(range(0, DRAFTS, CELL_WORDS), STEP_KINDS, strict=True)
            if block[at]
        ),
        drafts=tuple(
            DraftTally(
                *batches, depth, block[DRAFTS], tuple(block[DRAFTS + 1 : DRAFTS + 1 + depth])
            )
            for batches, depth, block in blocks
            if block[DRAFTS]
        ),
        contexts=tuple(
            ContextTally(first_context(index), last_context(index), *sums)
            for index, sums in enumerate(_by_context(words))
            if sums[0]
        ),
    )


def _by_context(words: list[float]) -> Iterator[list[float]]:
    for at in range(HEADER_WORDS, BLOCKS, CONTEXT_WORDS):
        yield words[at : at + CONTEXT_WORDS]


def _blocks(
    words: list[float], max_batch: int, max_depth: int
) -> Iterator[tuple[tuple[int, int], int, list[float]]]:
    """Each bucket's first and last batch, the depth, and its words."""
    size = BLOCK_WORDS + max_depth
    at = BLOCKS
    for bucket in range(bucket_count(max_batch)):
        for depth in range(max_depth + 1):
            yield (first_batch(bucket), last_batch(bucket)), depth, words[at : at + size]
            at += size
