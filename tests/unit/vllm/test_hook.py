"""The scheduler hook without vLLM: tables, counting, and never an exception."""

import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fathom.engine.depth_set import BASE_DEPTH, startup_schedule
from fathom.engine.profile import profile_of
from fathom_vllm.counters import CountersWriter
from fathom_vllm.counts import Counts, read_counts
from fathom_vllm.depth_document import depth_table
from fathom_vllm.depth_file import Adopted, DepthFile, Rejected
from fathom_vllm.hook import FIRST_REST_SECONDS, MOST_ERRORS, WITHIN_STEPS, SchedulerHook
from manifest_samples import resource
from support.vllm_outputs import Cached, New, Row, outputs_of
from support.waiting import GUARD_S

ENGINE_TABLE = [0, 3, 3, 3, 3, 0, 1, 2, 7]


@dataclass
class Scheduled:
    """A decode step at the depth it drafts with."""

    batch: int
    num_spec_tokens_to_schedule: int
    scheduled_new_reqs: list[New] = field(default_factory=list)
    scheduled_cached_reqs: Cached = field(default_factory=Cached)
    num_invalid_spec_tokens: None = None

    @property
    def num_scheduled_tokens(self) -> dict[str, int]:
        return {f"r{i}": 1 + self.num_spec_tokens_to_schedule for i in range(self.batch)}

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())

    @property
    def scheduled_spec_decode_tokens(self) -> dict[str, list[int]]:
        return {f"r{i}": [-1] * self.num_spec_tokens_to_schedule for i in range(self.batch)}


class Engine:
    """As much of a scheduler as the hook sees."""

    def __init__(self, directory: Path) -> None:
        self.depth_path = directory / "depth.json"
        self.counters_path = str(directory / "counters")
        self.now = 100.0
        self.table: Sequence[int] = ENGINE_TABLE

    def start(
        self, engine_table: list[int] | None = ENGINE_TABLE, depth_file: DepthFile | None = None
    ) -> None:
        self.counters = CountersWriter(self.counters_path, max_batch=8, max_depth=7)
        depth_file = depth_file or DepthFile(str(self.depth_path), pod="pod-0", max_depth=7)
        self.hook = SchedulerHook(depth_file, self.counters, engine_table, clock=lambda: self.now)
        self.look()
        self.table = self.hook.before_schedule() or self.table

    def look(self) -> None:
        """What the thread does four times a second."""
        if self.hook.watch is not None:
            self.hook.watch.look()

    def write(self, generation: int, depth: int) -> None:
        document = {"generation": generation, "schedule": [[1, 8, depth]]}
        temporary = self.depth_path.with_suffix(".new")
        temporary.write_text(json.dumps(document))
        temporary.replace(self.depth_path)

    def step(self, batch: int, seconds: float, *, busy: bool = True) -> None:
        scheduled = self.schedule(batch)
        self.now += seconds
        self.update(scheduled, busy=busy)

    def schedule(self, batch: int) -> Scheduled:
        began_at_s = self.hook.now()
        self.table = self.hook.before_schedule() or self.table
        scheduled = Scheduled(batch, self.table[batch])
        self.hook.after_schedule(scheduled, began_at_s)
        return scheduled

    def update(self, scheduled: Scheduled, *, busy: bool = True) -> None:
        self.hook.after_update(
            scheduled, outputs_of([Row(drafts=1, sampled=2)] * scheduled.batch), busy=busy
        )

    def fail(self) -> None:
        """A step in which the hook finds nothing as it expects it."""
        scheduled = self.schedule(1)
        self.hook.after_update(scheduled, {0: None}, busy=True)  # type: ignore[dict-item]

    @property
    def counts(self) -> Counts:
        counts = read_counts(self.counters_path)
        assert counts is not None
        return counts

    @property
    def steps(self) -> float:
        """Steps that were counted."""
        return sum(cell.steps for cell in self.counts.steps)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path)
    yield engine
    engine.counters.close()


def test_without_a_document_the_whole_table_is_the_first_ranges_depth(engine: Engine) -> None:
    engine.start()
    assert engine.table == (0, 3, 3, 3, 3, 3, 3, 3, 3)
    assert (engine.counts.live, engine.counts.generation, engine.counts.rejections) == (True, 0, 0)


def test_the_users_own_depth_comes_from_the_document_and_from_nowhere_else(engine: Engine) -> None:
    spec = resource({"speculation.tokens": 7}).spec
    schedule = startup_schedule(profile_of(spec).depths, 8)
    engine.start(depth_table(tuple((p.first, p.last, p.depth) for p in schedule), 8))
    began_at = list(engine.table)

    engine.write(1, spec.speculation.tokens)
    engine.look()
    engine.step(4, 0.1)

    assert began_at == [0, *[BASE_DEPTH] * 8]
    assert list(engine.table) == [0, *[7] * 8]


