"""The memory-mapped hand-over between the two processes."""

import os
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from fathom_vllm.buckets import CONTEXT_RANGES
from fathom_vllm.counters import DECODE, MAGIC, MIXED, CountersWriter, DraftSums, rank_path
from fathom_vllm.counts import ContextTally, Counts, DraftTally, StepCounts, read_counts


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "counters")


@pytest.fixture
def writer(path: str) -> Iterator[CountersWriter]:
    writer = CountersWriter(path, max_batch=16, max_depth=7)
    yield writer
    writer.close()


def counts(path: str) -> Counts:
    found = read_counts(path)
    assert found is not None
    return found


def test_a_new_file_shows_an_idle_engine_with_nothing_counted(path: str) -> None:
    CountersWriter(path, max_batch=16, max_depth=7).close()
    found = counts(path)
    assert (found.pid, found.max_batch, found.max_depth) == (os.getpid(), 16, 7)
    assert (found.live, found.idle, found.generation) == (False, True, 0)
    assert (found.steps, found.drafts) == ((), ())


def test_what_is_counted_is_read_in_its_own_cell_and_in_no_other(
    writer: CountersWriter, path: str
) -> None:
    for batch in range(1, 17):
        for depth in range(8):
            writer.step(
                batch=batch,
                depth=depth,
                kind=DECODE,
                seconds=0.5,
                tokens=100 * depth,
                drafts=2,
                accepted=[batch] * depth,
            )
            writer.step(batch=batch, depth=depth, kind=MIXED, seconds=2.0, tokens=1, prefill=40)
    found = counts(path)
    assert len(found.steps) == 12 * 8 * 2
    assert StepCounts(15, 16, 7, "decode", 2, 1.0, 1400, 15 + 16, 0) in found.steps
    assert StepCounts(3, 3, 0, "mixed", 1, 2.0, 1, 3, 40) in found.steps
    assert DraftTally(9, 10, 3, 4, (19, 19, 19)) in found.drafts
    assert DraftTally(1, 1, 0, 2, ()) in found.drafts


def test_drafts_by_context_are_read_in_their_own_range_and_in_no_other(
    writer: CountersWriter, path: str
) -> None:
    for index in range(CONTEXT_RANGES):
        writer.context(index, DraftSums(10 + index, 30, 20, 5), steps=1 + index)
    found = counts(path).contexts
    assert len(found) == CONTEXT_RANGES
    assert found[0] == ContextTally(0, 2047, 10, 30, 20, 5)
    assert found[2] == ContextTally(4096, 8191, 36, 90, 60, 15)
    assert found[7] == ContextTally(131072, None, 136, 240, 160, 40)
    assert counts(path).drafts == ()


def test_the_engines_state_is_handed_over(writer: CountersWriter, path: str) -> None:
    writer.set_live(live=True)
    writer.set_idle(idle=False)
    writer.set_generation(12, 1200)
    writer.set_ready(13, 1300)
    writer.set_looked(1.5)
    assert (counts(path).seen, counts(path).gone) == (False, False)
    writer.set_document(gone=True)
    writer.reject_document()
    writer.hook_error()
    writer.watch_error()
    writer.hook_seconds(0.25)
    writer.transition_step(0.5, tokens=7, prefill=20)
    writer.stalled_step(3.5)
    found = counts(path)
    assert (found.live, found.idle, found.generation) == (True, False, 12)
    assert (found.ready, found.looked_at_s) == (13, 1.5)
    assert (found.seen, found.gone) == (True, True)
    assert (found.schedule_hash, found.ready_schedule_hash) == (1200, 1300)
    assert (found.rejections, found.errors, found.transitions) == (1, 2, 1)
    assert found.hook_seconds == 0.25
    assert (found.transition_seconds, found.transition_tokens) == (0.5, 7)
    assert (found.transition_prefill, found.stalls, found.stall_seconds) == (20, 1, 3.5)


def test_a_restarted_engine_starts_from_zero(writer: CountersWriter, path: str) -> None:
    writer.step(batch=1, depth=1, kind=DECODE, seconds=1, tokens=1)
    successor = CountersWriter(path, max_batch=32, max_depth=5)
    assert counts(path).steps == ()
    assert counts(path).max_batch == 32
    writer.step(batch=1, depth=1, kind=DECODE, seconds=1, tokens=1)  # a straggler of the old engine
    assert counts(path).steps == ()
    assert [file.name for file in Path(path).parent.iterdir()] == ["counters"]
    successor.close()


def _rank(path: str, rank: int, *, max_batch: int = 16) -> CountersWriter:
    return CountersWriter(rank_path(path, rank), max_batch=max_batch, max_depth=2)


def test_what_several_ranks_count_is_added_up(path: str) -> None:
    for rank, batch in enumerate((3, 3, 5)):
        writer = _rank(path, rank)
        for _ in range(rank + 1):
            writer.step(
                batch=batch,
                depth=2,
                kind=DECODE,
                seconds=0.5,
                tokens=7,
                drafts=batch,
                accepted=[2, rank],
            )
        writer.transition_step(0.5, tokens=2, prefill=0)
        writer.context(rank % 2, DraftSums(4, 8, 5, 3))
        writer.hook_error()
        writer.watch_error()
        writer.hook_seconds(0.25)
        writer.close()
    found = counts(path)
    assert found.steps == (
        StepCounts(3, 3, 2, "decode", steps=3, seconds=1.5, tokens=21, requests=9, prefill=0),
        StepCounts(5, 5, 2, "decode", steps=3, seconds=1.5, tokens=21, requests=15, prefill=0),
    )
    assert found.drafts == (DraftTally(3, 3, 2, 9, (6, 2)), DraftTally(5, 5, 2, 15, (6, 6)))
    assert found.contexts == (
        ContextTally(0, 2047, 8, 16, 10, 6),
        ContextTally(2048, 4095, 4, 8, 5, 3),
    )
    assert (found.transitions, found.errors, found.hook_seconds) == (3, 6, 0.75)
    assert (found.pid, found.max_batch, found.max_depth) == (os.getpid(), 16, 2)


