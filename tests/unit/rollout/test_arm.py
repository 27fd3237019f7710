from typing import Any

import pytest

from fathom.rollout.replicas import all_replicas, arm_of, beside_arm, why_no_arm
from fathom.rollout.revision import changed_restart_fields, revision_of
from manifest_samples import resource

CANARY = {"speculation.adaptiveVerification": "Canary"}
DRAFTING = {"speculation.drafting": "Canary"}
ENABLED = {"speculation.adaptiveVerification": "Enabled"}


def test_the_arm_is_what_enabled_would_make_of_all() -> None:
    arm = arm_of(resource(CANARY).spec)
    assert arm == resource(ENABLED).spec


def test_the_one_without_drafts_is_what_disabled_would_make_of_all() -> None:
    comparing, off = resource(DRAFTING), resource({"speculation.drafting": "Disabled"})
    assert comparing.spec.drafts
    assert arm_of(comparing.spec) == off.spec
    assert revision_of(comparing) == revision_of(resource())


@pytest.mark.parametrize(
    "changes", [{}, ENABLED, CANARY | {"speculation.drafting": "Disabled"}], ids=str
)
def test_there_is_none_where_none_is_asked_for(changes: dict[str, Any]) -> None:
    assert arm_of(resource(changes).spec) is None


def test_to_compare_restarts_no_replica_but_one() -> None:
    without, comparing = resource(), resource(CANARY)
    assert revision_of(comparing) == revision_of(without)
    assert changed_restart_fields(comparing, resource(ENABLED)) == (
        "spec.speculation.adaptiveVerification",
    )


@pytest.mark.parametrize(
    ("changes", "beside"),
    [
        ({"replicas": 3}, 3),
        ({"replicas": 3, "rollout.maxSurge": 0}, 2),
        ({"replicas": 3, "rollout.maxSurge": 1, "rollout.maxUnavailable": 0}, 3),
        ({"replicas": 9, "rollout.maxSurge": 0, "rollout.maxUnavailable": 4}, 8),
    ],
)
def test_it_takes_the_place_of_one_or_none(changes: dict[str, Any], beside: int) -> None:
    assert beside_arm(resource(CANARY | changes).spec) == beside


@pytest.mark.parametrize(
    ("changes", "cure"),
    [
        ({"replicas": 2}, ""),
        ({"replicas": 1}, ""),
        (
            {"replicas": 1, "rollout.maxSurge": 0},
            "set spec.replicas to 2 or more, or spec.rollout.maxSurge to 1",
        ),
        ({"replicas": 0, "rollout.maxSurge": 1}, "set spec.replicas to 2 or more"),
        ({"replicas": 2, "rollout.canaryMinutes": 0}, "set it to 20 or more"),
    ],
)
def test_it_needs_a_neighbour_and_time(changes: dict[str, Any], cure: str) -> None:
    found = why_no_arm(resource(CANARY | changes).spec)
    assert cure in found
    assert bool(found) == bool(cure)


@pytest.mark.parametrize(
    ("changes", "replicas"),
    [
        (CANARY | {"replicas": 2, "rollout.maxSurge": 0}, 2),
        (CANARY | {"replicas": 2, "rollout.maxSurge": 1}, 3),
        # It waits for a neighbour, or nobody asked for it: only what the user wrote.
        (CANARY | {"replicas": 1, "rollout.maxSurge": 0}, 1),
        ({"replicas": 2, "rollout.maxSurge": 1}, 2),
    ],
)
def test_replicas_in_all_count_the_one_that_is_compared(
    changes: dict[str, Any], replicas: int
) -> None:
    assert all_replicas(resource(changes).spec) == replicas
