"""Drafts by context, from fake scheduler outputs: counted request by request, as vLLM does."""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom_vllm.buckets import context_range
from fathom_vllm.contexts import MOST_DRAFTS, ContextSampling, drafts_by_context
from fathom_vllm.counters import CountersWriter, DraftSums
from fathom_vllm.counts import read_counts
from fathom_vllm.depth_file import DepthFile
from fathom_vllm.hook import SchedulerHook
from support.vllm_outputs import Cached, New, Output, Outputs, Row, Sampled, outputs_of


@dataclass
class Scheduled:
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(default_factory=dict)
    num_spec_tokens_to_schedule: int = 3
    scheduled_new_reqs: list[New] = field(default_factory=list)
    scheduled_cached_reqs: Cached = field(default_factory=Cached)
    num_invalid_spec_tokens: dict[str, int] | None = None

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())


class Batch:
    """A step in the making: one call per request."""

    def __init__(self) -> None:
        self.scheduled = Scheduled()
        self.rows: list[Row] = []

    def decode(self, context: int, draft: int, accepted: int, **more: int) -> "Batch":
        self._add(context, Row(draft, accepted + 1, **more))
        return self

    def prefill(self, context: int, *, sampled: int = 0) -> "Batch":
        self._add(context, Row(0, sampled))
        return self

    def new(self, context: int, draft: int = 0, accepted: int = 0) -> "Batch":
        name = self._add(None, Row(draft, accepted + 1))
        self.scheduled.scheduled_new_reqs.append(New(name, context))
        return self

    def counted(self, sampling: ContextSampling | None = None) -> dict[int, DraftSums] | None:
        """Range by range, as how many steps it counts; None: it is not counted."""
        # The model runner has its own order, and vLLM cuts what it has counted.
        names = [f"r{at}" for at in range(len(self.rows))][::-1]
        tokens = [[5] * row.sampled for row in self.rows[::-1]]
        sampled = Sampled({name: at for at, name in enumerate(names)}, tokens)
        found = (sampling or ContextSampling()).begin(self.scheduled, sampled)
        outputs = outputs_of(self.rows)
        for row, each in zip(self.rows[::-1], tokens, strict=True):
            del each[row.most :]
        if found is None:
            return None
        sums = drafts_by_context(self.scheduled, found, outputs)
        return {
            index: DraftSums(*(found.steps * count for count in each))
            for index, each in sums.items()
        }

    @property
    def outputs(self) -> dict[int, Outputs]:
        return outputs_of(self.rows)

    def _add(self, context: int | None, row: Row) -> str:
        name = f"r{len(self.rows)}"
        self.rows.append(row)
        self.scheduled.num_scheduled_tokens[name] = 1 + row.drafts
        if row.drafts:
            self.scheduled.scheduled_spec_decode_tokens[name] = [-1] * row.drafts
        if context is not None:
            self.scheduled.scheduled_cached_reqs.req_ids.append(name)
            self.scheduled.scheduled_cached_reqs.num_computed_tokens.append(context)
        return name


@pytest.mark.parametrize(
    ("tokens", "index"),
    [(0, 0), (2047, 0), (2048, 1), (4095, 1), (131071, 6), (131072, 7), (1_000_000, 7)],
)
def test_ranges_are_doublings_from_2048_tokens_on(tokens: int, index: int) -> None:
    assert context_range(tokens) == index


def test_a_step_whose_contexts_lie_in_one_range_is_counted_there() -> None:
    batch = Batch().decode(5000, 3, 3).decode(8191, 3, 0).decode(4096, 3, 1)
    assert batch.counted() == {2: DraftSums(3, 9, 4, 2)}


def test_each_request_is_counted_at_its_own_context() -> None:
    batch = Batch().decode(2047, 3, 3).decode(2048, 3, 0).decode(9000, 3, 1).decode(100, 3, 2)
    assert batch.counted() == {
        0: DraftSums(2, 6, 5, 2),
        1: DraftSums(1, 3, 0, 0),
        3: DraftSums(1, 3, 1, 1),
    }


@pytest.mark.parametrize("other", [100, 5000])
def test_what_an_answers_end_cuts_was_accepted_all_the_same(other: int) -> None:
    batch = Batch().decode(5000, 3, 3, most=1).decode(other, 3, 1)
    assert sum(each.accepted for each in (batch.counted() or {}).values()) == 4


@pytest.mark.parametrize("other", [100, 5000])
def test_what_vllm_passes_over_is_not_counted(other: int) -> None:
    batch = Batch().decode(5000, 3, 3).decode(other, 3, 2)
    batch.rows[0] = replace(batch.rows[0], over=True)
    assert batch.counted() == {context_range(other): DraftSums(1, 3, 2, 1)}


def test_of_a_request_that_failed_nothing_is_counted() -> None:
    batch = Batch().decode(5000, 3, 3).decode(100, 3, 2)
    sampled = Sampled({"r0": 0, "r1": 1}, [[5] * 4, [5] * 3])
    found = ContextSampling().begin(batch.scheduled, sampled)
    assert found is not None
    batch.rows[0] = replace(batch.rows[0], over=True)
    outputs = batch.outputs
    outputs[0].outputs.append(Output("r0", []))
    assert drafts_by_context(batch.scheduled, found, outputs) == {0: DraftSums(1, 3, 2, 1)}


def test_chunks_of_prompts_have_no_drafts() -> None:
    batch = Batch().decode(5000, 3, 2).prefill(100_000).prefill(10, sampled=1).new(0)
    assert batch.counted() == {2: DraftSums(1, 3, 2, 1)}


