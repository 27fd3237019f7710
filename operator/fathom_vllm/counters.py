"""The hand-over from the scheduler's process to the API server's: a small memory-mapped file.

Every value is one 8-byte aligned double with a single writer, so a reader sees each value whole.
It may see a step's counters half updated; the next scrape has the other half, and the consumers
work on differences over many steps. That is why there is no lock to pay for on every step.

The writer removes the old file and makes a new one, so a restarted engine starts from zero and a
reader, which opens the path anew each time, never mixes two engines. Several engines of one pod
(data parallelism) have a file each, and a reader adds them up. A file's pages are reserved when it
is made: where a sparse file finds no room later, the write is a SIGBUS, which ends the process.

Layout, in 8-byte words: a header (`_HEADER_WORDS`), then one block per (batch bucket, depth):
decode cell, mixed cell (each steps, seconds, tokens, requests, prompt tokens), drafts, accepted per
position.
"""

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fathom_vllm.buckets import bucket_count, bucket_index, first_batch, last_batch
from fathom_vllm.environment import COUNTERS_FILE, DEFAULT_COUNTERS_FILE

MAGIC = b"FATHOMC5"
"""Ends with the layout's version: a reader of another version shows nothing, never nonsense."""

DECODE, MIXED = 0, 1
STEP_KINDS = ("decode", "mixed")

_WORD = 8
_HEADER_WORDS = 24
_CELL_WORDS = 5
_DRAFTS = 2 * _CELL_WORDS
_BLOCK_WORDS = _DRAFTS + 1

# Words of the header, after the magic. The scheduler's thread writes these,
_PID, _MAX_BATCH, _MAX_DEPTH = 1, 2, 3
_LIVE, _IDLE, _GENERATION = 4, 5, 6
_ERRORS, _HOOK_SECONDS, _TRANSITIONS = 8, 9, 10
_STALLS, _STALL_SECONDS, _TOKEN_BUDGET = 14, 15, 16
_TRANSITION_SECONDS, _TRANSITION_TOKENS, _TRANSITION_PREFILL = 17, 18, 19
_SCHEDULE = 20
# and the thread that watches the depth file these.
_REJECTIONS, _READY, _LOOKED_AT, _WATCH_ERRORS = 7, 11, 12, 13
_READY_SCHEDULE = 21
_STATES = frozenset(
    {
        *(_PID, _MAX_BATCH, _MAX_DEPTH, _TOKEN_BUDGET, _LIVE, _IDLE, _LOOKED_AT),
        *(_GENERATION, _READY, _SCHEDULE, _READY_SCHEDULE),
    }
)
"""Of several engines the least: they are live, idle, or at a generation once all of them are."""


def counters_path(environ: Mapping[str, str]) -> str:
    """The file both processes agree on, from the pod's environment."""
    return environ.get(COUNTERS_FILE) or DEFAULT_COUNTERS_FILE


def rank_path(path: str, rank: int) -> str:
    """The file of one of a pod's data-parallel engines; the first one's is the path itself."""
    return f"{path}.rank{rank}" if rank else path


def _word_count(max_batch: int, max_depth: int) -> int:
    return _HEADER_WORDS + bucket_count(max_batch) * (max_depth + 1) * (_BLOCK_WORDS + max_depth)


class CountersWriter:
    """The engine's side. Each value has one thread that writes it: see the header's words."""

    def __init__(
        self, path: str | None, *, max_batch: int, max_depth: int, token_budget: int = 0
    ) -> None:
        """Create the file, with room for all of it; an older engine's is gone, whatever happens.

        Args:
            path: where; None counts in private memory, so that nothing is shown.
            max_batch: the engine's `max_num_seqs`.
            max_depth: the engine's `num_speculative_tokens`.
            token_budget: its `max_num_batched_tokens`; 0: not known.

        Raises:
            OSError: the file cannot be created, or there is no room for it.
        """
        self.max_batch = max_batch
        self.max_depth = max_depth
        self._block = _BLOCK_WORDS + max_depth
        # Looked up in every step, and by batch; there is none of 0 requests.
        buckets = [0, *(bucket_index(batch) for batch in range(1, max_batch + 1))]
        self._first_block = [bucket * (max_depth + 1) for bucket in buckets]
        words = _word_count(max_batch, max_depth)
        if path is None:
            self._map = mmap.mmap(-1, words * _WORD)
        else:
            self._map = _create(path, words * _WORD)
        self._words = memoryview(self._map).cast("d")
        self._words[_PID] = os.getpid()
        self._words[_MAX_BATCH] = max_batch
        self._words[_MAX_DEPTH] = max_depth
        self._words[_TOKEN_BUDGET] = token_budget
        self._words[_IDLE] = 1
        self._map[: len(MAGIC)] = MAGIC

    def step(
        self,
        *,
        batch: int,
        depth: int,
        kind: int,
        seconds: float,
        tokens: int,
        prefill: int = 0,
        drafts: int = 0,
        accepted: Iterable[int] = (),
    ) -> None:
        """Count one step.

        Args:
            batch: its requests.
            depth: its depth.
            kind: `DECODE` or `MIXED`.
            seconds: what it took.
            tokens: what it emitted.
            prefill: tokens of prompts that it computed.
            drafts: how many it verified.
            accepted: of how many of them each position was accepted.
        """
        words = self._words
        block = self._first_block[batch] + depth
        drafts_at = _HEADER_WORDS + block * self._block + _DRAFTS
        at = drafts_at - _DRAFTS + kind * _CELL_WORDS
        words[at] += 1
        words[at + 1] += seconds
        words[at + 2] += tokens
        words[at + 3] += batch
        words[at + 4] += prefill
        if drafts:
            words[drafts_at] += drafts
            for at, count in enumerate(accepted, drafts_at + 1):
                words[at] += count

    def transition_step(self, seconds: float, *, tokens: int, prefill: int) -> None:
        """Count a step that belongs to no cell, and what it emitted and prefilled."""
        self._words[_TRANSITIONS] += 1
        self._words[_TRANSITION_SECONDS] += seconds
        self._words[_TRANSITION_TOKENS] += tokens
        self._words[_TRANSITION_PREFILL] += prefill

    def stalled_step(self, seconds: float) -> None:
        """Count a step that stalled, by so many seconds."""
        self._words[_STALLS] += 1
        self._words[_STALL_SECONDS] += seconds

    def reject_document(self) -> None:
        """Count a depth document that was not adopted."""
        self._words[_REJECTIONS] += 1

    def hook_error(self) -> None:
        """Count an exception inside our own code."""
        self._words[_ERRORS] += 1

    def hook_seconds(self, seconds: float) -> None:
        """Add time spent inside our own code."""
        self._words[_HOOK_SECONDS] += seconds

    def watch_error(self) -> None:
        """Count an exception inside our own code, in the thread that watches the depth file."""
        self._words[_WATCH_ERRORS] += 1

    def set_generation(self, generation: int, schedule_hash: int = 0) -> None:
        """Say which generation is in force, and with which schedule."""
        self._words[_SCHEDULE] = schedule_hash
        self._words[_GENERATION] = generation

    def set_ready(self, generation: int, schedule_hash: int = 0) -> None:
        """Say which generation the next step puts in force; only once it surely does."""
        self._words[_READY_SCHEDULE] = schedule_hash
        self._words[_READY] = generation

    def set_looked(self, at_s: float) -> None:
        """Say when the depth file was last looked at (`time.monotonic`)."""
        self._words[_LOOKED_AT] = at_s

    def set_live(self, *, live: bool) -> None:
        """Say whether depth follows the file."""
        self._words[_LIVE] = live

    def set_idle(self, *, idle: bool) -> None:
        """Say whether the engine waits for requests."""
        self._words[_IDLE] = idle

    def close(self) -> None:
        """Release the mapping; the file stays for the reader."""
        self._words.release()
        self._map.close()


