"""What prompts and ends take of an engine, and what is left of a depth's worth."""

from dataclasses import replace
from math import log

import pytest

from fathom.measurement.counters import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    StepKind,
)
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate import step_filter
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.estimate.acceptance_length import trials
from fathom.tuning.estimate.prompts import LEAST_DECODE_STEPS, NO_PROMPTS, Excess, Prompts
from fathom.tuning.estimate.step_table import StepTable
from fathom.tuning.estimate.step_time import StepTimes
from fathom.tuning.estimate.traffic import Traffic
from fathom.tuning.policy.value import Evidence, Gain

AT_S = 1_700_000_000.0
WINDOW_S = 30.0
MAX_BATCH = 256
BATCH = 16
PRICE_S = 2e-5
"""Price of a prompt token."""
DECODE_S = {0: 0.008, 3: 0.010, 7: 0.014}
"""Seconds of a step of decodes, by depth."""
ACCEPTED = 0.7


def length(depth: int) -> float:
    return sum(ACCEPTED**i for i in range(depth + 1))


def window(
    depth: int,
    *,
    prompt: float = 0.0,
    mixed: float = 0.0,
    displaced: float = 0.0,
    answer: float = 200.0,
    at_s: float = AT_S,
    counts_prompts: bool = True,
    price_s: float = PRICE_S,
) -> PodDelta:
    """One window of one pod.

    Args:
        depth: in force.
        prompt: prompt tokens of a mixed step.
        mixed: share of such steps.
        displaced: of them, those that a draft displaces, times the drafts of all.
        answer: mean tokens of one.
        at_s: its end.
        counts_prompts: whether the plugin counts them.
        price_s: seconds of a prompt token.
    """
    prompt -= displaced * BATCH * depth
    mixed_s = DECODE_S[depth] + price_s * prompt
    steps = WINDOW_S / ((1 - mixed) * DECODE_S[depth] + mixed * mixed_s)
    made = steps * BATCH * length(depth)
    cells = {
        Cell(BATCH, depth, StepKind.DECODE): CellCounts(
            (1 - mixed) * steps,
            (1 - mixed) * steps * DECODE_S[depth],
            (1 - mixed) * made,
            (1 - mixed) * steps * BATCH,
        ),
        Cell(BATCH, depth, StepKind.MIXED): CellCounts(
            mixed * steps,
            mixed * steps * mixed_s,
            mixed * made,
            mixed * steps * BATCH,
            mixed * steps * prompt if counts_prompts else 0.0,
        ),
    }
    drafts = steps * BATCH
    return PodDelta(
        pod="pod-0",
        from_s=at_s - WINDOW_S,
        to_s=at_s,
        engine=EngineCounts(generation_tokens=made, finished_requests=made / answer),
        cells={cell: counts for cell, counts in cells.items() if counts.steps > 0},
        drafts={
            DraftCell(BATCH, depth): DraftCounts(
                drafts, tuple(drafts * ACCEPTED ** (i + 1) for i in range(depth))
            )
        },
        counts_prompts=counts_prompts,
    )


def learned(*windows: PodDelta) -> Evidence:
    """What these windows teach, one after the other."""
    times, traffic, prompts, survival = StepTimes(), Traffic(), NO_PROMPTS, Survival()
    at_s = AT_S
    for window_ in windows:
        at_s += WINDOW_S
        each = replace(window_, from_s=at_s - WINDOW_S, to_s=at_s)
        prompts = prompts.updated([each], at_s, WINDOW_S, MAX_BATCH)
        times = step_filter.updated(times, [each], prompts)
        traffic = traffic.updated(each.cells, at_s, WINDOW_S)
        survival = survival.updated(trials(each.drafts), at_s)
    return Evidence(
        text=survival, step_times=times, traffic=traffic, now_s=at_s, deepest=7, prompts=prompts
    )


def gain(evidence: Evidence) -> Gain:
    found = evidence.gain(BATCH, 7, 3)
    assert found is not None
    return found


