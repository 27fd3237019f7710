"""A step described all at once, beside one described request by request."""

from dataclasses import dataclass, field, replace

from hypothesis import example, given
from hypothesis import strategies as st

from fathom_vllm.counters import DECODE, MIXED
from fathom_vllm.steps import EngineStep, observe_step
from support.vllm_outputs import Cached, New, outputs_of
from support.vllm_outputs import Row as Emitted

DEEPEST = 5


@dataclass(frozen=True)
class Row:
    """What one request did in a step."""

    draft: int
    more_tokens: int
    """Scheduled beyond its draft and one: a chunk of its prompt."""
    emitted: int
    new: bool = False
    over: bool = False
    """It ended while the step was in flight."""
    most: int = DEEPEST + 1
    """It stops after so many tokens."""


@dataclass
class Scheduled:
    num_scheduled_tokens: dict[str, int]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    num_spec_tokens_to_schedule: int
    scheduled_new_reqs: list[New]
    scheduled_cached_reqs: Cached = field(default_factory=Cached)
    num_invalid_spec_tokens: None = None

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())


@dataclass(frozen=True)
class Case:
    """A step, and how vLLM holds it."""

    rows: list[Row]
    drafting: int
    sampled: bool = True
    shared: bool = True
    """One list stands for all drafts of a length."""


def one_by_one(case: Case) -> EngineStep:
    """The rules of `fathom_vllm.steps`, a request at a time."""
    rows, drafting = case.rows, case.drafting
    depths: set[int] = set()
    kind = DECODE
    tokens = drafts = prefill = 0
    accepted = [0] * drafting
    for row in rows:
        if row.draft:
            prefill += row.more_tokens
        elif row.new or row.more_tokens:
            prefill += 1 + row.more_tokens
        if row.new or row.more_tokens:
            kind = MIXED
        else:
            depths.add(row.draft)
        if row.over or not case.sampled or not row.emitted:
            continue
        tokens += min(row.emitted, row.most)
        if row.draft:
            drafts += 1
            for position in range(min(row.emitted - 1, drafting)):
                accepted[position] += 1
    if depths - {drafting}:
        return EngineStep(len(rows), None, MIXED, tokens, prefill)
    prefill = prefill if kind == MIXED else 0
    return EngineStep(
        len(rows), drafting, kind, tokens, prefill, drafts, accepted if drafts else ()
    )


def all_at_once(case: Case) -> EngineStep | None:
    """What vLLM would hand over for the same."""
    rows = case.rows
    names = [f"r{at}" for at in range(len(rows))]
    of_length = [[-1] * length for length in range(DEEPEST + 1)]
    step = Scheduled(
        {name: row.draft + 1 + row.more_tokens for name, row in zip(names, rows, strict=True)},
        {
            name: of_length[row.draft] if case.shared else list(range(at, at + row.draft))
            for at, (name, row) in enumerate(zip(names, rows, strict=True))
            if row.draft
        },
        case.drafting,
        [New(name) for name, row in zip(names, rows, strict=True) if row.new],
    )
    outputs = outputs_of(
        [Emitted(row.draft, row.emitted, row.over, row.most) for row in rows]
        if case.sampled
        else []
    )
    return observe_step(step, outputs)


@st.composite
def rows(draw: st.DrawFn, drafting: int, *, odd: bool) -> Row:
    """A decode or a prefill; an odd one may be anything between."""
    is_new = draw(st.booleans())
    decode = Row(drafting, 0, draw(st.integers(0, drafting + 1)))
    prefill = Row(0, draw(st.integers(0 if is_new else 1, 40)), draw(st.integers(0, 1)), is_new)
    row = draw(st.sampled_from([decode, prefill]))
    if odd:
        depth = draw(st.integers(0, DEEPEST))
        row = Row(depth, draw(st.integers(0, 2)), draw(st.integers(0, depth + 1)), is_new)
    return replace(row, over=draw(st.booleans()), most=draw(st.integers(1, DEEPEST + 1)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    drafting = draw(st.integers(0, DEEPEST))
    odd = draw(st.sampled_from([False, False, True]))
    return Case(
        draw(st.lists(rows(drafting, odd=odd), max_size=8)),
        drafting,
        sampled=draw(st.sampled_from([True, True, True, False])),
        shared=draw(st.booleans()),
    )


@given(cases())
@example(Case([], 3, sampled=False))
@example(Case([Row(0, 0, 1), Row(2, 4, 3)], 0))
@example(Case([Row(3, 0, 4, new=True)], 3))
@example(Case([Row(3, 1, 4)], 3))
@example(Case([Row(3, 0, 1), Row(2, 0, 1)], 3))
@example(Case([Row(3, 0, 1), Row(2, 1, 1)], 3))
@example(Case([Row(3, 0, 4), Row(2, 4, 3)], 3, shared=False))
def test_all_at_once_is_one_by_one(case: Case) -> None:
    assert all_at_once(case) == one_by_one(case)
