"""One decision for the fleet, made of several."""

from dataclasses import replace

from fathom.api.conditions import AlarmKind, Reason
from fathom.engine.depth import DepthDocument, flat
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.cohort_decision import changes, together
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.learned_state import Cohort, TuningState

DOCUMENT = DepthDocument(generation=7, schedule=flat(3, 16), pods={"other": flat(5, 16)})
COHORT = Cohort(device="", pods=("other",), schedule=flat(5, 16), state=TuningState())


def decision(depth: int, action: Action = Action.HOLD, **changes_: object) -> TuningDecision:
    """For some pods alone."""
    generation = 7 if action is Action.HOLD else 8
    decided = TuningDecision(
        action=action,
        reason=Reason.AT_BEST if action is Action.HOLD else Reason.MOVED,
        message=f"At {depth}.",
        document=DepthDocument(generation=generation, schedule=flat(depth, 16)),
        state=TuningState(),
        wake_after_s=30.0,
        measured=None,
        headroom_tokens_per_second=100.0,
    )
    return replace(decided, **changes_)  # type: ignore[arg-type]


def test_where_nothing_changes_the_document_is_the_very_same() -> None:
    both = together(DOCUMENT, 7, decision(3), [(COHORT, decision(5))], news="")

    assert both.document is DOCUMENT
    assert both.action is Action.HOLD
    assert both.message == "At 3. other with other text: At 5."


def test_who_moves_decides_what_is_said_to_be_done() -> None:
    moves = decision(7, Action.MOVE, notable=True, expected_gain=0.1)
    both = together(DOCUMENT, 7, decision(3), [(COHORT, moves)], news="")

    assert both.document == DepthDocument(
        generation=8, schedule=flat(3, 16), pods={"other": flat(7, 16)}
    )
    assert (both.action, both.reason, both.notable) == (Action.MOVE, Reason.MOVED, True)
    assert both.expected_gain == 0.1


def test_a_pod_at_depths_of_others_gets_its_own() -> None:
    pods = replace(COHORT, pods=("new", "other"))
    both = together(DOCUMENT, 7, decision(3), [(pods, decision(5))], news="")

    assert both.document.generation == 8
    assert both.document.pods == {"new": flat(5, 16), "other": flat(5, 16)}
    assert (both.action, both.reason) == (Action.MOVE, Reason.TUNED_APART)


def test_probes_of_all_keep_their_ends_and_the_users_depth_stays() -> None:
    document = replace(DOCUMENT, tokens=flat(2, 16))
    probes = decision(5, Action.PROBE)
    own = replace(probes.document, pods={"other": flat(7, 16)}, ends={"other": 90})
    rest = replace(decision(3).document, pods={"a": flat(1, 16)}, ends={"a": 80})
    both = together(
        document,
        7,
        decision(3, document=rest),
        [(COHORT, replace(probes, document=own))],
        news="",
    )
    assert both.document.ends == {"a": 80, "other": 90}
    assert both.document.tokens == flat(2, 16)


def test_a_pod_that_would_not_find_its_own_entry_gets_none() -> None:
    pods = replace(COHORT, pods=("new", "other"))
    both = together(
        DOCUMENT, 7, decision(3), [(pods, decision(5))], news="", unnamed=frozenset({"new"})
    )
    assert both.document is DOCUMENT


def test_the_first_to_wake_wakes_all() -> None:
    both = together(DOCUMENT, 7, decision(3), [(COHORT, decision(5, wake_after_s=2.0))], news="")
    assert both.wake_after_s == 2.0


def test_room_is_that_of_all_and_unknown_where_it_is_of_some() -> None:
    known = together(DOCUMENT, 7, decision(3), [(COHORT, decision(5))], news="")
    assert known.headroom_tokens_per_second == 200.0

    unknown = decision(5, headroom_tokens_per_second=None)
    both = together(DOCUMENT, 7, decision(3), [(COHORT, unknown)], news="")
    assert both.headroom_tokens_per_second is None


def test_alarms_of_all_stand_and_each_kind_once() -> None:
    of_rest, of_cohort, other = (
        Alarm(kind=kind, reason=reason, message=whose, recommendation="", since_s=1.0)
        for kind, reason, whose in (
            (AlarmKind.DRAFT_MISMATCH, Reason.ACCEPTANCE_CLIFF, "rest"),
            (AlarmKind.DRAFT_MISMATCH, Reason.NOTHING_ACCEPTED, "cohort"),
            (AlarmKind.ACCEPTANCE_DECAY, Reason.OLDER_REPLICAS_ACCEPT_LESS, "cohort"),
        )
    )
    apart = decision(5, alarms=(of_cohort, other), not_obeyed=("other",))
    both = together(DOCUMENT, 7, decision(3, alarms=(of_rest,)), [(COHORT, apart)], news="")

    assert {each.message for each in both.alarms} == {"rest", "cohort"}
    assert len(both.alarms) == 2
    assert both.not_obeyed == ("other",)


def test_who_changes_cohorts_is_told_and_of_many_some() -> None:
    gpus = Cohort(device="H200", pods=tuple("abcde"), schedule=flat(3, 16), state=TuningState())

    assert changes([], [gpus], "abcde") == (
        "From now on a, b, c and 2 more pods on H200 are tuned apart."
    )
    assert changes([gpus], [gpus], "abcde") == ""
    assert changes([COHORT], [], ["other", "a"]) == (
        "From now on other is tuned with the others again."
    )


def test_no_generation_is_given_twice_and_the_state_knows_the_newest() -> None:
    knows_more = replace(COHORT, state=TuningState(generation=15))
    moves = decision(7, Action.MOVE)

    both = together(DOCUMENT, 9, decision(3), [(knows_more, moves)], news="")
    assert both.document.generation == 16
    assert both.state.generation == 16

    both = together(DOCUMENT, 20, decision(3), [(COHORT, moves)], news="")
    assert both.document.generation == 21
