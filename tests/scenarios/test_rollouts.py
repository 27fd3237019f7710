"""Whole rollouts on the real loop, step by step, on a cluster that the clock of the test moves.

`A` is the revision that served before, `B` the one that the spec asks for, `C` a later one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, Kind
from support.played_cluster import Engine, PlayedCluster

OLD = "vllm/vllm-openai:v0.32.0"
NEW = "vllm/vllm-openai:v0.32.1"
NEWEST = "vllm/vllm-openai:v0.32.2"
LONGEST_S = 12 * 3600.0

Steps = list[tuple[str, dict[str, int]]]

SETTLING = ("Settling", {"A": 3})
CANARY: Steps = [
    SETTLING,
    ("Canary", {"A": 3}),  # B's workload, without a replica
    ("Canary", {"A": 2}),
    ("Canary", {"A": 2, "B": 1}),
]
PROMOTED: Steps = [
    ("Promoted", {"A": 1, "B": 1}),
    ("Promoted", {"A": 1, "B": 2}),
    ("Promoted", {"B": 2}),
    ("Promoted", {"B": 3}),
    ("None", {"B": 3}),
]
BACK: Steps = [("RolledBack", {"A": 2}), ("RolledBack", {"A": 3})]


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


def ended(cluster: PlayedCluster) -> bool:
    """No rollout is under way, and every replica that is wanted serves."""
    ready = cluster.ready()
    over = cluster.stage in {"None", "RolledBack"}
    return over and len(ready) == 1 and sum(ready.values()) == cluster.wanted


async def serving(engine: Engine | None = None, **changes: Any) -> PlayedCluster:
    """Three replicas of A at rest; B's engines are as given."""
    spec = {"replicas": 3, **{key.replace("__", "."): value for key, value in changes.items()}}
    cluster = PlayedCluster(spec, {NEW: engine or Engine()})
    await cluster.settle()
    return cluster


@dataclass(frozen=True)
class Scenario:
    """B's engines, the steps that follow from asking for it, and what is said."""

    engine: Engine
    steps: Steps
    reason: str = ""
    """Reason of the roll-back; empty: there is none."""
    says: str = ""
    minutes: tuple[float, float] = (0, 120)
    changes: Mapping[str, Any] = field(default_factory=dict)
    least_ready: int = 2


