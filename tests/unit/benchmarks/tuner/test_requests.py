"""The worlds of whole requests: an engine that loses none, and counts what the plugin counts."""

from pathlib import Path

import pytest
import typer
from rich.console import Console

from benchmarks.tuner.command import bench_tuner_command
from benchmarks.tuner.requests.arrivals import arrive
from benchmarks.tuner.requests.bar import at_one_depth, best_schedule, ran
from benchmarks.tuner.requests.engine import RequestEngine
from benchmarks.tuner.requests.fleet import TunedFleet, engines
from benchmarks.tuner.requests.random_worlds import random_request_world
from benchmarks.tuner.requests.run import run_requests
from benchmarks.tuner.requests.score import score
from benchmarks.tuner.requests.state import new_state, with_more_room
from benchmarks.tuner.requests.table import request_table
from benchmarks.tuner.requests.world import (
    Change,
    RequestWorld,
    TrafficPart,
    load,
    parse,
    shipped,
)
from benchmarks.tuner.worlds.errors import WorldError
from fathom.engine.depth import depth_at
from fathom.measurement.counters import StepKind

PLAIN_STEPS = """
[hardware]
overhead_ms = 0
weights_ms = 0
token_us = 1
attention_ns = 0
knee = 1
draft_ms = 0
draft_token_ms = 0
draft_request_us = 0
noise = 0
"""
"""Steps of one microsecond for each token that they verify or prefill."""

FLOOD = """
[engine]
max_batch = 32
token_budget = 256
[traffic]
load = 40
[[classes]]
prompt = 400
answer = 60
"""


def engine(text: str, *, depth: int = 3, seconds: float = 60.0) -> RequestEngine:
    (only,) = engines(parse(text, "tried"), seed=1, depth=depth)
    only.advance(seconds)
    return only


def drained(text: str, *, depth: int = 3) -> tuple[RequestEngine, int, int]:
    """An engine that has served all that came at once; tokens of their answers, and of prompts."""
    world = parse(text, "tried")
    once = TrafficPart(load=world.traffic.load, changes=(Change(at_minutes=1e-6, load=1e-9),))
    world = world.model_copy(update={"traffic": once})
    (running,) = engines(world, seed=1, depth=depth)
    alike = new_state(
        world, hardware=world.hardware, text=None, depth=depth, arrivals_seed=1000, seed=1
    )
    while not arrive(alike):
        alike = with_more_room(alike)
    drawn = alike.queue[: alike.now["waiting"][0]]
    running.advance(60.0)
    return running, int(drawn["answer"].sum()), int(drawn["prompt"].sum())


@pytest.mark.parametrize(
    "setting",
    [
        "asynchronous = true",
        "asynchronous = false",
        "kv_tokens = 3000",
        "kv_tokens = 3000\nasynchronous = false",
        "prefix_hits = [0.5]",
    ],
)
def test_every_request_gets_its_answer_and_not_a_token_more(setting: str) -> None:
    text = FLOOD.replace("[traffic]", f"{setting}\n[traffic]")
    running, meant, _prompts = drained(text.replace("load = 40", "load = 90"))
    served, counters = running.served, running.counters()

    assert (served.finished, running.waiting) == (90, 0)
    assert counters.engine.requests_running == 0
    assert served.tokens == served.finished_tokens == meant
    assert len(served.first_token_s) == 90


def test_every_token_is_counted_in_a_cell_or_in_a_transition() -> None:
    running = engine(FLOOD, seconds=10)
    running.table = [1 + 6 * (batch % 2) for batch in range(len(running.table))]
    running.advance(20)
    counters = running.counters()
    cells = counters.cells.values()

    assert counters.transition_tokens > 0
    assert sum(each.tokens for each in cells) > 0
    assert (
        counters.transition_tokens + sum(each.tokens for each in cells)
        == counters.engine.generation_tokens
        == running.served.tokens
    )
    assert counters.transition_seconds + sum(each.step_seconds for each in cells) == pytest.approx(
        running.served.busy_s
    )


