"""The worlds of whole requests: an engine that loses none, and counts what the plugin counts."""

from pathlib import Path

import pytest
from rich.console import Console

from fathom.core.measurement import StepKind
from fathom_bench.tuner.requests.engine import RequestEngine
from fathom_bench.tuner.requests.fleet import engines
from fathom_bench.tuner.requests.run import run_requests
from fathom_bench.tuner.requests.score import score
from fathom_bench.tuner.requests.table import request_table
from fathom_bench.tuner.requests.world import RequestWorld, load, parse, shipped
from fathom_bench.tuner.worlds.errors import WorldError

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


def tokens_of(running: RequestEngine) -> float:
    """All that the plugin counted as emitted."""
    counters = running.counters()
    return counters.transition_tokens + sum(each.tokens for each in counters.cells.values())


@pytest.mark.parametrize("asynchronous", [True, False])
def test_what_reaches_users_is_what_is_counted(*, asynchronous: bool) -> None:
    running = engine(
        FLOOD.replace("[traffic]", f"asynchronous = {str(asynchronous).lower()}\n[traffic]")
    )
    served = running.served

    assert served.finished > 100
    assert tokens_of(running) == served.tokens
    # All but the answers that are under way.
    assert served.finished_tokens <= served.tokens <= served.finished_tokens + 32 * 400


def test_every_answer_is_as_long_as_it_was_meant_to_be() -> None:
    running = engine(FLOOD.replace("answer = 60", "answer = 60\nanswer_spread = 0"))
    assert running.served.finished_tokens == 60 * running.served.finished


def test_no_step_holds_more_than_the_token_budget() -> None:
    counters = engine(FLOOD).counters()
    for cell, counts in counters.cells.items():
        most = 256 * counts.steps
        assert counts.prefill_tokens <= most
        if cell.step is StepKind.DECODE:
            assert counts.scheduled_requests * (cell.depth + 1) <= most


def test_a_deep_draft_displaces_prompts() -> None:
    def prefill_of_a_step(depth: int) -> float:
        cells = engine(FLOOD, depth=depth).counters().cells
        mixed = [each for cell, each in cells.items() if cell.step is StepKind.MIXED]
        return sum(each.prefill_tokens for each in mixed) / sum(each.steps for each in mixed)

    assert prefill_of_a_step(7) < prefill_of_a_step(1) - 20


def test_a_request_is_in_one_step_more_than_it_needs_under_asynchronous_scheduling() -> None:
    alone = "[traffic]\nload = 1\n[[classes]]\nprompt = 1\nanswer = 1\nanswer_spread = 0\n"

    def steps(text: str) -> float:
        running = engine(text, depth=0, seconds=5)
        cells = running.counters().cells.values()
        return sum(each.steps for each in cells) / running.served.finished

    assert steps("[engine]\nasynchronous = false\n" + alone) == pytest.approx(1, abs=0.01)
    assert steps(alone) == pytest.approx(1.5, abs=0.51)


def test_a_step_after_a_change_of_depth_is_a_transition() -> None:
    running = engine("[traffic]\nload = 4\n[[classes]]\nanswer = 5000\n", seconds=5)
    before = running.counters().transition_steps
    running.table = [5] * len(running.table)
    running.advance(10)
    assert running.counters().transition_steps == before + 1


def test_a_stall_is_counted_in_no_cell() -> None:
    text = "stalls = { 7 = 3 }\n[traffic]\nload = 4\n[[classes]]\nanswer = 50000\nprompt = 10\n"
    running = engine(text, seconds=5)
    running.table = [7] * len(running.table)
    running.advance(15)
    cells = running.counters().cells
    (deep,) = (each for cell, each in cells.items() if cell.depth == 7)
    assert running.served.busy_s > 15
    assert deep.step_seconds / deep.steps < 0.03


def test_what_is_preempted_begins_anew_and_is_not_lost() -> None:
    running = engine(FLOOD.replace("token_budget = 256", "token_budget = 256\nkv_tokens = 3000"))
    prefilled = running.counters().engine.prompt_tokens
    assert running.served.finished > 50
    assert prefilled > 400 * (running.served.finished + 40)


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
    shallow, deep = (engine(text, depth=depth, seconds=300) for depth in (1, 7))
    assert abs(shallow.served.finished - deep.served.finished) < 5
    assert abs(shallow.served.finished_tokens - deep.served.finished_tokens) < 500


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[engine]\nbudget = 3", "engine.budget"),
        ("[fleet]\ntokens = 2", "depths must name tokens"),
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


@pytest.fixture(scope="module")
def small() -> RequestWorld:
    return parse("[fleet]\nhours = 0.05\n[traffic]\nload = 8\n", "small")


def test_a_score_holds_what_is_said_against_the_truth(small: RequestWorld) -> None:
    found = score(small, seed=1)
    assert set(found.static) == {1, 3, 7}
    assert found.vs_tokens > 0.03
    assert found.vs_best < 0
    assert found.gain_said is not None
    assert found.gain_said == pytest.approx(found.gain_true, abs=0.06)
    assert request_table([found]).row_count == 1


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
