"""What is said of engines of which some cannot be read: of those, nothing is known."""

from dataclasses import dataclass, replace

import pytest

from fathom.api.conditions import Reason
from fathom.tuning.interface import Action, TuningDecision, TuningSnapshot
from unit.tuning.plant import EASY, WINDOW_30, Fleet, Pod

UNKNOWN = (
    "Whether 1 of 2 ready pods serves is not known, and the others have made no step lately; depth "
    "stays as it is."
)
IDLE = "No engine step lately; depth stays as it is."


class Idle(Fleet):
    """A fleet whose first pod alone has traffic, or none has."""

    busy = True

    def batch_of(self, pod: Pod) -> int:
        return 4 if self.busy and pod is self.busy_pod else 0

    @property
    def last(self) -> TuningDecision:
        return self.decisions[-1][1]

    @property
    def busy_pod(self) -> Pod:
        return self.pods[0]

    def since(self, at_s: float) -> list[TuningDecision]:
        return [each for made_s, each in self.decisions if made_s > at_s]


@dataclass
class Scraped(Idle):
    """An idle fleet behind a Prometheus."""

    busy = False
    every_s: float = 60.0
    lag_s: float = 0.0
    """Lag of a remote write."""

    def snapshot(self) -> TuningSnapshot:
        found = super().snapshot()
        pods = []
        for number, pod in enumerate(found.pods):
            first_s = number * self.every_s / len(found.pods)
            ago_s = (self.now_s - self.lag_s - first_s) % self.every_s + self.lag_s
            assert pod.counters is not None
            pods.append(replace(pod, counters=replace(pod.counters, at_s=self.now_s - ago_s)))
        return replace(found, pods=tuple(pods))


def idle(**changes: object) -> Idle:
    return Idle(settings=WINDOW_30, acceptance=EASY, **changes)  # type: ignore[arg-type]


def test_an_idle_pod_does_not_hide_a_busy_one_that_cannot_be_read() -> None:
    fleet = idle().run(600)
    fleet.busy_pod.readable = False
    before_s = fleet.now_s
    fleet.run(600)

    assert fleet.last.reason is Reason.MEASURING
    assert fleet.last.message == UNKNOWN
    assert Reason.NO_TRAFFIC not in {each.reason for each in fleet.since(before_s)}
    # It is looked for at every window, and nothing is decided meanwhile.
    assert fleet.last.wake_after_s == WINDOW_30.window_seconds
    assert {each.action for each in fleet.since(before_s)} <= {Action.HOLD, Action.END_PROBE}
    assert fleet.document is not None
    assert not fleet.document.pods


def test_what_one_look_could_not_read_is_known_from_the_one_before() -> None:
    fleet = idle().run(300)
    fleet.busy = False
    fleet.run(300)
    before_s = fleet.now_s
    for _ in range(5):
        fleet.busy_pod.readable = not fleet.busy_pod.readable
        fleet.run(60)

    assert {each.message for each in fleet.since(before_s)} == {IDLE}


def test_all_that_is_idle_and_read_again_is_told_to_be_idle() -> None:
    fleet = idle().run(300)
    fleet.busy_pod.readable = False
    fleet.run(300)
    fleet.busy, fleet.busy_pod.readable = False, True
    fleet.run(300)

    assert fleet.last.reason is Reason.NO_TRAFFIC
    assert fleet.last.message == IDLE


def test_a_pod_that_is_new_is_not_idle_at_its_first_look() -> None:
    fleet = idle(replicas=1).run(300)
    fleet.busy = False
    fleet.run(300)
    fleet.add_pod()
    decision = fleet.step()

    assert (decision.reason, decision.message) == (Reason.MEASURING, UNKNOWN)
    assert decision.wake_after_s == WINDOW_30.window_seconds
    fleet.run(90)
    assert fleet.last.message == IDLE


