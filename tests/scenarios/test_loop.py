"""The loop on a fake cluster: what it writes, and above all, what it does not."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from fathom.engine.plugin import PluginBundle
from fathom.reconcile import step
from fathom.reconcile.write_retries import OVER_AFTER_S
from fathom.runtime.ports import SHORTEST_SLEEP_S
from fathom.tuning.gains import Gained
from fathom.tuning.learned_state import TuningState
from fathom.tuning.tuner import decide
from support.loop_harness import KEY, LoopHarness


async def test_a_new_resource_gets_its_children_and_a_status() -> None:
    harness = LoopHarness({"replicas": 2})
    await harness.until_ready()
    (deployment,) = harness.kube.names(DEPLOYMENT)
    assert deployment.startswith("kimi-")
    assert harness.kube.find(DEPLOYMENT, deployment)["spec"]["replicas"] == 2
    assert harness.kube.names(CONFIG_MAP) == ["kimi-depth", "kimi-plugin-aaaaaaaaaa", "kimi-tuning"]
    assert harness.kube.names(SERVICE) == ["kimi"]
    assert harness.kube.names(SERVICE_ACCOUNT) == ["kimi"]
    assert harness.status["ready"] == "2/2"
    assert harness.status["depth"]["summary"] == "3"
    assert harness.status["selector"] == "fathom.dev/name=kimi,fathom.dev/role=leader"
    assert harness.status["engine"] == {"version": "0.32.0", "actuation": "Live"}
    assert harness.condition("Ready")["status"] == "True"
    assert harness.condition("Progressing")["reason"] == "UpToDate"
    assert harness.condition("Degraded")["reason"] == "AsExpected"
    assert harness.condition("DraftCompatible")["reason"] == "KnownPair"
    assert harness.condition("Tuning")["reason"] == "NoTraffic"


async def test_what_a_pod_mounts_is_written_before_the_pod() -> None:
    harness = LoopHarness()
    await harness.tick()
    written = [(each.kind, each.name) for each in harness.kube.writes]
    position = [kind for kind, _ in written].index("Deployment")
    mounted = {"kimi-depth", "kimi-plugin-aaaaaaaaaa"}
    assert mounted <= {name for _, name in written[:position]}


async def test_children_are_owned_so_that_deletion_leaves_nothing(harness: LoopHarness) -> None:
    for kind in (DEPLOYMENT, CONFIG_MAP, SERVICE, SERVICE_ACCOUNT):
        for child in harness.kube.all_of(kind):
            (owner,) = child["metadata"]["ownerReferences"]
            assert owner["uid"] == "uid-of-kimi"
            assert owner["controller"] is True


async def test_at_rest_ten_minutes_pass_without_a_write(harness: LoopHarness) -> None:
    await harness.run_for(600)
    assert harness.kube.news == []


async def test_a_restarted_operator_writes_nothing(harness: LoopHarness) -> None:
    harness.restart()
    await harness.run_for(600)
    assert harness.kube.news == []


async def test_an_upgraded_operator_touches_no_pod_template(harness: LoopHarness) -> None:
    (name,) = harness.kube.names(DEPLOYMENT)
    before = harness.kube.find(DEPLOYMENT, name)["spec"]["template"]
    harness.bundle = PluginBundle({"fathom_vllm/__init__.py": "two = 2\n"}, "bbbbbbbbbb")
    harness.restart()
    await harness.run_for(600)
    # But for the status, which says so.
    assert [each.kind for each in harness.kube.writes] == ["SpeculativeDeployment"]
    harness.edit({"replicas": 3})
    await harness.until_ready()
    assert harness.kube.names(DEPLOYMENT) == [name]
    assert harness.kube.find(DEPLOYMENT, name)["spec"]["replicas"] == 3
    assert harness.kube.find(DEPLOYMENT, name)["spec"]["template"] == before
    assert "kimi-plugin-bbbbbbbbbb" not in harness.kube.names(CONFIG_MAP)


async def test_an_upgrade_that_would_name_the_pods_otherwise_keeps_them(
    harness: LoopHarness,
) -> None:
    """As when a new Fathom learns that an engine can change depth live."""
    (name,) = harness.kube.names(DEPLOYMENT)
    revision = name.removeprefix("kimi-")
    for kind in (DEPLOYMENT, POD, CONFIG_MAP):
        for each in harness.kube.names(kind):
            text = json.dumps(harness.kube.find(kind, each))
            harness.kube.remove(kind, "llm", each)
            harness.kube.put(kind, json.loads(text.replace(revision, "01de4a11")))
    harness.restart()
    await harness.run_for(600)
    assert harness.kube.names(DEPLOYMENT) == ["kimi-01de4a11"]
    assert harness.kube.written("Deployment") == []


async def test_the_next_rollout_after_an_upgrade_brings_the_new_plugin(
    harness: LoopHarness,
) -> None:
    harness.bundle = PluginBundle({"fathom_vllm/__init__.py": "two = 2\n"}, "bbbbbbbbbb")
    harness.restart()
    harness.metrics.generation = 1
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await harness.until_rolled()
    assert harness.kube.names(CONFIG_MAP) == ["kimi-depth", "kimi-plugin-bbbbbbbbbb", "kimi-tuning"]


async def test_a_rollout_is_announced_with_its_field_once_and_before_it_begins(
    harness: LoopHarness,
) -> None:
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await harness.tick()
    assert harness.kube.written("Event")
    assert not harness.kube.written("Deployment")
    # Another operator goes on with it, and does not say it again.
    harness.restart()
    harness.metrics.generation = 1
    await harness.until_rolled()
    told = [event.body for event in harness.kube.written("Event")]
    (rolling,) = [body["message"] for body in told if body["reason"] == "Rolling"]
    assert rolling.startswith("spec.engine.image changed, which needs new pods")
    assert harness.condition("Progressing")["reason"] == "UpToDate"


async def test_drift_in_what_this_version_rendered_is_repaired(harness: LoopHarness) -> None:
    (name,) = harness.kube.names(DEPLOYMENT)
    deployment = harness.kube.find(DEPLOYMENT, name)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    rendered = container["image"]
    container["image"] = "someone/else:1"
    harness.kube.put(DEPLOYMENT, deployment)
    await harness.tick()
    repaired = harness.kube.find(DEPLOYMENT, name)
    assert repaired["spec"]["template"]["spec"]["containers"][0]["image"] == rendered


def change_back(harness: LoopHarness) -> None:
    """Something else sets a field of the Deployment that is the operator's."""
    (name,) = harness.kube.names(DEPLOYMENT)
    deployment = harness.kube.find(DEPLOYMENT, name)
    deployment["spec"]["progressDeadlineSeconds"] = 1
    harness.kube.put(DEPLOYMENT, deployment)


