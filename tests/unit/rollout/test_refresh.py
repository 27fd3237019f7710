"""When a replica is restarted for its age, and all that keeps it from being."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.cluster.observed_pods import ObservedPod
from fathom.rollout.refresh import (
    MOST_A_DAY,
    SETTLE_S,
    PastRefresh,
    RefreshInput,
    RefreshLog,
    most_a_day,
    next_refresh,
)

NOW_S = 1_800_000_000.0
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


def pod(
    name: str,
    days: float,
    *,
    ready: bool = True,
    ready_for_s: float | None = None,
    terminating: bool = False,
    restarts: int = 0,
    sidecar_restarts: int = 0,
    pinned: bool = False,
    now_s: float = NOW_S,
) -> ObservedPod:
    """A pod of some age in days; ready since then, unless said otherwise."""

    def at(at_s: float) -> str:
        return datetime.fromtimestamp(at_s, UTC).isoformat()

    age_s = days * DAY_S
    metadata: dict[str, Any] = {"name": name, "creationTimestamp": at(now_s - age_s)}
    if terminating:
        metadata["deletionTimestamp"] = at(now_s)
    if pinned:
        metadata["annotations"] = {"fathom.dev/pin-depth": "3"}
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": at(now_s - (age_s if ready_for_s is None else ready_for_s)),
    }
    status = {
        "conditions": [condition],
        "containerStatuses": [
            {"name": "istio-proxy", "restartCount": sidecar_restarts},
            {"name": "vllm", "restartCount": restarts},
        ],
    }
    return ObservedPod.model_validate({"metadata": metadata, "status": status})


FLEET = (pod("a", 5), pod("b", 9), pod("c", 7), pod("d", 2))
DECAYED = RefreshInput(
    now_s=NOW_S,
    auto=True,
    paused="",
    decay_since_s=NOW_S - 3 * HOUR_S,
    decay_after_s=None,
    busy=False,
    trough=True,
    replicas=4,
    max_unavailable=1,
    pods=FLEET,
)


def log(*refreshes: tuple[str, float]) -> RefreshLog:
    """Pods refreshed so many hours ago."""
    return RefreshLog(tuple(PastRefresh(p, NOW_S - hours * HOUR_S) for p, hours in refreshes))


def test_the_oldest_goes_first_and_is_remembered_before() -> None:
    refresh = next_refresh(DECAYED)

    assert refresh.pod == "b"
    assert refresh.why == (
        "b has run for 216 h, and replicas that run for long accept less: it is restarted while "
        "the load is low, one of at most 2 in 24 h."
    )
    assert refresh.log == log(("b", 0))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"auto": False}, "rollout.refresh is Never: replicas are not restarted for their age."),
        ({"decay_since_s": None}, "no replica is known to accept less because it runs for long."),
        (
            {"paused": "rollout.paused holds everything but scaling."},
            "rollout.paused holds everything but scaling.",
        ),
        (
            {"busy": True},
            "a rollout, a canary or a quality check is under way, and goes first.",
        ),
        (
            {"max_unavailable": 0},
            "rollout.maxUnavailable is 0: no replica may be missing, not even for its restart.",
        ),
        (
            {"max_unavailable": 4},
            (
                "of replicas: 4 with rollout.maxUnavailable: 4 none might be left to serve during "
                "a restart."
            ),
        ),
        (
            {"replicas": 1, "pods": FLEET[:1]},
            (
                "of replicas: 1 with rollout.maxUnavailable: 1 none might be left to serve during "
                "a restart."
            ),
        ),
        (
            {"pods": (*FLEET[:3], pod("d", 2, ready=False))},
            "d is not ready: one replica is missing at a time.",
        ),
        (
            {"pods": (*FLEET, pod("e", 1, terminating=True))},
            "e is not ready: one replica is missing at a time.",
        ),
        (
            {"pods": FLEET[:3]},
            "3 replicas exist and 4 are asked for: scaling first.",
        ),
        (
            {"replicas": 3},
            "4 replicas exist and 3 are asked for: scaling first.",
        ),
        (
            {"pods": (*FLEET[:3], pod("d", 2, ready_for_s=29 * MINUTE_S))},
            (
                "d has just become ready: it serves for 30 minutes before the next one goes, to be "
                "compared."
            ),
        ),
        (
            {"decay_since_s": NOW_S - 10 * DAY_S},
            (
                "every replica was started after the alarm was raised 240 h ago, and it is "
                "still active: restarts do not help, so there are no more of them. Look for what "
                "else differs between replicas: node, GPU, or the requests that reach them."
            ),
        ),
        (
            {"log": log(("x", 1), ("y", 23))},
            "2 of 4 replicas started within 24 h, and at most 2 are started for their age.",
        ),
        (
            {"log": log(("x", 1)), "pods": (*FLEET[:2], pod("m", 0.1), pod("n", 0.2))},
            "2 of 4 replicas started within 24 h, and at most 2 are started for their age.",
        ),
        (
            {"decay_after_s": 10 * DAY_S},
            (
                "no replica has run for 240 h yet, except those that are pinned: younger "
                "ones are not restarted."
            ),
        ),
        ({"trough": False}, "b waits for an hour of low load to be restarted."),
        (
            {"trough": False, "decay_since_s": NOW_S - 2 * DAY_S},
            (
                "b waits for an hour of low load to be restarted, and the alarm has lasted "
                "48 h: delete it if that is too long."
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_keeps_a_replica_from_being_restarted_is_said(
    changes: dict[str, Any], why: str
) -> None:
    given = replace(DECAYED, **changes)

    refresh = next_refresh(given)

    assert (refresh.pod, refresh.why) == (None, why)
    assert refresh.log == given.log


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ({"log": log(("x", 1))}, "b"),
        ({"log": log(("x", 25), ("y", 30))}, "b"),
        # Decided and never deleted: the same one again, and it counts only once.
        ({"log": log(("b", 1), ("b", 2))}, "b"),
        # An autoscaler's new pods count for one.
        ({"pods": (*FLEET[:2], pod("m", 0.1), pod("n", 0.2))}, "b"),
        ({"pods": (*FLEET[:3], pod("d", 2, ready_for_s=SETTLE_S))}, "b"),
        ({"pods": (FLEET[0], pod("b", 9, pinned=True), *FLEET[2:])}, "c"),
        # Its container was restarted, so its engine is younger than the pod.
        ({"pods": (FLEET[0], pod("b", 9, restarts=1, ready_for_s=DAY_S), *FLEET[2:])}, "c"),
        # A sidecar was: that makes no engine younger.
        ({"pods": (FLEET[0], pod("b", 9, sidecar_restarts=1, ready_for_s=DAY_S), *FLEET[2:])}, "b"),
        # Nor does a readiness that came and went.
        ({"pods": (FLEET[0], pod("b", 9, ready_for_s=HOUR_S), *FLEET[2:])}, "b"),
        ({"decay_after_s": 9 * DAY_S}, "b"),
        ({"max_unavailable": 3}, "b"),
    ],
    ids=str,
)
def test_a_replica_is_restarted_all_the_same(changes: dict[str, Any], chosen: str) -> None:
    assert next_refresh(replace(DECAYED, **changes)).pod == chosen


@pytest.mark.parametrize(
    ("replicas", "most"), [(2, 1), (3, 1), (4, 2), (9, 3), (24, MOST_A_DAY), (300, MOST_A_DAY)]
)
def test_a_day_is_bounded_for_small_and_large_fleets(replicas: int, most: int) -> None:
    assert most_a_day(replicas) == most


@pytest.mark.parametrize("stage", ["terminating", "starting", "just ready", "settled"])
def test_killed_after_the_deletion_and_without_a_log_no_second_one_goes(stage: str) -> None:
    old, successor = pod("b", 9), pod("new", 0.1)
    fleet = {
        "terminating": (pod("a", 9, terminating=True), old, pod("new", 0, ready=False)),
        "starting": (old, pod("new", 0.02, ready=False)),
        "just ready": (old, pod("new", 0.05, ready_for_s=MINUTE_S)),
        "settled": (old, successor),
    }
    given = replace(DECAYED, replicas=2, pods=fleet[stage], log=RefreshLog())

    assert next_refresh(given).pod is None


def test_killed_before_the_deletion_the_same_one_goes_again() -> None:
    first = next_refresh(DECAYED)

    again = next_refresh(replace(DECAYED, now_s=NOW_S + HOUR_S, log=first.log))

    assert again.pod == first.pod == "b"
    assert again.log == log(("b", -1))


def test_the_log_survives_a_restart_of_the_operator() -> None:
    written = log(("x", 1), ("y", 23))

    assert RefreshLog.read(written.to_json()) == written
    later = {**json.loads(written.to_json()), "later": 1}
    assert RefreshLog.read(json.dumps(later)) == written


@pytest.mark.parametrize("text", ["", "{", "[]", '{"refreshes": [{"pod": "a", "at_s": NaN}]}'])
def test_a_log_that_cannot_be_read_is_none(text: str) -> None:
    assert RefreshLog.read(text) is None


def test_the_log_stays_small() -> None:
    kept = RefreshLog()
    for i in range(1000):
        kept = kept.with_one(f"{'x' * 200}{i}", NOW_S + i)

    assert [each.at_s for each in kept.refreshes] == [NOW_S + i for i in range(992, 1000)]
    assert len(kept.to_json()) < 4096
    assert kept.with_one("y", NOW_S + 2 * DAY_S).refreshes == (PastRefresh("y", NOW_S + 2 * DAY_S),)


@dataclass
class Sim:
    """A fleet whose pods load for an hour, drain for minutes, and crash."""

    replicas: int
    max_unavailable: int
    now_s: float = NOW_S
    log: RefreshLog = field(default_factory=RefreshLog)
    names: int = 0
    created: dict[str, float] = field(default_factory=dict)
    ready_at: dict[str, float] = field(default_factory=dict)
    drained_at: dict[str, float] = field(default_factory=dict)
    refreshed_at: list[float] = field(default_factory=list)

    def start(self, age_s: float = 0.0, load_s: float = HOUR_S) -> None:
        name = f"pod-{self.names}"
        self.names += 1
        self.created[name] = self.now_s - age_s
        self.ready_at[name] = self.now_s - age_s + load_s

    def delete(self, name: str) -> None:
        self.drained_at[name] = self.now_s + 150.0
        self.start()

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        for name in [each for each, at_s in self.drained_at.items() if at_s <= self.now_s]:
            for known in (self.created, self.ready_at, self.drained_at):
                del known[name]

    def pods(self) -> Iterable[ObservedPod]:
        for name, created_s in self.created.items():
            yield pod(
                name,
                (self.now_s - created_s) / DAY_S,
                ready=self.ready_at[name] <= self.now_s,
                ready_for_s=self.now_s - self.ready_at[name],
                terminating=name in self.drained_at,
                now_s=self.now_s,
            )

    def given(self, *, trough: bool) -> RefreshInput:
        return replace(
            DECAYED,
            now_s=self.now_s,
            # Raised anew again and again, so that only the other bounds hold.
            decay_since_s=self.now_s - HOUR_S,
            trough=trough,
            replicas=self.replicas,
            max_unavailable=self.max_unavailable,
            pods=tuple(self.pods()),
            log=self.log,
        )


EVENTS = st.tuples(
    st.sampled_from(["look", "look", "look", "crash", "killed", "log lost", "peak"]),
    st.floats(min_value=1.0, max_value=8 * HOUR_S),
    st.integers(min_value=0, max_value=100),
)


@given(
    st.integers(min_value=1, max_value=12),
    st.integers(min_value=0, max_value=4),
    st.lists(EVENTS, min_size=20, max_size=80),
)
def test_never_two_at_once_never_too_few_never_too_many(
    replicas: int, max_unavailable: int, events: list[tuple[str, float, int]]
) -> None:
    fleet = Sim(replicas, max_unavailable)
    for i in range(replicas):
        fleet.start(age_s=(2 + i) * DAY_S)
    log_lost = False
    for event, seconds, which in events:
        fleet.wait(seconds)
        if event == "crash":
            fleet.ready_at[sorted(fleet.ready_at)[which % len(fleet.ready_at)]] = (
                fleet.now_s + HOUR_S
            )
        if event == "log lost":
            fleet.log, log_lost = RefreshLog(), True
        given = fleet.given(trough=event != "peak")
        refresh = next_refresh(given)
        if event == "killed" or refresh.pod is None:
            fleet.log = refresh.log
            continue
        ready = [each.name for each in given.pods if each.ready]
        assert event != "peak"
        assert refresh.pod in ready
        assert len(given.pods) == len(ready) == replicas
        assert len(ready) - 1 >= max(1, replicas - max_unavailable)
        fleet.log = refresh.log
        fleet.delete(refresh.pod)
        fleet.refreshed_at.append(fleet.now_s)
        recent = sum(fleet.now_s - at_s < DAY_S for at_s in fleet.refreshed_at)
        assert log_lost or recent <= most_a_day(replicas)
    gaps = [b - a for a, b in zip(fleet.refreshed_at, fleet.refreshed_at[1:], strict=False)]
    assert all(gap >= HOUR_S + SETTLE_S for gap in gaps)


def test_a_decayed_fleet_is_renewed_over_some_days_and_then_left_alone() -> None:
    fleet = Sim(replicas=6, max_unavailable=1)
    for i in range(6):
        fleet.start(age_s=(5 + i) * DAY_S)
    since_s = fleet.now_s
    whys = []
    for _ in range(5 * 24 * 12):
        fleet.wait(5 * MINUTE_S)
        night = fleet.now_s % DAY_S < 8 * HOUR_S
        refresh = next_refresh(replace(fleet.given(trough=night), decay_since_s=since_s))
        whys.append(refresh.why)
        if refresh.pod is not None:
            fleet.log = refresh.log
            fleet.delete(refresh.pod)
            fleet.refreshed_at.append(fleet.now_s)

    by_day = [int((at_s - since_s) // DAY_S) for at_s in fleet.refreshed_at]
    assert all(at_s % DAY_S < 8 * HOUR_S for at_s in fleet.refreshed_at)
    assert len(by_day) == 6
    assert max(by_day.count(day) for day in by_day) == 2
    assert all(created_s > since_s for created_s in fleet.created.values())
    assert "restarts do not help" in whys[-1]
