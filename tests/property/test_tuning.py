"""What must hold whatever the fleet does."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from math import isfinite

from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.api.choices import TuningMode
from fathom.engine.depth import DepthDocument, Schedule, depths_of
from fathom.reconcile.loop_state import kept_state, state_data
from fathom.tuning.assessment import assess
from fathom.tuning.checks.moves import TAKE_BACK_Z
from fathom.tuning.interface import Action, Settings, TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import LARGEST_BYTES, TuningState
from fathom.tuning.policy.policy import Policy
from fathom.tuning.policy.value import CERTAIN_Z
from fathom.tuning.tuner import decide
from unit.tuning.plant import SETTINGS, START_S, Fleet

few = settings(max_examples=25)
JUST_LEFT_S = 600.0


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
        named=draw(st.none() | st.frozensets(st.integers(0, 12)).map(frozenset({most}).union)),
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


def covers(schedule: Schedule, chosen: Settings, depths: Collection[int]) -> bool:
    """Whether a schedule is complete, and of these depths."""
    edges = [1, *(each.last + 1 for each in schedule)]
    return (
        [each.first for each in schedule] == edges[:-1]
        and edges[-1] == chosen.max_batch + 1
        and all(each.depth in depths for each in schedule)
    )


def held_in(fleet: Fleet) -> frozenset[str]:
    """Pods that somebody holds."""
    return frozenset(pod.name for pod in fleet.pods if pod.pinned_depth is not None)


def well_formed(
    document: DepthDocument, fleet: Fleet, *, gone: frozenset[str] = frozenset()
) -> bool:
    """Whether it is complete and within bounds; `gone`: pods that were held while they were."""
    chosen = fleet.settings
    # A pod that somebody holds has its own engine's depths, which are not asked for here.
    any_within = range(chosen.min_tokens, chosen.max_tokens + 1)
    held = held_in(fleet) | gone
    return covers(document.schedule, chosen, chosen.depths) and all(
        covers(each, chosen, any_within if pod in held else chosen.depths)
        for pod, each in document.pods.items()
    )


@few
@given(fleets(), st.data())
def test_bounds_always_hold_and_generations_only_grow(fleet: Fleet, data: st.DataObject) -> None:
    for _ in range(3):
        fleet.run(40)
        fleet.acceptance = tuple(data.draw(st.lists(st.floats(0, 1), min_size=12, max_size=12)))
        fleet.concurrency = data.draw(st.integers(0, fleet.settings.max_batch))
    for _, document in fleet.writes:
        assert well_formed(document, fleet)
    generations = [document.generation for _, document in fleet.writes]
    assert generations == sorted(set(generations))
    free = [pod.name for pod in fleet.pods if pod.pinned_depth is None]
    assert all(sum(pod in document.pods for pod in free) <= 1 for _, document in fleet.writes)


@few
@given(fleets(), wishes())
def test_new_bounds_hold_in_the_very_next_document(fleet: Fleet, other: Settings) -> None:
    fleet.run(30)
    fleet.settings = other
    assert well_formed(fleet.step().document, fleet)


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
    # All that a restart loses is the last look at each pod, and for how long it held its depth.
    restored = replace(
        kept_state(state_data(snapshot.state)).state,
        looks=snapshot.state.looks,
        stepped=snapshot.state.stepped,
        held=snapshot.state.held,
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


# Over minutes in which anything may happen

some = settings(max_examples=10)

Happening = Callable[[Fleet], None]
"""Something that befalls a fleet."""


def _other_traffic(acceptance: float, concurrency: int) -> Happening:
    def happen(fleet: Fleet) -> None:
        fleet.acceptance = (acceptance,) * 16
        fleet.concurrency = min(concurrency, fleet.settings.max_batch)

    return happen


def _unreadable(*, all_of_them: bool) -> Happening:
    def happen(fleet: Fleet) -> None:
        for pod in fleet.pods if all_of_them else fleet.pods[:1]:
            pod.readable = False

    return happen


def _one_more(fleet: Fleet) -> None:
    fleet.add_pod().restart(fleet.now_s)


def _one_less(fleet: Fleet) -> None:
    del fleet.pods[0]


def _restarted(fleet: Fleet) -> None:
    for pod in fleet.pods[-1:]:
        pod.restart(fleet.now_s)


def _not_ready(fleet: Fleet) -> None:
    for pod in fleet.pods[:1]:
        pod.ready = False


def _well_again(fleet: Fleet) -> None:
    for pod in fleet.pods:
        pod.readable = pod.ready = True
    if not fleet.pods:
        fleet.add_pod()


happenings = st.lists(
    st.one_of(
        st.builds(_other_traffic, st.floats(0, 1), st.integers(0, 16)),
        st.builds(_other_traffic, st.sampled_from([0.1, 0.5, 0.7, 0.95]), st.just(4)),
        st.builds(_unreadable, all_of_them=st.booleans()),
        st.sampled_from([_one_more, _one_less, _restarted, _not_ready, _well_again, _well_again]),
    ),
    min_size=3,
    max_size=8,
)


def live_through(fleet: Fleet, befalls: list[Happening]) -> None:
    """A minute or two after each happening."""
    fleet.tick_s = 1.0
    for happen in befalls:
        fleet.run(80)
        if fleet.pods:
            happen(fleet)
        else:
            _well_again(fleet)
    fleet.run(80)


@dataclass
class Watched(Fleet):
    """Looks over the tuner's shoulder: who is left, who is re-entered, and on what evidence."""

    left: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    """When each pair of bucket and depth was left, and under which traffic."""
    flapped: list[str] = field(default_factory=list)
    returns: dict[tuple[int, int], int] = field(default_factory=dict)
    """How often each pair was entered again soon after it had been left."""

    def step(self) -> TuningDecision:
        if self.document is None:
            return super().step()
        most = self.settings.max_batch
        policy = assess(self.snapshot(), self.document).policy
        before = depths_of(self.document.schedule, most)
        decision = super().step()
        after = depths_of(decision.document.schedule, most)
        # Buckets without load have no say, and follow the others.
        for bucket in policy.shares:
            if after[bucket] != before[bucket]:
                self._note(policy, decision, bucket, before[bucket], after[bucket])
        return decision

    def _note(
        self, policy: Policy, decision: TuningDecision, bucket: int, start: int, to: int
    ) -> None:
        epoch = decision.state.survival.epoch
        at_s, under = self.left.get((bucket, to), (0.0, -1))
        if self.now_s - at_s < JUST_LEFT_S and under == epoch:
            gain = policy.evidence.gain(bucket, to, start)
            # A move that was seen to lose is taken back sooner than one is made, and once.
            z = TAKE_BACK_Z if decision.measured_gain is not None else CERTAIN_Z
            self.returns[bucket, to] = self.returns.get((bucket, to), 0) + 1
            if gain is None or gain.lower(z) <= 0:
                self.flapped.append(f"{self.now_s - START_S:.0f} {decision.message}")
        self.left[bucket, start] = (self.now_s, epoch)