async def test_a_tug_of_war_ends_with_a_sentence(harness: LoopHarness) -> None:
    for _ in range(6):
        change_back(harness)
        await harness.tick()
    assert len(harness.kube.written("Deployment")) == 3
    assert harness.condition("Degraded")["reason"] == "ChildRefused"
    assert "spec.progressDeadlineSeconds is 1" in harness.condition("Degraded")["message"]


async def test_a_tug_of_war_is_taken_up_again_less_and_less_often(harness: LoopHarness) -> None:
    """Whoever fought may have been mended meanwhile, and nobody tells the operator."""
    tried_at_min: list[int] = []
    for minute in range(240):
        change_back(harness)
        before = len(harness.kube.written("Deployment"))
        await harness.tick()
        if len(harness.kube.written("Deployment")) > before:
            tried_at_min.append(minute)
        harness.clock.at_s += 60
    assert tried_at_min == [0, 1, 2, 4, 8, 16, 32, 64, 124, 184]
    assert harness.condition("Degraded")["reason"] == "ChildRefused"

    for _ in range(60):
        await harness.tick()
        harness.clock.at_s += 60
    assert harness.condition("Degraded")["reason"] == "AsExpected"


@pytest.mark.parametrize("answers_after_s", [15, 120])
async def test_a_tug_of_war_is_one_though_each_write_stands_for_a_while(
    harness: LoopHarness, answers_after_s: float
) -> None:
    """As with an autoscaler, between whose looks the operator looks at what it wrote itself."""
    (name,) = harness.kube.names(DEPLOYMENT)
    began_s = harness.clock.at_s
    while harness.clock.at_s < began_s + 3600:
        harness.kube.find(DEPLOYMENT, name)["spec"]["replicas"] = 5
        await harness.tick()
        await harness.tick()
        harness.clock.at_s += answers_after_s
    assert len(harness.kube.written("Deployment")) <= 9
    degraded = harness.condition("Degraded")["message"]
    assert "spec.replicas is 5" in degraded
    assert "It is written again less and less often" in degraded
    await harness.tick()
    harness.clock.at_s += 3600
    await harness.tick()
    harness.clock.at_s += 300
    await harness.tick()
    harness.kube.writes.clear()
    change_back(harness)
    await harness.tick()
    assert len(harness.kube.written("Deployment")) == 1