def from_environment(directory: Path, **environ: str) -> SchedulerHook:
    given = {
        "FATHOM_DEPTH_FILE": str(directory / "depth.json"),
        "FATHOM_COUNTERS_FILE": str(directory / "counters"),
    }
    return SchedulerHook.from_environment(
        given | environ, max_batch=8, max_depth=7, engine_table=ENGINE_TABLE
    )


@pytest.mark.parametrize(
    ("startup", "table"),
    [("engine", (0, 3, 3, 3, 3, 0, 1, 2, 7)), ("", (0, *[3] * 8)), ("other", (0, *[3] * 8))],
)
def test_a_hosts_own_schedule_is_kept_where_it_is_asked_for(
    tmp_path: Path, startup: str, table: Sequence[int]
) -> None:
    hook = from_environment(tmp_path, FATHOM_STARTUP=startup)
    assert hook.before_schedule() == table
    assert hook.watch is not None
    hook.watch.stop()
    (tmp_path / "depth.json").write_text('{"generation": 3, "schedule": [[1, 8, 6]]}')
    hook.watch.look()
    assert hook.before_schedule() == (0, *[6] * 8)


def test_a_document_is_in_force_before_the_first_step(engine: Engine) -> None:
    engine.write(12, 5)
    engine.start()
    assert engine.table == (0, 5, 5, 5, 5, 5, 5, 5, 5)
    assert (engine.counts.generation, engine.counts.rejections) == (12, 0)


def test_a_change_is_in_force_in_the_step_after_a_look(engine: Engine) -> None:
    engine.write(1, 3)
    engine.start()
    engine.write(2, 5)
    engine.step(1, 0.1)
    assert engine.table[1] == 3
    engine.look()
    assert (engine.counts.generation, engine.counts.ready) == (1, 2)
    engine.step(1, 0.1)
    assert engine.table[1] == 5
    assert engine.counts.generation == 2


def test_an_idle_engine_tells_the_generation_that_its_next_step_obeys(engine: Engine) -> None:
    engine.write(1, 3)
    engine.start()
    engine.step(1, 0.01, busy=False)
    assert engine.counts.idle
    engine.write(2, 5)
    assert engine.counts.ready == 1
    engine.look()
    assert engine.counts.ready == 2
    engine.step(1, 0.01)
    assert engine.table[1] == 5
    assert not engine.counts.idle


class TellingCounters(CountersWriter):
    """Looks at what a step would obey, at the moment when a generation is told."""

    watched: Callable[[], int]

    def set_ready(self, generation: int, schedule_hash: int = 0) -> None:
        assert self.watched() == generation
        super().set_ready(generation, schedule_hash)


def test_a_generation_is_told_only_once_it_lies_ready(engine: Engine) -> None:
    engine.start()
    watch = engine.hook.watch
    assert watch is not None
    engine.counters.__class__ = TellingCounters
    engine.counters.watched = lambda: watch.ready.generation  # type: ignore[attr-defined]
    engine.write(2, 5)
    engine.look()
    assert (engine.counts.ready, engine.counts.errors) == (2, 0)


class SlowDisk(DepthFile):
    """Does not answer until it is told to."""

    def __init__(self, path: str) -> None:
        super().__init__(path, pod="pod-0", max_depth=7)
        self.asked = threading.Event()
        self.answer = threading.Event()

    def poll(self) -> Adopted | Rejected | None:
        self.asked.set()
        # The scheduler's thread would wait for ever: what is told then is that it asked.
        in_step = threading.current_thread() is threading.main_thread()
        assert self.answer.wait(0 if in_step else GUARD_S)
        return super().poll()


def test_no_step_waits_for_the_file(engine: Engine) -> None:
    engine.write(1, 5)
    disk = SlowDisk(str(engine.depth_path))
    disk.answer.set()
    engine.start(depth_file=disk)
    watch = engine.hook.watch
    assert watch is not None
    disk.answer.clear()
    disk.asked.clear()
    watch.start(wait_s=0)
    try:
        assert disk.asked.wait(GUARD_S)
        for _ in range(300):  # a step that read the file would wait for the answer
            engine.step(1, 0.01)
    finally:
        disk.answer.set()
        watch.stop()
    assert (engine.steps, engine.counts.errors) == (300, 0)
    assert engine.table[1] == 5


@pytest.mark.parametrize(
    ("damage", "rejections"), [(Path.unlink, 0), (lambda path: path.write_text("{}"), 1)]
)
def test_a_damaged_document_keeps_the_last_good_table(
    engine: Engine, damage: Callable[[Path], object], rejections: int
) -> None:
    engine.write(1, 5)
    engine.start()
    damage(engine.depth_path)
    for _ in range(5):
        engine.look()
        engine.step(1, 0.3)
    assert engine.table[1] == 5
    assert (engine.counts.generation, engine.counts.rejections) == (1, rejections)


def test_steps_are_counted_where_they_belong(engine: Engine) -> None:
    engine.write(1, 3)
    engine.start()
    for _ in range(4):
        engine.step(3, 0.01)
    (cell,) = engine.counts.steps
    assert (cell.batch_le, cell.depth, cell.kind) == (3, 3, "decode")
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
    assert engine.steps == 2


