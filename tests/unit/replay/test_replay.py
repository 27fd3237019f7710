"""The tuner over recordings of a fleet whose best depth is known."""

from dataclasses import replace

import pytest

from fathom.api.choices import TuningMode
from fathom.api.conditions import Reason
from fathom.engine.depth import depth_at
from fathom.measurement.counters import PodCounters
from fathom.replay.replay import Replay, ReplayResult
from fathom.tuning.interface import Action, Settings
from unit.replay.recorded import record
from unit.tuning.plant import EASY, HARD, MIDDLE, SETTINGS, START_S, Fleet, best_depth, value


def replayed(looks: list[PodCounters], settings: Settings = SETTINGS) -> ReplayResult:
    replay = Replay(settings)
    for look in looks:
        replay.take(look)
    result = replay.result()
    assert result is not None
    return result


def swept(
    acceptance: tuple[float, ...], depths: tuple[int, ...], *, by_doublings: bool = False
) -> list[PodCounters]:
    """Two pods that somebody moved through these depths by hand, two minutes each."""
    fleet = Fleet(settings=replace(SETTINGS, mode=TuningMode.ADVISE), acceptance=acceptance)
    for pod in fleet.pods:
        pod.by_doublings = by_doublings
    looks = []
    for depth in depths:
        fleet.change(tokens=depth)
        looks += record(fleet, 120)
    return looks


def test_no_look_is_no_result() -> None:
    assert Replay(SETTINGS).result() is None


def test_one_look_is_not_enough_to_decide_anything() -> None:
    (look, *_) = record(Fleet(), 10)
    result = replayed([look])

    assert result.decisions == ()
    assert result.over_recorded is None
    assert result.explanation.nothing


@pytest.mark.parametrize(
    ("acceptance", "depths"), [(EASY, (3, 5, 7, 3)), (HARD, (3, 2, 1, 3)), (EASY, (7, 5, 3))]
)
def test_it_finds_the_depth_that_the_recording_shows_to_be_best(
    acceptance: tuple[float, ...], depths: tuple[int, ...]
) -> None:
    result = replayed(swept(acceptance, depths))

    last = result.decisions[-1]
    best = best_depth(Fleet().hardware, acceptance, 4)
    assert (last.action, last.reason) == (Action.MOVE, Reason.MOVED)
    assert depth_at(last.schedule, 4) == best
    assert depth_at(last.in_force, 4) == depths[-1]
    hardware = Fleet().hardware
    true = value(hardware, acceptance, 4, best) / value(hardware, acceptance, 4, depths[-1]) - 1
    assert last.expected_gain == pytest.approx(true, rel=0.25)


def test_the_gain_over_the_recording_is_near_the_true_one_and_within_its_interval() -> None:
    looks = swept(EASY, (3, 5, 7, 3, 3, 3))
    result = replayed(looks)

    hardware = Fleet().hardware
    true = value(hardware, EASY, 4, 7) / value(hardware, EASY, 4, 3) - 1
    # Of twelve minutes it would have run depth 7 instead of 3 for the last six.
    assert result.over_recorded is not None
    assert result.over_recorded.low < true * 0.5 < result.over_recorded.high
    assert result.over_recorded.known_share == pytest.approx(1)
    assert result.over_tokens is not None
    assert result.recorded_over_tokens is not None
    assert result.over_tokens.gain > result.recorded_over_tokens.gain > 0


def test_a_recording_of_engines_that_counted_by_doublings_tells_the_same() -> None:
    newer = replayed(swept(EASY, (3, 5, 7, 3, 3, 3)))
    older = replayed(swept(EASY, (3, 5, 7, 3, 3, 3), by_doublings=True))

    assert newer.over_recorded is not None
    assert older.over_recorded is not None
    assert older.over_recorded.gain == pytest.approx(newer.over_recorded.gain, rel=0.2)
    assert older.left_out == ()


def test_at_one_depth_it_says_what_it_would_try_and_what_that_may_gain() -> None:
    fleet = Fleet(settings=replace(SETTINGS, mode=TuningMode.ADVISE), acceptance=EASY)
    result = replayed(record(fleet, 300))

    assert {each.action for each in result.decisions} == {Action.PROBE}
    assert result.over_recorded is not None
    assert result.over_recorded.gain == 0
    best = result.best_over_recorded
    assert best is not None
    assert best.gain > 0.1
    assert best.high - best.low > 0.2
    assert best.known_share < 0.1


