"""Restarts for age, carried out: one pod, its record first, and never without being asked."""

import copy
from dataclasses import replace

from fathom.adapters.ports import KubeError
from fathom.api.conditions import AlarmKind, Reason
from fathom.cluster.kinds import CONFIG_MAP, POD, Kind
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.estimate.traffic import DAY_S, HourLoad, Load
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import TuningState
from support.loop_harness import START_S, LoopHarness, holding

DECAY = Alarm(
    kind=AlarmKind.ACCEPTANCE_DECAY,
    reason=Reason.OLDER_REPLICAS_ACCEPT_LESS,
    message="Old ones accept less.",
    recommendation="Restart them.",
    since_s=START_S,
    older_than_s=4 * 3600.0,
)


def decaying(snapshot: TuningSnapshot) -> TuningDecision:
    return replace(holding(snapshot), alarms=(DECAY,))


async def fleet(refresh: str = "Auto") -> LoopHarness:
    """Three replicas of a year's age, ready since the beginning, half an hour later."""
    harness = LoopHarness({"replicas": 3, "rollout.refresh": refresh}, decide=decaying)
    await harness.until_ready()
    harness.clock.at_s = START_S + 1900
    harness.kube.writes.clear()
    return harness


async def test_one_replica_is_restarted_and_no_other_until_it_is_judged() -> None:
    harness = await fleet()
    pods = harness.kube.names(POD)
    await harness.tick()
    (gone,) = set(pods) - set(harness.kube.names(POD))
    written = [(each.verb, each.kind) for each in harness.kube.writes]
    assert written.index(("apply", "ConfigMap")) < written.index(("delete", "Pod"))
    (event,) = [e for e in harness.kube.written("Event") if e.body["reason"] == "Refreshing"]
    assert event.body["message"].startswith(f"{gone} has run for")
    harness.play_controllers()
    await harness.run_for(3600)
    assert len(harness.kube.written("Pod")) == 1
    assert (
        "Now: 1 of 3 replicas started within 24 h"
        in harness.condition("AcceptanceDecay")["message"]
    )


async def test_a_pod_whose_node_died_is_not_waited_for() -> None:
    """It was replaced, and stands there until somebody removes its Node object."""
    harness = await fleet()
    lost = copy.deepcopy(harness.kube.all_of(POD)[0])
    lost["metadata"] |= {"name": "kimi-lost", "deletionTimestamp": "2027-01-14T08:00:00Z"}
    harness.kube.put(POD, lost)
    await harness.tick()
    assert [each.verb for each in harness.kube.written("Pod")] == ["delete"]


async def test_a_killed_operator_restarts_no_second_one() -> None:
    harness = await fleet()
    await harness.tick()
    harness.restart()
    await harness.run_for(600)
    harness.play_controllers()
    await harness.run_for(600)
    assert [each.verb for each in harness.kube.written("Pod")] == ["delete"]


async def test_nothing_is_restarted_unless_its_record_is_written() -> None:
    harness = await fleet()

    def refused(verb: str, kind: Kind) -> KubeError | None:
        return KubeError(403, "no") if (verb, kind) == ("apply", CONFIG_MAP) else None

    harness.kube.fail = refused
    await harness.run_for(300)
    assert harness.kube.written("Pod") == []


async def test_never_is_the_default_and_says_so() -> None:
    harness = await fleet("Never")
    await harness.run_for(600)
    assert harness.kube.written("Pod") == []
    assert "rollout.refresh is Never" in harness.condition("AcceptanceDecay")["message"]


async def test_a_restart_waits_for_an_hour_that_is_quiet_and_followed_by_another() -> None:
    """A replica that is restarted is missing for about an hour."""
    quiet = {8, *range(10, 21)}  # but not 9 o'clock
    hours = tuple(
        HourLoad(hour, ((4, 60.0 if hour in quiet else 3000.0),), 3600.0) for hour in range(24)
    )
    busy = TuningState(load=Load(hours, START_S - DAY_S, START_S))
    harness = await fleet()
    harness.decide = lambda snapshot: replace(decaying(snapshot), state=busy)
    await harness.tick()
    assert harness.kube.written("Pod") == []
    assert "waits for an hour of low load" in harness.condition("AcceptanceDecay")["message"]
    harness.clock.at_s += 3600
    await harness.tick()
    assert harness.kube.written("Pod") == []
    harness.clock.at_s += 3600
    await harness.tick()
    assert [each.verb for each in harness.kube.written("Pod")] == ["delete"]


async def test_a_rollout_goes_first() -> None:
    harness = await fleet()
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await harness.run_for(300)
    assert harness.kube.written("Pod") == []
