"""The status: written once, also where the API server keeps other fields than it was sent."""

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import DEPLOYMENT, SPECULATIVE_DEPLOYMENT, Kind
from fathom.reconcile.last_status import WATCHED_S
from fathom.runtime.loop import RESYNC_S
from fathom.times import rfc3339, unix_seconds
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from support.loop_harness import LoopHarness, holding
from support.surfaces import Surfaces

LONGEST_MESSAGE = 32_768
"""Length of a message of a condition of Kubernetes' own."""


async def writes_at_rest(harness: LoopHarness, hours: float = 1) -> int:
    harness.kube.writes.clear()
    await harness.run_for(hours * 3600)
    return len(harness.kube.news)


def keep(harness: LoopHarness, kept: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Have the API server make something else of each status, from now on and of the one there."""
    store = harness.kube._store

    def stored(place: Any, body: dict[str, Any]) -> Any:
        if place[0] == SPECULATIVE_DEPLOYMENT and "status" in body:
            body = {**body, "status": kept(body["status"])}
        return store(place, body)

    harness.kube._store = stored  # type: ignore[method-assign]
    document = copy.deepcopy(harness.resource)
    harness.kube.put(SPECULATIVE_DEPLOYMENT, {**document, "status": kept(document["status"])})


def events(harness: LoopHarness, reason: str) -> list[str]:
    found = [each.body for each in harness.kube.written("Event")]
    return [each["message"] for each in found if each["reason"] == reason]


# -- what is kept of it


@pytest.mark.parametrize("field", ["ready", "engine", "depth"])
async def test_a_field_that_an_older_crd_does_not_know_is_not_written_for_ever(
    harness: LoopHarness, field: str
) -> None:
    """The CRD is a release behind (`crds.install: false`): what it does not know is pruned."""
    keep(harness, lambda status: {k: v for k, v in status.items() if k != field})
    harness.restart()
    await harness.run_for(300)
    assert await writes_at_rest(harness) == 0


async def test_a_status_that_comes_back_unreadable_is_not_written_for_ever(
    harness: LoopHarness,
) -> None:
    """It lacks what this version takes for granted."""

    def without_times(status: dict[str, Any]) -> dict[str, Any]:
        conditions = [
            {k: v for k, v in each.items() if k != "lastTransitionTime"}
            for each in status["conditions"]
        ]
        return {**status, "conditions": conditions}

    keep(harness, without_times)
    harness.restart()
    await harness.run_for(300)
    assert await writes_at_rest(harness) == 0


async def test_an_older_crd_makes_measurements_no_more_urgent(harness: LoopHarness) -> None:
    keep(harness, lambda status: {k: v for k, v in status.items() if k != "ready"})
    ticks = iter(range(100_000))

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        return replace(holding(snapshot), wake_after_s=5, message=f"{next(ticks)} steps.")

    harness.decide = decide
    harness.restart()
    await harness.run_for(300)
    harness.kube.writes.clear()
    await harness.run_for(600)
    assert 9 <= len(harness.kube.written("SpeculativeDeployment")) <= 10


async def test_what_somebody_added_to_the_status_is_not_answered_for_ever(
    harness: LoopHarness,
) -> None:
    """As `kubectl edit --subresource=status` or a restored backup does: its fields are theirs."""
    document = copy.deepcopy(harness.resource)
    document["status"]["weights"] = {"summary": "554 GiB"}
    harness.kube.put(SPECULATIVE_DEPLOYMENT, document)
    await harness.tick()
    await harness.run_for(300)
    assert await writes_at_rest(harness) == 0


async def test_a_status_that_was_taken_away_is_written_again_as_it_was(
    harness: LoopHarness,
) -> None:
    before = harness.status
    document = copy.deepcopy(harness.resource)
    del document["status"]
    harness.kube.put(SPECULATIVE_DEPLOYMENT, document)
    harness.clock.at_s += 300
    await harness.tick()
    assert harness.status == {**before, "lastReconcileTime": rfc3339(harness.clock.at_s)}
    assert [each.verb for each in harness.kube.news] == ["status"]
    assert await writes_at_rest(harness) == 0


async def test_what_changes_the_status_back_each_time_is_answered_once_a_minute(
    harness: LoopHarness,
) -> None:
    for _ in range(600):
        document = copy.deepcopy(harness.resource)
        document["status"]["ready"] = "7/7"
        harness.kube.put(SPECULATIVE_DEPLOYMENT, document)
        await harness.tick()
        harness.clock.at_s += 1
    assert 9 <= len(harness.kube.written("SpeculativeDeployment")) <= 11


# -- that somebody watches


def watched_s(harness: LoopHarness) -> float:
    """Seconds since the status was last written, by itself."""
    at_s = unix_seconds(harness.status["lastReconcileTime"])
    assert at_s is not None
    return harness.clock.at_s - at_s


async def test_at_rest_one_write_in_ten_minutes_says_that_somebody_watches(
    harness: LoopHarness,
) -> None:
    for _ in range(60):
        await harness.run_for(60)
        assert watched_s(harness) <= WATCHED_S + RESYNC_S
    assert [each.verb for each in harness.kube.writes] == ["status"] * 6
    assert harness.kube.news == []


async def test_that_the_operator_is_gone_is_told_within_25_minutes_by_all(
    harness: LoopHarness,
) -> None:
    last_s = harness.clock.at_s
    soon = Surfaces.of(harness.resource, last_s + 1490)
    late = Surfaces.of(harness.resource, last_s + 1500)

    assert (soon.status, soon.exit_code) == ("llm/kimi is well.", 0)
    assert (soon.top, soon.page) == ((), "")
    assert soon.pause.startswith("llm/kimi is paused: ")
    since = harness.status["lastReconcileTime"]
    assert late.status.startswith(
        f"llm/kimi is not known to be well: No operator has watched it since {since}"
    )
    assert late.exit_code == 1
    assert late.top == (f"Unwatched since {since}",)
    assert late.page.startswith(f"Unwatched: All that is shown is from {since}")
    assert f"no operator has watched since {since}" in late.pause


@pytest.mark.parametrize(("away_s", "writes"), [(300.0, 0), (WATCHED_S, 1)])
async def test_a_restarted_operator_says_that_it_watches_once_that_is_due(
    harness: LoopHarness, away_s: float, writes: int
) -> None:
    harness.clock.at_s += away_s
    harness.restart()
    await harness.run_for(120)
    assert len(harness.kube.writes) == writes


async def test_an_older_crd_that_drops_the_time_is_not_written_to_for_it(
    harness: LoopHarness,
) -> None:
    keep(harness, lambda status: {k: v for k, v in status.items() if k != "lastReconcileTime"})
    harness.restart()
    await harness.run_for(300)
    harness.kube.writes.clear()
    await harness.run_for(3600)
    assert harness.kube.writes == []


async def test_where_it_may_not_be_said_that_somebody_watches_it_is_tried_once_a_minute(
    harness: LoopHarness,
) -> None:
    tried_at_s = refuse(harness, 403)
    await harness.run_for(3600)
    pauses = [after - before for before, after in pairwise(tried_at_s)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 32]
    assert set(pauses[6:]) == {60}


# -- a status that is refused


def refuse(harness: LoopHarness, status: int) -> list[float]:
    """From now on; when it was tried, in Unix seconds, as far as it has been."""
    tried_at_s: list[float] = []

    def refused(verb: str, kind: Kind) -> KubeError | None:
        if verb != "apply" or kind != SPECULATIVE_DEPLOYMENT:
            return None
        tried_at_s.append(harness.clock.at_s)
        return KubeError(status, "not this status")

    harness.kube.fail = refused
    return tried_at_s


@pytest.mark.parametrize("status", [403, 422, 500])
async def test_a_status_that_is_refused_does_not_keep_the_tuner_waiting(
    harness: LoopHarness, status: int
) -> None:
    """By a policy, a webhook, or a CRD whose schema lacks a new value. Depth needs no status."""
    looked_at_s: list[float] = []

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        looked_at_s.append(snapshot.now_s)
        return replace(holding(snapshot), wake_after_s=5)

    harness.decide = decide
    refuse(harness, status)
    harness.edit({"replicas": 3})
    await harness.run_for(3600)
    assert max(after - before for before, after in pairwise(looked_at_s)) <= 5


@pytest.mark.parametrize("replicas", [3, -1])
async def test_a_status_that_is_refused_is_tried_once_a_minute_and_told_once(
    harness: LoopHarness, replicas: int
) -> None:
    """Also where the spec is nonsense, and there is no other to carry out."""
    tried_at_s = refuse(harness, 422)
    harness.edit({"replicas": replicas})
    await harness.run_for(3600)
    pauses = [after - before for before, after in pairwise(tried_at_s)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 32]
    assert set(pauses[6:]) == {60}
    (message,) = events(harness, "StatusRefused")
    assert "not this status" in message
    assert "speculativedeployments/status" in message


async def test_a_status_that_is_taken_at_last_is_all_there_is_to_say(harness: LoopHarness) -> None:
    refuse(harness, 500)
    harness.edit({"replicas": 3})
    await harness.run_for(20)
    harness.kube.fail = lambda _verb, _kind: None
    await harness.run_for(60)
    assert harness.status["ready"] == "2/3"
    assert events(harness, "StatusRefused") == []
    assert await writes_at_rest(harness) == 0


async def test_a_series_of_refusals_begins_with_short_pauses_again(harness: LoopHarness) -> None:
    refuse(harness, 422)
    harness.edit({"replicas": 3})
    await harness.run_for(400)
    # Back to what the status says: there is nothing to write.
    harness.edit({"replicas": 2})
    document = copy.deepcopy(harness.resource)
    document["status"]["observedGeneration"] = document["metadata"]["generation"]
    for each in document["status"]["conditions"]:
        each["observedGeneration"] = document["metadata"]["generation"]
    harness.kube.put(SPECULATIVE_DEPLOYMENT, document)
    await harness.run_for(60)
    tried_at_s = refuse(harness, 422)
    harness.edit({"replicas": 3})
    await harness.run_for(30)
    assert [after - before for before, after in pairwise(tried_at_s)] == [1, 2, 4, 8]


# -- how long it may get


async def test_a_message_is_bounded_and_says_by_how_much() -> None:
    variables = [{"name": f"FATHOM_{i}", "valu": "1"} for i in range(9000)]
    harness = LoopHarness(
        {"podTemplate": {"spec": {"containers": [{"name": "vllm", "env": variables}]}}}
    )
    await harness.tick()
    message = harness.condition("Degraded")["message"]
    assert len(message) <= LONGEST_MESSAGE
    assert "env[0].valu" in message
    assert "more characters" in message
    assert message.endswith("nothing is started.")
    assert harness.kube.names(DEPLOYMENT) == []
