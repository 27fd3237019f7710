"""What the demo shows while it runs, and at its end."""

import io

from rich.console import Console

from fathom.engine.depth import DepthRange, flat
from local_cluster.demo.measure import Comparison, Slice, Turns
from local_cluster.demo.observe import Frame
from local_cluster.demo.phases import SCENES
from local_cluster.demo.verdict import Claim
from local_cluster.demo.view import (
    LINE_EVERY_SECONDS,
    DemoView,
    bar,
    claim_lines,
    depth_bars,
    sparkline,
    speed_table,
)

PHASE = SCENES[0].phase
SCHEDULE = (DepthRange(1, 1, 7), DepthRange(2, 4, 5), DepthRange(5, 16, 3))


def console(*, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=100, force_terminal=terminal, color_system=None)


def shown(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def frame(tokens_per_second: float = 812.0, why: str = "") -> Frame:
    return Frame(
        tokens_per_second=tokens_per_second,
        schedule=SCHEDULE,
        overridden_pods=0,
        why=why,
    )


def test_a_decision_is_a_line_that_stays_and_is_said_once() -> None:
    on = console()
    view = DemoView(on, clock=lambda: 0.0)
    for _ in range(2):
        view.frame(frame(why="7 is 20 % faster than 3"))
    assert shown(on).count("why: 7 is 20 % faster than 3") == 1


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    clock = [0.0]
    on = console()
    view = DemoView(on, clock=lambda: clock[0])
    view.traffic(PHASE, 2)
    view.doing("waits for a deeper depth")
    for _ in range(4):
        view.frame(frame())
        clock[0] += LINE_EVERY_SECONDS / 2 + 1
    lines = [line for line in shown(on).splitlines() if "tokens per second" in line]
    assert len(lines) == 2
    assert (
        "easy × 4: depth 7 at 1, 5 at 2-4, 3 beyond, 812 tokens per second; waits for" in lines[0]
    )


def test_on_a_terminal_depth_by_batch_rate_reason_and_page_are_in_sight() -> None:
    on = console(terminal=True)
    with DemoView(on) as view:
        view.page("http://10.96.0.7/resources/llm/eagle")
        view.traffic(PHASE, 2)
        view.frame(frame(400.0))
        view.frame(frame(why="5 is 20 % faster than 3"))
        view.doing("waits for a deeper depth")
        on.print(view.panel())
    for each in (
        "traffic: easy × 4",
        "2-4 ██████████ 5",
        "55",
        "▄█ 812",
        "5 is 20 % faster than 3",
        "http://10.96.0.7/resources/llm/eagle",
        "waits for a deeper depth",
    ):
        assert each in shown(on), each


def test_a_bar_for_each_range_of_batches_with_a_depth_of_its_own() -> None:
    assert [str(each) for each in depth_bars(SCHEDULE)] == [
        "    1 ██████████████ 7",
        "  2-4 ██████████ 5",
        "   5+ ██████ 3",
    ]
    assert [str(each) for each in depth_bars(flat(3, 16))] == ["   1+ ██████ 3"]


def test_bars_are_drawn_to_the_eighth_of_a_character() -> None:
    assert bar(10, 10, 4) == "████"
    assert bar(5, 10, 5) == "██▌"
    assert bar(0, 10) == bar(1, 0) == ""
    assert sparkline([1, 4, 8]) == "▂▅█"
    assert sparkline([0.0]) == ""


def compared(threads: float | None) -> Comparison:
    tuned = Slice(832.0, threads and threads * 1.25)
    turns = Turns((tuned, tuned), (Slice(660.0, threads),) * 2)
    return Comparison(phase=PHASE, depth=7, static_depth=3, turns=turns)


def test_a_comparison_that_is_not_over_is_a_pair_of_bars() -> None:
    on = console(terminal=True)
    view = DemoView(on)
    view.frame(frame())
    view.compare(Turns(), 6)
    on.print(view.panel())
    assert "slice 1 of 12" in shown(on)
    assert "static" not in shown(on).replace("tuned and static in turn", "")
    view.compare(compared(1000.0).turns, 6)
    on.print(view.panel())
    assert "slice 5 of 12" in shown(on)
    assert f"tuned              {'█' * 24} 1250 per processor second" in shown(on)
    assert "1000 per processor second" in shown(on)


def test_without_a_terminal_it_is_a_number_for_each() -> None:
    on = console()
    view = DemoView(on, clock=lambda: 0.0)
    view.compare(compared(1000.0).turns, 6)
    view.frame(frame())
    assert "slice 5 of 12; tuned 1250, static 1000 tokens per processor second so far" in shown(on)


def test_the_gain_is_a_pair_of_bars_with_both_measures() -> None:
    on = console()
    on.print(speed_table([compared(1000.0)], 3))
    text = shown(on)
    assert "tokens per processor second" in text
    static, tuned = (line.split() for line in text.splitlines() if "█" in line)
    assert (static[3:5], static[-2:]) == (["static", "3"], ["1000", "660"])
    assert (tuned[:2], tuned[-2:]) == (["tuned", "7"], ["1250", "832"])
    assert len(static[5]) < len(tuned[2]) == 24


def test_where_processor_seconds_are_not_known_wall_time_is_shown_once() -> None:
    on = console()
    on.print(speed_table([compared(None)], 3))
    assert "processor" not in shown(on)
    assert shown(on).count("832") == 1


def test_what_is_not_clear_is_marked_as_neither_held_nor_refuted() -> None:
    on = console()
    on.print(claim_lines([Claim(str(holds), holds) for holds in (True, False, None)]))
    assert shown(on).splitlines() == ["✔ True", "✘ False", "? None"]
