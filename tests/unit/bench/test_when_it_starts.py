"""A bench takes no place that the fleet needs: it does not start while one is needed."""

from dataclasses import replace
from typing import Any

import pytest

from fathom.api.conditions import ConditionStatus, ConditionType, Reason
from fathom.api.status import Condition, RolloutStatus, SpeculativeDeploymentStatus
from fathom.bench.planning import require_all_placed
from fathom.bench.request import BenchRefusedError
from unit.bench.benches import sample

AT_REST = {"observed_generation": 3, "ready_replicas": 2}


def start(replicas: int = 2, **status: Any) -> None:
    sd = sample({"replicas": replicas})
    sd = replace(sd, metadata=sd.metadata.model_copy(update={"generation": 3}))
    require_all_placed(sd, SpeculativeDeploymentStatus(**{**AT_REST, **status}))


def progressing(status: ConditionStatus, reason: Reason) -> tuple[Condition, ...]:
    return (
        Condition(
            type=ConditionType.PROGRESSING,
            status=status,
            reason=reason,
            message="one surplus replica is draining.",
            last_transition_time="2027-01-15T08:00:00Z",
        ),
    )


def rollout(stage: str) -> RolloutStatus:
    return RolloutStatus(revision="abcde", stable="fghij", stage=stage, message="pod x starts.")


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"rollout": rollout("Complete")},
        {"rollout": rollout("RolledBack")},
        {"conditions": progressing(ConditionStatus.FALSE, Reason.UP_TO_DATE)},
    ],
)
def test_beside_a_fleet_that_lacks_nothing_it_starts(status: dict[str, Any]) -> None:
    start(**status)


def test_of_a_fleet_of_none_nothing_is_missing() -> None:
    start(replicas=0, ready_replicas=0)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"observed_generation": 2}, "has not acted upon the newest edit of kimi yet"),
        ({"ready_replicas": 1}, "1 of 2 replicas of kimi are ready"),
        ({"rollout": rollout("Settling")}, "kimi rolls out revision abcde: pod x starts."),
        ({"rollout": rollout("Canary")}, "kimi rolls out revision abcde: pod x starts."),
        ({"rollout": rollout("Promoted")}, "kimi rolls out revision abcde: pod x starts."),
        (
            {"conditions": progressing(ConditionStatus.TRUE, Reason.SCALING)},
            "one surplus replica is draining.",
        ),
    ],
)
def test_while_a_replica_may_need_its_place_it_does_not(status: dict[str, Any], why: str) -> None:
    with pytest.raises(BenchRefusedError, match=why.replace(".", r"\.")):
        start(**status)