def true_gain(*, per_token: float, net_s: dict[int, float] = DECODE_S) -> float:
    """Gain of depth 7 over 3, with so many prompt tokens for each that is emitted."""
    seconds = {k: net_s[k] / (BATCH * length(k)) + PRICE_S * per_token for k in (3, 7)}
    return log(seconds[3] / seconds[7])


def test_the_price_is_what_mixed_steps_take_beyond_steps_of_decodes() -> None:
    found = NO_PROMPTS.updated([window(3, prompt=500, mixed=0.4)], AT_S, WINDOW_S, MAX_BATCH)
    assert found.price == pytest.approx(PRICE_S)


def test_as_many_decode_steps_as_are_needed_tell_the_price() -> None:
    enough = Excess(3.0, 100.0, LEAST_DECODE_STEPS)
    assert Excess().after([enough], 0.9).per_token == pytest.approx(0.03)
    fewer = replace(enough, decode_steps=LEAST_DECODE_STEPS - 1)
    assert Excess().after([fewer], 0.9).per_token is None


def test_mixed_steps_of_a_larger_batch_are_held_against_the_nearest() -> None:
    delta = window(3, prompt=500, mixed=0.4)
    cells = {
        replace(cell, batch_le=20) if cell.step is StepKind.MIXED else cell: counts
        for cell, counts in delta.cells.items()
    }
    found = NO_PROMPTS.updated([replace(delta, cells=cells)], AT_S, WINDOW_S, MAX_BATCH)
    assert found.price == pytest.approx(PRICE_S)


def test_where_no_step_only_decodes_it_is_that_of_all_tokens() -> None:
    found = NO_PROMPTS.updated([window(3, prompt=1000, mixed=1.0)], AT_S, WINDOW_S, MAX_BATCH)
    seconds = DECODE_S[3] + 1000 * PRICE_S
    assert found.price == pytest.approx(seconds / (1000 + 4 * BATCH))


def test_the_price_is_remembered_while_no_step_only_decodes() -> None:
    """It belongs to the hardware: steps that are filled at another depth do not change it."""
    found = NO_PROMPTS.updated([window(3, prompt=500, mixed=0.4)], AT_S, WINDOW_S, MAX_BATCH)
    for each in range(1, 200):
        full = window(7, prompt=1000, mixed=1.0)
        found = found.updated([full], AT_S + each * WINDOW_S, WINDOW_S, MAX_BATCH)
    assert found.price == pytest.approx(PRICE_S)
    dearer = window(3, prompt=500, mixed=0.4, price_s=2 * PRICE_S)
    for each in range(200, 240):
        found = found.updated([dearer], AT_S + each * WINDOW_S, WINDOW_S, MAX_BATCH)
    assert found.price == pytest.approx(2 * PRICE_S, rel=0.02)


def test_a_few_steps_that_only_decode_do_not_push_the_price_out() -> None:
    """Three of them in each window, as where nearly all steps are full."""
    found = NO_PROMPTS.updated([window(3, prompt=500, mixed=0.4)], AT_S, WINDOW_S, MAX_BATCH)
    few = window(7, prompt=1000, mixed=1.0)
    decode = CellCounts(3, 3 * DECODE_S[7], 3 * BATCH * length(7), 3 * BATCH)
    few = replace(few, cells={**few.cells, Cell(BATCH, 7, StepKind.DECODE): decode})
    for each in range(1, 200):
        found = found.updated([few], AT_S + each * WINDOW_S, WINDOW_S, MAX_BATCH)
        assert found.price == pytest.approx(PRICE_S)
    assert found.excess.decode_steps >= LEAST_DECODE_STEPS


def test_a_page_of_steps_without_requests_has_no_price() -> None:
    odd = replace(
        window(0),
        transition_prefill=500.0,
        cells={Cell(BATCH, 0, StepKind.DECODE): CellCounts(1, 0.01, 0, 0)},
    )
    assert NO_PROMPTS.updated([odd], AT_S, WINDOW_S, MAX_BATCH).price == 0