async def test_what_is_deleted_again_and_again_is_made_again_each_time(
    harness: LoopHarness,
) -> None:
    for _ in range(6):
        harness.kube.remove(SERVICE, "llm", "kimi")
        await harness.tick()
        await harness.tick()
        assert harness.kube.names(SERVICE) == ["kimi"]


async def test_a_clock_that_is_set_back_keeps_no_tug_of_war_alive(harness: LoopHarness) -> None:
    for _ in range(4):
        change_back(harness)
        await harness.tick()
    harness.clock.at_s -= 86_400
    await harness.tick()
    await harness.tick()
    assert "changed back by something else" in harness.condition("Degraded")["message"]
    harness.clock.at_s += OVER_AFTER_S
    await harness.tick()
    assert harness.condition("Degraded")["reason"] == "AsExpected"


async def test_a_bad_spec_names_its_field_and_what_runs_keeps_running(harness: LoopHarness) -> None:
    deployments = harness.kube.names(DEPLOYMENT)
    harness.edit({"engine.args": ["--port", "1234"], "replicas": 3})
    await harness.until_ready()
    assert harness.kube.names(DEPLOYMENT) == deployments
    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "InvalidSpec")
    assert "spec.engine.args" in degraded["message"]
    assert "what runs keeps running" in degraded["message"]
    # Replicas follow all the same.
    assert harness.kube.find(DEPLOYMENT, deployments[0])["spec"]["replicas"] == 3
    assert harness.status["ready"] == "3/3"


async def test_the_last_good_spec_survives_the_operator(harness: LoopHarness) -> None:
    deployments = harness.kube.names(DEPLOYMENT)
    harness.edit({"draft.method": "telepathy"})
    harness.restart()
    await harness.until_ready()
    assert harness.kube.names(DEPLOYMENT) == deployments
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    harness.edit({"draft.method": "eagle3"})
    await harness.until_ready()
    assert harness.condition("Degraded")["reason"] == "AsExpected"


async def test_a_bad_first_spec_starts_nothing() -> None:
    harness = LoopHarness({"speculation.tokens": 9, "speculation.maxTokens": 4})
    await harness.until_ready()
    assert harness.kube.names(DEPLOYMENT) == []
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    assert "spec.speculation.tokens" in harness.condition("Degraded")["message"]
    assert "nothing is started" in harness.condition("Degraded")["message"]


async def test_a_value_that_does_not_exist_is_said_and_never_a_wrong_pod(
    harness: LoopHarness,
) -> None:
    deployments = harness.kube.names(DEPLOYMENT)
    harness.edit({"speculation.tuning.actuation": "Rollout"})
    await harness.until_ready()
    assert harness.kube.names(DEPLOYMENT) == deployments
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    assert "spec.speculation.tuning.actuation" in harness.condition("Degraded")["message"]