SCENARIOS = {
    "canary as good": Scenario(Engine(), CANARY + PROMOTED, minutes=(35, 40)),
    "canary better": Scenario(Engine(speed=1.05), CANARY + PROMOTED, says="+5."),
    "canary slower by 3 %": Scenario(
        Engine(speed=0.97), CANARY + BACK, "CanarySlower", "-3.0 %", (10, 30)
    ),
    "canary slower by half a percent": Scenario(Engine(speed=0.995), CANARY + PROMOTED, says="-0."),
    "canary crash-loops": Scenario(
        Engine(crashes=True), CANARY + BACK, "CanaryCrashed", "crashed 3 times before", (0, 15)
    ),
    "canary crashes after it served": Scenario(
        Engine(crash_after_s=400), CANARY + BACK, "CanaryCrashed", "after it had become ready"
    ),
    "canary never becomes ready": Scenario(
        Engine(start_s=1e9), CANARY + BACK, "CanaryNotReady", "startupMinutes", (100, 120)
    ),
    "image cannot be pulled": Scenario(
        Engine(pulls=False), CANARY + BACK, "ImageUnavailable", "no such tag", (10, 20)
    ),
    "canary does not obey": Scenario(
        Engine(deaf=True), CANARY + BACK, "DepthNotObeyed", "depth rejections"
    ),
    "canary fails requests": Scenario(
        Engine(failing=0.1), CANARY + BACK, "CanaryErrors", "10.0% of its"
    ),
    "canary's first tokens are late": Scenario(
        Engine(slow=0.3), CANARY + BACK, "CanaryTailSlower", "time to first token above 500 ms"
    ),
    "metrics of the canary are lost": Scenario(
        Engine(blind=True), CANARY + BACK, "MetricsLost", "spec.metrics", (60, 80)
    ),
    "no bake is wanted": Scenario(
        Engine(speed=0.9),
        CANARY + PROMOTED,
        minutes=(15, 20),
        changes={"rollout.canaryMinutes": 0},
    ),
    "with a surge nobody makes room": Scenario(
        Engine(),
        [
            SETTLING,
            ("Canary", {"A": 3, "B": 1}),
            ("Promoted", {"A": 2, "B": 1}),
            ("Promoted", {"A": 2, "B": 2}),
            ("Promoted", {"A": 1, "B": 2}),
            ("Promoted", {"A": 1, "B": 3}),
            ("Promoted", {"B": 3}),
            ("None", {"B": 3}),
        ],
        changes={"rollout.maxUnavailable": 0, "rollout.maxSurge": 1},
        least_ready=3,
    ),
    "a single replica is replaced": Scenario(
        Engine(),
        [
            ("Settling", {"A": 1}),
            ("Canary", {"A": 1}),
            ("Canary", {}),
            ("Canary", {"B": 1}),
            ("Promoted", {"B": 1}),
            ("None", {"B": 1}),
        ],
        changes={"replicas": 1},
        least_ready=0,
    ),
    "a single replica that fails comes back": Scenario(
        Engine(crashes=True),
        [
            ("Settling", {"A": 1}),
            ("Canary", {"A": 1}),
            ("Canary", {}),
            ("Canary", {"B": 1}),
            ("RolledBack", {}),
            ("RolledBack", {"A": 1}),
        ],
        "CanaryCrashed",
        changes={"replicas": 1},
        least_ready=0,
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_scenario(name: str) -> None:
    scenario = SCENARIOS[name]
    surge = int(scenario.changes.get("rollout.maxSurge", 0))
    spec = {"replicas": 3, **scenario.changes}
    cluster = PlayedCluster(spec, {NEW: scenario.engine}, nodes=int(spec["replicas"]) + surge)
    await cluster.settle()
    began_s = cluster.harness.clock.at_s
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: len(cluster.steps) > 2 and ended(cluster))
    minutes = (cluster.harness.clock.at_s - began_s) / 60
    assert cluster.steps == scenario.steps
    assert cluster.least_ready == scenario.least_ready
    assert cluster.most_held <= cluster.wanted + surge
    assert scenario.minutes[0] <= minutes <= scenario.minutes[1]
    assert "image: vllm/vllm-openai:v0.32.0 became vllm/vllm-openai:v0.32.1" in str(
        cluster.harness.status["rollout"]["why"]
    )
    degraded = cluster.harness.condition("Degraded")
    if scenario.reason:
        assert cluster.harness.status["rollout"]["reason"] == scenario.reason
        assert (degraded["status"], degraded["reason"]) == ("True", "RolledBack")
        assert scenario.says in degraded["message"]
        assert scenario.says in cluster.told("RolledBack")
    else:
        assert degraded["status"] == "False"
        assert scenario.says in cluster.told("Promoted")
        assert cluster.harness.status["rollout"]["stage"] == "Complete"


async def test_no_requests_at_all_need_no_comparison() -> None:
    cluster = await serving()
    cluster.traffic = False
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.steps[-1:] == PROMOTED[-1:])
    assert cluster.steps == CANARY + PROMOTED
    assert "no requests came" in cluster.told("Promoted")


async def test_all_metrics_lost_in_mid_bake_hold_and_then_time_out_with_a_reason() -> None:
    cluster = await serving()
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"A": 2, "B": 1})
    await cluster.run(300)
    cluster.dark = True
    await cluster.run(1800)
    assert cluster.stage == "Canary"
    assert "cannot be compared" in cluster.harness.condition("Progressing")["message"]
    await cluster.run(LONGEST_S, until=lambda: ended(cluster))
    assert cluster.steps == CANARY + BACK
    assert cluster.harness.status["rollout"]["reason"] == "MetricsLost"


async def test_metrics_that_come_back_settle_it() -> None:
    cluster = await serving()
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"A": 2, "B": 1})
    cluster.dark = True
    await cluster.run(400)
    cluster.dark = False
    await cluster.run(LONGEST_S, until=lambda: cluster.steps[-1:] == PROMOTED[-1:])
    assert cluster.steps == CANARY + PROMOTED


async def test_a_node_lost_in_mid_bake_starts_the_bake_anew_elsewhere() -> None:
    cluster = await serving()
    cluster.nodes = 4
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"A": 2, "B": 1})
    await cluster.run(900)
    lost_s = cluster.harness.clock.at_s
    cluster.lose_node_of("B")
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "Promoted")
    assert cluster.harness.clock.at_s - lost_s >= 300 + 1200
    await cluster.run(LONGEST_S, until=lambda: cluster.steps[-1:] == PROMOTED[-1:])
    assert cluster.steps == CANARY + PROMOTED


