"""A person's pause: what was measured stays known, and depth stays as it is."""

from dataclasses import replace

from fathom.api.conditions import Reason
from fathom.engine.depth import flat
from fathom.tuning.interface import Action, TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import TuningState
from fathom.tuning.tuner import decide
from unit.tuning.plant import EASY, HARD, Fleet

WHY = "annotation fathom.dev/paused holds depth, rollouts and refreshes."


class Paused(Fleet):
    """A fleet that is paused from some moment on."""

    since_s = float("inf")

    def snapshot(self) -> TuningSnapshot:
        found = super().snapshot()
        return replace(found, paused=WHY) if self.now_s >= self.since_s else found

    def pause(self) -> "Paused":
        self.since_s = self.now_s
        return self


def decisions(fleet: Paused) -> list[TuningDecision]:
    return [each for at_s, each in fleet.decisions if at_s >= fleet.since_s]


def test_depth_stays_whatever_the_traffic_does_and_measuring_goes_on() -> None:
    fleet = Paused(acceptance=EASY)
    fleet.run(600)
    document, known = fleet.document, fleet.state
    assert document is not None
    fleet.pause().acceptance = HARD
    fleet.run(600)

    assert fleet.document is not None
    assert fleet.document.schedule == document.schedule
    assert {each.action for each in decisions(fleet)} <= {
        Action.HOLD,
        Action.END_PROBE,
        Action.POKE,
    }
    assert decisions(fleet)[-1].reason is Reason.PAUSED
    assert decisions(fleet)[-1].message == f"{WHY} Depth stays as it is; measuring continues."
    assert fleet.state.traffic.at_s > known.traffic.at_s

    fleet.since_s = float("inf")
    fleet.run(600)
    assert fleet.depth() < document.schedule[0].depth


def test_a_probe_ends_and_none_begins() -> None:
    fleet = Paused(acceptance=EASY)
    while not fleet.actions(Action.PROBE):
        fleet.run(1)
    fleet.pause().run(120)

    assert fleet.document is not None
    assert fleet.document.pods == {}
    assert fleet.state.probe is None
    assert Action.PROBE not in {each.action for each in decisions(fleet)}


def test_what_a_person_asks_for_outright_is_done() -> None:
    fleet = Paused(acceptance=EASY).pause()
    fleet.run(120)
    fleet.pods[0].pinned_depth = 1
    fleet.run(60)

    assert fleet.document is not None
    assert fleet.document.pods == {"pod-0": flat(1, 16)}


def test_that_no_metrics_can_be_read_is_said_instead() -> None:
    fleet = Paused(acceptance=EASY).pause()
    fleet.run(60)
    fleet.readable = False
    decision = decide(replace(fleet.snapshot(), state=TuningState()))

    assert decision.reason is Reason.NO_METRICS