async def test_nothing_is_written_for_a_resource_that_is_being_deleted(
    harness: LoopHarness,
) -> None:
    resource = harness.resource
    resource["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    harness.kube.put(SPECULATIVE_DEPLOYMENT, resource)
    harness.kube.remove(SERVICE, "llm", "kimi")
    await harness.tick()
    assert harness.kube.writes == []


async def test_what_no_event_tells_of_is_seen_within_two_minutes(harness: LoopHarness) -> None:
    """Services are not watched, and a watch may fall silent."""
    await harness.run_for(45)
    harness.kube.remove(SERVICE, "llm", "kimi")
    await harness.run_for(120)
    assert harness.kube.names(SERVICE) == ["kimi"]


async def test_a_clock_that_is_set_back_makes_nothing_unseen(harness: LoopHarness) -> None:
    await harness.run_for(45)
    harness.kube.remove(SERVICE, "llm", "kimi")
    harness.clock.at_s -= 3600
    await harness.run_for(5)
    assert harness.kube.names(SERVICE) == ["kimi"]


@pytest.mark.parametrize(
    ("image", "config_maps"),
    [
        ("vllm/vllm-openai:v0.28.0", ["kimi-plugin-aaaaaaaaaa", "kimi-tuning"]),
        ("vllm/vllm-openai:v0.27.0", ["kimi-tuning"]),
    ],
)
async def test_an_engine_whose_depth_is_not_live_gets_no_depths_and_the_plugin_if_it_counts(
    image: str, config_maps: list[str]
) -> None:
    harness = LoopHarness({"engine.image": image})
    await harness.until_ready()
    assert harness.status["ready"] == "1/1"
    assert harness.kube.names(CONFIG_MAP) == config_maps


async def test_depths_that_no_pod_reads_any_more_are_removed_though_the_plugin_stays() -> None:
    harness = LoopHarness()
    await harness.until_ready()
    assert "kimi-depth" in harness.kube.names(CONFIG_MAP)
    harness.edit({"engine.image": "vllm/vllm-openai:v0.28.0"})
    await harness.until_rolled()
    assert harness.kube.names(CONFIG_MAP) == ["kimi-plugin-aaaaaaaaaa", "kimi-tuning"]


async def test_pods_that_run_without_the_plugin_get_it_with_the_next_rollout_only() -> None:
    harness = LoopHarness({"engine.image": "vllm/vllm-openai:v0.28.0", "replicas": 2})
    await harness.until_ready()
    (name,) = harness.kube.names(DEPLOYMENT)
    # As a Fathom that did not count there has started them.
    deployment = harness.kube.find(DEPLOYMENT, name)
    annotations = deployment["metadata"]["annotations"]
    del annotations[names.ANNOTATION_PLUGIN]
    annotations[names.ANNOTATION_RENDERED_BY] = "0.1.0"
    pod = deployment["spec"]["template"]["spec"]
    pod["volumes"] = [each for each in pod["volumes"] if each["name"] != "fathom-plugin"]
    harness.kube.put(DEPLOYMENT, deployment)
    for each in harness.kube.all_of(POD):
        each["spec"]["volumes"] = pod["volumes"]
        harness.kube.put(POD, each)
    harness.restart()
    await harness.run_for(300)
    assert harness.kube.names(DEPLOYMENT) == [name]
    assert harness.kube.find(DEPLOYMENT, name)["spec"]["template"]["spec"] == pod
    assert "get the plugin when a rollout replaces them" in harness.status["engine"]["reason"]

    harness.edit({"speculation.tuning.mode": "Advise"})
    harness.edit({"replicas": 3})
    await harness.run_for(300)
    assert harness.kube.names(DEPLOYMENT) == [name]

    harness.edit({"speculation.tokens": 5})
    await harness.run_for(60)
    (new,) = set(harness.kube.names(DEPLOYMENT)) - {name}
    template = harness.kube.find(DEPLOYMENT, new)["spec"]["template"]["spec"]
    assert "fathom-plugin" in {each["name"] for each in template["volumes"]}


@pytest.mark.parametrize(
    ("changes", "reason", "depth"),
    [
        ({"engine.image": "vllm/vllm-openai:v0.28.0"}, "LiveDepthUnsupported", "3"),
        ({"engine.image": "vllm/vllm-openai:nightly"}, "EngineVersionUnknown", "3"),
        ({"speculation.drafting": "Disabled"}, "DraftingDisabled", "off"),
        ({"speculation.tuning.mode": "Static"}, "Static", "3"),
    ],
    ids=str,
)
async def test_where_depth_is_not_live_the_reason_is_said_and_rest_is_rest(
    changes: dict[str, str], reason: str, depth: str
) -> None:
    harness = LoopHarness(changes, decide=decide)
    await harness.until_ready()
    await harness.run_for(120)
    assert harness.condition("Tuning")["reason"] == reason
    assert harness.status["depth"]["summary"] == depth
    written = len(harness.kube.news)
    await harness.run_for(600)
    assert len(harness.kube.news) == written


async def test_without_drafting_no_draft_is_loaded() -> None:
    harness = LoopHarness({"speculation.drafting": "Disabled"})
    await harness.until_ready()

    (deployment,) = harness.kube.all_of(DEPLOYMENT)
    text = str(deployment["spec"]["template"])
    assert "--speculative-config" not in text
    assert "fathom_vllm" in text
    assert harness.condition("DraftCompatible")["reason"] == "NoDraft"


async def test_depth_is_told_of_what_serves_while_an_engine_without_it_is_on_trial() -> None:
    harness = LoopHarness({"replicas": 2, "rollout.canaryMinutes": 60}, decide=decide)
    await harness.until_ready()
    assert harness.status["depth"]["summary"] == "3"
    harness.edit({"speculation.drafting": "Disabled"})
    for _ in range(8):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()
    assert len(harness.kube.names(DEPLOYMENT)) == 2
    assert harness.status["depth"]["summary"] == "3"

    # Those that serve are steered all the same.
    stable = next(p for p in harness.kube.all_of(POD) if "speculative" in str(p["spec"]))
    stable["metadata"]["annotations"] = {names.ANNOTATION_PIN_DEPTH: "7"}
    harness.kube.put(POD, stable)
    for _ in range(3):
        harness.clock.at_s += await harness.tick() or 0
    document = harness.kube.find(CONFIG_MAP, "kimi-depth")["data"]["depth.json"]
    assert stable["metadata"]["name"] in document
    assert harness.condition("Tuning")["reason"] != "DraftingDisabled"


async def test_the_loop_ends_with_its_resource(harness: LoopHarness) -> None:
    harness.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    assert await harness.tick() is None
    assert harness.kube.writes == []


async def test_an_unreachable_api_server_is_waited_for_and_longer_each_time(
    harness: LoopHarness,
) -> None:
    def unreachable(_verb: str, _kind: Kind) -> KubeError:
        return KubeError(0, "no answer")

    harness.kube.fail = unreachable
    delays = [await harness.tick() for _ in range(4)]
    assert delays == [1, 2, 4, 8]
    for _ in range(10):
        await harness.tick()
    assert await harness.tick() == 300
    harness.kube.fail = lambda _verb, _kind: None
    assert await harness.tick() == 30
    assert harness.kube.writes == []


async def test_a_refused_child_is_told_and_retried() -> None:
    harness = LoopHarness()

    def forbidden(verb: str, kind: Kind) -> KubeError | None:
        refused = verb == "create" and kind == DEPLOYMENT
        return KubeError(403, "exceeded quota: gpus") if refused else None

    harness.kube.fail = forbidden
    assert await harness.tick() == SHORTEST_SLEEP_S
    assert await harness.loop.tick() == 1
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "ChildRefused"
    assert "exceeded quota: gpus" in degraded["message"]
    harness.kube.fail = lambda _verb, _kind: None
    harness.clock.at_s += 1
    await harness.until_ready()
    assert harness.condition("Degraded")["reason"] == "AsExpected"


async def test_a_bug_of_ours_is_an_event_and_stops_nothing(harness: LoopHarness) -> None:
    good = harness.decide

    def broken(_: object) -> object:
        raise ZeroDivisionError("division by zero")

    await harness.tick()
    state = harness.loop._state
    assert state is not None
    gained = Gained(since_s=1.0, measured_gpu_s=2.0)
    harness.loop._state = replace(state, tuner=replace(state.tuner, gained=gained))
    harness.decide = broken  # type: ignore[assignment]
    assert await harness.tick() == 1
    assert await harness.tick() == 2
    assert harness.loop._state is not None
    assert harness.loop._state.tuner == TuningState(gained=gained)
    (event,) = harness.kube.written("Event")
    assert event.body["reason"] == "InternalError"
    assert "division by zero" in event.body["message"]
    harness.decide = good
    assert await harness.tick() == 30


async def test_what_was_learned_outlives_a_bug_outside_of_the_tuner(
    harness: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.tick()
    state = harness.loop._state
    assert state is not None

    def broken(*_: object, **__: object) -> object:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(step, "tuning_snapshot", broken)
    await harness.tick()
    assert harness.loop._state is not None
    assert harness.loop._state.tuner == state.tuner


async def test_its_own_status_is_known_before_the_events_that_come_of_it(
    harness: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch tells of it while they are posted, and that must not wake the loop."""
    apply, create = harness.kube.apply, harness.kube.create
    written, known = [""], list[bool]()

    async def applied(*given: Any, **more: Any) -> Any:
        after = await apply(*given, **more)
        if more.get("subresource") == "status":
            written[0] = after["metadata"]["resourceVersion"]
        return after

    async def posted(*given: Any) -> Any:
        if written[0]:
            state = harness.loop._state
            known.append(state is not None and state.said.version == written[0])
        return await create(*given)

    monkeypatch.setattr(harness.kube, "apply", applied)
    monkeypatch.setattr(harness.kube, "create", posted)
    await harness.until_ready()
    harness.edit({"engine.args": ["--port", "1"]})
    written[0] = ""
    await harness.tick()
    assert known, "no event came of a status"
    assert all(known)


async def test_without_metrics_depth_is_held(harness: LoopHarness) -> None:
    harness.metrics.down = True
    await harness.run_for(300)
    assert harness.condition("Tuning")["reason"] == "NoMetrics"
    assert harness.kube.written("ConfigMap") == []
    assert len(harness.kube.written("SpeculativeDeployment")) == 1


async def test_only_ready_pods_are_asked_for_their_metrics(harness: LoopHarness) -> None:
    first, second = (pod["metadata"]["name"] for pod in harness.kube.all_of(POD))
    harness.set_ready(first, ready=False)
    await harness.tick()
    assert harness.metrics.asked == [second]


async def test_scaling_to_zero_and_back(harness: LoopHarness) -> None:
    harness.edit({"replicas": 0})
    await harness.until_ready()
    assert harness.condition("Ready")["reason"] == "ScaledToZero"
    harness.edit({"replicas": 1})
    await harness.until_ready()
    assert harness.status["ready"] == "1/1"


async def test_another_resource_of_the_same_name_inherits_nothing(harness: LoopHarness) -> None:
    resource = harness.resource
    resource["metadata"]["uid"] = "another"
    resource["spec"]["draft"]["method"] = "telepathy"
    resource.pop("status")
    harness.kube.put(SPECULATIVE_DEPLOYMENT, resource)
    await harness.tick()
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    assert harness.loop.key == KEY
    assert harness.status["observedGeneration"] == harness.resource["metadata"]["generation"]
