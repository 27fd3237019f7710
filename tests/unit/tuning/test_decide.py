"""Each check of the chain: what it answers, why, and in which words."""

from dataclasses import replace

import pytest

from fathom.api.choices import Objective, TuningMode
from fathom.api.conditions import AlarmKind, Reason
from fathom.engine.depth import DepthDocument, DepthRange, Schedule, depth_at, flat
from fathom.tuning.alarms.alarm import Watch
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.learned_state import Change, Trial
from fathom.tuning.tuner import decide
from unit.tuning.plant import EASY, HARD, MIDDLE, SETTINGS, START_S, Fleet


def last(fleet: Fleet) -> TuningDecision:
    return fleet.decisions[-1][1]


def test_static_holds_and_gives_a_document_all_the_same() -> None:
    fleet = Fleet(settings=replace(SETTINGS, mode=TuningMode.STATIC))
    decision = decide(replace(fleet.snapshot(), read=False))

    assert (decision.action, decision.reason) == (Action.HOLD, Reason.STATIC)
    assert decision.document.schedule == flat(3, 16)


@pytest.mark.parametrize("of", ["mode Static", "no live depth"])
def test_pods_that_read_depths_and_are_not_tuned_go_to_the_user_s_own(of: str) -> None:
    """And are let go of by a probe: nobody would ever end it."""
    fleet = Fleet(acceptance=EASY).run(120)
    assert fleet.document is not None
    probed = replace(fleet.document, schedule=flat(5, 16), pods={"pod-0": flat(0, 16)})
    given = replace(fleet.snapshot(), document=probed)
    if of == "mode Static":
        given = replace(given, settings=replace(SETTINGS, mode=TuningMode.STATIC))
    else:
        given = replace(given, live_refusal=(Reason.LIVE_DEPTH_UNSUPPORTED, "It is old."))
    decision = decide(given)
    assert decision.action is Action.MOVE
    assert decision.message.startswith("Pods whose depth is live go to your own, 3, at every batch")
    assert decision.document.generation > probed.generation
    assert decision.document.same_depths(DepthDocument(generation=1, schedule=flat(3, 16)))

    after = decide(replace(given, document=decision.document, state=decision.state))
    assert (after.action, after.document) == (Action.HOLD, decision.document)
    unread = decide(replace(given, read=False))
    assert (unread.action, unread.document) == (Action.HOLD, probed)


def test_it_starts_at_the_users_depth() -> None:
    decision = Fleet().step()

    assert decision.document == DepthDocument(
        generation=1, schedule=flat(3, 16), tokens=flat(3, 16)
    )
    assert decision.wake_after_s == SETTINGS.window_seconds
    assert not decision.notable


def test_a_lost_document_is_written_anew_with_a_newer_generation() -> None:
    fleet = Fleet(acceptance=EASY).run(120)
    assert fleet.document is not None
    generation = fleet.document.generation
    fleet.document = None
    fleet.step()

    assert last(fleet).document.generation == generation + 1


def test_a_lost_document_asks_for_the_depths_that_were_in_force() -> None:
    before = DepthDocument(generation=7, schedule=(DepthRange(1, 8, 5), DepthRange(9, 16, 1)))
    given = replace(Fleet().snapshot(), document=None, document_before=before)

    decision = decide(given)
    assert decision.document == replace(before, generation=8, tokens=flat(3, 16))
    assert decision.message == "The depth document was gone: it is 5 at 1-8, 1 beyond as before."
    # As far as the spec still allows.
    shallow = replace(given, settings=replace(SETTINGS, max_tokens=3, min_tokens=2))
    assert decide(shallow).document.schedule == (DepthRange(1, 8, 3), DepthRange(9, 16, 2))
    advising = replace(given, settings=replace(SETTINGS, mode=TuningMode.ADVISE))
    assert decide(advising).document.same_depths(replace(before, schedule=flat(3, 16)))


def test_the_same_snapshot_gives_the_same_decision() -> None:
    fleet = Fleet(acceptance=EASY).run(95)
    snapshot = fleet.snapshot()
    assert decide(snapshot) == decide(snapshot)


def test_being_asked_early_changes_nothing() -> None:
    fleet = Fleet(acceptance=HARD).run(200)
    fleet.step()
    before = fleet.state.to_json(), fleet.document
    for _ in range(5):
        fleet.now_s += 0.2
        fleet.step()
    assert (fleet.state.to_json(), fleet.document) == before


@pytest.mark.parametrize("mode", [TuningMode.AUTO, TuningMode.ADVISE])
def test_live_depth_refused_holds_with_that_reason(mode: TuningMode) -> None:
    fleet = Fleet(acceptance=EASY)
    refusal = (Reason.LIVE_DEPTH_UNSUPPORTED, "vLLM 0.22 has no live depth.")
    settings = replace(fleet.settings, mode=mode)
    given = replace(fleet.snapshot(), settings=settings, live_refusal=refusal, read=False)
    decision = decide(given)

    assert (decision.action, decision.reason, decision.message) == (Action.HOLD, *refusal)