def test_ranks_are_where_the_last_of_them_is(path: str) -> None:
    first, second = _rank(path, 0), _rank(path, 1)
    for rank, writer in enumerate((first, second), start=1):
        writer.set_generation(3 + rank)
        writer.set_ready(5 + rank)
        writer.set_looked(10.0 * rank)
        writer.set_live(live=True)
    first.set_idle(idle=False)
    found = counts(path)
    assert (found.generation, found.ready, found.looked_at_s) == (4, 6, 10.0)
    assert (found.live, found.idle) == (True, False)
    second.set_live(live=False)
    assert not counts(path).live
    first.set_document(gone=True)
    assert (counts(path).seen, counts(path).gone) == (False, True)
    second.set_document(gone=False)
    assert (counts(path).seen, counts(path).gone) == (True, True)


def test_a_rank_is_counted_though_the_first_one_had_no_room(path: str) -> None:
    _rank(path, 1).transition_step(0.5, tokens=2, prefill=0)
    assert counts(path).transitions == 1


def test_what_lies_beside_and_is_no_rank_of_this_engine_is_passed_over(path: str) -> None:
    _rank(path, 0).transition_step(0.5, tokens=2, prefill=0)
    _rank(path, 1, max_batch=64).transition_step(0.5, tokens=2, prefill=0)
    Path(f"{path}.rank2.123").write_bytes(bytes(8192))
    assert counts(path).transitions == 1


def test_the_largest_engine_fits_into_a_small_file(path: str) -> None:
    CountersWriter(path, max_batch=1024, max_depth=64).close()
    assert Path(path).stat().st_size < 3 << 19


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"FATHOM",
        b"FATHOMC1" + bytes(1000),
        bytes(4096),
        MAGIC + bytes(8),
        MAGIC + bytes(183),
    ],
)
def test_another_file_is_read_as_nothing(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    assert read_counts(path) is None


def test_another_layout_has_another_magic(path: str) -> None:
    """Else an API server that runs another version of the plugin would show nonsense."""
    writer = CountersWriter(path, max_batch=16, max_depth=7, token_budget=2048)
    writer.step(batch=3, depth=2, kind=DECODE, seconds=0.5, tokens=7, drafts=5, accepted=[4, 3])
    writer.step(batch=3, depth=2, kind=MIXED, seconds=0.25, tokens=6, prefill=90)
    writer.set_live(live=True)
    writer.set_generation(12, 1200)
    writer.set_ready(13, 1300)
    writer.set_looked(1.5)
    writer.set_document(gone=True)
    writer.reject_document()
    writer.hook_error()
    writer.watch_error()
    writer.hook_seconds(0.125)
    writer.transition_step(0.75, tokens=4, prefill=30)
    writer.stalled_step(2.5)
    writer.context(1, DraftSums(5, 10, 7, 4))
    words = array("d", Path(path).read_bytes())
    written = {at: word for at, word in enumerate(words) if word and at > 1}
    header = {2: 16, 3: 7, 4: 1, 5: 1, 6: 12, 7: 1, 8: 1, 9: 0.125, 10: 1, 11: 13, 12: 1.5, 13: 1}
    header |= {14: 1, 15: 2.5, 16: 2048, 17: 0.75, 18: 4, 19: 30, 20: 1200, 21: 1300}
    header |= {22: 1, 23: 1}
    numbers = [1, 0.5, 7, 3, 0, 1, 0.25, 6, 3, 90, 5, 4, 3]
    cells = {at: n for at, n in enumerate(numbers, 24 + 32 + (2 * 8 + 2) * 18) if n}
    contexts = {28: 5, 29: 10, 30: 7, 31: 4}
    layout = (b"FATHOMC7", 24 + 32 + 12 * 8 * 18, header | contexts | cells)
    assert (MAGIC, len(words), written) == layout, (
        "once the layout changes, give MAGIC in operator/fathom_vllm/counters.py another number, "
        "and say here what the new layout is"
    )


@pytest.mark.parametrize("magic", [b"FATHOMC6", b"FATHOMC8"])
def test_a_file_of_another_version_is_read_as_nothing(path: str, magic: bytes) -> None:
    CountersWriter(path, max_batch=16, max_depth=7).close()
    copy = Path(path + "-copy")
    copy.write_bytes(magic + Path(path).read_bytes()[len(magic) :])
    assert read_counts(str(copy)) is None


def test_an_absent_file_is_read_as_nothing(path: str) -> None:
    assert read_counts(path) is None


def test_a_file_cut_short_is_read_as_nothing(path: str) -> None:
    CountersWriter(path, max_batch=16, max_depth=7).close()
    copy = Path(path + "-copy")
    copy.write_bytes(Path(path).read_bytes()[:301])
    assert read_counts(str(copy)) is None


def test_a_directory_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        CountersWriter(str(tmp_path / "absent" / "counters"), max_batch=1, max_depth=1)
