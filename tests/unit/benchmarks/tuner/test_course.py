"""What happens in a world whatever the policy does."""

import numpy as np
import pytest

from benchmarks.tuner.course.drawing import generator
from benchmarks.tuner.worlds.files import load
from benchmarks.tuner.worlds.world import SimulatedWorld
from unit.benchmarks.tuner.worlds import HALF, course, days, world

DIURNAL = {"diurnal": 0.8, "peak_hour": 12, "fluctuation": 0}


def test_a_seed_decides_everything() -> None:
    of = load("replica-churn")
    one, again, other = (course(of, seed=seed) for seed in (1, 1, 2))
    assert (one.rate == again.rate).all()
    assert not np.array_equal(one.rate, other.rate)


def test_an_event_leaves_all_other_draws_as_they_were() -> None:
    noisy = {"traffic": {"fluctuation": 0.2, "skew": 0.3}, "noise": {"pod_speed_sd": 0.02}}
    mismatch = ({"kind": "mismatch", "at_minutes": 30, "factor": 0.5},)
    without, with_it = course(world(**noisy)), course(world(**noisy, events=mismatch))
    assert (without.batch == with_it.batch).all()
    assert (without.slowness == with_it.slowness).all()


def test_purposes_draw_apart() -> None:
    one, other = (generator(world(), 1, purpose).random(4) for purpose in ("speed", "demand"))
    assert not np.isclose(one, other).any()


def test_load_follows_the_time_of_day_and_rests_in_quiet_hours() -> None:
    of = world(traffic={**DIURNAL, "concurrency": 20, "quiet_hours": [[2, 4]]})
    batch = days(of, 1).batch.mean(axis=1)
    assert batch[12 * 60] == pytest.approx(36, abs=1)
    assert batch[23 * 60] == pytest.approx(20 * (1 - 0.8 * np.cos(np.pi / 12)), abs=1)
    assert (batch[2 * 60 : 4 * 60] == 0).all()


def test_mean_batch_is_the_concurrency_asked_for() -> None:
    of = world(traffic={"concurrency": 6.4, "fluctuation": 0.3})
    assert days(of, 1).batch.mean() == pytest.approx(6.4, rel=0.03)


def test_a_mismatch_multiplies_conditional_acceptance_from_then_on() -> None:
    of = world(events=({"kind": "mismatch", "at_minutes": 30, "factor": 0.4},))
    got = course(of)
    assert got.survival[179, :2] == pytest.approx([0.5, 0.25])
    assert got.survival[180, :2] == pytest.approx([0.2, 0.04])
    assert got.mismatches_s == (1800.0,)


def test_event_times_are_drawn_within_their_span() -> None:
    of = world(events=({"kind": "mismatch", "at_minutes": [10, 50]},))
    onsets = {course(of, seed=seed).mismatches_s[0] for seed in range(5)}
    assert len(onsets) == 5
    assert all(600 <= each <= 3000 for each in onsets)


def test_classes_shift_over_the_minutes_given() -> None:
    classes = (HALF, {"name": "sure", "acceptance": [1.0], "share": 0})
    shift = {"kind": "class_shift", "at_minutes": 20, "over_minutes": 20, "shares": {"sure": 1}}
    got = course(world(classes=classes, events=(shift,))).survival[:, 0]
    assert got[[0, 180, 300]] == pytest.approx([0.5, 0.75, 1.0])


def test_classes_take_turns() -> None:
    classes = (HALF, {"name": "sure", "acceptance": [1.0]})
    cycle = {"kind": "class_cycle", "at_minutes": 0, "period_minutes": 20, "dominance": 0.9}
    shares = course(world(classes=classes, events=(cycle,))).shares
    assert shares[[0, 150, 300], 0] == pytest.approx([0.9, 0.1, 0.9])


def test_what_a_restarting_pod_leaves_behind_goes_to_the_others() -> None:
    of = world(events=({"kind": "pod_restart", "at_minutes": 10, "pod": 1, "minutes": 5},))
    got = course(of)
    assert got.batch[59].tolist() == [4, 4, 4, 4]
    assert sum(got.batch[60]) == pytest.approx(16, abs=2)
    assert got.batch[60, 1] == 0
    assert got.batch[90].tolist() == [4, 4, 4, 4]
    assert (got.started_s[59, 1], got.started_s[60, 1]) == (pytest.approx(got.started_s[0, 1]), 600)


def test_a_fleet_scales_with_pods_that_are_new() -> None:
    down = {"kind": "scale", "at_minutes": 10, "replicas": 2}
    up = {"kind": "scale", "at_minutes": 30, "replicas": 3}
    got = course(world(events=(down, up)))
    assert got.present.sum(axis=1)[[0, 60, 180]].tolist() == [4, 2, 3]
    assert got.serving.sum(axis=1)[[60, 180, 211]].tolist() == [2, 2, 3]
    assert got.life[[0, 211], 2].tolist() == [0, 1]


def test_events_happen_in_the_order_of_their_times() -> None:
    later = {"kind": "scale", "at_minutes": 30, "replicas": 5}
    earlier = {"kind": "scale", "at_minutes": 0, "replicas": 2}
    got = course(world(events=(later, earlier)))
    assert got.serving.sum(axis=1)[[0, 179, 180, 211]].tolist() == [2, 2, 2, 5]


def test_acceptance_wears_off_with_uptime_and_a_restart_cures_it() -> None:
    decay = {"kind": "decay", "at_minutes": 0, "per_hour": 0.1, "floor": 0.5}
    restart = {"kind": "pod_restart", "at_minutes": 120, "pod": 0}
    got = days(world(events=(decay, restart)), 1)
    assert got.wear[119].tolist() == pytest.approx([np.exp(-0.1 * 119 / 60)] * 4)
    assert got.wear[180, 0] == pytest.approx(np.exp(-0.1))
    assert got.wear[-1].tolist() == pytest.approx([0.5] * 4)


def test_an_engine_that_does_not_obey_is_as_fast_as_its_own_depth() -> None:
    event = {"kind": "disobey", "at_minutes": 0, "pod": 2, "depth": 1, "minutes": 60}
    rate = course(world(events=(event,))).rate
    assert rate[0, 2] == pytest.approx(np.full(9, rate[0, 0, 1]))
    assert rate[0, 0, 3] != pytest.approx(rate[0, 0, 1])


def test_kv_pressure_caps_the_batch_and_costs_time() -> None:
    of = world(traffic={"concurrency": 12, "kv_tokens": 16_000, "preemption_cost": 0.5})
    got = course(of)
    assert (got.batch == 8).all()
    assert got.lost == pytest.approx(np.full(got.lost.shape, 0.25))


def test_open_traffic_has_poisson_arrivals_of_the_rate_asked_for() -> None:
    of = world(traffic={"mode": "open", "requests_per_second": 2.5})
    arrivals = course(of, hours=10).arrivals
    assert arrivals.mean() == pytest.approx(25, rel=0.02)
    assert arrivals.var() == pytest.approx(25, rel=0.1)


def test_prefill_takes_time_that_no_depth_changes() -> None:
    slow: SimulatedWorld = world(
        traffic={"prompt_tokens": 1000, "output_tokens": 100, "prefill_us_per_token": 50}
    )
    rate = course(slow).rate[0, 0]
    # 0.5 ms of prefill for each token: a step of 4 requests at depth 1 makes 6 tokens in 11 + 3 ms.
    assert rate[1] == pytest.approx(6 / 0.014)