def test_no_step_holds_more_than_the_token_budget() -> None:
    text = FLOOD.replace("max_batch = 32", "max_batch = 40").replace("prompt = 400", "prompt = 40")
    (running,) = engines(parse(text + PLAIN_STEPS, "tried"), seed=1, depth=1)
    tokens = []
    for step in range(2000):
        if step == 1000:  # 40 requests at depth 7 want more than 256
            running.table = [7] * len(running.table)
        before = running.served.busy_s
        running.advance(running.now_s + 1e-9)
        tokens.append(round(1e6 * (running.served.busy_s - before)))
    assert max(tokens) == 256
    assert sorted(tokens[1000:])[500] > 240


def test_where_drafts_do_not_fit_some_are_cut_and_others_wait() -> None:
    # At depth 7 ten requests need 80 tokens.
    text = "[engine]\nmax_batch = 10\ntoken_budget = 35\n[traffic]\nload = 10\n"
    counters = engine(text, depth=7, seconds=20).counters()
    verified = [counts for cell, counts in counters.cells.items() if cell.step is StepKind.DECODE]

    assert counters.transition_steps > 0.9 * sum(each.steps for each in verified)
    assert all(each.scheduled_requests <= 4 * each.steps for each in verified)


def test_a_deep_draft_displaces_prompts() -> None:
    def prefill_of_a_step(depth: int) -> float:
        cells = engine(FLOOD, depth=depth).counters().cells
        mixed = [each for cell, each in cells.items() if cell.step is StepKind.MIXED]
        return sum(each.prefill_tokens for each in mixed) / sum(each.steps for each in mixed)

    assert prefill_of_a_step(7) < prefill_of_a_step(1) - 20


def test_a_request_is_in_one_step_more_than_it_needs_under_asynchronous_scheduling() -> None:
    alone = "[traffic]\nload = 1\n[[classes]]\nprompt = 9\nanswer = 4\nanswer_spread = 0\n"

    def batches(text: str) -> float:
        running, _, _ = drained(text, depth=0)
        return sum(each.scheduled_requests for each in running.counters().cells.values())

    assert batches("[engine]\nasynchronous = false\n" + alone) == 4
    assert batches(alone) == 4 + 1


def test_of_requests_that_have_ended_no_draft_is_counted() -> None:
    alone = "[traffic]\nload = 1\n[[classes]]\nprompt = 9\n"
    counters = drained(alone)[0].counters()
    batches = sum(each.scheduled_requests for each in counters.cells.values())
    # One is the prompt's, and one comes after the end.
    assert counters.engine.drafts == batches - 2
    assert sum(each.drafts for each in counters.drafts.values()) == batches - 2


def test_a_step_after_a_change_of_depth_is_a_transition() -> None:
    running = engine("[traffic]\nload = 4\n[[classes]]\nanswer = 5000\n", seconds=5)
    before = running.counters().transition_steps
    running.table = [5] * len(running.table)
    running.advance(10)
    assert running.counters().transition_steps == before + 1


def test_what_a_stall_took_is_in_no_cell() -> None:
    text = "stalls = { 7 = 3 }\n[traffic]\nload = 4\n[[classes]]\nanswer = 50000\nprompt = 10\n"
    running = engine(text, seconds=5)
    running.table = [7] * len(running.table)
    running.advance(15)
    cells = running.counters().cells
    (deep,) = (each for cell, each in cells.items() if cell.depth == 7)
    assert running.served.busy_s > 15
    assert deep.step_seconds / deep.steps < 0.03
    counted_s = running.counters().transition_seconds + sum(
        each.step_seconds for each in cells.values()
    )
    assert running.served.busy_s - counted_s == pytest.approx(3, abs=0.01)


def test_a_chunk_of_one_token_looks_like_a_decode_without_drafts() -> None:
    # One prompt of 9 tokens, in a step of 8 and one of 1: the plugin takes that for a transition.
    text = (
        "[engine]\ntoken_budget = 8\n[traffic]\nload = 1\n"
        "[[classes]]\nprompt = 9\nprompt_spread = 0\nanswer = 2\nanswer_spread = 0\n"
    )
    deep, shallow = (drained(text, depth=depth)[0].counters() for depth in (3, 0))
    assert (deep.transition_steps, deep.transition_prefill, deep.transition_tokens) == (1, 0, 1)
    assert shallow.transition_steps == 0
    assert sum(each.prefill_tokens for each in shallow.cells.values()) == 8


def test_what_is_preempted_begins_anew() -> None:
    small = FLOOD.replace("token_budget = 256", "token_budget = 256\nkv_tokens = 3000")
    (roomy, _, prompts), (full, _, _) = drained(FLOOD), drained(small)
    assert roomy.counters().engine.prompt_tokens == prompts
    assert full.counters().engine.prompt_tokens > 1.02 * prompts


