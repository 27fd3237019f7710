"""The scheduler hook without vLLM: tables, counting, and never an exception."""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fathom_vllm.counters import CountersWriter, Counts, read_counts
from fathom_vllm.depth_file import DepthFile
from fathom_vllm.hook import MOST_ERRORS, SchedulerHook

ENGINE_TABLE = [0, 3, 3, 3, 3, 0, 1, 2, 7]


@dataclass
class Scheduled:
    """A decode step at the depth it drafts with."""

    batch: int
    num_spec_tokens_to_schedule: int
    scheduled_new_reqs: list[object] = field(default_factory=list)

    @property
    def num_scheduled_tokens(self) -> dict[str, int]:
        return {f"r{i}": 1 + self.num_spec_tokens_to_schedule for i in range(self.batch)}

    @property
    def scheduled_spec_decode_tokens(self) -> dict[str, list[int]]:
        return {f"r{i}": [-1] * self.num_spec_tokens_to_schedule for i in range(self.batch)}


class Request:
    def is_finished(self) -> bool:
        return False


class Engine:
    """As much of a scheduler as the hook sees."""

    def __init__(self, directory: Path) -> None:
        self.depth_path = directory / "depth.json"
        self.counters_path = str(directory / "counters")
        self.now = 100.0
        self.table = ENGINE_TABLE

    def start(self, engine_table: list[int] | None = ENGINE_TABLE) -> None:
        self.counters = CountersWriter(self.counters_path, max_batch=8, max_depth=7)
        depth_file = DepthFile(str(self.depth_path), pod="pod-0", max_depth=7)
        self.hook = SchedulerHook(depth_file, self.counters, engine_table, clock=lambda: self.now)
        self.table = self.hook.before_schedule() or self.table

    def write(self, generation: int, depth: int) -> None:
        document = {"generation": generation, "schedule": [[1, 8, depth]]}
        temporary = self.depth_path.with_suffix(".new")
        temporary.write_text(json.dumps(document))
        temporary.replace(self.depth_path)

    def step(self, batch: int, seconds: float, *, busy: bool = True) -> None:
        began_at = self.hook.now()
        self.table = self.hook.before_schedule() or self.table
        scheduled = Scheduled(batch, self.table[batch])
        self.hook.after_schedule(scheduled, began_at)
        self.now += seconds
        names = list(scheduled.num_scheduled_tokens)
        index = {name: row for row, name in enumerate(names)}
        requests = {name: Request() for name in names}
        self.hook.before_update(scheduled, [[1, 1]] * batch, index, requests)
        self.hook.after_update(scheduled, busy=busy)

    @property
    def counts(self) -> Counts:
        counts = read_counts(self.counters_path)
        assert counts is not None
        return counts


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path)
    yield engine
    engine.counters.close()


def test_without_a_document_the_whole_table_is_the_first_ranges_depth(engine: Engine) -> None:
    engine.start()
    assert engine.table == [0, 3, 3, 3, 3, 3, 3, 3, 3]
    assert (engine.counts.live, engine.counts.generation, engine.counts.rejections) == (True, 0, 1)


def test_a_document_is_in_force_before_the_first_step(engine: Engine) -> None:
    engine.write(12, 5)
    engine.start()
    assert engine.table == [0, 5, 5, 5, 5, 5, 5, 5, 5]
    assert (engine.counts.generation, engine.counts.rejections) == (12, 0)


def test_a_change_is_in_force_within_a_quarter_of_a_second(engine: Engine) -> None:
    engine.write(1, 3)
    engine.start()
    engine.write(2, 5)
    engine.step(1, 0.1)
    assert engine.table[1] == 3
    engine.step(1, 0.2)
    engine.step(1, 0.1)
    assert engine.table[1] == 5
    assert engine.counts.generation == 2


def test_after_idling_the_file_is_read_before_the_next_step(engine: Engine) -> None:
    engine.write(1, 3)
    engine.start()
    engine.step(1, 0.01, busy=False)
    assert engine.counts.idle
    engine.write(2, 5)
    engine.step(1, 0.01)
    assert engine.table[1] == 5
    assert not engine.counts.idle


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{}")])
def test_a_damaged_document_keeps_the_last_good_table(
    engine: Engine, damage: Callable[[Path], object]
) -> None:
    engine.write(1, 5)
    engine.start()
    damage(engine.depth_path)
    for _ in range(5):
        engine.step(1, 0.3)
    assert engine.table[1] == 5
    assert (engine.counts.generation, engine.counts.rejections) == (1, 1)


def test_steps_are_counted_where_they_belong(engine: Engine) -> None:
    engine.write(1, 3)
    engine.start()
    for _ in range(4):
        engine.step(3, 0.01)
    (cell,) = engine.counts.steps
    assert (cell.batch_le, cell.depth, cell.kind) == (4, 3, "decode")
    assert (cell.steps, cell.tokens, cell.requests) == (4, 24, 12)
    assert cell.seconds == pytest.approx(0.04)
    (drafts,) = engine.counts.drafts
    assert (drafts.drafts, drafts.accepted) == (12, (12, 0, 0))


@pytest.mark.parametrize("engine_table", [None, [], [0, 3, 3]])
def test_an_engine_without_a_table_of_its_length_is_left_alone(
    engine: Engine, engine_table: list[int] | None, caplog: pytest.LogCaptureFixture
) -> None:
    engine.write(1, 5)
    with caplog.at_level(logging.WARNING):
        engine.start(engine_table)
    assert "no depth table" in caplog.text
    engine.step(1, 0.3)
    engine.step(1, 0.3)
    assert engine.table is ENGINE_TABLE
    assert not engine.counts.live
    assert sum(cell.steps for cell in engine.counts.steps) == 2


def test_an_exception_is_counted_and_the_engine_goes_on(engine: Engine) -> None:
    engine.start()
    engine.hook.before_update(object(), [], {}, {})  # type: ignore[arg-type]
    assert engine.counts.errors == 1
    engine.step(1, 0.01)
    assert sum(cell.steps for cell in engine.counts.steps) == 1


def test_after_many_exceptions_the_hook_is_off_and_the_table_stays(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.write(1, 5)
    engine.start()
    for _ in range(MOST_ERRORS + 5):
        engine.hook.before_update(object(), [], {}, {})  # type: ignore[arg-type]
    assert engine.counts.errors == MOST_ERRORS
    assert not engine.counts.live
    engine.write(2, 7)
    engine.step(1, 0.3)
    engine.step(1, 0.3)
    assert engine.table[1] == 5
    assert engine.counts.steps == ()
    ours = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(ours) == 2


def test_counters_that_cannot_be_written_do_not_stop_live_depth(tmp_path: Path) -> None:
    depth_path = tmp_path / "depth.json"
    depth_path.write_text('{"generation": 3, "schedule": [[1, 8, 6]]}')
    environ = {
        "FATHOM_DEPTH_FILE": str(depth_path),
        "FATHOM_COUNTERS_FILE": str(tmp_path / "absent" / "counters"),
    }
    hook = SchedulerHook.from_environment(
        environ, max_batch=8, max_depth=7, engine_table=ENGINE_TABLE
    )
    assert hook.before_schedule() == [0, 6, 6, 6, 6, 6, 6, 6, 6]


def test_an_engine_that_is_not_shown_leaves_no_file(tmp_path: Path) -> None:
    counters = tmp_path / "counters"
    SchedulerHook.from_environment(
        {"FATHOM_COUNTERS_FILE": str(counters)},
        max_batch=8,
        max_depth=7,
        engine_table=ENGINE_TABLE,
        shown=False,
    )
    assert not counters.exists()
