"""What engines without processes show is what the operator reads of real ones."""

from benchmarks.scale.played.engine import MAX_BATCH, MAX_DEPTH, PlayedEngine
from fathom.adapters.metrics_page import parse
from fathom.adapters.series import FAMILIES
from fathom.engine.depth import DepthDocument, flat
from fathom.measurement.counters import PodCounters

NOW_S = 1_800_000_000.0


def engine() -> PlayedEngine:
    return PlayedEngine("pod", phase=0.0, now_s=NOW_S)


def look(played: PlayedEngine, after_s: float) -> PodCounters:
    return parse(played.page(NOW_S + after_s), pod="pod", at_s=NOW_S + after_s)


def test_a_page_is_as_large_as_a_busy_engines_and_shows_all_that_is_read() -> None:
    page = engine().page(NOW_S)
    series = [line for line in page.splitlines() if not line.startswith("#")]
    assert 1000 < len(series) < 1400
    assert 80 * 1024 < len(page.encode()) < 110 * 1024
    shown = {line.partition("{")[0].partition(" ")[0] for line in series}
    assert FAMILIES - shown == set()


def test_nothing_moves_without_traffic() -> None:
    played = engine()
    assert look(played, 0).cells == look(played, 60).cells
    assert look(played, 60).engine.requests_running == 0


def test_under_traffic_the_cells_of_the_depth_in_force_move() -> None:
    played = engine()
    before = look(played, 0)
    played.obey(DepthDocument(generation=9, schedule=flat(5, MAX_BATCH)).to_json())
    played.set_traffic(busy=True, now_s=NOW_S)
    after = look(played, 30)
    assert after.depth_generation == 9
    assert after.live_depth
    moved = {
        cell.depth
        for cell, counts in after.cells.items()
        if counts.steps > before.cells[cell].steps
    }
    assert moved == {5}
    assert after.engine.generation_tokens > before.engine.generation_tokens
    busy_s = sum(each.step_seconds for each in after.cells.values()) - sum(
        each.step_seconds for each in before.cells.values()
    )
    assert 25 < busy_s < 35
    assert after.engine.requests_running > 0


def test_of_each_draft_no_position_is_accepted_more_often_than_the_one_before() -> None:
    for counts in look(engine(), 0).drafts.values():
        assert list(counts.accepted) == sorted(counts.accepted, reverse=True)
        assert counts.accepted[0] <= counts.drafts


def test_it_may_be_asked_for_any_depth_it_is_sized_for_and_no_other() -> None:
    played = engine()
    played.set_traffic(busy=True, now_s=NOW_S)
    played.obey(DepthDocument(generation=2, schedule=flat(MAX_DEPTH, MAX_BATCH)).to_json())
    played.obey(DepthDocument(generation=3, schedule=flat(MAX_DEPTH + 1, MAX_BATCH)).to_json())
    assert look(played, 30).depth_generation == 2
    assert any(cell.depth == MAX_DEPTH for cell in look(played, 30).cells)