def test_an_engine_without_live_depth_has_disobeyed_nobody() -> None:
    fleet = Fleet(acceptance=EASY).run(300)
    unplugged = fleet.snapshot()
    pods = tuple(
        replace(pod, counters=replace(pod.counters, live_depth=False))
        for pod in unplugged.pods
        if pod.counters is not None
    )
    refusal = (Reason.LIVE_DEPTH_UNSUPPORTED, "vLLM 0.22 has no live depth.")
    assert decide(replace(unplugged, pods=pods)).not_obeyed
    assert decide(replace(unplugged, pods=pods, live_refusal=refusal)).not_obeyed == ()


def test_without_drafting_no_alarm_of_drafts_goes_on() -> None:
    """No counter of such an engine would ever say that its cause is gone."""
    fleet = Fleet(acceptance=EASY).run(30)
    watch = Watch(
        kind=AlarmKind.SPECULATION_NEVER_PAYS,
        reason=Reason.SPECULATION_SLOWER,
        message="It never pays.",
        recommendation="Turn it off.",
        first_seen_s=START_S,
        last_seen_s=fleet.now_s,
        raised_at_s=START_S,
    )
    state = replace(fleet.state, watches=(watch,))
    given = replace(fleet.snapshot(), state=state, read=False)
    refusal = (Reason.LIVE_DEPTH_UNSUPPORTED, "vLLM 0.22 has no live depth.")
    assert decide(replace(given, live_refusal=refusal)).alarms

    decision = decide(replace(given, live_refusal=(Reason.DRAFTING_DISABLED, "It is off.")))
    assert (decision.alarms, decision.state.watches) == ((), ())


def test_no_pod_ready() -> None:
    fleet = Fleet(acceptance=EASY).run(60)
    for pod in fleet.pods:
        pod.ready = False
    decision = fleet.step()
    if decision.action is Action.END_PROBE:
        decision = fleet.step()

    assert (decision.action, decision.reason) == (Action.HOLD, Reason.PODS_NOT_READY)


def test_one_unreadable_pod_does_not_blind_the_others() -> None:
    fleet = Fleet(acceptance=EASY, replicas=2)
    fleet.run(10)
    fleet.step()
    snapshot = fleet.snapshot()
    blind = replace(snapshot, pods=(snapshot.pods[0], replace(snapshot.pods[1], counters=None)))
    assert decide(blind).reason not in {Reason.NO_METRICS, Reason.STALE_METRICS}


# Modes


def test_advise_keeps_the_users_depth_never_probes_and_says_what_it_would_do() -> None:
    fleet = Fleet(acceptance=EASY, settings=replace(SETTINGS, mode=TuningMode.ADVISE)).run(300)

    assert fleet.document is not None
    assert (fleet.document.generation, fleet.document.schedule) == (1, flat(3, 16))
    assert last(fleet).reason is Reason.ADVISING
    assert "Would move batch 3 from 3 to" in last(fleet).message
    assert last(fleet).expected_gain is not None
    assert sum(d.notable for _, d in fleet.decisions) <= 5


def test_advise_is_the_stop_button() -> None:
    fleet = Fleet(acceptance=EASY).run(100)
    assert fleet.depth() != SETTINGS.tokens
    fleet.pods[1].pinned_depth = 2
    fleet.change(mode=TuningMode.ADVISE)
    decision = fleet.step()

    assert (decision.action, decision.reason) == (Action.MOVE, Reason.ADVISING)
    assert decision.document.schedule == flat(3, 16)
    assert decision.document.pods == {"pod-1": flat(2, 16)}
    assert decision.notable


def test_advise_ends_a_probe_at_once() -> None:
    fleet = Fleet(acceptance=EASY)
    while not fleet.actions(Action.PROBE):
        fleet.run(1)
    fleet.change(mode=TuningMode.ADVISE)

    assert fleet.step().document.pods == {}
    assert fleet.state.probe is None


def test_goodput_says_where_even_the_best_depth_misses_the_slo() -> None:
    fleet = Fleet(
        acceptance=EASY,
        settings=replace(SETTINGS, objective=Objective.GOODPUT, tpot_slo_seconds=0.0001),
    )
    for pod in fleet.pods:
        pod.difficulty_sd = 0.3
    fleet.run(60)

    move = fleet.actions(Action.MOVE)[1]
    assert "exceeds 0.1 ms at batch 3 (" in move.message


