"""Where a bench stands, and how long it will take, shown to whoever waits."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

import pytest
from rich.console import Console

from fathom.bench.log import Heard, heard, progress
from support.loop_harness import ManualClock
from unit.bench.benches import log, result_line

PLAN = '{"said":"plan","at":100.0,"runs":5,"engines":[4,1]}'


def starting(at_s: float, *, drafts: bool = True) -> str:
    return f'{{"said":"starting","at":{at_s},"drafts":{str(drafts).lower()}}}'


def running(at_s: float, depth: str = "3") -> str:
    said = f'{{"said":"running","at":{at_s},"data":"chats","concurrency":1,"depth":{depth}'
    return f'{said},"prompts":8}}'


def result(at_s: float) -> str:
    return result_line(3, 10.0).replace("{", f'{{"at":{at_s},', 1)


def failed(at_s: float, data: str = "") -> str:
    return f'{{"said":"failed","at":{at_s},"data":"{data}","why":"no."}}'


def standing(*lines: str, under_way_s: float = 0.0) -> tuple[int, str]:
    """Runs that are over, and the time that is left."""
    told = heard(log(*lines))
    return told.done, told.left(under_way_s)


def test_the_time_that_is_left_has_the_runs_and_starts_to_come() -> None:
    ended = (PLAN, starting(100.0), running(700.0), result(820.0))

    # 4 runs of 2 minutes, and a start of 10.
    assert standing(*ended) == (1, ", about 18 min left")
    assert standing(*ended, running(820.0), result(1060.0)) == (2, ", about 19 min left")


def test_it_gets_less_while_a_run_or_a_start_is_under_way() -> None:
    run = (PLAN, starting(100.0), running(700.0), result(820.0), running(820.0))
    assert standing(*run, under_way_s=60.0) == (1, ", about 17 min left")
    # One that takes longer than the others: nothing is known of its end.
    assert standing(*run, under_way_s=6000.0) == (1, ", about 16 min left")

    others = (
        line for at_s in (820.0, 940.0, 1060.0) for line in (running(at_s), result(at_s + 120.0))
    )
    second = (*run[:4], *others, starting(1180.0, drafts=False))
    assert standing(*second)[0] == 4
    assert standing(*second, under_way_s=300.0)[1] == ", about 7 min left"


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (PLAN,),
        (PLAN, starting(100.0)),
        (PLAN, starting(100.0), running(700.0)),
        # An earlier program says no times.
        ('{"said":"plan","runs":5}', result_line(3, 10.0)),
    ],
)
def test_before_a_run_has_ended_it_is_not_known(lines: tuple[str, ...]) -> None:
    assert standing(*lines)[1] == ""


def test_a_run_that_failed_is_over_and_says_nothing_of_how_long_one_takes() -> None:
    lines = (PLAN, starting(100.0), running(160.0), failed(161.0, "chats"))
    assert standing(*lines) == (1, "")
    assert standing(*lines, running(161.0), result(221.0)) == (2, ", about 4 min left")


def test_the_runs_of_an_engine_that_fails_are_over() -> None:
    lines = (PLAN, starting(100.0), running(160.0), result(220.0), failed(230.0))
    assert standing(*lines) == (4, ", about 2 min left")


def test_a_run_whose_result_is_not_understood_is_over() -> None:
    unclear = result(220.0).replace("mean_tpot_ms", "mean_tpot")
    lines = (PLAN, starting(100.0), running(160.0), unclear, running(220.0), result(280.0))
    assert standing(*lines) == (2, ", about 4 min left")


def test_when_the_last_run_ends_is_not_known_once_it_takes_longer_than_the_others() -> None:
    plan = '{"said":"plan","at":100.0,"runs":2,"engines":[2]}'
    last = (plan, starting(100.0), running(160.0), result(220.0), running(220.0))
    assert standing(*last, under_way_s=40.0) == (1, ", about 20 s left")
    assert standing(*last, under_way_s=60.0) == (1, "")
    assert standing(*last, result(300.0), '{"said":"end","at":300.0}') == (2, "")


def test_a_file_gets_a_line_for_each_new_thing() -> None:
    output = StringIO()
    with progress(Console(file=output, width=40), ManualClock().now_s) as tell:
        for now, runs in (("waits", None), ("waits", None), ("random 64 [1]", 6)):
            tell(Heard(runs=runs, now=now))

    assert output.getvalue() == "waits\n[0/6] random 64 [1]\n"


RUNS = (PLAN, starting(100.0), running(700.0), result(820.0), running(820.0, "1"))


@contextmanager
def minute_by_minute(console: Console) -> Iterator[None]:
    """Tells of the same run now, and a minute later."""
    clock, told = ManualClock(), heard(log(*RUNS))
    with progress(console, clock.now_s) as tell:
        tell(told)
        clock.at_s += 60.0
        tell(told)
        yield


def test_a_file_gets_the_time_that_is_left_once_for_each_run() -> None:
    output = StringIO()
    with minute_by_minute(Console(file=output)):
        pass

    assert output.getvalue() == (
        "[1/5] chats, 1 at a time, depth 1: 8 requests, about 18 min left\n"
    )


def test_a_terminal_gets_a_bar_on_which_the_time_goes_down() -> None:
    output = StringIO()
    with minute_by_minute(Console(file=output, width=120, force_terminal=True)):
        pass

    assert "1/5" in output.getvalue()
    assert "depth 1: 8 requests, about 17 min left" in output.getvalue()