def test_prompts_in_steps_that_mix_depths_count() -> None:
    delta = window(3, prompt=500, mixed=0.4)
    mixed = next(c for cell, c in delta.cells.items() if cell.step is StepKind.MIXED)
    more = replace(delta, transition_prefill=mixed.prefill_tokens, transition_tokens=0.0)
    before = NO_PROMPTS.updated([delta], AT_S, WINDOW_S, MAX_BATCH)
    after = NO_PROMPTS.updated([more], AT_S, WINDOW_S, MAX_BATCH)
    assert after.seconds_per_token == pytest.approx(2 * before.seconds_per_token)


def test_without_a_step_it_is_the_very_same() -> None:
    before = NO_PROMPTS.updated([window(3)], AT_S, WINDOW_S, MAX_BATCH)
    assert before.updated([replace(window(3), cells={})], AT_S + 60, WINDOW_S, MAX_BATCH) is before


def test_prompts_take_as_long_at_any_depth_so_a_gain_is_smaller_by_their_share() -> None:
    """Prompts of 2000 tokens in a tenth of the steps: half of the time is theirs."""
    windows = [window(k, prompt=2000, mixed=0.1) for k in (3, 7) for _ in range(4)]
    evidence = learned(*windows)
    prompts = evidence.prompts
    per_token = prompts.prefill_tokens / prompts.emitted_tokens
    decoding = log(length(7) / length(3)) - log(DECODE_S[7] / DECODE_S[3])

    found = gain(evidence)

    assert found.mean == pytest.approx(true_gain(per_token=per_token), abs=0.01)
    assert found.mean < 0.75 * decoding


def test_where_steps_are_full_a_draft_that_displaces_a_prompt_pays_for_it() -> None:
    """All steps are full: a step at depth 7 takes as long as at 3, and prefills 64 tokens less."""
    full = {
        k: replace_seconds(window(k, prompt=300, mixed=1.0, displaced=1.0), 0.012) for k in (3, 7)
    }
    evidence = learned(*(full[k] for k in (3, 7) for _ in range(4)))
    assert gain(evidence).upper() < 0
    naive = log(length(7) / length(3))
    assert naive > 0.2


def full_steps(
    *, waiting: float, budget: int = 400, batch: int = BATCH, depth: int = 7
) -> tuple[PodDelta, float]:
    """A window in which every step is full, and its prompt tokens for each that is emitted."""
    prompt = budget - batch * (depth + 1)
    delta = window(depth, prompt=prompt, mixed=1.0)
    running = EngineCounts(requests_running=batch, requests_waiting=waiting)
    per_token = prompt / (batch * length(depth))
    return replace(delta, token_budget=budget, engine=running), per_token


def test_where_steps_are_full_at_the_deeper_depth_alone_fewer_share_its_fixed_part() -> None:
    """So many prompts that at depth 7 only half of the requests can decode."""
    seen = [replace(window(k, prompt=300, mixed=0.3), token_budget=4000) for k in (3, 7)]
    evidence = learned(*(each for each in seen for _ in range(4)))
    roomy = gain(evidence)
    per_token = evidence.prompts.prefill_per_token
    # At depth 3 all fit.
    budget = BATCH * (4 + per_token * length(3)) + 1
    tight = replace(evidence, prompts=replace(evidence.prompts, token_budget=budget))
    fit = budget / (8 + per_token * length(7))
    assert fit < 0.9 * BATCH
    decoding = DECODE_S[7] / (BATCH * length(7))
    fixed_s = DECODE_S[7] - PRICE_S * BATCH * 8
    crowded = decoding + fixed_s / length(7) * (1 / fit - 1 / BATCH)
    before, prompts_s = DECODE_S[3] / (BATCH * length(3)), PRICE_S * per_token
    expected = log((before + prompts_s) / (crowded + prompts_s))
    assert gain(tight).mean == pytest.approx(expected, abs=0.01)
    assert gain(tight).mean < roomy.mean - 0.02