@pytest.mark.parametrize("other", [100, 5000])
def test_a_request_whose_prompt_was_computed_elsewhere_is_new_and_has_drafts(other: int) -> None:
    counted = Batch().decode(5000, 3, 1).new(other, 3, 3).counted()
    assert counted == (
        {2: DraftSums(2, 6, 4, 2)}
        if other == 5000
        else {2: DraftSums(1, 3, 1, 1), 0: DraftSums(1, 3, 3, 1)}
    )


def test_drafts_that_a_grammar_forbids_were_not_drafted_as_vllm_has_it() -> None:
    batch = Batch().decode(100, 3, 1).decode(5000, 3, 1)
    batch.scheduled.num_invalid_spec_tokens = {"r1": 2}
    assert batch.counted() == {0: DraftSums(1, 3, 1, 1), 2: DraftSums(1, 1, 1, 1)}


def test_a_step_without_drafts_is_not_counted() -> None:
    assert Batch().decode(100, 0, 0).new(0).counted() is None
    batch = Batch().decode(100, 3, 1)
    assert ContextSampling().begin(batch.scheduled, Sampled({}, [])) is None


def test_of_an_engine_without_statistics_nothing_is_counted() -> None:
    batch = Batch().decode(100, 3, 1)
    found = ContextSampling().begin(batch.scheduled, Sampled({"r0": 0}, [[5, 5]]))
    assert found is not None
    bare = {0: replace(batch.outputs[0], scheduler_stats=None)}
    assert drafts_by_context(batch.scheduled, found, bare) == {}


@pytest.mark.parametrize(
    ("drafts", "steps"), [(MOST_DRAFTS, 1), (9, 2), (16, 2), (17, 4), (256, 32)]
)
def test_of_large_steps_one_in_some_is_counted_as_so_many(drafts: int, steps: int) -> None:
    sampling, counted = ContextSampling(), 0
    for _ in range(64):
        batch = Batch()
        for at in range(drafts):
            batch.decode(100 if at % 2 else 5000, 3, 1)
        if (found := batch.counted(sampling)) is not None:
            counted += 1
            assert found[0].drafts == steps * (drafts // 2)
    assert counted == 64 // steps


def test_steps_of_all_sizes_are_represented_alike() -> None:
    sampling = ContextSampling()
    seen: Counter[int] = Counter()
    for number in range(1200):
        drafts = (10, 40, 300)[number % 3]
        batch = Batch()
        for _ in range(drafts):
            batch.decode(drafts * 500, 3, 1)
        for index, sums in (batch.counted(sampling) or {}).items():
            seen[index] += sums.drafts
    assert seen[context_range(10 * 500)] == 400 * 10
    assert seen[context_range(40 * 500)] == pytest.approx(400 * 40, rel=0.1)
    assert seen[context_range(300 * 500)] == pytest.approx(400 * 300, rel=0.1)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 200_000),
            st.integers(0, 5),
            st.integers(0, 5),
            st.integers(1, 6),
            st.booleans(),
        ),
        max_size=MOST_DRAFTS,
    )
)
def test_the_sums_over_all_ranges_are_vllms(
    requests: list[tuple[int, int, int, int, bool]],
) -> None:
    batch = Batch()
    for context, draft, accepted, most, over in requests:
        batch.decode(context, draft, min(draft, accepted), most=most)
        batch.rows[-1] = replace(batch.rows[-1], over=over)
    found = batch.counted() or {}
    stats = [each.scheduler_stats for each in batch.outputs.values() if each.scheduler_stats]
    verified = stats[0].spec_decoding_stats
    if verified is None:
        assert found == {}
        return
    assert sum(each.drafts for each in found.values()) == verified.num_drafts
    assert sum(each.tokens for each in found.values()) == verified.num_draft_tokens
    by_position = verified.num_accepted_tokens_per_pos
    assert sum(each.accepted for each in found.values()) == sum(by_position)
    assert sum(each.first_accepted for each in found.values()) == by_position[0]


def test_the_hook_counts_a_large_step_as_so_many(tmp_path: Path) -> None:
    path, drafts = str(tmp_path / "counters"), 2 * MOST_DRAFTS
    counters = CountersWriter(path, max_batch=drafts, max_depth=3)
    hook = SchedulerHook(DepthFile("", pod="", max_depth=3), counters, None)
    batch = Batch()
    for _ in range(drafts):
        batch.decode(5000, 3, 1)
    names = {f"r{at}": at for at in range(drafts)}
    for _ in range(4):
        hook.after_schedule(batch.scheduled, hook.now())
        found = hook.before_update(batch.scheduled, Sampled(names, [[5, 5]] * drafts))
        hook.after_update(batch.scheduled, batch.outputs, busy=True, by_context=found)
    counts = read_counts(path)
    assert counts is not None
    assert (counts.errors, len(counts.contexts)) == (0, 1)
    assert counts.contexts[0].drafts == 4 * drafts


def test_what_a_vllm_lacks_is_an_error_of_the_hook_and_stops_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "counters")
    counters = CountersWriter(path, max_batch=4, max_depth=3)
    hook = SchedulerHook(DepthFile("", pod="", max_depth=3), counters, None)
    batch = Batch().decode(5000, 3, 1)
    assert hook.before_update(batch.scheduled, object()) is None  # type: ignore[arg-type]
    counts = read_counts(path)
    assert counts is not None
    assert counts.errors == 1
