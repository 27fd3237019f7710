"""Alarms: raised in time, not by what is usual, over when it is over; and depth knows none."""

import re
from dataclasses import replace
from types import SimpleNamespace as Of
from typing import Any

import pytest

from fathom.api.conditions import AlarmKind, Reason
from fathom.engine.depth import DepthDocument, flat
from fathom.measurement.counters import Cell, CellCounts, EngineCounts, PodCounters, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.tuning.alarms import detectors
from fathom.tuning.alarms.alarm import Alarm, Watch, is_cliff
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.estimate.acceptance_changes import Acceptance, PodAcceptance
from fathom.tuning.estimate.acceptance_length import Trials
from fathom.tuning.interface import TuningSnapshot
from fathom.tuning.learned_state import TuningState
from fathom.tuning.policy.value import Gain
from fathom.tuning.tuner import decide
from unit.tuning.plant import EASY, MIDDLE, START_S, WINDOW_30, Fleet, Hardware, hours_long

HOUR_S = 3600.0
TEN_MINUTES_S = 600.0
KNOWN_S = 1200.0
"""Enough to know what is normal."""
SLOW_DRAFT = Hardware(per_token_s=0.008)
"""One drafted token costs as much as a step without: nothing pays for that."""
DAYS_LONG = replace(WINDOW_30, window_seconds=120.0)
PLAIN = (0.93, 0.85, 0.8) + (0.75,) * 13
TRICKY = (0.66, 0.6, 0.55) + (0.5,) * 13
MISMATCHED = (0.3,) * 16


def standing(fleet: Fleet, kind: AlarmKind) -> Alarm:
    alarm = fleet.alarm(kind)
    assert alarm is not None, fleet.log()
    return alarm


def decided(snapshot: TuningSnapshot) -> list[str]:
    """Kinds of the alarms that stand at a decision."""
    return [each.kind.value for each in decide(snapshot).alarms]


def with_another_draft(fleet: Fleet, pod: int, acceptance: float) -> None:
    fleet.pods[pod].other_acceptance = (acceptance,) * 16


# Draft mismatch


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("normal", [PLAIN, TRICKY], ids=["plain", "tricky"])
def test_a_cliff_is_raised_within_ten_minutes_and_over_again_when_acceptance_is_back(
    normal: tuple[float, ...], seed: int
) -> None:
    fleet = hours_long(acceptance=normal, seed=seed).run(KNOWN_S)
    assert fleet.alarm(AlarmKind.DRAFT_MISMATCH) is None
    since_s = fleet.now_s
    fleet.acceptance = MISMATCHED
    fleet.run(KNOWN_S)

    after_s = fleet.raised_after_s(AlarmKind.DRAFT_MISMATCH, since_s)
    assert after_s is not None
    assert after_s <= TEN_MINUTES_S
    alarm = standing(fleet, AlarmKind.DRAFT_MISMATCH)
    assert alarm.reason is Reason.ACCEPTANCE_CLIFF
    assert alarm.since_s == pytest.approx(since_s + after_s)

    fleet.acceptance = normal
    fleet.run(TEN_MINUTES_S)
    assert fleet.alarm(AlarmKind.DRAFT_MISMATCH) is None


def test_a_cliff_stands_for_an_hour_at_least_and_is_not_raised_again_and_again() -> None:
    fleet = hours_long(acceptance=PLAIN, tick_s=30.0, settings=DAYS_LONG).run(6 * HOUR_S)
    since_s = fleet.now_s
    fleet.acceptance = MISMATCHED
    fleet.run(TEN_MINUTES_S)
    standing_since_s = standing(fleet, AlarmKind.DRAFT_MISMATCH).since_s
    fleet.run(HOUR_S - TEN_MINUTES_S)
    assert standing(fleet, AlarmKind.DRAFT_MISMATCH).since_s == standing_since_s

    fleet.run(23 * HOUR_S)
    raised = {
        alarm.since_s
        for at_s, decision in fleet.decisions
        for alarm in decision.alarms
        if at_s > since_s
    }
    assert raised == {standing_since_s}


def cliffs(fleet: Fleet) -> list[float]:
    """When alarms of a cliff were raised."""
    return sorted(
        {
            alarm.since_s
            for _, decision in fleet.decisions
            for alarm in decision.alarms
            if alarm.reason is Reason.ACCEPTANCE_CLIFF
        }
    )