def _create(path: str, size: int) -> mmap.mmap:
    # Gone first: the counts of an engine that ended must not be shown as those of the next one,
    # whether or not there is room for them.
    Path(path).unlink(missing_ok=True)
    temporary = Path(f"{path}.{os.getpid()}")
    try:
        with temporary.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
            mapping = mmap.mmap(file.fileno(), size)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return mapping


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
    return [min(each) if at in _STATES else sum(each) for at, each in columns]


def _read_words(path: Path) -> list[float] | None:
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as map_,
        ):
            if len(map_) < _HEADER_WORDS * _WORD or map_[: len(MAGIC)] != MAGIC:
                return None
            whole = len(map_) - len(map_) % _WORD
            with memoryview(map_) as view, view[:whole].cast("d") as doubles:
                words: list[float] = list(doubles)
    except (OSError, ValueError):  # absent, or still empty
        return None
    whole_file = _word_count(int(words[_MAX_BATCH]), int(words[_MAX_DEPTH]))
    return words if len(words) == whole_file else None


def _counts(words: list[float]) -> Counts:
    max_batch, max_depth = int(words[_MAX_BATCH]), int(words[_MAX_DEPTH])
    blocks = list(_blocks(words, max_batch, max_depth))
    return Counts(
        pid=int(words[_PID]),
        max_batch=max_batch,
        max_depth=max_depth,
        token_budget=int(words[_TOKEN_BUDGET]),
        live=bool(words[_LIVE]),
        idle=bool(words[_IDLE]),
        generation=int(words[_GENERATION]),
        ready=int(words[_READY]),
        schedule_hash=int(words[_SCHEDULE]),
        ready_schedule_hash=int(words[_READY_SCHEDULE]),
        looked_at_s=words[_LOOKED_AT],
        rejections=words[_REJECTIONS],
        errors=words[_ERRORS] + words[_WATCH_ERRORS],
        hook_seconds=words[_HOOK_SECONDS],
        transitions=words[_TRANSITIONS],
        transition_seconds=words[_TRANSITION_SECONDS],
        transition_tokens=words[_TRANSITION_TOKENS],
        transition_prefill=words[_TRANSITION_PREFILL],
        stalls=words[_STALLS],
        stall_seconds=words[_STALL_SECONDS],
        steps=tuple(
            StepCounts(*batches, depth, kind, *block[at : at + _CELL_WORDS])
            for batches, depth, block in blocks
            for at, kind in zip(range(0, _DRAFTS, _CELL_WORDS), STEP_KINDS, strict=True)
            if block[at]
        ),
        drafts=tuple(
            DraftTally(
                *batches, depth, block[_DRAFTS], tuple(block[_DRAFTS + 1 : _DRAFTS + 1 + depth])
            )
            for batches, depth, block in blocks
            if block[_DRAFTS]
        ),
    )


def _blocks(
    words: list[float], max_batch: int, max_depth: int
) -> Iterator[tuple[tuple[int, int], int, list[float]]]:
    """Each bucket's first and last batch, the depth, and its words."""
    size = _BLOCK_WORDS + max_depth
    at = _HEADER_WORDS
    for bucket in range(bucket_count(max_batch)):
        for depth in range(max_depth + 1):
            yield (first_batch(bucket), last_batch(bucket)), depth, words[at : at + size]
            at += size
