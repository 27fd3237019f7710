"""The tuner on a simulated fleet: it finds the best depth, follows the traffic, and is quiet."""

from dataclasses import replace
from statistics import fmean
from typing import ClassVar

import pytest

from fathom.api.conditions import Reason
from fathom.tuning.interface import Action
from fathom.tuning.learned_state import TuningState
from unit.tuning.plant import (
    EASY,
    HARD,
    MIDDLE,
    SETTINGS,
    Fleet,
    Hardware,
    Padded,
    best_depth,
    value,
)

CLASSES = {"easy": EASY, "middle": MIDDLE, "hard": HARD}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("concurrency", [1, 4, 8])
@pytest.mark.parametrize("name", CLASSES)
def test_from_a_cold_start_it_is_within_3_percent_of_the_best_in_3_minutes(
    name: str, concurrency: int, replicas: int, seed: int
) -> None:
    fleet = Fleet(
        acceptance=CLASSES[name], concurrency=concurrency, replicas=replicas, seed=seed
    ).run(180)

    assert fleet.shortfall() <= 0.03, fleet.log()


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(
    ("tokens", "named"),
    [
        (3, (0, 1, 3, 7)),
        (7, (0, 1, 3, 7)),
        (5, (0, 1, 2, 3, 5, 7)),
        (4, (0, 1, 3, 4, 7)),
        (6, (0, 1, 3, 6)),
        (15, (0, 1, 3, 7, 15)),
    ],
    ids=str,
)
def test_of_a_set_of_depths_it_finds_the_best_in_5_minutes(
    tokens: int, named: tuple[int, ...], name: str
) -> None:
    settings = replace(SETTINGS, tokens=tokens, max_tokens=named[-1], named=frozenset(named))
    fleet = Fleet(settings=settings, acceptance=CLASSES[name], concurrency=4).run(300)

    assert fleet.depth() in named
    assert fleet.shortfall() <= 0.03, fleet.log()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("concurrency", [1, 4, 8])
@pytest.mark.parametrize(
    ("before", "after"), [("easy", "hard"), ("hard", "easy")], ids=["deep-shallow", "shallow-deep"]
)
def test_a_change_of_class_is_answered_within_a_minute(
    before: str, after: str, concurrency: int, seed: int
) -> None:
    fleet = Fleet(acceptance=CLASSES[before], concurrency=concurrency, seed=seed).run(200)
    start = fleet.depth()
    fleet.acceptance = CLASSES[after]
    best = best_depth(fleet.hardware, fleet.acceptance, concurrency)
    assert abs(best - start) >= 3
    fleet.run(60)

    assert abs(fleet.depth() - best) < abs(start - best), fleet.log()
    fleet.run(60)
    assert fleet.shortfall() <= 0.03, fleet.log()


class H100(Hardware):
    """Medians of steps on one, of the constructed pair at the depths that its graphs allow."""

    MILLISECONDS: ClassVar = {
        4: {0: 3.8, 1: 4.5, 3: 5.4, 7: 6.0},
        16: {0: 5.0, 1: 6.2, 3: 6.3, 7: 6.5},
        64: {0: 7.7, 1: 8.2, 3: 8.8, 7: 10.8},
    }

    def step_seconds(self, batch: int, depth: int) -> float:
        return self.MILLISECONDS[batch][depth] / 1000


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_a_turn_to_a_batch_of_which_little_is_known_is_answered_without_a_rest(seed: int) -> None:
    """On an H100 one pod rested after a probe, then for a window, at two thirds of the speed."""
    has = frozenset({0, 1, 3, 7})
    settings = replace(SETTINGS, window_seconds=30.0, min_tokens=0, max_batch=256, named=has)
    fleet = Fleet(settings, replicas=1, seed=seed, hardware=H100(), jitter=0)
    for acceptance, concurrency in ((EASY, 4), (HARD, 16)):
        fleet.acceptance, fleet.concurrency = acceptance, concurrency
        fleet.run(180)
    fleet.acceptance, fleet.concurrency = EASY, 64
    turned_at_s = fleet.now_s
    while fleet.depth() != 7:
        fleet.run(0.5)
        assert fleet.now_s - turned_at_s <= 45, fleet.log()


def test_classes_that_alternate_are_each_served_nearly_as_well_as_by_their_best_depth() -> None:
    fleet = Fleet(acceptance=EASY).run(180)
    for name in ("hard", "easy", "hard", "easy"):
        fleet.acceptance = CLASSES[name]
        before = fleet.tokens
        fleet.run(180)
        best = best_depth(fleet.hardware, fleet.acceptance, fleet.concurrency)
        ideal = value(fleet.hardware, fleet.acceptance, fleet.concurrency, best)
        made = (fleet.tokens - before) / 180 / fleet.replicas / fleet.concurrency
        static = value(fleet.hardware, fleet.acceptance, fleet.concurrency, SETTINGS.tokens)
        assert made > 0.9 * ideal, fleet.log()
        assert made > 0.97 * static, fleet.log()


