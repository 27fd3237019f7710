"""The thread beside the scheduler's, and what it leaves for the next step."""

import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fathom_vllm.counters import CountersWriter
from fathom_vllm.counts import Counts, read_counts
from fathom_vllm.depth_document import PodDepths, schedule_hash
from fathom_vllm.depth_file import (
    GONE_SECONDS,
    Adopted,
    DepthFile,
    DepthWatch,
    Missing,
    Ready,
    Rejected,
)
from support.waiting import GUARD_S

STARTUP = Ready(0, (0, 3, 3))
Found = Adopted | Rejected | Missing | None


class File(DepthFile):
    """Answers what it is told to."""

    def __init__(self) -> None:
        super().__init__("depth.json", pod="", max_depth=7)
        self.answers: list[Found | Exception] = []
        self.polls = 0
        self.polled = threading.Semaphore(0)

    def poll(self) -> Found:
        self.polls += 1
        self.polled.release()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


class Watched:
    def __init__(self, directory: Path) -> None:
        self.file = File()
        self.now_s = 50.0
        self._path = str(directory / "counters")
        self.counters = CountersWriter(self._path, max_batch=2, max_depth=7)
        self.watch = DepthWatch(self.file, self.counters, STARTUP, clock=lambda: self.now_s)

    def look(self, *answers: Found | Exception, after_s: float = 0.0) -> Ready:
        """What lies ready after looks that find this, the first of them so much later."""
        self.now_s += after_s
        self.file.answers = [*answers]
        for _ in answers:
            self.watch.look()
        return self.watch.ready

    @property
    def counts(self) -> Counts:
        counts = read_counts(self._path)
        assert counts is not None
        return counts


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.watch.stop()
    watched.counters.close()


def adopted(generation: int, depth: int, *, tokens: int | None = None) -> Adopted:
    own = () if tokens is None else ((1, 2, tokens),)
    return Adopted(PodDepths(generation=generation, schedule=((1, 2, depth),), tokens=own))


def probed(generation: int, depth: int, ends_s: int | None, *, tokens: int = 4) -> Adopted:
    return Adopted(
        PodDepths(
            generation=generation,
            schedule=((1, 2, depth),),
            ends_s=ends_s,
            common=((1, 2, 2),),
            tokens=((1, 2, tokens),),
        )
    )


def at(generation: int, depth: int) -> Ready:
    return Ready(generation, (0, depth, depth), schedule_hash([[1, 2, depth]]))


def test_a_document_lies_ready_after_a_look(watched: Watched) -> None:
    assert watched.watch.ready == STARTUP
    assert (watched.counts.ready, watched.counts.looked_at_s) == (0, 50)
    watched.now_s = 60.0
    watched.file.answers = [adopted(4, 5)]
    watched.watch.look()
    assert watched.watch.ready == Ready(4, (0, 5, 5), schedule_hash([[1, 2, 5]]))
    assert watched.counts.ready_schedule_hash == schedule_hash([[1, 2, 5]])
    assert (watched.counts.ready, watched.counts.looked_at_s) == (4, 60)


def test_nothing_new_and_nothing_good_leave_it(watched: Watched) -> None:
    watched.file.answers = [adopted(4, 5), None, Rejected("It is bad.")]
    for _ in range(3):
        watched.watch.look()
    assert watched.watch.ready.generation == 4
    assert (watched.counts.ready, watched.counts.rejections) == (4, 1)


