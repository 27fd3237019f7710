from datetime import UTC, datetime
from typing import Any

import pytest

from fathom.cluster.missing_pods import PodGap, gaps_in, gaps_of, refusal
from fathom.cluster.observed import ObservedEvent, ObservedJob, ObservedLeaderWorkerSet
from fathom.cluster.observed_pods import ObservedPod
from fathom.times import rfc3339

REVISION = {"fathom.dev/revision": "abc"}


def group(
    replicas: int = 2, size: int = 2, at_s: float = 5, name: str = "kimi-abc", **labels: str
) -> ObservedLeaderWorkerSet:
    own = {"name": name, "labels": {**REVISION, **labels}, "creationTimestamp": at(at_s)}
    return ObservedLeaderWorkerSet.model_validate(
        {
            "metadata": own,
            "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": size}},
        }
    )


def pod(
    index: int, *, leads: bool, at_s: float = 10, of: str = "kimi-abc", **labels: str
) -> ObservedPod:
    own = {
        "leaderworkerset.sigs.k8s.io/name": of,
        **REVISION,
        "fathom.dev/role": "leader" if leads else "worker",
        "leaderworkerset.sigs.k8s.io/group-index": str(index),
        **labels,
    }
    return ObservedPod.model_validate(
        {"metadata": {"name": "pod", "labels": own, "creationTimestamp": at(at_s)}}
    )


def fetch(**conditions: str) -> ObservedJob:
    return ObservedJob.model_validate(
        {
            "metadata": {"name": "kimi-fetch-1", "uid": "job-1", "creationTimestamp": at(5)},
            "status": {"conditions": [{"type": t, "status": s} for t, s in conditions.items()]},
        }
    )


def fetching(owner: str = "job-1", phase: str = "Running", **metadata: Any) -> ObservedPod:
    own = {"name": "pod", "creationTimestamp": at(10), "ownerReferences": [{"uid": owner}]}
    return ObservedPod.model_validate({"metadata": own | metadata, "status": {"phase": phase}})


def event(message: str, **times: Any) -> ObservedEvent:
    return ObservedEvent.model_validate({"metadata": {"name": "e"}, "message": message, **times})


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


WHOLE = [pod(index, leads=leads) for index in (0, 1) for leads in (True, False)]


def test_whole_groups_lack_nothing() -> None:
    assert gaps_in([group()], WHOLE) == {}
    assert gaps_in([group(replicas=0)], []) == {}


def test_groups_that_were_never_there_lack_their_leaders() -> None:
    assert gaps_in([group()], []) == {"kimi-abc": [PodGap("kimi-abc", 5)]}


def test_leaders_and_the_workers_of_the_first_group_that_lacks_any_are_asked_for() -> None:
    found = [pod(2, leads=True, at_s=30), pod(1, leads=True, at_s=20), *WHOLE[:2]]

    gaps = [PodGap("kimi-abc", 30), PodGap("kimi-abc-1", 20)]
    assert gaps_in([group(replicas=4)], found) == {"kimi-abc": gaps}


def test_pods_of_other_sets_fill_no_gap() -> None:
    others = [pod(1, leads=True, of="kimi-old")]

    assert gaps_in([group()], [*WHOLE[:2], *others]) == {"kimi-abc": [PodGap("kimi-abc", 10)]}


def test_of_many_sets_the_first_of_each_revision_is_asked_for() -> None:
    sets = [group(1, name=f"kimi-abc0{number}") for number in range(4)]
    whole = [pod(0, leads=leads, of="kimi-abc00") for leads in (True, False)]
    alone = [pod(0, leads=True, at_s=20, of="kimi-abc03")]
    other = group(1, name="kimi-old00", **{"fathom.dev/revision": "old"})

    assert gaps_in([*sets[::-1], other], [*whole, *alone]) == {
        "kimi-abc01": [PodGap("kimi-abc01", 5)],
        "kimi-abc03": [PodGap("kimi-abc03-0", 20)],
        "kimi-old00": [PodGap("kimi-old00", 5)],
    }


def test_a_fetch_that_is_under_way_lacks_its_pod_until_there_is_one() -> None:
    assert gaps_of(fetch(), []) == (PodGap("kimi-fetch-1", 5),)
    assert gaps_of(fetch(), [fetching(phase="Pending")]) == ()
    assert gaps_of(fetch(), [fetching("job-of-that-name-before")]) == (PodGap("kimi-fetch-1", 5),)


@pytest.mark.parametrize("gone", [{"phase": "Failed"}, {"deletionTimestamp": at(20)}])
def test_a_pod_that_was_evicted_or_goes_is_to_be_replaced(gone: dict[str, str]) -> None:
    assert gaps_of(fetch(), [fetching(**gone)]) == (PodGap("kimi-fetch-1", 10),)


@pytest.mark.parametrize("ended", ["Complete", "Failed"])
def test_a_fetch_that_has_ended_lacks_nothing(ended: str) -> None:
    assert gaps_of(fetch(**{ended: "True"}), []) == ()
    assert gaps_of(fetch(**{ended: "False"}), []) != ()


@pytest.mark.parametrize(
    "times",
    [
        {"lastTimestamp": at(100)},
        {"eventTime": at(100)},
        {"eventTime": at(50), "series": {"lastObservedTime": at(100)}},
        {"lastTimestamp": at(100), "eventTime": None, "series": None},
    ],
)
def test_what_was_told_since_is_the_reason(times: dict[str, Any]) -> None:
    events = [event("new", **times), event("old", lastTimestamp=at(99))]

    assert refusal(PodGap("kimi-abc", 99), events) == "new"
    assert refusal(PodGap("kimi-abc", 100), events) == "new"
    assert refusal(PodGap("kimi-abc", 101), events) == ""


def test_of_what_was_told_at_once_it_is_always_the_same() -> None:
    events = [event(f"pod {index}", lastTimestamp=at(100)) for index in (2, 0, 1)]

    assert refusal(PodGap("kimi-abc", 0), events) == "pod 0"
    assert refusal(PodGap("kimi-abc", 0), events[::-1]) == "pod 0"


def test_times_are_written_as_kubernetes_writes_them() -> None:
    assert event("a", lastTimestamp=rfc3339(100)).at_s == 100
