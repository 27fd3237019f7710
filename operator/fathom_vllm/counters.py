"""The hand-over from the scheduler's process to the API server's: a small memory-mapped file.

Every value is one 8-byte aligned double with a single writer, so a reader sees each value whole.
It may see a step's counters half updated; the next scrape has the other half, and the consumers
work on differences over many steps. That is why there is no lock to pay for on every step.

The writer removes the old file and makes a new one, so a restarted engine starts from zero and a
reader, which opens the path anew each time, never mixes two engines. Several engines of one pod
(data parallelism) have a file each, and a reader adds them up. A file's pages are reserved when it
is made: where a sparse file finds no room later, the write is a SIGBUS, which ends the process.

Layout, in 8-byte words: a header (`HEADER_WORDS`); drafts by context, of each range the sums of
`DraftSums`; then one block per (batch bucket, depth):
decode cell, mixed cell (each steps, seconds, tokens, requests, prompt tokens), drafts, accepted per
position.
"""

import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fathom_vllm.buckets import CONTEXT_RANGES, bucket_count, bucket_index
from fathom_vllm.environment import COUNTERS_FILE, DEFAULT_COUNTERS_FILE

MAGIC = b"FATHOMC7"
"""Ends with the layout's version: a reader of another version shows nothing, never nonsense."""

DECODE, MIXED = 0, 1
STEP_KINDS = ("decode", "mixed")


class DraftSums(NamedTuple):
    """What became of drafts."""

    drafts: int = 0
    tokens: int = 0
    """Tokens that were drafted."""
    accepted: int = 0
    """How many of those were accepted."""
    first_accepted: int = 0
    """Drafts whose first token was."""


WORD = 8
HEADER_WORDS = 24
CONTEXT_WORDS = len(DraftSums._fields)
BLOCKS = HEADER_WORDS + CONTEXT_RANGES * CONTEXT_WORDS
"""Where the blocks begin."""
CELL_WORDS = 5
DRAFTS = 2 * CELL_WORDS
BLOCK_WORDS = DRAFTS + 1

# Words of the header, after the magic. The scheduler's thread writes these,
PID, MAX_BATCH, MAX_DEPTH = 1, 2, 3
LIVE, IDLE, GENERATION = 4, 5, 6
ERRORS, HOOK_SECONDS, TRANSITIONS = 8, 9, 10
STALLS, STALL_SECONDS, TOKEN_BUDGET = 14, 15, 16
TRANSITION_SECONDS, TRANSITION_TOKENS, TRANSITION_PREFILL = 17, 18, 19
SCHEDULE = 20
# and the thread that watches the depth file these.
REJECTIONS, READY, LOOKED_AT, WATCH_ERRORS = 7, 11, 12, 13
READY_SCHEDULE, SEEN, GONE = 21, 22, 23
STATES = frozenset(
    {
        *(PID, MAX_BATCH, MAX_DEPTH, TOKEN_BUDGET, LIVE, IDLE, LOOKED_AT),
        *(GENERATION, READY, SCHEDULE, READY_SCHEDULE, SEEN),
    }
)
"""Values of which the least counts: engines are live, idle, or at a generation once all are."""


def counters_path(environ: Mapping[str, str]) -> str:
    """The file both processes agree on, from the pod's environment."""
    return environ.get(COUNTERS_FILE) or DEFAULT_COUNTERS_FILE


def rank_path(path: str, rank: int) -> str:
    """The file of one of a pod's data-parallel engines; the first one's is the path itself."""
    return f"{path}.rank{rank}" if rank else path


def word_count(max_batch: int, max_depth: int) -> int:
    return BLOCKS + bucket_count(max_batch) * (max_depth + 1) * (BLOCK_WORDS + max_depth)


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
        self._block = BLOCK_WORDS + max_depth
        # Where each batch's blocks begin, since every step asks; there is none of 0 requests.
        buckets = [0, *(bucket_index(batch) for batch in range(1, max_batch + 1))]
        self._blocks = [BLOCKS + bucket * (max_depth + 1) * self._block for bucket in buckets]
        words = word_count(max_batch, max_depth)
        if path is None:
            self._map = mmap.mmap(-1, words * WORD)
        else:
            self._map = _create(path, words * WORD)
        self._words = memoryview(self._map).cast("d")
        self._words[PID] = os.getpid()
        self._words[MAX_BATCH] = max_batch
        self._words[MAX_DEPTH] = max_depth
        self._words[TOKEN_BUDGET] = token_budget
        self._words[IDLE] = 1
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
        block = self._blocks[batch] + depth * self._block
        at = block + kind * CELL_WORDS
        words[at] += 1
        words[at + 1] += seconds
        words[at + 2] += tokens
        words[at + 3] += batch
        words[at + 4] += prefill
        if drafts:
            words[block + DRAFTS] += drafts
            for at, count in enumerate(accepted, block + DRAFTS + 1):
                words[at] += count

    def context(self, index: int, sums: DraftSums, *, steps: int = 1) -> None:
        """Count a step's drafts of one range of contexts, as those of so many steps."""
        for at, count in enumerate(sums, HEADER_WORDS + index * CONTEXT_WORDS):
            self._words[at] += steps * count

    def transition_step(self, seconds: float, *, tokens: int, prefill: int) -> None:
        """Count a step that belongs to no cell, and what it emitted and prefilled."""
        self._words[TRANSITIONS] += 1
        self._words[TRANSITION_SECONDS] += seconds
        self._words[TRANSITION_TOKENS] += tokens
        self._words[TRANSITION_PREFILL] += prefill

    def stalled_step(self, seconds: float) -> None:
        """Count a step that stalled, by so many seconds."""
        self._words[STALLS] += 1
        self._words[STALL_SECONDS] += seconds

    def reject_document(self) -> None:
        """Count a depth document that was not adopted."""
        self._words[REJECTIONS] += 1

    def hook_error(self) -> None:
        """Count an exception inside our own code."""
        self._words[ERRORS] += 1

    def hook_seconds(self, seconds: float) -> None:
        """Add time spent inside our own code."""
        self._words[HOOK_SECONDS] += seconds

    def watch_error(self) -> None:
        """Count an exception inside our own code, in the thread that watches the depth file."""
        self._words[WATCH_ERRORS] += 1

    def set_generation(self, generation: int, schedule_hash: int = 0) -> None:
        """Say which generation is in force, and with which schedule."""
        self._words[SCHEDULE] = schedule_hash
        self._words[GENERATION] = generation

    def set_ready(self, generation: int, schedule_hash: int = 0) -> None:
        """Say which generation the next step puts in force; only once it surely does."""
        self._words[READY_SCHEDULE] = schedule_hash
        self._words[READY] = generation

    def set_looked(self, at_s: float) -> None:
        """Say when the depth file was last looked at (`time.monotonic`)."""
        self._words[LOOKED_AT] = at_s

    def set_document(self, *, gone: bool) -> None:
        """Say that a document was obeyed; and whether it is gone, and depth the user's again."""
        self._words[SEEN] = True
        self._words[GONE] = gone

    def set_live(self, *, live: bool) -> None:
        """Say whether depth follows the file."""
        self._words[LIVE] = live

    def set_idle(self, *, idle: bool) -> None:
        """Say whether the engine waits for requests."""
        self._words[IDLE] = idle

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