def test_without_chunks_a_prompt_waits_for_a_step_that_holds_it_whole() -> None:
    whole = FLOOD.replace("token_budget = 256", "token_budget = 2048\nchunked_prefill = false")
    assert engine(whole).served.finished > 100


def test_what_is_cached_is_not_prefilled() -> None:
    cached = FLOOD.replace("[traffic]", "prefix_hits = [0.9]\n[traffic]")
    plain, less = engine(FLOOD), engine(cached)
    assert (
        less.counters().engine.prompt_tokens / less.served.finished
        < plain.counters().engine.prompt_tokens / plain.served.finished / 4
    )


def test_at_each_depth_the_same_requests_come() -> None:
    text = '[traffic]\nmode = "open"\nload = 3\n[[classes]]\nanswer = 40\n'
    shallow, deep = (engine(text, depth=depth, seconds=60) for depth in (1, 7))
    assert abs(shallow.served.finished - deep.served.finished) < 5
    assert abs(shallow.served.finished_tokens - deep.served.finished_tokens) < 500


def test_acceptance_is_that_of_each_position() -> None:
    text = (
        "[traffic]\nload = 200\n[[classes]]\nacceptance = [0.9, 0.5, 0.2]\n"
        "prompt = 10\nanswer = 900\n"
    )
    counts = engine(text, depth=4, seconds=10).counters().drafts.values()
    drafts = sum(each.drafts for each in counts)
    reached = [sum(each.accepted[at] for each in counts) / drafts for at in range(4)]
    assert reached == pytest.approx([0.9, 0.45, 0.09, 0.018], abs=0.01)


def test_after_a_change_as_many_are_in_flight_as_it_says() -> None:
    text = "[traffic]\nload = 3\nchanges = [{ at_minutes = 0.1, load = 20 }]\n"
    assert engine(text, seconds=5).counters().engine.requests_running < 5
    assert engine(text, seconds=8).counters().engine.requests_running >= 20


def test_arrivals_do_not_sleep_through_a_change() -> None:
    text = (
        '[traffic]\nmode = "open"\nload = 1e-9\nchanges = [{ at_minutes = 1, load = 10 }]\n'
        "[[classes]]\nanswer = 5\n"
    )
    assert engine(text, seconds=59).served.finished == 0
    assert engine(text, seconds=120).served.finished == pytest.approx(600, abs=120)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[engine]\nbudget = 3", "engine.budget"),
        ("[fleet]\ntokens = 2", "depths must name tokens"),
        ("[[classes]]\nacceptance = [0.5, 1.5]", "less than 1"),
        ('[[pods]]\ntext = "none"', "no such class"),
        ("stalls = { deep = 3 }", "stalls maps a depth"),
        ("[engine", "is not TOML"),
    ],
)
def test_a_mistake_in_a_file_is_a_sentence(text: str, said: str) -> None:
    with pytest.raises(WorldError, match=said):
        parse(text, "wrong")


def test_a_world_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(WorldError, match="There is no world nowhere"):
        load("nowhere")


def test_all_shipped_worlds_can_be_read() -> None:
    worlds = [load(each) for each in shipped()]
    assert len(worlds) > 10
    assert all(each.about for each in worlds)


def test_worlds_drawn_at_random_are_always_the_same_and_serve() -> None:
    worlds = [random_request_world(number) for number in range(1, 41)]
    assert worlds == [random_request_world(number) for number in range(1, 41)]
    assert {each.traffic.mode for each in worlds} == {"open", "closed"}
    for world in worlds:
        running = engines(world, seed=1, depth=world.fleet.tokens)
        for each in running:
            each.advance(60)
        assert sum(each.served.finished for each in running), world.name


@pytest.fixture(scope="module")
def small() -> RequestWorld:
    text = "[fleet]\nhours = 0.05\n[traffic]\nload = 8\n[hardware]\nweights_ms = 20\n"
    text += "[engine]\nmax_batch = 16\n"
    return parse(text, "small")