class SmallEngine(Hardware):
    """vLLM 0.32 with the demo's models on one core, about as `make bench-engine` measures it."""

    MILLISECONDS: ClassVar = {
        2: (11.7, 10.5, 12.5, 14.1, 14.4, 15.3, 15.9, 17.9),
        8: (13.5, 14.5, 17.0, 21.0, 21.7, 25.4, 28.0, 32.0),
    }

    def step_seconds(self, batch: int, depth: int) -> float:
        return self.MILLISECONDS[batch][depth] / 1000


@pytest.mark.parametrize("seed", range(8))
def test_one_pod_follows_the_trace_of_the_engine_benchmark(seed: int) -> None:
    """Each phase lasts 140 s; after half of it, the best depth is in force or one nearly as good.

    One pod has no other to try a depth on, and hard traffic takes it to depth 0, where it is blind.
    """
    fleet = Fleet(
        settings=replace(SETTINGS, window_seconds=5.0, min_tokens=0, max_batch=8),
        replicas=1,
        jitter=0,
        hardware=SmallEngine(),
        seed=seed,
    )
    for name, concurrency in (("easy", 2), ("hard", 8), ("easy", 8), ("hard", 2)):
        fleet.acceptance, fleet.concurrency = CLASSES[name], concurrency
        fleet.run(70)
        shortfalls = []
        for _ in range(14):
            fleet.run(5)
            shortfalls.append(fleet.shortfall())
        assert fmean(shortfalls) <= 0.05, f"{name} x {concurrency}\n{fleet.log()}"


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("sizes", [(16, 64, 256), (16, 512)], ids=["a factor of 4", "of 32"])
def test_a_cliff_beyond_all_that_was_measured_is_found_within_5_minutes(
    sizes: tuple[int, ...], replicas: int, seed: int
) -> None:
    """Depths 2 to 7 are padded to the same size, and what was measured there promises nothing."""
    fleet = Fleet(
        settings=replace(SETTINGS, tokens=7),
        hardware=Padded(base_s=0.003, sizes=sizes),
        concurrency=8,
        jitter=0,
        replicas=replicas,
        seed=seed,
    )
    assert best_depth(fleet.hardware, MIDDLE, 8) == 1
    assert fleet.run(300).depth() == 1, fleet.log()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_cliff_between_two_measured_depths_is_found_within_10_minutes(seed: int) -> None:
    """Depths 1 to 3 are padded to the same size, and so are 4 to 7: 3 is best, and looks worse."""
    fleet = Fleet(
        settings=replace(SETTINGS, tokens=6),
        hardware=Padded(base_s=0.003, sizes=(32, 256)),
        concurrency=8,
        jitter=0,
        seed=seed,
    )
    assert best_depth(fleet.hardware, MIDDLE, 8) == 3
    assert fleet.run(600).depth() == 3, fleet.log()


@pytest.mark.parametrize("name", CLASSES)
def test_under_steady_noise_it_does_not_flap(name: str) -> None:
    fleet = Fleet(acceptance=CLASSES[name], seed=7).run(300)
    written, moved = len(fleet.writes), len(fleet.actions(Action.MOVE))
    started = fleet.now_s
    fleet.run(7200)

    later = [at_s for at_s, _ in fleet.writes if at_s > started]
    assert len(fleet.writes) - written <= 60, fleet.log()
    assert len(fleet.actions(Action.MOVE)) - moved <= 4, fleet.log()
    for at_s in later:
        assert sum(at_s <= other < at_s + 60 for other in later) <= 3
    assert fleet.shortfall() <= 0.03