async def test_a_node_lost_with_no_gpu_left_gives_the_canarys_place_back() -> None:
    cluster = await serving()
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"A": 2, "B": 1})
    cluster.lose_node_of("B")
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "RolledBack")
    await cluster.run(600)
    assert cluster.steps == CANARY + BACK
    assert cluster.harness.status["rollout"]["reason"] == "PodUnschedulable"
    assert "Insufficient nvidia.com/gpu" in cluster.harness.status["rollout"]["message"]
    # The missing node is the only thing that is missing.
    assert cluster.ready() == {"A": 2}
    assert cluster.least_ready == 2


async def test_no_free_gpu_for_a_surge_ends_with_everything_as_it_was() -> None:
    cluster = PlayedCluster(
        {"replicas": 3, "rollout.maxUnavailable": 0, "rollout.maxSurge": 1}, nodes=3
    )
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "RolledBack" and ended(cluster))
    assert cluster.steps == [SETTLING, ("Canary", {"A": 3, "B": 1}), ("RolledBack", {"A": 3})]
    assert cluster.harness.status["rollout"]["reason"] == "PodUnschedulable"
    assert cluster.least_ready == 3


def no_new_deployment(status: int, says: str) -> Callable[[str, Kind], KubeError | None]:
    """An API server on which creating one fails."""

    def fail(verb: str, kind: Kind) -> KubeError | None:
        return KubeError(status, says) if verb == "create" and kind == DEPLOYMENT else None

    return fail


async def test_a_workload_that_the_cluster_refuses_costs_no_replica() -> None:
    cluster = await serving()
    cluster.harness.kube.fail = no_new_deployment(403, "denied by policy: the image is not signed")
    cluster.edit({"engine.image": NEW})
    await cluster.run(1800)
    assert cluster.least_ready == 3
    assert "the image is not signed" in cluster.harness.condition("Degraded")["message"]

    cluster.edit({"replicas": 2})
    await cluster.run(60)
    assert cluster.ready() == {"A": 2}

    cluster.harness.kube.fail = lambda _verb, _kind: None
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"B": 2})
    assert cluster.least_ready == 1


async def test_a_workload_that_stays_refused_ends_the_rollout_with_that_reason() -> None:
    cluster = await serving()
    cluster.harness.kube.fail = no_new_deployment(403, "denied by policy")
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "RolledBack")
    assert cluster.harness.status["rollout"]["reason"] == "ChildRefused"
    assert "its workload could not be made within 102 minutes" in cluster.told("RolledBack")
    assert cluster.least_ready == 3


async def test_a_workload_that_cannot_be_made_just_now_keeps_nobody_from_growing() -> None:
    cluster = await serving()
    cluster.nodes = 6
    cluster.harness.kube.fail = no_new_deployment(500, "failed calling webhook")
    cluster.edit({"engine.image": NEW})
    await cluster.run(60, until=lambda: cluster.stage == "Canary")
    cluster.edit({"replicas": 6})
    await cluster.run(600)
    assert cluster.ready() == {"A": 5}


async def test_a_stable_node_lost_in_mid_bake_does_not_end_it() -> None:
    cluster = await serving()
    cluster.nodes = 4
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"A": 2, "B": 1})
    cluster.lose_node_of("A")
    await cluster.run(LONGEST_S, until=lambda: cluster.steps[-1:] == PROMOTED[-1:])
    assert cluster.steps == CANARY + PROMOTED


@pytest.mark.parametrize("step", range(len(CANARY + PROMOTED) - 1))
async def test_reverted_at_every_step_it_goes_back_at_once(step: int) -> None:
    cluster = await serving()
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: len(cluster.steps) > step)
    assert cluster.steps == (CANARY + PROMOTED)[: step + 1]
    cluster.edit({"engine.image": OLD})
    reverted_s = cluster.harness.clock.at_s
    await cluster.run(
        LONGEST_S, until=lambda: cluster.stage == "None" and cluster.ready() == {"A": 3}
    )
    assert cluster.least_ready >= 2
    assert cluster.most_held == 3
    # No bake, only as long as the replicas that had gone take to come back.
    assert cluster.harness.clock.at_s - reverted_s <= 3 * (300 + 30 + 30)
    assert cluster.harness.condition("Degraded")["status"] == "False"


