from typing import Any

from fathom.api.conditions import ConditionStatus, ConditionType, Reason
from fathom.api.status import Condition, SpeculativeDeploymentStatus
from fathom.cluster.events import LONGEST_MESSAGE, Event, Severity, event_manifest, transitions
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT
from fathom.cluster.manifest import Meta
from fathom.reconcile.status import as_written, essence, same
from fathom.times import rfc3339, unix_seconds


def status(*, ready: bool, degraded: Reason) -> SpeculativeDeploymentStatus:
    def condition(kind: ConditionType, reason: Reason, state: ConditionStatus) -> Condition:
        return Condition(
            type=kind,
            status=state,
            reason=reason,
            message=f"{reason} it is.",
            last_transition_time="2027-01-15T08:00:00Z",
        )

    true, false = ConditionStatus.TRUE, ConditionStatus.FALSE
    well = degraded is Reason.AS_EXPECTED
    return SpeculativeDeploymentStatus(
        conditions=(
            condition(ConditionType.READY, Reason.ALL_REPLICAS_READY, true)
            if ready
            else condition(ConditionType.READY, Reason.REPLICAS_NOT_READY, false),
            condition(ConditionType.DEGRADED, degraded, false if well else true),
        ),
    )


STARTING = status(ready=False, degraded=Reason.AS_EXPECTED)
SERVING = status(ready=True, degraded=Reason.AS_EXPECTED)
FAILING = status(ready=False, degraded=Reason.POD_FAILING)


def told(
    new: SpeculativeDeploymentStatus, old: SpeculativeDeploymentStatus | None
) -> list[tuple[str, str]]:
    return [(each.severity.value, each.reason) for each in transitions(new, old)]


def test_a_resource_that_has_only_begun_is_no_news() -> None:
    assert told(STARTING, None) == []


def test_news_is_what_changed() -> None:
    assert told(SERVING, STARTING) == [("Normal", "AllReplicasReady")]
    assert told(SERVING, SERVING) == []
    assert told(FAILING, SERVING) == [
        ("Warning", "ReplicasNotReady"),
        ("Warning", "PodFailing"),
    ]
    assert told(SERVING, FAILING) == [("Normal", "AllReplicasReady"), ("Normal", "Recovered")]


def test_it_has_recovered_when_all_replicas_are_ready_again() -> None:
    assert told(STARTING, FAILING) == []
    assert told(SERVING, STARTING) == [("Normal", "AllReplicasReady")]


def waiting(reason: Reason) -> SpeculativeDeploymentStatus:
    progressing = Condition(
        type=ConditionType.PROGRESSING,
        status=ConditionStatus.TRUE,
        reason=reason,
        message=f"{reason} it is.",
        last_transition_time="2027-01-15T08:00:00Z",
    )
    return STARTING.model_copy(update={"conditions": (*STARTING.conditions, progressing)})


def test_what_a_new_resource_waits_for_is_told_step_by_step() -> None:
    hub, fetching, starting = map(
        waiting, (Reason.WAITING_FOR_HUB, Reason.FETCHING_WEIGHTS, Reason.STARTING)
    )
    assert told(hub, None) == [("Normal", "WaitingForHub")]
    assert told(hub, hub) == []
    assert told(fetching, hub) == [("Normal", "FetchingWeights")]
    assert told(starting, fetching) == [("Normal", "Starting")]
    assert told(waiting(Reason.UP_TO_DATE), starting) == []


def test_another_reason_for_a_pause_is_written_at_once() -> None:
    paused, renamed = waiting(Reason.PAUSED), waiting(Reason.PAUSED)
    condition = renamed.conditions[-1].model_copy(update={"message": "incident 43"})
    renamed = renamed.model_copy(update={"conditions": (*STARTING.conditions, condition)})
    assert essence(renamed) != essence(paused)
    # Other messages move with every measurement.
    assert essence(waiting(Reason.STARTING)) == essence(
        waiting(Reason.STARTING).model_copy(
            update={
                "conditions": (
                    *STARTING.conditions,
                    condition.model_copy(update={"reason": Reason.STARTING}),
                )
            }
        )
    )


def test_another_reason_to_be_degraded_is_news() -> None:
    assert told(status(ready=False, degraded=Reason.IMAGE_UNAVAILABLE), FAILING) == [
        ("Warning", "ImageUnavailable")
    ]


def test_an_event_is_about_its_resource_and_never_too_long() -> None:
    about = Meta(name="kimi", namespace="llm", uid="u1")
    found: Any = event_manifest(
        Event(Severity.NORMAL, "Rolling", "x" * 5000),
        SPECULATIVE_DEPLOYMENT,
        about,
        now_s=1_800_000_000.0,
        reporter="operator-0",
    )
    assert found["involvedObject"]["uid"] == "u1"
    assert found["involvedObject"]["kind"] == "SpeculativeDeployment"
    assert len(found["message"]) == LONGEST_MESSAGE
    assert found["firstTimestamp"] == "2027-01-15T08:00:00Z"


def test_times_go_there_and_back() -> None:
    assert unix_seconds(rfc3339(1_800_000_000.7)) == 1_800_000_000
    assert unix_seconds("soon") is None


def test_what_is_unknown_is_absent_not_empty() -> None:
    written = as_written(SERVING)
    assert "selector" not in written
    assert written["readyReplicas"] == 0
    assert "tokensPerSecond" not in written["measured"]


def test_the_order_of_conditions_is_no_change() -> None:
    turned = SERVING.model_copy(update={"conditions": SERVING.conditions[::-1]})
    assert same(turned, SERVING)
    assert essence(turned) == essence(SERVING)
    assert not same(STARTING, SERVING)
    assert essence(STARTING) != essence(SERVING)