def fallen_and_back(fleet: Fleet, acceptance: tuple[float, ...] = MISMATCHED) -> Fleet:
    fleet.acceptance = acceptance
    fleet.run(1200)
    fleet.acceptance = PLAIN
    return fleet.run(1800)


def healed() -> Fleet:
    """Requests that the draft does not fit came for twenty minutes."""
    fleet = fallen_and_back(hours_long(acceptance=PLAIN).run(2 * KNOWN_S))
    assert len(cliffs(fleet)) == 1
    assert fleet.alarm(AlarmKind.DRAFT_MISMATCH) is None
    return fleet


def test_what_came_back_by_itself_was_traffic_and_raises_no_alarm_again() -> None:
    fleet = fallen_and_back(fallen_and_back(healed()))
    assert len(cliffs(fleet)) == 1


def test_lower_than_what_came_back_is_a_cliff() -> None:
    lower = tuple(each / 2 for each in MISMATCHED)
    assert len(cliffs(fallen_and_back(healed(), lower))) == 2


def test_what_came_back_by_a_restart_may_have_been_the_draft() -> None:
    fleet = hours_long(acceptance=PLAIN).run(2 * KNOWN_S)
    fleet.acceptance = MISMATCHED
    fleet.run(1200)
    for pod in fleet.pods:
        pod.restart(fleet.now_s)
    fleet.acceptance = PLAIN
    fleet.run(1800)
    assert len(cliffs(fallen_and_back(fleet))) == 2