@pytest.mark.parametrize(
    ("engine", "steps", "step"),
    [
        *((Engine(), CANARY + PROMOTED, step) for step in range(len(CANARY + PROMOTED))),
        *((Engine(speed=0.97), CANARY + BACK, step) for step in range(len(CANARY + BACK))),
    ],
)
async def test_killed_at_every_step_nothing_changes_but_time(
    engine: Engine, steps: Steps, step: int
) -> None:
    cluster = await serving(engine)
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: len(cluster.steps) > step)
    cluster.harness.restart()
    await cluster.run(LONGEST_S, until=lambda: cluster.steps[-1] == steps[-1] and ended(cluster))
    assert cluster.steps == steps
    assert cluster.least_ready == 2


async def test_killed_every_minute_it_still_ends_the_same() -> None:
    cluster = await serving(Engine(speed=0.97))
    cluster.edit({"engine.image": NEW})
    for _ in range(120):
        await cluster.run(130)
        cluster.harness.restart()
        if cluster.stage == "RolledBack" and ended(cluster):
            break
    assert cluster.steps == CANARY + BACK
    assert cluster.harness.status["rollout"]["reason"] == "CanarySlower"


@pytest.mark.parametrize("step", range(1, len(CANARY)))
async def test_a_newer_spec_supersedes_the_canary(step: int) -> None:
    cluster = await serving(Engine(crashes=True))
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: len(cluster.steps) > step)
    cluster.edit({"engine.image": NEWEST})
    await cluster.run(
        LONGEST_S, until=lambda: cluster.stage == "None" and cluster.ready() == {"C": 3}
    )
    assert cluster.least_ready >= 2
    assert cluster.most_held == 3
    assert "Superseded" in cluster.events()
    # Never two canaries: B has gone before C comes.
    assert all(not (asked.get("B") and asked.get("C")) for _, asked in cluster.steps)


async def test_a_newer_spec_that_fails_goes_back_to_what_was_promoted() -> None:
    cluster = PlayedCluster({"replicas": 3}, {NEWEST: Engine(crashes=True)})
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.asked().get("B") == 2)
    cluster.edit({"engine.image": NEWEST})
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "RolledBack" and ended(cluster))
    assert cluster.ready() == {"B": 3}
    assert cluster.least_ready >= 2


async def test_a_mending_that_fails_goes_back_to_what_still_serves() -> None:
    """B was promoted and crashes since, so that A alone serves when C is asked for."""
    engines = {NEW: Engine(crash_after_s=60), NEWEST: Engine(crashes=True)}
    cluster = PlayedCluster({"replicas": 3, "rollout.canaryMinutes": 0}, engines)
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(
        LONGEST_S, until=lambda: cluster.stage == "Promoted" and cluster.ready() == {"A": 1}
    )
    cluster.edit({"engine.image": NEWEST})
    await cluster.run(LONGEST_S, until=lambda: cluster.asked().get("C", 0) > 0)
    assert cluster.stage == "Canary"
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "RolledBack" and ended(cluster))
    assert cluster.ready() == {"A": 3}
    assert all(asked.get("C", 0) <= 1 for _, asked in cluster.steps)


async def test_rapid_edits_are_one_rollout() -> None:
    cluster = await serving()
    for image in (NEW, NEWEST, NEW, NEWEST):
        cluster.edit({"engine.image": image})
        await cluster.tick()
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "None" and ended(cluster))
    assert cluster.steps[:4] == [*CANARY[:3], ("Canary", {"A": 2, "C": 1})]
    assert cluster.ready() == {"C": 3}


async def test_what_was_rolled_back_is_not_tried_again_until_someone_asks() -> None:
    cluster = await serving(Engine(crashes=True))
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "RolledBack" and ended(cluster))
    steps = list(cluster.steps)
    # Neither time, nor a restart, nor a change that needs no new pods.
    await cluster.run(7200)
    cluster.harness.restart()
    cluster.edit({"speculation": {"tuning": {"windowSeconds": 60}}, "replicas": 2})
    await cluster.run(3600)
    assert [stage for stage, _ in cluster.steps[len(steps) :]] == ["RolledBack"]
    assert cluster.ready() == {"A": 2}
    cluster.engines = {}
    cluster.harness.resource["metadata"]["annotations"] = {"fathom.dev/retry-rollout": "1"}
    cluster.edit({})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"B": 2})
    assert cluster.harness.condition("Degraded")["status"] == "False"