def test_an_exception_is_counted_and_the_engine_goes_on(engine: Engine) -> None:
    engine.start()
    engine.fail()
    assert engine.counts.errors == 1
    engine.step(1, 0.01)
    assert engine.steps == 1


class FailingCounters(CountersWriter):
    """Cannot be told what a step's two halves tell."""

    def set_generation(self, generation: int, schedule_hash: int = 0) -> None:
        raise RuntimeError(generation, schedule_hash)

    def set_idle(self, *, idle: bool) -> None:
        raise RuntimeError(idle)


def test_an_exception_before_and_after_scheduling_is_counted_too(engine: Engine) -> None:
    engine.start()
    engine.counters.__class__ = FailingCounters
    engine.write(1, 5)
    engine.look()
    began_at_s = engine.hook.now()
    assert engine.hook.before_schedule() is None
    assert engine.counts.errors == 1
    engine.hook.after_schedule(Scheduled(1, 3), began_at_s)
    assert engine.counts.errors == 2


class Ticking(Engine):
    """A millisecond passes whenever the clock is read."""

    @property
    def now(self) -> float:
        self._now += 0.001
        return self._now

    @now.setter
    def now(self, at_s: float) -> None:
        self._now = at_s


def test_the_hooks_own_time_is_counted(tmp_path: Path) -> None:
    """Time of each step, from its end until it is counted: one reading of the clock."""
    engine = Ticking(tmp_path)
    engine.start()
    for steps in (1, 2, 3):
        engine.step(1, 0.5)
        assert engine.counts.hook_seconds == pytest.approx(0.001 * steps)
    engine.update(Scheduled(1, 3))  # of a step whose scheduling was not seen
    assert engine.counts.hook_seconds == pytest.approx(0.004)
    engine.counters.close()


def blow(engine: Engine) -> None:
    for _ in range(MOST_ERRORS):
        engine.fail()


def test_many_exceptions_in_few_steps_switch_the_hook_off_and_the_table_stays(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.write(1, 5)
    engine.start()
    blow(engine)
    for _ in range(5):
        engine.fail()
    assert engine.counts.errors == MOST_ERRORS
    assert not engine.counts.live
    engine.write(2, 7)
    engine.look()
    engine.step(1, 0.3)
    assert engine.table[1] == 5
    assert engine.counts.steps == ()
    ours = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(ours) == 2


def test_as_many_in_a_long_life_do_not(engine: Engine) -> None:
    engine.start()
    for _ in range(3 * MOST_ERRORS):
        engine.fail()
        for _ in range(WITHIN_STEPS // (MOST_ERRORS - 1)):
            engine.step(1, 0.01)
    assert engine.counts.live
    assert engine.counts.errors == 3 * MOST_ERRORS


def test_between_errors_every_step_is_one(engine: Engine) -> None:
    engine.start()
    for _ in range(MOST_ERRORS):
        assert engine.counts.live
        engine.fail()
        for _ in range(WITHIN_STEPS // MOST_ERRORS):
            engine.step(1, 0.01)
    assert not engine.counts.live


def test_after_a_rest_the_hook_is_on_again_with_the_newest_document(engine: Engine) -> None:
    engine.write(1, 5)
    engine.start()
    blow(engine)
    engine.write(2, 7)
    engine.look()
    across = engine.schedule(1)
    engine.now += FIRST_REST_SECONDS
    engine.step(1, 0.01)
    assert engine.table[1] == 7
    assert (engine.counts.live, engine.counts.generation) == (True, 2)
    assert engine.steps == 1
    engine.update(across)  # scheduled while the hook was off: nobody knows how long it took
    assert engine.steps == 1


def test_a_hook_that_never_works_is_tried_less_and_less(engine: Engine) -> None:
    engine.start()
    tried_at_s = []
    while engine.now < 100 + 6 * 3600:
        errors = engine.counts.errors
        engine.fail()
        if engine.counts.errors - errors and not engine.counts.live:
            tried_at_s.append(engine.now)
        engine.now += 0 if engine.counts.live else 10
    rests = [later - earlier for earlier, later in itertools.pairwise(tried_at_s)]
    assert rests == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]


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
    assert hook.before_schedule() == (0, 6, 6, 6, 6, 6, 6, 6, 6)
    assert hook.watch is not None
    hook.watch.stop()


def test_each_rank_counts_into_a_file_of_its_own(tmp_path: Path) -> None:
    for rank in range(3):
        SchedulerHook.from_environment(
            {"FATHOM_COUNTERS_FILE": str(tmp_path / "counters")},
            max_batch=8,
            max_depth=7,
            engine_table=None,
            rank=rank,
        )
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["counters", "counters.rank1", "counters.rank2"]


def test_it_is_seen_to_once_a_second_that_the_file_is_watched(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.start()
    engine.step(1, 2.0)
    asked: list[float] = []
    monkeypatch.setattr(engine.hook.watch, "keep_looking", lambda: asked.append(engine.now))

    for _ in range(9):
        engine.step(1, 0.25)

    assert asked == [103.25]
