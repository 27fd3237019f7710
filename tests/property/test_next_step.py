"""What is explained as the next step is what is done."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.api.choices import Objective
from fathom.tuning.assessment import assess
from fathom.tuning.explanation import explain
from fathom.tuning.interface import Action, Settings, TuningDecision, TuningSnapshot
from unit.tuning.plant import EASY, HARD, MIDDLE, SETTINGS, Fleet

some = settings(max_examples=20)


@dataclass
class ExplainedFleet(Fleet):
    """A fleet in which each decision is compared with what was explained of the same state."""

    probes: Counter[str] = field(default_factory=Counter)
    """By whether the user's own depth is what was tried."""

    def snapshot(self) -> TuningSnapshot:
        self.asked = super().snapshot()
        return self.asked

    def step(self) -> TuningDecision:
        decision = super().step()
        if self.asked.document is None:
            return decision
        told = explain(
            assess(self.asked, self.asked.document).state,
            self.settings,
            self.asked.document,
            self.now_s,
            pods=sum(pod.ready for pod in self.asked.pods),
        ).next_step
        if decision.action is Action.PROBE:
            _, _, tried = decision.message.partition(" tries ")
            assert told == f"One pod tries {tried.removesuffix(' for some seconds.')}.", told
            self.probes[f"depth {self.settings.tokens} " in tried] += 1
        return decision


@st.composite
def wishes(draw: st.DrawFn) -> Settings:
    most = draw(st.integers(1, 12))
    objective = draw(st.sampled_from([Objective.THROUGHPUT, Objective.GOODPUT]))
    return replace(
        SETTINGS,
        objective=objective,
        tpot_slo_seconds=0.008 if objective is Objective.GOODPUT else None,
        min_tokens=draw(st.integers(0, most)),
        max_tokens=most,
        tokens=draw(st.integers(1, 12)),
        window_seconds=draw(st.sampled_from([5.0, 10.0, 30.0])),
    )


@some
@given(wishes(), st.integers(1, 4), st.integers(0, 1000), st.data())
def test_whatever_the_fleet_does(
    chosen: Settings, replicas: int, seed: int, data: st.DataObject
) -> None:
    fleet = ExplainedFleet(settings=chosen, replicas=replicas, seed=seed, tick_s=1.0)
    for _ in range(3):
        fleet.acceptance = data.draw(st.sampled_from([EASY, MIDDLE, HARD]))
        fleet.concurrency = data.draw(st.integers(0, SETTINGS.max_batch))
        fleet.run(300)


@pytest.mark.parametrize(("min_tokens", "acceptance"), [(1, EASY), (1, HARD), (0, HARD)])
def test_looks_at_the_users_own_depth_and_at_depth_0_are_foreseen(
    min_tokens: int, acceptance: tuple[float, ...]
) -> None:
    """What was measured of the user's own depth is too old after half an hour."""
    chosen = replace(SETTINGS, min_tokens=min_tokens)
    fleet = ExplainedFleet(settings=chosen, acceptance=acceptance, replicas=3, tick_s=1.0)
    for _ in range(18):
        fleet.run(600)
        if min(fleet.probes[True], fleet.probes[False]) > 1:
            return
    raise AssertionError(f"probes that were foreseen, and not, in three hours: {fleet.probes}")


def test_a_probe_right_after_a_verdict_is_foreseen() -> None:
    """Found by `test_whatever_the_fleet_does`."""
    chosen = replace(SETTINGS, min_tokens=0, max_tokens=3, tokens=2, window_seconds=5.0)
    fleet = ExplainedFleet(settings=chosen, replicas=1, seed=0, tick_s=1.0, acceptance=MIDDLE)
    fleet.concurrency = 1
    fleet.run(300)
    assert any("The last move gained" in each.message for _, each in fleet.decisions)