def test_requests_that_wait_for_room_share_the_fixed_part_where_there_is_more() -> None:
    full, _ = full_steps(waiting=0)
    none_waits = NO_PROMPTS.updated([full], AT_S, WINDOW_S, MAX_BATCH)
    assert none_waits.steps_are_full
    assert none_waits.crowding == pytest.approx(1)
    full, _ = full_steps(waiting=BATCH / 2)
    assert NO_PROMPTS.updated([full], AT_S, WINDOW_S, MAX_BATCH).crowding == pytest.approx(1.5)
    # No more of them than an engine schedules at once.
    assert NO_PROMPTS.updated([full], AT_S, WINDOW_S, BATCH).crowding == pytest.approx(1)
    # Where steps have room, those that wait do not wait for it.
    roomy = replace(full, token_budget=8000)
    assert NO_PROMPTS.updated([roomy], AT_S, WINDOW_S, MAX_BATCH).crowding == 1


def test_where_steps_are_full_a_shallower_depth_is_known_to_serve_more_before_it_is_tried() -> None:
    """A step takes as long at any depth, and each draft displaces a token of a prompt."""
    full, per_token = full_steps(waiting=BATCH)
    evidence = learned(*([full] * 4))
    found = evidence.gain(BATCH, 3, 7)
    assert found is not None
    # Seconds per token are as the tokens computed for each that is emitted.
    expected = log((8 / length(7) + per_token) / (4 / length(3) + per_token))
    assert found.mean == pytest.approx(expected, abs=0.02)
    assert not found.step_time_measured


def test_a_kind_of_step_that_was_not_seen_at_a_depth_is_told_from_the_other() -> None:
    """At depth 3 no step only decodes, and at 7 some do."""
    evidence = learned(
        *([window(7, prompt=500, mixed=0.4)] * 4), *([window(3, prompt=500, mixed=1.0)] * 4),
        *([window(7, prompt=500, mixed=0.4)] * 4),
    )  # fmt: skip
    assert 0 < evidence.traffic.mixed_share(BATCH) < 1
    step = evidence.step_time(BATCH, 3)
    assert step is not None
    assert step.log_seconds == pytest.approx(log(DECODE_S[3]), abs=0.02)


def replace_seconds(delta: PodDelta, step_s: float) -> PodDelta:
    """The same window, with steps of this length."""
    cells = {
        cell: replace(counts, step_seconds=counts.steps * step_s)
        for cell, counts in delta.cells.items()
    }
    return replace(delta, cells=cells)


@pytest.mark.parametrize(("answer", "worth_it"), [(15.0, False), (2000.0, True)])
def test_drafts_beyond_the_end_of_an_answer_gain_nothing(answer: float, *, worth_it: bool) -> None:
    windows = [window(k, answer=answer) for k in (3, 7) for _ in range(4)]
    evidence = learned(*(scaled_steps(each, {3: 1.0, 7: 0.88}) for each in windows))
    assert (gain(evidence).mean > 0) is worth_it


def scaled_steps(delta: PodDelta, factors: dict[int, float]) -> PodDelta:
    cells = {
        cell: replace(counts, step_seconds=counts.step_seconds * factors[cell.depth])
        for cell, counts in delta.cells.items()
    }
    return replace(delta, cells=cells)


def test_plugins_that_count_no_prompts_are_judged_by_steps_of_decodes() -> None:
    windows = [
        window(k, prompt=2000, mixed=0.1, counts_prompts=False) for k in (3, 7) for _ in range(4)
    ]
    evidence = learned(*windows)
    decoding = log(length(7) / length(3)) - log(DECODE_S[7] / DECODE_S[3])
    assert not evidence.prompts.known
    assert gain(evidence).mean == pytest.approx(decoding, abs=0.01)