@pytest.mark.parametrize("unread", [False, True])
def test_the_first_traffic_is_looked_for_more_often_while_a_pod_is_unread(*, unread: bool) -> None:
    fleet = idle()
    fleet.busy = False
    fleet.pods[1].readable = not unread
    fleet.run(300)

    assert fleet.last.message == "Waits for the first window with traffic."
    windows = 1 if unread else 2
    assert fleet.last.wake_after_s == windows * WINDOW_30.window_seconds


def test_a_probe_on_a_pod_that_is_no_longer_read_ends() -> None:
    fleet = idle()
    while not fleet.actions(Action.PROBE):
        fleet.run(1)
    probe = fleet.state.probe
    assert probe is not None
    assert probe.pod == fleet.busy_pod.name
    fleet.busy_pod.readable = False
    fleet.run(120)

    assert fleet.state.probe is None
    assert fleet.document is not None
    assert not fleet.document.pods


def test_who_did_not_obey_and_is_no_longer_read_has_not_begun_to() -> None:
    fleet = idle(replicas=3)
    fleet.busy_pod.deaf = True
    fleet.run(400)
    deaf = fleet.busy_pod.name
    assert fleet.last.not_obeyed == (deaf,)
    fleet.busy_pod.readable = False
    before_s = fleet.now_s
    fleet.run(300)

    assert not [each for each in fleet.since(before_s) if "obey again" in each.message]
    assert fleet.last.not_obeyed == (deaf,)
    fleet.busy_pod.readable, fleet.busy_pod.deaf = True, False
    fleet.run(120)
    assert [each for each in fleet.since(before_s) if f"{deaf} obey again" in each.message]
    assert fleet.last.not_obeyed == ()


def test_headroom_is_that_of_the_pods_whose_load_is_known() -> None:
    fleet = Fleet(settings=WINDOW_30, acceptance=EASY, replicas=2, concurrency=12).run(600)
    fleet.concurrency = 4
    fleet.run(300)
    whole = fleet.decisions[-1][1].headroom_tokens_per_second
    fleet.pods[1].readable = False
    fleet.run(300)
    known = fleet.decisions[-1][1].headroom_tokens_per_second

    assert whole is not None
    assert known is not None
    assert whole > 0
    # Both serve alike: of one, half of it is known.
    assert known == pytest.approx(whole / 2, rel=0.3)


def test_traffic_that_begins_at_rest_is_seen_within_a_minute_whatever_wakes_it() -> None:
    fleet = idle().run(300)
    fleet.busy = False
    fleet.run(300)
    while fleet.decisions[-1][0] != fleet.now_s - fleet.tick_s:
        fleet.run(fleet.tick_s)
    looked_at_s, traffic = fleet.decisions[-1][0], fleet.state.traffic
    fleet.busy = True
    fleet.run(20)
    # As when a watch tells of something else: too soon to measure by.
    fleet.step()
    assert fleet.state.traffic == traffic
    fleet.run(looked_at_s + 61 - fleet.now_s)
    assert fleet.state.traffic.at_s > traffic.at_s


@pytest.mark.parametrize(("every_s", "lag_s"), [(15, 5), (30, 0.2), (60, 20), (60, 40), (120, 1)])
def test_idle_pods_behind_a_prometheus_stay_idle_and_are_looked_at_once_a_minute(
    every_s: float, lag_s: float
) -> None:
    fleet = Scraped(settings=WINDOW_30, acceptance=EASY, replicas=3, every_s=every_s, lag_s=lag_s)
    fleet.state = idle().run(300).state
    fleet.run(600)
    before_s = fleet.now_s
    fleet.run(1800)
    told = fleet.since(before_s)

    assert {each.reason for each in told} <= {Reason.NO_TRAFFIC}
    assert len(told) <= 31


def test_steps_that_all_mix_depths_are_traffic() -> None:
    fleet = Fleet().run(60)
    for pod in fleet.pods:
        pod.mixes_depths = True
    fleet.run(60)
    decision = fleet.decisions[-1][1]

    assert decision.reason is Reason.MEASURING
    assert decision.message.startswith("All steps mix two depths lately")