@st.composite
def watched_fleets(draw: st.DrawFn) -> Watched:
    fleet = Watched(
        settings=replace(SETTINGS, min_gain=draw(st.sampled_from([0.0, 0.01]))),
        seed=draw(st.integers(0, 1000)),
        replicas=draw(st.integers(1, 3)),
        acceptance=(draw(st.sampled_from([0.3, 0.6, 0.8, 0.95])),) * 16,
        tick_s=1.0,
    )
    for pod in fleet.pods:
        pod.speed_sd = draw(st.sampled_from([0.03, 0.1]))
    return fleet


@some
@given(watched_fleets(), happenings)
def test_a_depth_that_was_left_is_not_entered_again_without_new_evidence(
    fleet: Watched, befalls: list[Happening]
) -> None:
    fleet.run(300)
    live_through(fleet, befalls)
    fleet.run(300)
    assert not fleet.flapped, fleet.flapped
    # Two depths of about the same worth do not take turns.
    assert all(times <= 1 for times in fleet.returns.values()), fleet.returns


@some
@given(fleets(), happenings)
def test_bounds_hold_whatever_happens(fleet: Fleet, befalls: list[Happening]) -> None:
    pinned = held_in(fleet)
    live_through(fleet, befalls)
    assert all(well_formed(document, fleet, gone=pinned) for _, document in fleet.writes)
    assert all(decision.wake_after_s > 0 for _, decision in fleet.decisions)
    # Of pods that nobody pinned, one at a time.
    assert all(len(set(document.pods) - pinned) <= 2 for _, document in fleet.writes)


@some
@given(fleets(), happenings)
def test_what_is_persisted_is_small_finite_and_all_that_decides(
    fleet: Fleet, befalls: list[Happening]
) -> None:
    twin = Fleet(
        settings=fleet.settings,
        replicas=fleet.replicas,
        seed=fleet.seed,
        acceptance=fleet.acceptance,
        concurrency=fleet.concurrency,
        jitter=0,
        between=_through_json,
    )
    for pod, other in zip(twin.pods, fleet.pods, strict=True):
        pod.pinned_depth = other.pinned_depth
    live_through(fleet, befalls)
    live_through(twin, befalls)

    told, told_by_twin = (
        [(decision.action, decision.message, decision.document) for _, decision in each.decisions]
        for each in (fleet, twin)
    )
    assert told_by_twin == told


def _through_json(state: TuningState) -> TuningState:
    """As an operator that is killed after every decision; looks are kept, as if it were quick."""
    text = state.to_json()
    assert len(text.encode()) < LARGEST_BYTES
    assert all(isfinite(each) for each in _numbers(json.loads(text)))
    return replace(TuningState.from_json(text), looks=state.looks, stepped=state.stepped)


def _numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [each for part in value.values() for each in _numbers(part)]
    if isinstance(value, list):
        return [each for part in value for each in _numbers(part)]
    return [value] if isinstance(value, float | int) else []


@some
@given(fleets(), st.integers(0, 400))
def test_missing_data_moves_nothing_from_the_first_decision_on(fleet: Fleet, lead_s: int) -> None:
    fleet.tick_s = 1.0
    fleet.run(lead_s)
    if fleet.document is None:
        return
    blind = replace(
        fleet.snapshot(),
        pods=tuple(replace(pod, counters=None) for pod in fleet.snapshot().pods),
    )
    decision = decide(blind)
    advised = fleet.settings.mode is TuningMode.ADVISE
    assert advised or decision.document.schedule == fleet.document.schedule
    assert decision.state.survival == fleet.state.survival
    assert decision.state.step_times == fleet.state.step_times
    assert decision.state.watches == fleet.state.watches
    assert decision.state.ledger == fleet.state.ledger


@given(st.text(max_size=200))
def test_any_text_is_a_state(text: str) -> None:
    assert TuningState.from_json(text) == TuningState()