async def test_what_is_vetoed_gets_nothing_even_if_the_stable_spec_cannot_be_read() -> None:
    cluster = await serving(Engine(crashes=True))
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "RolledBack" and ended(cluster))
    kept = cluster.harness.kube.find(CONFIG_MAP, "kimi-tuning")
    kept["data"]["stableSpec.json"] = '{"from":"another version"}'
    cluster.harness.kube.put(CONFIG_MAP, kept)
    cluster.harness.restart()
    await cluster.run(1200)
    assert cluster.asked() == {"A": 3}
    assert cluster.ready() == {"A": 3}


async def test_a_first_revision_that_never_served_is_not_protected() -> None:
    cluster = PlayedCluster({"replicas": 3}, {OLD: Engine(crashes=True)})
    await cluster.run(900)
    cluster.edit({"engine.image": NEW})
    await cluster.run(1200, until=lambda: cluster.ready() == {"B": 3})


async def test_paused_nothing_moves_but_replicas_and_no_clock_runs() -> None:
    cluster = await serving()
    cluster.nodes = 6
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"A": 2, "B": 1})
    await cluster.run(600)
    cluster.edit({"rollout.paused": True})
    await cluster.run(2 * 3600)
    assert cluster.steps == CANARY
    assert cluster.harness.condition("Progressing")["reason"] == "RolloutPaused"
    cluster.edit({"replicas": 4})
    await cluster.run(1200)
    assert cluster.ready() == {"A": 3, "B": 1}
    cluster.edit({"rollout.paused": False})
    resumed_s = cluster.harness.clock.at_s
    await cluster.run(LONGEST_S, until=lambda: cluster.stage == "Promoted")
    assert 300 <= cluster.harness.clock.at_s - resumed_s <= 900


@pytest.mark.parametrize("replicas", [2, 5])
async def test_scaling_in_mid_bake_scales_what_is_stable(replicas: int) -> None:
    cluster = await serving()
    cluster.nodes = 6
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"A": 2, "B": 1})
    cluster.edit({"replicas": replicas})
    await cluster.run(500)
    assert cluster.stage == "Canary"
    assert cluster.ready() == {"A": replicas - 1, "B": 1}
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"B": replicas})


@pytest.mark.parametrize(
    ("engine", "rollout"),
    [
        (Engine(), {}),
        (Engine(start_s=1e9), {"maxUnavailable": 0, "maxSurge": 1}),
        (Engine(start_s=1e9), {"paused": True}),
    ],
    ids=["ready", "starting", "paused"],
)
async def test_a_canary_that_is_scaled_to_zero_and_up_again_is_one_still(
    engine: Engine, rollout: dict[str, Any]
) -> None:
    """What serves comes back as it was: to be scaled to zero proves nothing of the new one."""
    cluster = await serving(engine, engine__startupMinutes=10)
    cluster.nodes = 4
    cluster.edit({"engine.image": NEW})
    await cluster.run(900, until=lambda: cluster.asked() == {"A": 2, "B": 1})
    await cluster.run(400)
    cluster.edit({"replicas": 0, "rollout": rollout})
    # For longer than a canary may take to become ready.
    await cluster.run(1800)
    assert cluster.asked() == {"A": 0, "B": 0}
    assert cluster.stage == "Canary"
    cluster.edit({"replicas": 3})
    await cluster.run(600)
    assert cluster.stage == "Canary"
    assert cluster.ready().get("A", 0) >= 2
    assert cluster.asked().get("B", 0) <= 1


async def test_while_a_canary_is_watched_the_tuner_judges_by_the_others() -> None:
    cluster = await serving()
    seen: list[set[str]] = []
    decide = cluster.harness.decide

    def watched(snapshot: Any) -> Any:
        seen.append({cluster.revision_of(pod.name) for pod in snapshot.pods})
        return decide(snapshot)

    cluster.harness.decide = watched
    cluster.edit({"engine.image": NEW, "speculation": {"maxTokens": 5}})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"A": 2, "B": 1})
    seen.clear()
    await cluster.run(300)
    assert seen
    assert all(revisions == {"A"} for revisions in seen)