def test_of_a_mixed_fleet_those_that_count_tell_the_price_and_the_others_decodes_alone() -> None:
    new = window(3, prompt=2000, mixed=0.5)
    old = replace(window(3, prompt=9000, mixed=0.5, counts_prompts=False), pod="pod-1")
    prompts = NO_PROMPTS.updated([new, old], AT_S, WINDOW_S, MAX_BATCH)
    alone = NO_PROMPTS.updated([new], AT_S, WINDOW_S, MAX_BATCH)
    times = step_filter.updated(StepTimes(), [new, old], prompts)
    mixed = [each for each in times.cells if each.step is StepKind.MIXED]

    assert prompts == alone
    assert len(mixed) == 1
    assert mixed[0].log_seconds == pytest.approx(log(DECODE_S[3] + 2000 * PRICE_S), abs=0.02)


def test_what_was_measured_at_other_prompts_holds_at_these() -> None:
    """Prompts grow fourfold; depth 7 was measured before that alone."""
    early = [window(k, prompt=500, mixed=0.5) for k in (7, 7, 7, 3, 3)]
    late = [window(3, prompt=2000, mixed=0.5) for _ in range(12)]
    evidence = learned(*early, *late)
    table = StepTable(evidence.step_times, evidence.now_s, price=evidence.prompts.price)
    mixed = {k: table.estimate(BATCH, k, StepKind.MIXED) for k in (3, 7)}
    for depth, found in mixed.items():
        assert found is not None
        assert found.measured
        assert found.log_seconds == pytest.approx(log(DECODE_S[depth]), abs=0.06), depth


def test_an_older_operator_s_mixed_steps_are_dropped_once_prompts_are_counted() -> None:
    old = step_filter.updated(
        StepTimes(), [window(3, prompt=9000, mixed=0.5, counts_prompts=False)]
    )
    new = window(3, prompt=2000, mixed=0.5, at_s=AT_S + WINDOW_S)
    prompts = NO_PROMPTS.updated([new], AT_S + WINDOW_S, WINDOW_S, MAX_BATCH)
    times = step_filter.updated(old, [new], prompts)
    mixed = next(each for each in times.cells if each.step is StepKind.MIXED)
    assert mixed.log_seconds == pytest.approx(log(DECODE_S[3] + 2000 * PRICE_S), abs=0.02)


def test_a_request_waits_for_the_prompts_of_others_too() -> None:
    evidence = learned(*(window(3, prompt=1000, mixed=0.2) for _ in range(6)))
    step_s = DECODE_S[3] + 0.2 * 1000 * PRICE_S
    assert evidence.tpot_seconds(BATCH, 3) == pytest.approx(step_s / length(3), rel=0.03)


def test_what_an_engine_can_serve_has_its_prompts_in_it() -> None:
    evidence = learned(*(window(3, prompt=1000, mixed=0.2) for _ in range(6)))
    seconds = evidence.seconds_per_token(BATCH, 3)
    step_s = DECODE_S[3] + 0.2 * 1000 * PRICE_S
    assert seconds == pytest.approx(step_s / (BATCH * length(3)), rel=0.03)


def test_how_long_answers_are_is_not_said_of_a_few() -> None:
    assert replace(Prompts(), emitted_tokens=900.0, finished=3.0).answer_tokens is None
    assert replace(Prompts(), emitted_tokens=9000.0, finished=30.0).answer_tokens == 300


@pytest.mark.parametrize(("share", "told"), [(0.0, True), (0.01, True), (0.1, False)])
def test_where_many_prompts_are_read_again_it_is_not_told_what_users_gain(
    share: float, *, told: bool
) -> None:
    """Fewer are preempted at a deeper depth; by how much, nobody counts."""
    each = window(3, prompt=1000, mixed=0.2)
    preempted = share * each.engine.finished_requests
    each = replace(each, engine=replace(each.engine, preemptions=preempted))
    evidence = learned(*(each for _ in range(6)))

    assert evidence.tells_gain is told
    assert evidence.tells_value