def test_a_score_holds_what_is_said_against_the_truth(small: RequestWorld) -> None:
    found = score(small, seed=1)
    assert found.best_schedule == (7,) * 5
    assert found.vs_tokens > 0.03
    assert found.vs_best < 0
    assert found.gain_said is not None
    assert found.gain_said == pytest.approx(found.gain_true, abs=0.06)
    shown = Console(width=130, record=True)
    long = found.model_copy(update={"world": "saturated-short-prompts"})
    shown.print(request_table([found, long]))
    text = shown.export_text()
    assert f"{100 * found.gain_said:+.1f}/{100 * found.gain_true:+.1f}" in text
    assert f"±{100 * found.gpu_share_half_width:.1f}/" in text
    assert "…" not in text


def test_the_best_schedule_is_deep_for_few_requests_and_shallow_for_many() -> None:
    text = (
        "[fleet]\nhours = 0.04\n[engine]\nmax_batch = 64\n[hardware]\ntoken_us = 60\n"
        "[traffic]\nload = 2\nchanges = [{ at_minutes = 1.5, load = 64 }]\n"
        "[[classes]]\nacceptance = 0.8\nprompt = 20\nanswer = 100\n"
    )
    world = parse(text, "busier")
    best = best_schedule(world, 1, ran(world, 1, at_one_depth(world, world.fleet.tokens)))
    assert (best.depths[1], best.depths[6]) == (7, 1)
    for depth in world.fleet.allowed:
        assert ran(world, 1, at_one_depth(world, depth)).finished_tokens < best.finished_tokens


def test_headroom_is_what_the_engines_make_beyond_this_when_requests_always_wait() -> None:
    waiting = "[fleet]\nhours = 0.02\n[engine]\nmax_batch = 4\n[traffic]\nload = 8\n"
    (full, idle) = (score(parse(text, "x"), 1) for text in (waiting, waiting.replace("8", "1")))
    assert full.headroom_true is not None
    assert idle.headroom_true is not None
    made = full.tuned.finished_tokens / (0.02 * 3600)
    assert full.headroom_true < 0.1 * made
    assert idle.headroom_true == pytest.approx(0.7 * made, rel=0.15)


def test_a_world_that_is_over_before_anything_is_done_is_a_sentence() -> None:
    with pytest.raises(WorldError, match="World brief serves too little"):
        score(parse("[fleet]\nhours = 0.00001", "brief"), 1)


def test_options_of_other_worlds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        bench_tuner_command(requests=True, graphs=True)
    assert "--requests takes neither" in capsys.readouterr().err


def test_worlds_have_names_of_their_own() -> None:
    with pytest.raises(WorldError, match="names of their own: burst, burst"):
        run_requests(
            worlds=["burst", "burst"],
            seeds=[1],
            json_file=None,
            jobs=1,
            console=Console(width=130),
        )


def test_the_figures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "world.toml"
    file.write_text("[fleet]\nhours = 0.01\n[traffic]\nload = 2\n")
    run_requests(
        worlds=[str(file)],
        seeds=[1],
        json_file=tmp_path / "figures.json",
        jobs=1,
        console=Console(width=130),
    )
    assert '"world": "world"' in (tmp_path / "figures.json").read_text()
    assert "world" in capsys.readouterr().out


def test_the_tuner_does_not_go_deeper_for_requests_that_are_soon_gone() -> None:
    seconds = 600.0
    world = load("two-texts")
    (fixed,) = engines(world, seed=1, depth=world.fleet.tokens)
    fixed.advance(seconds)
    fleet = TunedFleet(world, seed=1)
    fleet.run(seconds)
    (tuned,) = fleet.engines
    assert tuned.served.finished_tokens > 0.99 * fixed.served.finished_tokens


def test_where_prompts_fill_every_step_the_tuner_goes_shallower_and_says_what_that_brings() -> None:
    world = load("saturated-short-prompts")
    rates: dict[int, float] = {}
    for depth in (1, world.fleet.tokens):
        (fixed,) = engines(world, seed=1, depth=depth)
        fixed.advance(180)
        rates[depth] = fixed.served.tokens / fixed.served.busy_s
    fleet = TunedFleet(world, seed=1)
    fleet.run(180)
    assert fleet.document is not None
    assert depth_at(fleet.document.schedule, 250) == 1
    assert fleet.state.measured is not None
    true = rates[1] / rates[world.fleet.tokens] - 1
    assert true > 0.06
    assert fleet.state.measured.gain == pytest.approx(true, abs=0.03)