def test_of_a_tuned_fleet_it_would_have_changed_next_to_nothing() -> None:
    fleet = Fleet(acceptance=EASY, replicas=3)
    result = replayed(record(fleet, 900))

    assert fleet.depth() == 7
    assert result.over_recorded is not None
    assert 0 <= result.over_recorded.gain < 0.02
    assert result.over_tokens is not None
    assert result.over_tokens.gain > 0.2
    assert not [each for each in result.decisions if each.at_s > START_S + 300]


def test_a_recorded_probe_is_no_move_of_the_fleet() -> None:
    fleet = Fleet(acceptance=MIDDLE, replicas=3)
    while not fleet.actions(Action.PROBE):
        fleet.run(1)
    at_s = fleet.now_s
    fleet = Fleet(acceptance=MIDDLE, replicas=3)
    result = replayed(record(fleet, at_s + 8 - START_S, every_s=2.0))

    schedules = {each.in_force for each in result.decisions}
    assert len(schedules) == 1
    assert Action.PIN not in {each.action for each in result.decisions}
    assert Reason.DEPTH_NOT_OBEYED not in result.holds


def test_a_gap_is_told_and_bridged_by_nothing() -> None:
    fleet = Fleet(acceptance=EASY)
    before = record(fleet, 120)
    fleet.now_s += 3600
    after = record(fleet, 120)
    result = replayed([*before, *after])

    (gap,) = result.recorded.gaps
    assert (gap.from_s, gap.to_s) == (before[-1].at_s, after[0].at_s)
    assert result.windows < 40
    assert not any(gap.from_s + 200 < each.at_s < gap.to_s for each in result.decisions)


def test_a_restart_is_counted_and_its_counters_are_not_a_negative_rate() -> None:
    fleet = Fleet(acceptance=EASY)
    looks = record(fleet, 120)
    fleet.pods[0].restart(fleet.now_s)
    looks += record(fleet, 120)
    result = replayed(looks)

    assert result.recorded.restarts == 1
    assert result.recorded.pods == ("pod-0", "pod-1")
    assert result.recorded_over_tokens is not None
    assert result.recorded_over_tokens.gain > 0


def test_of_engines_without_the_plugin_it_says_what_cannot_be_told() -> None:
    looks = [
        replace(
            look,
            live_depth=False,
            cells={},
            drafts={},
            engine=replace(
                look.engine, drafts=look.at_s, draft_tokens=3 * look.at_s, accepted_tokens=look.at_s
            ),
        )
        for look in record(Fleet(), 120)
    ]
    result = replayed(looks)

    assert result.windows == 0
    assert result.over_recorded is None
    assert "acceptance length 2.00 at a mean depth of 3.0" in result.unplugged
    assert "what another depth would gain is unknown" in result.unplugged


def test_one_engine_without_the_plugin_does_not_silence_the_others() -> None:
    looks = record(Fleet(acceptance=EASY, replicas=3), 300)
    bare = [
        replace(look, live_depth=False, cells={}, drafts={}) if look.pod == "pod-2" else look
        for look in looks
    ]
    result = replayed(bare)

    assert result.unplugged.startswith("1 of the engines show")
    assert Reason.DEPTH_NOT_OBEYED not in result.holds
    assert result.recorded_over_tokens is not None


def test_a_look_out_of_order_is_refused() -> None:
    looks = record(Fleet(), 30)
    replay = Replay(SETTINGS)
    replay.take(looks[-1])

    with pytest.raises(ValueError, match="comes after a scrape at"):
        replay.take(looks[0])


def test_what_ran_outside_of_the_settings_is_told() -> None:
    looks = swept(EASY, (3, 7))
    result = replayed(looks, replace(SETTINGS, max_batch=2, max_tokens=5))

    batches, depths = result.left_out
    assert batches.startswith("Steps at batches above 2 are not judged, up to 5 were seen")
    assert depths.startswith("Engines ran depth 7, outside of 1 to 5")
    assert replayed(looks).left_out == ()