@pytest.mark.parametrize(("minutes", "seed"), [(4, 1), (20, 2), (60, 3)])
def test_classes_that_come_and_go_are_no_cliff(minutes: int, seed: int) -> None:
    fleet = hours_long(acceptance=PLAIN, seed=seed)
    for i in range(5 * 60 // minutes):
        fleet.acceptance = (PLAIN, TRICKY)[i % 2]
        fleet.run(minutes * 60)
    assert fleet.raised_after_s(AlarmKind.DRAFT_MISMATCH, 0.0) is None


@pytest.mark.parametrize("known_h", [1, 24])
def test_a_class_that_was_never_seen_before_is_no_cliff(known_h: int) -> None:
    fleet = hours_long(acceptance=PLAIN, tick_s=30.0, settings=DAYS_LONG).run(known_h * HOUR_S)
    fleet.acceptance = TRICKY
    fleet.run(HOUR_S)
    assert fleet.raised_after_s(AlarmKind.DRAFT_MISMATCH, 0.0) is None


def test_a_draft_that_no_longer_fits_after_a_night_without_requests_is_a_cliff() -> None:
    fleet = hours_long(acceptance=PLAIN).run(KNOWN_S)
    requests, fleet.concurrency = fleet.concurrency, 0
    fleet.run(8 * HOUR_S)
    since_s = fleet.now_s
    fleet.concurrency, fleet.acceptance = requests, MISMATCHED
    fleet.run(TEN_MINUTES_S)
    assert fleet.raised_after_s(AlarmKind.DRAFT_MISMATCH, since_s) is not None


def test_nothing_is_a_cliff_before_it_is_known_what_is_normal() -> None:
    fleet = hours_long(acceptance=EASY).run(600)
    fleet.acceptance = MISMATCHED
    fleet.run(300)
    assert fleet.raised_after_s(AlarmKind.DRAFT_MISMATCH, 0.0) is None


def test_a_moment_is_no_alarm() -> None:
    fleet = hours_long(acceptance=PLAIN).run(KNOWN_S)
    for _ in range(3):
        fleet.acceptance = MISMATCHED
        fleet.run(90)
        fleet.acceptance = PLAIN
        fleet.run(300)
    assert fleet.raised_after_s(AlarmKind.DRAFT_MISMATCH, 0.0) is None


def test_a_pod_that_comes_back_with_another_draft_is_named_within_ten_minutes() -> None:
    fleet = hours_long(acceptance=PLAIN, replicas=8).run(KNOWN_S)
    since_s = fleet.now_s
    with_another_draft(fleet, 2, 0.4)
    fleet.pods[2].restart(fleet.now_s)
    fleet.run(TEN_MINUTES_S)
    (first, *_) = (d for at_s, d in fleet.decisions if at_s >= since_s and d.alarms)
    (alarm,) = first.alarms

    assert alarm.reason is Reason.ONE_POD_DIFFERS
    assert alarm.message.startswith("pod-2 accepts ")
    assert "that pod's log" in alarm.recommendation

    fleet.pods[2].other_acceptance = None
    fleet.pods[2].restart(fleet.now_s)
    fleet.run(TEN_MINUTES_S)
    assert fleet.alarm(AlarmKind.DRAFT_MISMATCH) is None


@pytest.mark.parametrize("renamed", [True, False])
def test_the_alarm_of_one_pod_ends_at_once_when_its_engine_does(*, renamed: bool) -> None:
    fleet = hours_long(acceptance=PLAIN, replicas=4).run(KNOWN_S)
    wrong = fleet.pods[2]
    wrong.other_acceptance = (0.4,) * 16
    wrong.restart(fleet.now_s)
    fleet.run(TEN_MINUTES_S)
    assert standing(fleet, AlarmKind.DRAFT_MISMATCH).reason is Reason.ONE_POD_DIFFERS

    if renamed:
        fleet.pods.remove(wrong)
        fleet.add_pod().restart(fleet.now_s)
    else:
        wrong.other_acceptance = None
        wrong.restart(fleet.now_s)
    since_s = fleet.now_s
    fleet.run(60)
    later = [(at_s, d) for at_s, d in fleet.decisions if at_s > since_s]
    assert [at_s - since_s for at_s, d in later if d.alarms] == []
    fleet.run(TEN_MINUTES_S)
    assert fleet.alarm(AlarmKind.DRAFT_MISMATCH) is None


def test_a_pod_that_comes_back_as_wrong_as_before_is_named_again() -> None:
    fleet = hours_long(acceptance=PLAIN, replicas=4).run(KNOWN_S)
    for _ in range(2):
        fleet.pods.remove(fleet.pods[-1])
        fleet.add_pod().other_acceptance = (0.4,) * 16
        fleet.pods[-1].restart(fleet.now_s)
        fleet.run(TEN_MINUTES_S)
        alarm = standing(fleet, AlarmKind.DRAFT_MISMATCH)
        assert alarm.message.startswith(f"{fleet.pods[-1].name} accepts ")


def test_replicas_that_are_gone_are_no_older_replicas() -> None:
    fleet = hours_long(acceptance=PLAIN, replicas=4, tick_s=1.0)
    for pod in fleet.pods[:2]:
        pod.decay_per_hour = 0.05
    fleet.run(3 * HOUR_S)
    for pod in fleet.pods[2:]:
        pod.restart(fleet.now_s)
    fleet.run(HOUR_S)
    assert standing(fleet, AlarmKind.ACCEPTANCE_DECAY).message.startswith("pod-0, pod-1 run for")
    del fleet.pods[:2]
    fleet.run(TEN_MINUTES_S)
    assert fleet.alarm(AlarmKind.ACCEPTANCE_DECAY) is None


def test_one_pod_stays_named_while_its_alarm_stands() -> None:
    fleet = hours_long(acceptance=PLAIN, replicas=4).run(KNOWN_S)
    with_another_draft(fleet, 2, 0.3)
    fleet.pods[2].restart(fleet.now_s)
    fleet.run(KNOWN_S)
    reasons = {a.reason for _, d in fleet.decisions for a in d.alarms}
    assert reasons == {Reason.ONE_POD_DIFFERS}


def test_one_pod_with_somewhat_harder_traffic_is_not_named() -> None:
    fleet = hours_long(acceptance=PLAIN, replicas=4)
    with_another_draft(fleet, 2, 0.75)
    fleet.run(HOUR_S)
    assert fleet.raised_after_s(AlarmKind.DRAFT_MISMATCH, 0.0) is None


@pytest.mark.parametrize(("drafts", "named"), [(100.0, False), (5000.0, True)])
def test_a_pod_is_named_only_after_enough_drafts(drafts: float, *, named: bool) -> None:
    def pod(name: str, drafts: float, accepted: float) -> PodAcceptance:
        return PodAcceptance(
            pod=name,
            started_at_s=START_S,
            drafts=drafts,
            expected=0.8 * drafts,
            accepted=accepted * drafts,
            at_s=START_S,
        )

    others = (pod("pod-0", 5000.0, 0.8), pod("pod-1", 5000.0, 0.8))
    look: Any = Of(acceptance=Acceptance(pods=(*others, pod("pod-2", drafts, 0.3))))
    found = detectors.one_pod_differs(look)
    assert (found is not None) is named
    if found is not None:
        assert found.message == "pod-2 accepts 38% of what the other pods do."


# Decay with age


def old_and_young(decay_per_hour: float, *ages_h: float) -> Fleet:
    fleet = hours_long(acceptance=MIDDLE, replicas=len(ages_h))
    for pod, age_h in zip(fleet.pods, ages_h, strict=True):
        pod.started_at_s = fleet.now_s - age_h * HOUR_S
        pod.decay_per_hour = decay_per_hour
    return fleet.run(HOUR_S)


def test_older_replicas_that_accept_less_are_named() -> None:
    fleet = old_and_young(0.01, 30, 30, 0, 0)
    alarm = standing(fleet, AlarmKind.ACCEPTANCE_DECAY)

    assert alarm.reason is Reason.OLDER_REPLICAS_ACCEPT_LESS
    assert alarm.message.startswith("pod-0, pod-1 run for more than")
    assert "one at a time" in alarm.recommendation

    for pod in fleet.pods[:2]:
        pod.restart(fleet.now_s)
    fleet.run(TEN_MINUTES_S)
    assert fleet.alarm(AlarmKind.ACCEPTANCE_DECAY) is None


def test_replicas_of_one_age_decay_unseen() -> None:
    assert old_and_young(0.01, 30, 30, 30, 30).raised_after_s(AlarmKind.ACCEPTANCE_DECAY, 0) is None


def test_age_alone_is_no_decay() -> None:
    assert old_and_young(0.0, 30, 30, 0, 0).raised_after_s(AlarmKind.ACCEPTANCE_DECAY, 0) is None


def aged(age_h: float, ratio: float) -> PodAcceptance:
    started_s = 100 * HOUR_S - age_h * HOUR_S
    return PodAcceptance(
        pod=f"{age_h}h-{ratio}",
        started_at_s=started_s,
        drafts=5e3,
        expected=4e3,
        accepted=4e3 * ratio,
        at_s=100 * HOUR_S,
    )


@pytest.mark.parametrize(
    ("pods", "named"),
    [
        ([aged(10, 0.8), aged(6, 1.0)], False),
        ([aged(13, 0.8), aged(6, 1.0)], True),
        # Their own scatter, a tenth of it, is as good as the difference: 0.11 · √(1/2 + 1/2).
        ([aged(13, 0.7), aged(13, 0.9), aged(1, 0.9), aged(1, 1.1)], False),
        (
            [aged(13, ratio) for ratio in [0.7, 0.9] * 16] + [aged(1, r) for r in [0.9, 1.1] * 16],
            True,
        ),
    ],
    ids=["of much the same age", "twice as old", "few that differ", "many that differ"],
)
def test_older_replicas_are_told_from_scatter(pods: list[PodAcceptance], *, named: bool) -> None:
    look: Any = Of(snapshot=Of(now_s=100 * HOUR_S), acceptance=Acceptance(pods=tuple(pods)))
    assert (detectors.older_replicas_accept_less(look) is not None) is named


# Suspicious acceptance


def test_acceptance_too_good_to_be_true() -> None:
    fleet = hours_long(acceptance=(1.0,) * 16).run(1200)
    alarm = standing(fleet, AlarmKind.SUSPICIOUS_ACCEPTANCE)

    assert alarm.reason is Reason.TOO_GOOD_TO_BE_TRUE
    assert "100.0%" in alarm.message
    fleet.acceptance = EASY
    fleet.run(1200)
    assert fleet.alarm(AlarmKind.SUSPICIOUS_ACCEPTANCE) is None


def test_easy_traffic_is_not_suspicious() -> None:
    fleet = hours_long(acceptance=(0.98,) * 16).run(HOUR_S)
    assert fleet.raised_after_s(AlarmKind.SUSPICIOUS_ACCEPTANCE, 0.0) is None


def test_drafting_for_nothing() -> None:
    fleet = hours_long(acceptance=(0.001,) * 16).run(1200)
    assert standing(fleet, AlarmKind.SUSPICIOUS_ACCEPTANCE).reason is Reason.NOTHING_ACCEPTED


def test_next_to_nothing_is_not_told_again_and_again() -> None:
    fleet = hours_long(acceptance=(0.001,) * 16).run(1200)
    since_s = fleet.now_s
    for acceptance in (0.014, 0.004, 0.014, 0.004):
        fleet.acceptance = (acceptance,) * 16
        fleet.run(1200)
    kinds = [
        {each.kind for each in decision.alarms}
        for at_s, decision in fleet.decisions
        if at_s >= since_s
    ]
    assert all(AlarmKind.SUSPICIOUS_ACCEPTANCE in each for each in kinds)
    fleet.acceptance = (0.05,) * 16
    fleet.run(1800)
    assert fleet.alarm(AlarmKind.SUSPICIOUS_ACCEPTANCE) is None


@pytest.mark.parametrize(
    ("accepted", "standing", "told"),
    [(0.005, False, True), (0.014, False, False), (0.014, True, True), (0.03, True, False)],
)
def test_what_was_told_to_be_for_nothing_is_so_until_clearly_more_is_accepted(
    accepted: float, *, standing: bool, told: bool
) -> None:
    drafts = 10_000.0
    survival = Survival().updated(Trials((drafts,), (accepted * drafts,)), START_S)
    look: Any = Of(
        policy=Of(evidence=Of(text=survival)),
        standing={Reason.NOTHING_ACCEPTED} if standing else {},
    )
    assert (detectors.nothing_accepted(look) is not None) is told


DOCUMENT = DepthDocument(
    generation=7, schedule=flat(3, 16), pods={"pod-1": flat(1, 16)}, ends={"pod-1": 90}
)


@pytest.mark.parametrize(
    ("pod", "runs", "share", "told"),
    [
        ("pod-0", 3, 0.1, False),
        ("pod-0", 3, 0.3, True),
        # What has ended by itself, or is of another document, is told elsewhere.
        ("pod-1", 1, 0.9, False),
        ("pod-1", 1, 0.5, True),
        ("pod-1", 3, 0.1, False),
        ("pod-0", 5, 0.3, False),
    ],
)
@pytest.mark.parametrize("view", [False, True])
def test_steps_at_another_depth_than_is_in_force_are_told_if_they_are_many(
    pod: str, runs: int, share: float, *, told: bool, view: bool
) -> None:
    counted = {
        Cell(4, depth, StepKind.DECODE): CellCounts(steps, 0.01 * steps, steps, 4 * steps)
        for depth, steps in ((3, 1000 * (1 - share)), (1, 1000 * share))
    }
    delta = PodDelta(
        pod=pod,
        from_s=START_S,
        to_s=START_S + 30,
        engine=EngineCounts(),
        cells=counted,
        drafts={},
    )
    running = DepthDocument(generation=7, schedule=flat(runs, 16))
    counters = PodCounters(
        pod=pod,
        at_s=START_S,
        started_at_s=0.0,
        engine=EngineCounts(),
        live_depth=True,
        depth_generation=7,
        schedule_hash=running.hash_for_pod(pod),
    )
    # Of a cohort, `document` is what it has of its own.
    own = DepthDocument(generation=7, schedule=flat(6, 16))
    look: Any = Of(
        snapshot=Of(state=Of(looks={pod: counters}), whole=DOCUMENT if view else None),
        document=own if view else DOCUMENT,
        deltas=[delta],
    )
    assert (detectors.depth_mismatch(look) is not None) is told


def test_an_engine_that_drafts_at_andepth_mismatch_is_named() -> None:
    fleet = hours_long(acceptance=MIDDLE, replicas=3)
    fleet.pods[1].other_depth = 2
    fleet.run(1200)
    alarm = standing(fleet, AlarmKind.SUSPICIOUS_ACCEPTANCE)

    assert alarm.reason is Reason.DEPTH_MISMATCH
    assert alarm.message.startswith("pod-1 ")
    assert "100%" in alarm.message


def test_probes_and_moves_are_no_depth_mismatch() -> None:
    fleet = Fleet(acceptance=PLAIN, jitter=2).run(600)
    fleet.acceptance = TRICKY
    fleet.run(600)
    assert fleet.raised_after_s(AlarmKind.SUSPICIOUS_ACCEPTANCE, 0.0) is None


# Speculation that never pays


@pytest.mark.parametrize("least", [0, 1])
def test_a_draft_that_never_pays(least: int) -> None:
    fleet = hours_long(
        acceptance=(0.05,) * 16,
        hardware=SLOW_DRAFT,
        settings=replace(WINDOW_30, min_tokens=least),
    ).run(3 * HOUR_S)
    assert fleet.depth() == least
    alarm = standing(fleet, AlarmKind.SPECULATION_NEVER_PAYS)
    assert alarm.reason is Reason.SPECULATION_SLOWER
    assert "speculation.minTokens: 0" in alarm.recommendation
    assert ("keeps depth 0" in alarm.message) == (least == 0)


def test_a_draft_that_pays_at_one_batch_is_no_such_draft() -> None:
    fleet = hours_long(acceptance=MIDDLE, settings=replace(WINDOW_30, min_tokens=0))
    fleet.run(3 * HOUR_S)
    assert fleet.raised_after_s(AlarmKind.SPECULATION_NEVER_PAYS, 0.0) is None


@pytest.mark.parametrize(("sd", "told"), [(0.05, False), (0.001, True)])
def test_at_depth_0_it_never_pays_only_if_that_is_beyond_doubt(sd: float, *, told: bool) -> None:
    """One percent behind at every other depth, more or less certainly."""

    def gain(_: int, to: int, start: int) -> Gain:
        behind = 0.01 if to != start else 0.0
        spread = sd if to != start else 0.0
        return Gain(mean=-behind, sd=spread, step_time_measured=True, survival_measured=True)

    policy = Of(
        shares={8: 1.0}, depths={8: 0}, bounds=Of(depths=(0, 1, 2, 3)), evidence=Of(gain=gain)
    )
    look: Any = Of(policy=policy)
    assert (detectors.speculation_slower(look) is not None) is told


def test_a_draft_that_pays_at_the_deepest_depth_alone_is_no_such_draft() -> None:
    def gain(_: int, to: int, start: int) -> Gain:
        mean = 0.0 if to == start else 0.01 if to == 3 else -0.01
        return Gain(mean=mean, sd=0.0, step_time_measured=True, survival_measured=True)

    policy = Of(
        shares={8: 1.0}, depths={8: 0}, bounds=Of(depths=(0, 1, 2, 3)), evidence=Of(gain=gain)
    )
    look: Any = Of(policy=policy)
    assert detectors.speculation_slower(look) is None


# Whatever the kind


@pytest.mark.parametrize(
    ("reason", "raised_at_s", "stands"),
    [
        (Reason.ACCEPTANCE_CLIFF, 5.0, True),
        (Reason.ACCEPTANCE_CLIFF, 0.0, False),
        (Reason.ONE_POD_DIFFERS, 5.0, False),
    ],
)
def test_a_cliff_stands_once_it_is_raised(
    reason: Reason, raised_at_s: float, *, stands: bool
) -> None:
    watch = Watch(
        kind=AlarmKind.DRAFT_MISMATCH,
        reason=reason,
        message="",
        recommendation="",
        first_seen_s=1.0,
        last_seen_s=5.0,
        raised_at_s=raised_at_s,
    )
    assert is_cliff([watch]) is stands


@pytest.fixture(scope="module")
def cliff() -> Fleet:
    fleet = hours_long(acceptance=PLAIN).run(KNOWN_S)
    fleet.acceptance = MISMATCHED
    return fleet.run(KNOWN_S)


def test_an_alarm_has_numbers_and_a_recommendation(cliff: Fleet) -> None:
    alarm = standing(cliff, AlarmKind.DRAFT_MISMATCH)
    present, usual = (int(each) for each in re.findall(r"(\d+)%", alarm.message))
    assert present == pytest.approx(100 * MISMATCHED[0], abs=2)
    assert usual == pytest.approx(100 * PLAIN[0], abs=4)
    assert alarm.message.endswith(".")
    assert alarm.recommendation.endswith(".")


def test_an_alarm_changes_no_depth(cliff: Fleet) -> None:
    """What is decided while it stands is decided without it."""
    snapshot = cliff.snapshot()
    blind = decide(replace(snapshot, state=replace(snapshot.state, watches=())))
    decision = decide(snapshot)

    assert decision.alarms
    assert not blind.alarms
    assert (decision.action, decision.document) == (blind.action, blind.document)


def test_depth_follows_what_is_measured_while_an_alarm_stands(cliff: Fleet) -> None:
    assert cliff.shortfall() <= 0.03


def test_without_data_an_alarm_stands(cliff: Fleet) -> None:
    snapshot = cliff.snapshot()
    later = replace(
        snapshot,
        now_s=snapshot.now_s + 3600,
        pods=tuple(replace(pod, counters=None) for pod in snapshot.pods),
    )
    assert decided(later) == ["DraftMismatch"]


def test_a_lost_document_ends_no_alarm(cliff: Fleet) -> None:
    assert decided(replace(cliff.snapshot(), document=None)) == ["DraftMismatch"]


def test_an_alarm_survives_the_operator(cliff: Fleet) -> None:
    restored = TuningState.from_json(cliff.state.to_json())
    assert decided(replace(cliff.snapshot(), state=restored)) == ["DraftMismatch"]
