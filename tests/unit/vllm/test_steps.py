"""What a step is taken for, from fake scheduler outputs."""

from dataclasses import dataclass, field

import pytest

from fathom_vllm.counters import DECODE, MIXED
from fathom_vllm.steps import Step, StepsInFlight, observe_step


@dataclass
class New:
    req_id: str


@dataclass
class Scheduled:
    num_scheduled_tokens: dict[str, int]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    num_spec_tokens_to_schedule: int
    scheduled_new_reqs: list[New] = field(default_factory=list)
    finished_req_ids: set[str] = field(default_factory=set)


@dataclass
class Request:
    finished: bool = False

    def is_finished(self) -> bool:
        return self.finished


class Batch:
    """A step in the making: one call per request."""

    def __init__(self, drafting: int) -> None:
        self.scheduled = Scheduled({}, {}, drafting)
        self.sampled: list[list[int]] = []
        self.requests: dict[str, Request] = {}
        self.finished: set[str] = set()

    def decode(self, draft: int, accepted: int, *, finished: bool = False) -> "Batch":
        name = self._add(draft + 1, accepted + 1, finished=finished)
        if draft:
            self.scheduled.scheduled_spec_decode_tokens[name] = [-1] * draft
        return self

    def prefill(self, tokens: int, *, last: bool = True, new: bool = True) -> "Batch":
        name = self._add(tokens, int(last))
        if new:
            self.scheduled.scheduled_new_reqs.append(New(name))
        return self

    def observe(self) -> Step:
        index = {name: row for row, name in enumerate(self.scheduled.num_scheduled_tokens)}
        return observe_step(
            self.scheduled, self.sampled, index, self.requests, self.finished, max_depth=7
        )

    def _add(self, scheduled: int, emitted: int, *, finished: bool = False) -> str:
        name = f"r{len(self.sampled)}"
        self.scheduled.num_scheduled_tokens[name] = scheduled
        self.sampled.append([5] * emitted)
        self.requests[name] = Request(finished)
        if finished:
            self.finished.add(name)
        return name


def test_decodes_at_one_depth_are_a_decode_step() -> None:
    step = Batch(3).decode(3, 3).decode(3, 0).decode(3, 1).observe()
    assert step == Step(batch=3, depth=3, kind=DECODE, tokens=7, drafts=3, accepted=[2, 1, 1])


def test_without_drafts_the_depth_is_zero_and_nothing_was_drafted() -> None:
    step = Batch(0).decode(0, 0).decode(0, 0).observe()
    assert step == Step(batch=2, depth=0, kind=DECODE, tokens=2, drafts=0, accepted=())


def test_a_prefill_among_decodes_makes_it_mixed() -> None:
    step = Batch(3).decode(3, 2).prefill(20).observe()
    assert step == Step(batch=2, depth=3, kind=MIXED, tokens=4, drafts=1, accepted=[1, 1, 0])


def test_a_prompt_of_one_token_is_a_prefill() -> None:
    assert Batch(3).decode(3, 0).prefill(1).observe().kind == MIXED


def test_a_later_chunk_of_a_prompt_is_a_prefill_that_emits_nothing() -> None:
    step = Batch(3).decode(3, 0).prefill(512, last=False, new=False).observe()
    assert (step.kind, step.depth, step.tokens) == (MIXED, 3, 1)


@pytest.mark.parametrize("tokens", [2, 512])
def test_a_later_chunk_beside_decodes_without_drafts_is_one_too(tokens: int) -> None:
    step = Batch(0).decode(0, 0).prefill(tokens, last=False, new=False).observe()
    assert (step.kind, step.depth, step.tokens) == (MIXED, 0, 1)


def test_a_draft_of_which_nothing_came_back_was_not_verified() -> None:
    batch = Batch(3).decode(3, 1).decode(3, 1)
    batch.sampled[1] = []
    step = batch.observe()
    assert (step.tokens, step.drafts, step.accepted) == (2, 1, [1, 0, 0])


def test_nothing_but_prefill_has_the_depth_it_drafts_with() -> None:
    step = Batch(5).prefill(20).prefill(30, last=False).observe()
    assert step == Step(batch=2, depth=5, kind=MIXED, tokens=1, drafts=0, accepted=())


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
    batch = Batch(3).decode(3, 3).decode(3, 2, finished=True).decode(3, 1)
    del batch.requests["r2"]
    batch.finished.add("r2")
    assert batch.observe() == Step(
        batch=3, depth=3, kind=DECODE, tokens=4, drafts=1, accepted=[1, 1, 1]
    )


def test_a_step_that_sampled_nothing_is_observed_without_a_row() -> None:
    batch = Batch(3).decode(3, 0)
    batch.sampled = []
    assert batch.observe().tokens == 0


def test_a_request_that_ended_earlier_and_came_back_counts() -> None:
    batch = Batch(3).decode(3, 1).decode(3, 1)
    batch.finished |= {"r0", "of another step"}
    assert batch.observe().tokens == 4


def test_more_tokens_than_drafts_and_one_are_an_error() -> None:
    with pytest.raises(ValueError, match="emitted 9 tokens where 8 are the most"):
        Batch(7).decode(7, 8).observe()


def ended_before(*names: str) -> Scheduled:
    """A step before whose scheduling these requests ended."""
    return Scheduled({}, {}, 3, finished_req_ids=set(names))


A, B, C = ended_before(), ended_before(), ended_before()


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


def test_a_step_whose_scheduling_was_not_seen_is_harmless() -> None:
    assert StepsInFlight().ended(A, 10.0, busy=True) == 0.0


def test_who_ended_while_a_step_was_under_way_is_told_by_the_steps_after_it() -> None:
    steps = StepsInFlight()
    steps.scheduled(ended_before("x"), 10.0)
    steps.scheduled(A, 10.0)
    steps.scheduled(ended_before("y"), 10.1)
    steps.scheduled(ended_before("z"), 10.2)
    assert steps.finished_during(A) == {"y", "z"}


def test_steps_whose_output_was_dropped_are_forgotten_in_the_end() -> None:
    in_flight = [ended_before() for _ in range(66)]
    steps = StepsInFlight()
    for each in in_flight[:65]:
        steps.scheduled(each, 10.0)
    assert steps.finished_during(in_flight[0]) == ()
    steps.scheduled(in_flight[65], 10.0)
    assert steps.finished_during(in_flight[0]) is None
    assert steps.finished_during(in_flight[65]) == ()


def test_of_a_step_whose_scheduling_was_not_seen_nobody_can_tell() -> None:
    assert StepsInFlight().finished_during(A) is None


def test_rows_of_other_requests_are_passed_over() -> None:
    batch = Batch(3).decode(3, 1).decode(3, 3)
    batch.sampled.insert(0, [5, 5, 5])
    index = {"another": 0, "r0": 1, "r1": 2}
    step = observe_step(batch.scheduled, batch.sampled, index, batch.requests, set(), max_depth=7)
    assert (step.tokens, step.drafts, step.accepted) == (6, 2, [2, 1, 1])
