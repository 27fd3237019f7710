"""What must hold whatever the fleet does."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fathom.api.spec import TuningMode
from fathom.core.depth import DepthDocument, Schedule
from fathom.tuning.interface import Action, Settings, TuningSnapshot
from fathom.tuning.state import TuningState
from fathom.tuning.tuner import decide
from unit.tuning.plant import SETTINGS, Fleet

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def wishes(draw: st.DrawFn) -> Settings:
    most = draw(st.integers(1, 12))
    least = draw(st.integers(0, most))
    return replace(
        SETTINGS,
        mode=draw(st.sampled_from([TuningMode.AUTO, TuningMode.ADVISE])),
        max_tokens=most,
        min_tokens=least,
        tokens=draw(st.integers(1, 12)),
        max_batch=draw(st.integers(1, 40)),
        min_gain=draw(st.sampled_from([0.0, 0.01, 0.1])),
        probing=draw(st.booleans()),
        window_seconds=draw(st.sampled_from([5.0, 10.0, 30.0])),
    )


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    chosen = draw(wishes())
    fleet = Fleet(
        settings=chosen,
        replicas=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 1000)),
        acceptance=tuple(draw(st.lists(st.floats(0, 1), min_size=12, max_size=12))),
        concurrency=draw(st.integers(0, chosen.max_batch)),
        jitter=0,
    )
    for pod in fleet.pods:
        pod.pinned_depth = draw(st.none() | st.none() | st.integers(0, 99))
    return fleet


def covers(schedule: Schedule, chosen: Settings) -> bool:
    """Whether a schedule is complete and within the bounds."""
    edges = [1, *(each.last + 1 for each in schedule)]
    return (
        [each.first for each in schedule] == edges[:-1]
        and edges[-1] == chosen.max_batch + 1
        and all(chosen.min_tokens <= each.depth <= chosen.max_tokens for each in schedule)
    )


def well_formed(document: DepthDocument, chosen: Settings) -> bool:
    return covers(document.schedule, chosen) and all(
        covers(each, chosen) for each in document.pods.values()
    )


@few
@given(fleets(), st.data())
def test_bounds_always_hold_and_generations_only_grow(fleet: Fleet, data: st.DataObject) -> None:
    for _ in range(3):
        fleet.run(40)
        fleet.acceptance = tuple(data.draw(st.lists(st.floats(0, 1), min_size=12, max_size=12)))
        fleet.concurrency = data.draw(st.integers(0, fleet.settings.max_batch))
    for _, document in fleet.writes:
        assert well_formed(document, fleet.settings)
    generations = [document.generation for _, document in fleet.writes]
    assert generations == sorted(set(generations))
    free = [pod.name for pod in fleet.pods if pod.pinned_depth is None]
    assert all(sum(pod in document.pods for pod in free) <= 1 for _, document in fleet.writes)


@few
@given(fleets(), wishes())
def test_new_bounds_hold_in_the_very_next_document(fleet: Fleet, other: Settings) -> None:
    fleet.run(30)
    fleet.settings = other
    assert well_formed(fleet.step().document, other)


@few
@given(fleets(), st.sampled_from(["unreadable", "frozen", "not ready"]), st.integers(5, 90))
def test_missing_data_never_moves_anything(fleet: Fleet, how: str, lead_s: int) -> None:
    fleet.run(lead_s)
    if how == "unreadable":
        fleet.readable = False
    elif how == "frozen":
        fleet.frozen_at_s = fleet.now_s
    else:
        for pod in fleet.pods:
            pod.ready = False
    # What was known before may still be acted on once; nothing after that.
    fleet.run(120)
    assert fleet.document is not None
    before = fleet.document.schedule
    count = len(fleet.decisions)
    fleet.run(300)

    assert fleet.document.schedule == before
    assert all(
        decision.action in {Action.HOLD, Action.END_PROBE, Action.POKE}
        for _, decision in fleet.decisions[count:]
    )


@few
@given(fleets(), st.integers(10, 120))
def test_a_restart_from_what_was_persisted_decides_the_same(fleet: Fleet, lead_s: int) -> None:
    fleet.run(lead_s)
    snapshot = fleet.snapshot()
    # All that a restart loses is the last look at each pod.
    restored = replace(
        TuningState.from_json(snapshot.state.to_json()),
        looks=snapshot.state.looks,
        stepped=snapshot.state.stepped,
    )
    assert decide(replace(snapshot, state=restored)) == decide(snapshot)


@few
@given(fleets(), st.integers(0, 90))
def test_deciding_twice_is_deciding_once(fleet: Fleet, lead_s: int) -> None:
    fleet.run(lead_s)
    snapshot = fleet.snapshot()
    once = decide(snapshot)
    again = decide(_carried_out(snapshot, once.document, once.state))

    assert again.document == once.document


def _carried_out(
    snapshot: TuningSnapshot, document: DepthDocument, state: TuningState
) -> TuningSnapshot:
    return replace(snapshot, document=document, document_written_at_s=snapshot.now_s, state=state)


@given(st.text(max_size=200))
def test_any_text_is_a_state(text: str) -> None:
    assert TuningState.from_json(text) == TuningState()