def test_a_document_that_is_gone_gives_the_users_depth_back(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    assert not watched.counts.seen
    watched.look(adopted(4, 5, tokens=2))
    assert (watched.counts.seen, watched.counts.gone) == (True, False)
    assert watched.look(Missing()) == at(4, 5)
    assert watched.look(Missing(), after_s=GONE_SECONDS - 1) == at(4, 5)
    with caplog.at_level(logging.WARNING):
        assert watched.look(*[Missing()] * 3, after_s=1) == at(0, 2)
    assert caplog.text.count("is gone") == 1
    counts = watched.counts
    assert (counts.ready, counts.ready_schedule_hash) == (0, schedule_hash([[1, 2, 2]]))
    assert (counts.seen, counts.gone, counts.rejections) == (True, True, 0)


def test_without_the_users_depth_in_it_the_startup_table_comes_back(watched: Watched) -> None:
    watched.look(adopted(4, 5), Missing())
    assert watched.look(Missing(), after_s=GONE_SECONDS) == STARTUP
    assert (watched.counts.ready, watched.counts.ready_schedule_hash) == (0, 0)


@pytest.mark.parametrize("generation", [1, 4, 9])
def test_a_document_that_comes_back_is_obeyed_whatever_its_generation(
    watched: Watched, generation: int
) -> None:
    watched.look(adopted(4, 5, tokens=2), Missing())
    watched.look(Missing(), after_s=GONE_SECONDS)
    assert watched.look(adopted(generation, 6, tokens=2)) == at(generation, 6)
    assert not watched.counts.gone


@pytest.mark.parametrize(
    "between", [None, Rejected("It cannot be read."), OSError("of ours"), adopted(4, 5, tokens=2)]
)
def test_only_an_absence_without_a_break_is_one(
    watched: Watched, between: Found | Exception
) -> None:
    watched.look(adopted(4, 5, tokens=2), Missing())
    watched.look(between, Missing(), after_s=GONE_SECONDS - 1)
    assert watched.look(Missing(), after_s=GONE_SECONDS - 1) == at(4, 5)
    assert watched.look(Missing(), after_s=1) == at(0, 2)


def test_a_file_that_cannot_be_read_is_not_gone(watched: Watched) -> None:
    watched.look(adopted(4, 5, tokens=2), Rejected("It cannot be read."))
    for _ in range(5):
        assert watched.look(None, after_s=GONE_SECONDS) == at(4, 5)
    assert not watched.counts.gone


def test_what_was_never_there_is_neither_gone_nor_rejected(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.look(Missing())
    assert watched.look(*[Missing()] * 9, after_s=2 * GONE_SECONDS) == STARTUP
    counts = watched.counts
    assert (counts.seen, counts.gone, counts.rejections) == (False, False, 0)
    assert caplog.text.count("is missing") == 1


def test_a_probe_ends_by_itself_and_leaves_the_common_depths(watched: Watched) -> None:
    assert watched.look(probed(4, 7, 90)) == at(4, 7)
    assert watched.look(None, after_s=89.5) == at(4, 7)
    assert watched.look(None, after_s=0.5) == at(4, 2)
    assert watched.counts.ready_schedule_hash == schedule_hash([[1, 2, 2]])
    assert watched.look(None, after_s=90) == at(4, 2)


@pytest.mark.parametrize("found", [Missing(), Rejected("It is bad."), OSError("of ours")])
def test_it_ends_whatever_the_file_says(watched: Watched, found: Found | Exception) -> None:
    watched.look(probed(4, 7, 30))
    assert watched.look(found, after_s=30) == at(4, 2)


def test_its_time_runs_from_when_its_generation_lay_ready(watched: Watched) -> None:
    watched.look(probed(4, 7, 90))
    # The same entry in another text, of this generation, is no new probe.
    assert watched.look(probed(4, 7, 90, tokens=3), after_s=60) == at(4, 7)
    assert watched.look(None, after_s=30) == at(4, 2)
    assert watched.look(probed(4, 7, 90, tokens=1), after_s=1) == at(4, 2)
    # Of another generation it is.
    assert watched.look(probed(5, 7, 90)) == at(5, 7)
    assert watched.look(None, after_s=89) == at(5, 7)
    assert watched.look(None, after_s=1) == at(5, 2)


def test_what_has_ended_goes_on_where_the_end_is_taken_back(watched: Watched) -> None:
    watched.look(probed(4, 7, 90))
    watched.look(None, after_s=90)
    assert watched.look(probed(4, 7, None)) == at(4, 7)
    assert watched.look(None, after_s=1000) == at(4, 7)


def test_a_probe_whose_document_is_gone_ends_in_the_users_depth(watched: Watched) -> None:
    watched.look(probed(4, 7, 90), Missing())
    assert watched.look(Missing(), after_s=GONE_SECONDS) == at(0, 4)
    assert watched.look(Missing(), after_s=90) == at(0, 4)


def test_another_text_of_the_same_depths_is_no_new_table(watched: Watched) -> None:
    before = watched.look(adopted(4, 5))
    assert watched.look(adopted(4, 5, tokens=2)) is before
    watched.look(Missing())
    assert watched.look(Missing(), after_s=GONE_SECONDS) == at(0, 2)


def test_a_look_that_fails_is_counted_told_once_and_was_no_look(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.file.answers = [adopted(4, 5), OSError("gone"), OSError("gone"), adopted(5, 6)]
    watched.watch.look()
    watched.now_s = 60.0
    with caplog.at_level(logging.ERROR):
        watched.watch.look()
        watched.watch.look()
    assert (watched.counts.errors, watched.counts.looked_at_s) == (2, 50)
    assert watched.watch.ready.generation == 4
    assert len(caplog.records) == 1
    watched.watch.look()
    assert watched.watch.ready.generation == 5
    assert watched.counts.looked_at_s == 60


def test_a_first_look_that_fails_is_told(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.file.answers = [OSError("gone")]
    watched.watch.look()
    assert len(caplog.records) == 1


def test_the_thread_looks_again_and_again_and_is_no_reason_to_stay(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.file.answers = [adopted(1, 5)]
    watched.watch.start(wait_s=GUARD_S)
    assert watched.watch.ready.generation == 1  # the first look is waited for
    assert "did not answer" not in caplog.text
    for _ in range(2):
        assert watched.file.polled.acquire(timeout=GUARD_S)
    (thread,) = (each for each in threading.enumerate() if each.name == "fathom-depth")
    assert thread.daemon


def test_a_thread_that_lives_is_left_alone(watched: Watched) -> None:
    watched.watch.keep_looking()
    assert watched.file.polls == 0  # never started
    watched.watch.start(wait_s=GUARD_S)
    before = threading.enumerate()
    watched.watch.keep_looking()
    assert threading.enumerate() == before
    assert watched.counts.errors == 0


def test_after_a_fork_the_thread_starts_again(watched: Watched) -> None:
    watched.watch.start(wait_s=GUARD_S)
    pid = os.fork()
    if pid == 0:  # the child: no pytest here, only an exit status
        alive = threading.active_count()
        watched.watch.keep_looking()
        os._exit(0 if (alive, threading.active_count()) == (1, 2) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert watched.counts.errors == 1


def test_a_file_that_does_not_answer_does_not_stop_the_start(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    answer = threading.Event()
    poll = watched.file.poll

    def late() -> Found:
        assert answer.wait(GUARD_S)
        return poll()

    watched.file.answers = [adopted(1, 5)]
    watched.file.poll = late  # type: ignore[method-assign]
    watched.watch.start(wait_s=0.01)
    assert watched.watch.ready == STARTUP
    assert "did not answer within" in caplog.text
    answer.set()
    assert watched.file.polled.acquire(timeout=GUARD_S)


def test_the_document_reads_what_the_operator_writes(tmp_path: Path) -> None:
    path = tmp_path / "depth.json"
    path.write_text(json.dumps({"generation": 7, "schedule": [[1, 1, 2], [2, 2, 1]]}))
    counters = CountersWriter(None, max_batch=2, max_depth=7)
    watch = DepthWatch(DepthFile(str(path), pod="", max_depth=7), counters, STARTUP)
    watch.look()
    assert watch.ready == Ready(7, (0, 2, 1), schedule_hash([[1, 1, 2], [2, 2, 1]]))
    counters.close()