def test_goodput_says_where_the_slo_leaves_no_other_depth() -> None:
    """All is measured then, and a user who is told to wait for it would wait for ever."""
    fleet = Fleet(
        acceptance=MIDDLE,
        jitter=0,
        settings=replace(
            SETTINGS,
            named=frozenset({1, 3, 7}),
            objective=Objective.GOODPUT,
            tpot_slo_seconds=0.0072,
        ),
    )
    for pod in fleet.pods:
        pod.difficulty_sd = 0.3
    fleet.run(600)
    assert last(fleet).reason is Reason.AT_BEST
    assert last(fleet).message == (
        "No other depth is an option: batch 4 stays at 3: depth 1 would miss the SLO; "
        "depth 7 would miss the SLO."
    )


def test_goodput_says_nothing_of_an_slo_that_is_kept() -> None:
    fleet = Fleet(
        acceptance=EASY,
        settings=replace(SETTINGS, objective=Objective.GOODPUT, tpot_slo_seconds=0.05),
    )
    for pod in fleet.pods:
        pod.difficulty_sd = 0.3
    fleet.run(60)
    moves = fleet.actions(Action.MOVE)[1:]
    assert moves
    assert not any("exceeds" in move.message for move in moves)


# The spec


def test_narrower_bounds_hold_at_once() -> None:
    fleet = Fleet(acceptance=EASY).run(200)
    assert fleet.depth() == 7
    fleet.change(max_tokens=4)

    assert all(each.depth <= 4 for each in fleet.step().document.schedule)


def test_a_larger_engine_is_covered_up_to_its_last_batch_without_ado() -> None:
    fleet = Fleet(acceptance=EASY).run(60)
    fleet.change(max_batch=64)
    decision = fleet.step()
    assert decision.document.schedule[-1].last == 64
    assert not decision.notable
    assert decision.message == "The depths stay; their last range ends at the largest batch, 64."


def test_a_new_guess_is_the_new_start_only_while_nothing_is_measured() -> None:
    fresh = Fleet(concurrency=0)
    fresh.run(30)
    fresh.change(tokens=5)
    assert fresh.step().document.schedule == flat(5, 16)

    learnt = Fleet(acceptance=HARD).run(200)
    depth = learnt.depth()
    learnt.change(tokens=5)
    learnt.step()
    assert learnt.depth() == depth


@pytest.mark.parametrize("earlier", [(), flat(3, 16)], ids=["an earlier Fathom's", "the user's"])
def test_another_guess_reaches_engines_within_the_generation(earlier: Schedule) -> None:
    """Nothing that is in force changes with it: it is no move, and nothing waits for it."""
    fleet = Fleet(acceptance=EASY).run(300)
    assert fleet.document is not None
    before = fleet.document = replace(fleet.document, tokens=earlier)
    fleet.settings = replace(fleet.settings, tokens=2)
    decision = fleet.step()
    assert decision.action is Action.HOLD
    assert decision.document == replace(before, tokens=flat(2, 16))
    assert decision.document.schedule != decision.document.tokens
    assert decide(fleet.snapshot()).document is fleet.document


def test_a_schedule_with_other_edges_is_taken_over_by_buckets() -> None:
    fleet = Fleet(acceptance=EASY)
    fleet.step()
    fleet.document = DepthDocument(
        generation=5, schedule=(DepthRange(1, 9, 4), DepthRange(10, 16, 2))
    )
    decision = fleet.step()

    assert decision.document.generation == 6
    assert decision.document.schedule == (DepthRange(1, 10, 4), DepthRange(11, 16, 2))


# Pins


def test_a_pin_is_an_order_within_the_bounds() -> None:
    fleet = Fleet(acceptance=EASY)
    fleet.step()
    fleet.pods[0].pinned_depth = 99
    decision = fleet.step()

    assert (decision.action, decision.reason) == (Action.PIN, Reason.PINNED)
    assert decision.document.pods == {"pod-0": flat(7, 16)}
    assert decision.document.schedule == flat(3, 16)


def test_pinning_the_probed_pod_ends_the_probe() -> None:
    fleet = Fleet(acceptance=EASY)
    while not fleet.actions(Action.PROBE):
        fleet.run(1)
    assert fleet.state.probe is not None
    probed = fleet.state.probe.pod
    next(pod for pod in fleet.pods if pod.name == probed).pinned_depth = 2
    decision = fleet.step()

    assert decision.document.pods == {probed: flat(2, 16)}
    assert decision.state.probe is None


# Obedience


def deaf(fleet: Fleet, seconds: float) -> None:
    """One pod stops reading the document, and the document changes."""
    fleet.pods[0].deaf = True
    fleet.change(tokens=SETTINGS.tokens)
    assert fleet.document is not None
    fleet.document = replace(fleet.document, generation=fleet.document.generation + 1)
    fleet.written_at_s = fleet.now_s
    fleet.pods[1].generation = fleet.document.generation
    fleet.run(seconds)