@pytest.mark.parametrize("mixed", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("name", CLASSES)
def test_short_answers_leave_few_steps_without_prefill_and_it_still_finds_the_best(
    name: str, mixed: float
) -> None:
    fleet = Fleet(acceptance=CLASSES[name])
    for pod in fleet.pods:
        pod.mixed_share = mixed
    fleet.run(240)

    assert fleet.shortfall() <= 0.03, fleet.log()


def test_a_move_is_judged_afterwards() -> None:
    fleet = Fleet(acceptance=EASY).run(120)

    judged = [d for _, d in fleet.decisions if d.measured_gain is not None]

    assert judged
    assert judged[0].expected_gain is not None
    assert judged[0].measured_gain is not None
    assert judged[0].measured_gain > 0.03


def test_the_gain_is_measured_against_the_users_depth() -> None:
    fleet = Fleet(acceptance=EASY).run(240)
    truth = (
        value(fleet.hardware, EASY, 4, fleet.depth())
        / value(fleet.hardware, EASY, 4, SETTINGS.tokens)
        - 1
    )

    measured = fleet.decisions[-1][1].measured
    assert measured is not None
    assert measured.gain == pytest.approx(truth, abs=0.06)
    assert measured.acceptance_length is not None
    assert 1 < measured.acceptance_length <= 8
    assert measured.mean_batch == pytest.approx(4, abs=0.5)


def test_only_one_pod_is_ever_probed_at_a_time() -> None:
    fleet = Fleet(acceptance=MIDDLE, replicas=4).run(600)

    assert fleet.actions(Action.PROBE)
    assert all(len(document.pods) <= 1 for _, document in fleet.writes)


def test_without_traffic_nothing_is_decided_and_nothing_changes() -> None:
    fleet = Fleet(acceptance=EASY).run(240)
    fleet.concurrency = 0
    fleet.run(60)
    writes, state = len(fleet.writes), fleet.state.to_json()
    message = fleet.decisions[-1][1].message
    fleet.run(300)

    assert len(fleet.writes) == writes
    assert fleet.state.to_json() == state
    assert fleet.decisions[-1][1].reason is Reason.NO_TRAFFIC
    assert fleet.decisions[-1][1].message == message


def test_pods_that_are_scraped_seldom_are_not_idle_between_two_scrapes() -> None:
    fleet = Fleet(acceptance=EASY, settings=replace(SETTINGS, window_seconds=10.0)).run(60)
    before = len(fleet.decisions)
    for _ in range(10):
        fleet.frozen_at_s = None
        fleet.run(10)
        fleet.frozen_at_s = fleet.now_s
        fleet.run(30)

    reasons = {decision.reason for _, decision in fleet.decisions[before:]}
    assert Reason.NO_TRAFFIC not in reasons
    assert Reason.STALE_METRICS not in reasons


def test_the_first_look_after_a_restart_does_not_say_that_a_busy_fleet_is_idle() -> None:
    fleet = Fleet(acceptance=EASY).run(240)
    fleet.state = TuningState.from_json(fleet.state.to_json())
    fleet.wake_at_s = fleet.now_s + 100
    before = len(fleet.decisions)
    fleet.run(102)

    (first,) = [decision for _, decision in fleet.decisions[before:]]
    assert first.reason is not Reason.NO_TRAFFIC
    assert first.wake_after_s <= SETTINGS.window_seconds


@pytest.mark.parametrize("served_before", [False, True])
def test_an_idle_fleet_is_looked_at_half_as_often(*, served_before: bool) -> None:
    fleet = Fleet(acceptance=EASY)
    if served_before:
        fleet.run(240)
    fleet.concurrency = 0
    fleet.run(120)
    before = len(fleet.decisions)
    fleet.run(600)

    assert len(fleet.decisions) - before == 600 / (2 * SETTINGS.window_seconds)
    traffic = fleet.state.traffic
    fleet.concurrency = 4
    fleet.run(60)
    assert fleet.state.traffic.at_s > traffic.at_s


@pytest.mark.parametrize("how", ["unreadable", "frozen"])
def test_missing_metrics_hold_whatever_the_traffic_does(how: str) -> None:
    fleet = Fleet(acceptance=EASY).run(240)
    depth = fleet.depth()
    fleet.readable = how != "unreadable"
    fleet.frozen_at_s = fleet.now_s if how == "frozen" else None
    fleet.acceptance = HARD
    fleet.run(600)

    reason = Reason.NO_METRICS if how == "unreadable" else Reason.STALE_METRICS
    assert fleet.depth() == depth
    assert fleet.decisions[-1][1].reason is reason
    # A message that were new at each look would be a write at each minute.
    assert fleet.decisions[-1][1].message == fleet.decisions[-5][1].message
    assert fleet.document is not None
    assert not fleet.document.pods

    fleet.readable, fleet.frozen_at_s = True, None
    fleet.run(90)
    assert fleet.shortfall() <= 0.03


def test_a_probe_that_nobody_can_see_is_ended() -> None:
    fleet = Fleet(acceptance=EASY)
    while not fleet.actions(Action.PROBE):
        fleet.run(1)
    fleet.readable = False
    fleet.run(120)

    assert fleet.document is not None
    assert not fleet.document.pods
    assert fleet.depth() == SETTINGS.tokens


def test_a_restarted_pod_and_a_new_one_disturb_nothing() -> None:
    fleet = Fleet(acceptance=EASY).run(240)
    fleet.pods[0].restart(fleet.now_s)
    fleet.run(60)
    fleet.pods[1].name = "pod-new"
    fleet.pods[1].restart(fleet.now_s)
    fleet.run(120)

    assert fleet.shortfall() <= 0.03


def test_an_operator_killed_again_and_again_still_converges() -> None:
    fleet = Fleet(acceptance=EASY)
    count = 0

    def killed(state: TuningState) -> TuningState:
        nonlocal count
        count += 1
        return TuningState.from_json(state.to_json()) if count % 5 == 0 else state

    fleet.between = killed
    fleet.run(300)

    assert fleet.shortfall() <= 0.03


def test_a_lost_state_keeps_the_depth_in_force() -> None:
    fleet = Fleet(acceptance=EASY).run(240)
    moves, document = len(fleet.actions(Action.MOVE)), fleet.document
    fleet.state = TuningState()
    fleet.run(30)

    assert document is not None
    assert fleet.document is not None
    assert fleet.document.schedule == document.schedule
    assert fleet.document.generation >= document.generation
    assert len(fleet.actions(Action.MOVE)) == moves
    fleet.run(200)
    assert fleet.shortfall() <= 0.03


def test_a_pinned_pod_is_held_and_never_probed_and_still_counts() -> None:
    fleet = Fleet(acceptance=EASY, replicas=2)
    fleet.pods[0].pinned_depth = 6
    fleet.run(240)

    assert fleet.pods[0].schedule[0].depth == 6
    assert all(
        document.pods["pod-0"][0].depth == 6
        for _, document in fleet.writes
        if "pod-0" in document.pods
    )
    assert any((cell.batch_le, cell.depth) == (4, 6) for cell in fleet.state.step_times.cells)
    assert fleet.shortfall() <= 0.03

    fleet.pods[0].pinned_depth = None
    fleet.run(30)
    assert fleet.actions(Action.PIN)
    assert fleet.document is not None
    assert "pod-0" not in fleet.document.pods


def test_a_pin_that_is_removed_while_the_operator_is_away_does_not_stay() -> None:
    fleet = Fleet(acceptance=EASY)
    fleet.pods[0].pinned_depth = 6
    fleet.run(60)
    fleet.state = TuningState()
    fleet.pods[0].pinned_depth = None
    fleet.wake_at_s = fleet.now_s
    fleet.run(1)

    assert fleet.decisions[-1][1].action is Action.PIN
    assert fleet.document is not None
    assert "pod-0" not in fleet.document.pods


def test_batches_never_seen_get_at_most_the_users_own_depth() -> None:
    fleet = Fleet(
        acceptance=EASY, concurrency=1, jitter=0, settings=replace(SETTINGS, max_batch=256)
    ).run(240)

    assert fleet.depth(1) > SETTINGS.tokens
    assert fleet.depth(200) == SETTINGS.tokens


def test_probing_disabled_never_probes_and_says_so() -> None:
    fleet = Fleet(acceptance=EASY, settings=replace(SETTINGS, probing=False)).run(300)

    assert len(fleet.writes) == 1
    assert fleet.decisions[-1][1].reason is Reason.PROBING_DISABLED


def test_where_prompts_fill_every_step_it_says_what_helps() -> None:
    fleet = Fleet(concurrency=8, jitter=0)
    for pod in fleet.pods:
        pod.mixed_share, pod.token_budget = 1.0, 400
    fleet.run(300)
    assert fleet.decisions[-1][1].message.endswith("more replicas can.")


def test_pods_of_an_older_plugin_are_tuned_and_their_gain_is_unknown() -> None:
    fleet = Fleet(acceptance=EASY, jitter=0)
    for pod in fleet.pods:
        pod.counts_prompts = False
    fleet.run(600)
    measured = fleet.state.measured

    assert fleet.depth() == 7
    assert measured is not None
    assert measured.gain is None
    assert fleet.state.gained.ratio in {None, 0.0}
    assert fleet.state.ledger.gain is None
    assert "next rollout brings the newer one." in fleet.log()


def test_in_a_mixed_fleet_the_pods_that_count_tell_the_gain() -> None:
    fleet = Fleet(acceptance=EASY, jitter=0, replicas=4)
    for pod in fleet.pods[:2]:
        pod.counts_prompts = False
    fleet.run(600)
    measured = fleet.state.measured

    assert fleet.depth() == 7
    assert measured is not None
    assert measured.gain is not None
    assert fleet.state.gained.unmeasured_gpu_s > 500


def test_where_depth_0_rules_its_price_is_said() -> None:
    settings = replace(SETTINGS, min_tokens=0, tokens=1)
    fleet = Fleet(settings=settings, acceptance=(0.01,) * 16, jitter=0).run(600)

    assert fleet.depth() == 0
    assert "speculation.drafting: Canary measures that" in fleet.log()
