"""What a step is taken for, from fake scheduler outputs."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fathom_vllm.counters import DECODE, MIXED, CountersWriter
from fathom_vllm.counts import read_counts
from fathom_vllm.steps import EngineStep, Stalls, StepsInFlight, count_step, observe_step
from support.vllm_outputs import Cached, New, Row, outputs_of
from support.work import work_of


@dataclass
class Scheduled:
    num_scheduled_tokens: dict[str, int]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    num_spec_tokens_to_schedule: int
    scheduled_new_reqs: list[New] = field(default_factory=list)
    scheduled_cached_reqs: Cached = field(default_factory=Cached)
    num_invalid_spec_tokens: None = None
    skip_drafts: bool = False

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())


class Batch:
    """A step in the making: one call per request."""

    def __init__(self, drafting: int) -> None:
        self.scheduled = Scheduled({}, {}, drafting)
        self.rows: list[Row] = []

    def decode(self, draft: int, accepted: int, *, finished: bool = False) -> "Batch":
        name = self._add(draft + 1, Row(draft, accepted + 1, over=finished))
        if draft:
            self.scheduled.scheduled_spec_decode_tokens[name] = [-1] * draft
        return self

    def prefill(self, tokens: int, *, last: bool = True, new: bool = True) -> "Batch":
        name = self._add(tokens, Row(0, int(last)))
        if new:
            self.scheduled.scheduled_new_reqs.append(New(name))
        return self

    def drafting_for_nobody(self) -> "Batch":
        self.scheduled.skip_drafts = True
        return self

    def observe(self) -> EngineStep:
        step = observe_step(self.scheduled, outputs_of(self.rows))
        assert step is not None
        return step

    def _add(self, scheduled: int, row: Row) -> str:
        name = f"r{len(self.rows)}"
        self.scheduled.num_scheduled_tokens[name] = scheduled
        self.rows.append(row)
        return name


def test_decodes_at_one_depth_are_a_decode_step() -> None:
    step = Batch(3).decode(3, 3).decode(3, 0).decode(3, 1).observe()
    assert step == EngineStep(batch=3, depth=3, kind=DECODE, tokens=7, drafts=3, accepted=[2, 1, 1])


def test_without_drafts_the_depth_is_zero_and_nothing_was_drafted() -> None:
    step = Batch(0).decode(0, 0).decode(0, 0).observe()
    assert step == EngineStep(batch=2, depth=0, kind=DECODE, tokens=2, drafts=0, accepted=())


def test_a_prefill_among_decodes_makes_it_mixed() -> None:
    step = Batch(3).decode(3, 2).prefill(20).observe()
    assert step == EngineStep(
        batch=2, depth=3, kind=MIXED, tokens=4, prefill=20, drafts=1, accepted=[1, 1, 0]
    )


def test_a_prompt_of_one_token_is_a_prefill() -> None:
    assert Batch(3).decode(3, 0).prefill(1).observe().kind == MIXED
    assert Batch(0).decode(0, 0).prefill(1).observe().kind == MIXED


def test_a_later_chunk_of_a_prompt_is_a_prefill_that_emits_nothing() -> None:
    step = Batch(3).decode(3, 0).prefill(512, last=False, new=False).observe()
    assert (step.kind, step.depth, step.tokens) == (MIXED, 3, 1)


@pytest.mark.parametrize("tokens", [2, 512])
def test_a_later_chunk_beside_decodes_without_drafts_is_one_too(tokens: int) -> None:
    step = Batch(0).decode(0, 0).prefill(tokens, last=False, new=False).observe()
    assert (step.kind, step.depth, step.tokens) == (MIXED, 0, 1)


def test_a_draft_of_which_nothing_came_back_was_not_verified() -> None:
    batch = Batch(3).decode(3, 1).decode(3, 1)
    batch.rows[1] = Row(3, 0)
    step = batch.observe()
    assert (step.tokens, step.drafts, step.accepted) == (2, 1, [1, 0, 0])


def test_nothing_but_prefill_has_the_depth_it_drafts_with() -> None:
    step = Batch(5).prefill(20).prefill(30, last=False).observe()
    assert step == EngineStep(
        batch=2, depth=5, kind=MIXED, tokens=1, prefill=50, drafts=0, accepted=()
    )


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(Batch(3).prefill(8192, last=False), id="a first chunk"),
        pytest.param(Batch(3).prefill(8192, last=False, new=False), id="a later chunk"),
        pytest.param(Batch(3).decode(3, 1).decode(3, 0), id="requests that are sure to end"),
    ],
)
def test_a_step_whose_drafts_nobody_could_use_has_no_depth(batch: Batch) -> None:
    assert batch.observe().depth == 3
    assert batch.drafting_for_nobody().observe().depth is None


def test_where_none_are_asked_for_nothing_is_skipped() -> None:
    assert Batch(0).decode(0, 0).drafting_for_nobody().observe().depth == 0


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(Batch(5).decode(3, 0), id="drafts for another depth than it verifies"),
        pytest.param(Batch(0).decode(3, 0), id="stops drafting"),
        pytest.param(Batch(3).decode(0, 0), id="starts drafting"),
        pytest.param(Batch(3).decode(3, 0).decode(2, 0), id="a draft cut near max_model_len"),
        pytest.param(Batch(3).decode(0, 0).decode(3, 0), id="a request without drafts"),
        pytest.param(Batch(5).decode(3, 0).prefill(9), id="the same with a prefill"),
    ],
)
def test_mixed_depths_are_a_transition(batch: Batch) -> None:
    assert batch.observe().depth is None


def test_what_vllm_discards_counts_for_the_batch_only() -> None:
    batch = Batch(3).decode(3, 3).decode(3, 2, finished=True).decode(3, 1, finished=True)
    assert batch.observe() == EngineStep(
        batch=3, depth=3, kind=DECODE, tokens=4, drafts=1, accepted=[1, 1, 1]
    )


def test_a_step_that_sampled_nothing_emitted_nothing() -> None:
    batch = Batch(3).decode(3, 0)
    batch.rows = []
    assert batch.observe() == EngineStep(batch=1, depth=3)


def test_what_a_stop_cuts_reaches_nobody() -> None:
    batch = Batch(3).decode(3, 3).decode(3, 1)
    batch.rows[0] = replace(batch.rows[0], most=1)
    assert batch.observe() == EngineStep(
        batch=2, depth=3, kind=DECODE, tokens=3, drafts=2, accepted=[2, 1, 1]
    )


def test_every_client_is_counted() -> None:
    batch = Batch(3).decode(3, 3).decode(3, 1)
    batch.rows[1] = replace(batch.rows[1], client=1)
    assert (batch.observe().tokens, batch.observe().drafts) == (6, 2)


@pytest.mark.parametrize("clients", [[0], [0, 0, 1]])
def test_requests_that_failed_emitted_nothing(clients: list[int]) -> None:
    batch = Batch(0).decode(0, 0).decode(0, 0)
    step = observe_step(batch.scheduled, outputs_of(batch.rows, failed=clients))
    assert step == EngineStep(batch=2, depth=0, tokens=2)


def busy(requests: int, *, new: int = 0) -> Batch:
    """A step of many requests, some of them new."""
    batch = Batch(3)
    for _ in range(requests - new):
        batch.decode(3, 1)
    for _ in range(new):
        batch.prefill(20)
    return batch


def calls(batch: Batch) -> int:
    """How many it takes to observe a step, of functions in C too."""
    outputs = outputs_of(batch.rows)
    return work_of(lambda: observe_step(batch.scheduled, outputs)).calls


@pytest.mark.parametrize("new", [0, 2])
def test_a_step_of_many_requests_takes_no_more_calls_than_one_of_few(new: int) -> None:
    few, many = busy(8, new=new), busy(512, new=new)
    assert calls(few) == calls(many)


def test_of_an_engine_that_keeps_no_statistics_nothing_is_told() -> None:
    batch = Batch(3).decode(3, 3)
    outputs = {0: replace(outputs_of(batch.rows)[0], scheduler_stats=None)}
    assert observe_step(batch.scheduled, outputs) is None


def scheduled() -> Scheduled:
    """A step, whatever it holds."""
    return Scheduled({}, {}, 3)


A, B, C = scheduled(), scheduled(), scheduled()


def test_synchronous_steps_take_from_one_end_to_the_next_while_busy() -> None:
    steps = StepsInFlight()
    steps.scheduled(A, 10.0)
    assert steps.ended(A, 10.5, busy=True) == pytest.approx(0.5)
    steps.scheduled(B, 10.6)
    assert steps.ended(B, 11.0, busy=True) == pytest.approx(0.5)


def test_waiting_for_requests_is_not_step_time() -> None:
    steps = StepsInFlight()
    steps.scheduled(A, 10.0)
    steps.ended(A, 10.5, busy=False)
    steps.scheduled(B, 10.6)
    assert steps.ended(B, 11.0, busy=True) == pytest.approx(0.4)


def test_a_pause_with_requests_left_is_not_step_time() -> None:
    steps = StepsInFlight()
    steps.scheduled(A, 10.0)
    steps.ended(A, 10.5, busy=True)
    steps.scheduled(B, 500.0)
    assert steps.ended(B, 500.4, busy=True) == pytest.approx(0.4)


def test_overlapping_steps_are_not_counted_twice() -> None:
    steps = StepsInFlight()
    steps.scheduled(A, 10.0)
    steps.scheduled(B, 10.1)
    assert steps.ended(A, 10.5, busy=True) == pytest.approx(0.5)
    steps.scheduled(C, 10.51)
    assert steps.ended(B, 11.0, busy=True) == pytest.approx(0.5)
    assert steps.ended(C, 11.5, busy=True) == pytest.approx(0.5)


def test_the_last_of_overlapping_steps_is_not_counted_twice_either() -> None:
    steps = StepsInFlight()
    steps.scheduled(A, 10.0)
    steps.scheduled(B, 10.1)
    steps.ended(A, 10.5, busy=False)
    assert steps.ended(B, 10.7, busy=False) == pytest.approx(0.2)


def test_of_a_step_whose_scheduling_was_not_seen_nobody_can_tell() -> None:
    steps = StepsInFlight()
    assert steps.ended(A, 10.0, busy=True) is None
    steps.scheduled(B, 9.9)
    assert steps.ended(B, 10.5, busy=True) == pytest.approx(0.5)


def test_steps_whose_output_was_dropped_are_forgotten_in_the_end() -> None:
    in_flight = [scheduled() for _ in range(66)]
    steps = StepsInFlight()
    for each in in_flight[:65]:
        steps.scheduled(each, 10.0)
    assert steps.ended(in_flight[0], 10.5, busy=True) == pytest.approx(0.5)
    for each in (in_flight[0], in_flight[65]):
        steps.scheduled(each, 10.5)
    assert steps.ended(in_flight[1], 11.0, busy=True) is None
    assert steps.ended(in_flight[65], 11.5, busy=True) == pytest.approx(0.5)


def test_prompt_tokens_are_what_is_scheduled_and_not_verified() -> None:
    at_depth_0 = Batch(0).decode(0, 0).decode(0, 0).prefill(20).prefill(7, last=False, new=False)
    one_token = Batch(0).decode(0, 0).prefill(1)
    at_depth_3 = Batch(3).decode(3, 1).prefill(30).prefill(50, last=False, new=False)

    assert at_depth_0.observe().prefill == 27
    assert one_token.observe().prefill == 1
    assert at_depth_3.observe().prefill == 80


def test_a_transition_tells_what_it_emitted_and_prefilled() -> None:
    step = Batch(5).decode(3, 2).prefill(20).observe()
    assert step == EngineStep(batch=2, depth=None, kind=MIXED, tokens=4, prefill=20)


def test_a_step_ten_times_as_long_as_usual_is_a_stall() -> None:
    stalls = Stalls()
    assert not any(stalls.excess_s(0.010) for _ in range(100))
    assert not stalls.excess_s(0.095)
    assert stalls.excess_s(3.0) == pytest.approx(2.985, abs=0.005)
    assert not stalls.excess_s(0.010)


def test_what_goes_on_is_no_stall_but_what_is_usual_now() -> None:
    stalls = Stalls()
    for _ in range(100):
        stalls.excess_s(0.010)
    slow = [stalls.excess_s(0.5) for _ in range(100)]
    assert slow[0]
    assert not any(slow[10:])


def test_the_first_steps_are_no_stalls() -> None:
    stalls = Stalls()
    assert not any(stalls.excess_s(seconds) for seconds in (0.01, 2.0, 0.01, 4.0))


def test_what_takes_less_than_a_tenth_of_a_second_is_no_stall() -> None:
    stalls = Stalls()
    assert not any(stalls.excess_s(0.0001) for _ in range(100))
    assert not stalls.excess_s(0.09)


def test_a_stall_counts_as_a_usual_step_and_its_excess_apart(tmp_path: Path) -> None:
    path, stalls = str(tmp_path / "counters"), Stalls()
    counters = CountersWriter(path, max_batch=4, max_depth=3)
    step = EngineStep(batch=2, depth=3, kind=DECODE, tokens=6, drafts=2, accepted=[2, 1, 1])
    for seconds in (*[0.01] * 50, 3.0):
        count_step(counters, step, seconds, stalls)
    found = read_counts(path)

    assert found is not None
    (cell,) = found.steps
    assert (cell.steps, cell.tokens) == (51, 306)
    assert cell.seconds == pytest.approx(0.51)
    assert found.drafts[0].drafts == 102
    assert (found.stalls, found.stall_seconds) == (1, pytest.approx(2.99))