def test_a_pod_that_does_not_obey_is_told_again_and_then_everything_is_held() -> None:
    fleet = Fleet(acceptance=EASY).run(100)
    deaf(fleet, 200)

    pokes = fleet.actions(Action.POKE)
    refused = [d for _, d in fleet.decisions if d.reason is Reason.DEPTH_NOT_OBEYED]
    assert len(pokes) == 1
    assert refused
    assert refused[0].not_obeyed == ("pod-0",)
    assert "pod-0" in refused[0].message
    assert [d.notable for d in refused] == [True] + [False] * (len(refused) - 1)
    assert all(d.action is Action.HOLD for d in refused)

    fleet.pods[0].deaf = False
    assert fleet.document is not None
    fleet.pods[0].generation = fleet.document.generation
    fleet.run(30)
    assert last(fleet).not_obeyed == ()


def test_an_idle_engine_has_disobeyed_nothing() -> None:
    fleet = Fleet(acceptance=EASY).run(100)
    fleet.concurrency = 0
    fleet.run(30)
    deaf(fleet, 200)

    assert not fleet.actions(Action.POKE)
    assert last(fleet).not_obeyed == ()


def test_an_engine_without_live_depth_is_named() -> None:
    fleet = Fleet(acceptance=EASY)
    fleet.pods[1].live = False
    fleet.run(30)

    assert last(fleet).reason is Reason.DEPTH_NOT_OBEYED
    assert last(fleet).not_obeyed == ("pod-1",)
    assert "cannot change depth live" in last(fleet).message


# Probes


def test_pods_that_are_new_or_pinned_carry_no_probe() -> None:
    fleet = Fleet(acceptance=EASY, replicas=3)
    fleet.pods[0].ready_for_s = -1000.0
    fleet.pods[2].pinned_depth = 3
    fleet.run(60)

    probed = {pod for _, document in fleet.writes for pod in document.pods} - {"pod-2"}
    assert probed == {"pod-1"}


def test_a_probe_is_timed_from_when_its_pod_runs_it() -> None:
    fleet = Fleet(acceptance=EASY)
    while not fleet.actions(Action.PROBE):
        fleet.run(1)
    written_s = fleet.now_s
    assert fleet.state.probe is not None
    assert fleet.state.probe.in_force_at_s == 0
    fleet.run(4)
    assert fleet.state.probe is not None
    assert written_s <= fleet.state.probe.in_force_at_s <= fleet.now_s


def test_a_probe_whose_pod_goes_is_ended() -> None:
    fleet = Fleet(acceptance=EASY)
    while not fleet.actions(Action.PROBE):
        fleet.run(1)
    assert fleet.state.probe is not None
    probed = fleet.state.probe.pod
    fleet.pods = [pod for pod in fleet.pods if pod.name != probed]
    decision = fleet.step()

    assert decision.action is Action.END_PROBE
    assert decision.document.pods == {}


def test_every_decision_says_why() -> None:
    fleet = Fleet(acceptance=EASY).run(300)
    for at_s, decision in fleet.decisions:
        assert decision.message.endswith("."), (at_s - START_S, decision)
        assert decision.wake_after_s > 0


@pytest.mark.parametrize("action", [Action.PROBE, Action.END_PROBE])
def test_probes_make_no_events(action: Action) -> None:
    fleet = Fleet(acceptance=EASY).run(600)
    assert not any(decision.notable for decision in fleet.actions(action))


def test_a_probe_ends_in_an_end_and_not_in_a_pin_that_nobody_asked_for() -> None:
    fleet = Fleet(acceptance=MIDDLE).run(900)
    assert fleet.actions(Action.END_PROBE)
    assert not fleet.actions(Action.PIN)


# Moves


def test_a_move_that_lost_is_taken_back_and_not_made_again_under_this_traffic() -> None:
    fleet = Fleet(acceptance=HARD).run(300)
    assert fleet.document is not None
    assert fleet.depth() == 1
    # As if someone had been too sure of depth 3.
    fleet.document = replace(fleet.document, schedule=flat(3, 16))
    for pod in fleet.pods:
        pod.schedule = flat(3, 16)
    fleet.state = replace(
        fleet.state,
        trial=Trial(
            changes=(Change(4, 1, 3),), expected_gain=0.05, at_s=fleet.now_s - 20, steps=1000.0
        ),
    )
    decision = fleet.step()

    assert decision.action is Action.MOVE
    assert decision.message.startswith("Takes back what was slower: batch 4 from 1 to 3 (-")
    assert decision.expected_gain == 0.05
    assert decision.measured_gain is not None
    assert decision.measured_gain < 0
    assert decision.notable
    assert fleet.depth(4) == 1

    written = len(fleet.writes)
    fleet.run(900)
    assert all(
        depth_at(schedule, 4) != 3
        for _, document in fleet.writes[written:]
        for schedule in document.pods.values()
    )
