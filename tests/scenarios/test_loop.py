"""The loop on a fake cluster: what it writes, and above all, what it does not."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.core.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from fathom.core.plugin import PluginBundle
from fathom.reconcile import step
from fathom.reconcile.writing.apply_guard import OVER_AFTER_S
from fathom.runtime.loop import SHORTEST_SLEEP_S
from fathom.tuning.gained import Gained
from fathom.tuning.state import TuningState
from fathom.tuning.tuner import decide
from support.bench import KEY, Bench


async def test_a_new_resource_gets_its_children_and_a_status() -> None:
    bench = Bench({"replicas": 2})
    await bench.until_ready()
    (deployment,) = bench.kube.names(DEPLOYMENT)
    assert deployment.startswith("kimi-")
    assert bench.kube.find(DEPLOYMENT, deployment)["spec"]["replicas"] == 2
    assert bench.kube.names(CONFIG_MAP) == ["kimi-depth", "kimi-plugin-aaaaaaaaaa", "kimi-tuning"]
    assert bench.kube.names(SERVICE) == ["kimi"]
    assert bench.kube.names(SERVICE_ACCOUNT) == ["kimi"]
    assert bench.status["ready"] == "2/2"
    assert bench.status["depth"]["summary"] == "3"
    assert bench.status["selector"] == "fathom.dev/name=kimi,fathom.dev/role=leader"
    assert bench.status["engine"] == {"version": "0.32.0", "actuation": "Live"}
    assert bench.condition("Ready")["status"] == "True"
    assert bench.condition("Progressing")["reason"] == "UpToDate"
    assert bench.condition("Degraded")["reason"] == "AsExpected"
    assert bench.condition("DraftCompatible")["reason"] == "KnownPair"
    assert bench.condition("Tuning")["reason"] == "NoTraffic"


async def test_what_a_pod_mounts_is_written_before_the_pod() -> None:
    bench = Bench()
    await bench.tick()
    written = [(each.kind, each.name) for each in bench.kube.writes]
    position = [kind for kind, _ in written].index("Deployment")
    mounted = {"kimi-depth", "kimi-plugin-aaaaaaaaaa"}
    assert mounted <= {name for _, name in written[:position]}


async def test_children_are_owned_so_that_deletion_leaves_nothing(bench: Bench) -> None:
    for kind in (DEPLOYMENT, CONFIG_MAP, SERVICE, SERVICE_ACCOUNT):
        for child in bench.kube.all_of(kind):
            (owner,) = child["metadata"]["ownerReferences"]
            assert owner["uid"] == "uid-of-kimi"
            assert owner["controller"] is True


async def test_at_rest_ten_minutes_pass_without_a_write(bench: Bench) -> None:
    await bench.run_for(600)
    assert bench.kube.writes == []


async def test_a_restarted_operator_writes_nothing(bench: Bench) -> None:
    bench.restart()
    await bench.run_for(600)
    assert bench.kube.writes == []


async def test_an_upgraded_operator_touches_no_pod_template(bench: Bench) -> None:
    (name,) = bench.kube.names(DEPLOYMENT)
    before = bench.kube.find(DEPLOYMENT, name)["spec"]["template"]
    bench.bundle = PluginBundle({"fathom_vllm/__init__.py": "two = 2\n"}, "bbbbbbbbbb")
    bench.restart()
    await bench.run_for(600)
    # But for the status, which says so.
    assert [each.kind for each in bench.kube.writes] == ["SpeculativeDeployment"]
    bench.edit({"replicas": 3})
    await bench.until_ready()
    assert bench.kube.names(DEPLOYMENT) == [name]
    assert bench.kube.find(DEPLOYMENT, name)["spec"]["replicas"] == 3
    assert bench.kube.find(DEPLOYMENT, name)["spec"]["template"] == before
    assert "kimi-plugin-bbbbbbbbbb" not in bench.kube.names(CONFIG_MAP)


async def test_an_upgrade_that_would_name_the_pods_otherwise_keeps_them(bench: Bench) -> None:
    """As when a new Fathom learns that an engine can change depth live."""
    (name,) = bench.kube.names(DEPLOYMENT)
    revision = name.removeprefix("kimi-")
    for kind in (DEPLOYMENT, POD, CONFIG_MAP):
        for each in bench.kube.names(kind):
            text = json.dumps(bench.kube.find(kind, each))
            bench.kube.remove(kind, "llm", each)
            bench.kube.put(kind, json.loads(text.replace(revision, "01de4a11")))
    bench.restart()
    await bench.run_for(600)
    assert bench.kube.names(DEPLOYMENT) == ["kimi-01de4a11"]
    assert bench.kube.written("Deployment") == []


async def test_the_next_rollout_after_an_upgrade_brings_the_new_plugin(bench: Bench) -> None:
    bench.bundle = PluginBundle({"fathom_vllm/__init__.py": "two = 2\n"}, "bbbbbbbbbb")
    bench.restart()
    bench.metrics.generation = 1
    bench.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await bench.until_rolled()
    assert bench.kube.names(CONFIG_MAP) == ["kimi-depth", "kimi-plugin-bbbbbbbbbb", "kimi-tuning"]


async def test_a_rollout_is_announced_with_its_field_once_and_before_it_begins(
    bench: Bench,
) -> None:
    bench.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await bench.tick()
    assert bench.kube.written("Event")
    assert not bench.kube.written("Deployment")
    # Another operator goes on with it, and does not say it again.
    bench.restart()
    bench.metrics.generation = 1
    await bench.until_rolled()
    told = [event.body for event in bench.kube.written("Event")]
    (rolling,) = [body["message"] for body in told if body["reason"] == "Rolling"]
    assert rolling.startswith("spec.engine.image changed, which needs new pods")
    assert bench.condition("Progressing")["reason"] == "UpToDate"


async def test_drift_in_what_this_version_rendered_is_repaired(bench: Bench) -> None:
    (name,) = bench.kube.names(DEPLOYMENT)
    deployment = bench.kube.find(DEPLOYMENT, name)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    rendered = container["image"]
    container["image"] = "someone/else:1"
    bench.kube.put(DEPLOYMENT, deployment)
    await bench.tick()
    repaired = bench.kube.find(DEPLOYMENT, name)
    assert repaired["spec"]["template"]["spec"]["containers"][0]["image"] == rendered


def change_back(bench: Bench) -> None:
    """Something else sets a field of the Deployment that is the operator's."""
    (name,) = bench.kube.names(DEPLOYMENT)
    deployment = bench.kube.find(DEPLOYMENT, name)
    deployment["spec"]["progressDeadlineSeconds"] = 1
    bench.kube.put(DEPLOYMENT, deployment)


async def test_a_tug_of_war_ends_with_a_sentence(bench: Bench) -> None:
    for _ in range(6):
        change_back(bench)
        await bench.tick()
    assert len(bench.kube.written("Deployment")) == 3
    assert bench.condition("Degraded")["reason"] == "ChildRefused"
    assert "spec.progressDeadlineSeconds is 1" in bench.condition("Degraded")["message"]


async def test_a_tug_of_war_is_taken_up_again_less_and_less_often(bench: Bench) -> None:
    """Whoever fought may have been mended meanwhile, and nobody tells the operator."""
    tried_at_min: list[int] = []
    for minute in range(240):
        change_back(bench)
        before = len(bench.kube.written("Deployment"))
        await bench.tick()
        if len(bench.kube.written("Deployment")) > before:
            tried_at_min.append(minute)
        bench.clock.at_s += 60
    assert tried_at_min == [0, 1, 2, 4, 8, 16, 32, 64, 124, 184]
    assert bench.condition("Degraded")["reason"] == "ChildRefused"

    for _ in range(60):
        await bench.tick()
        bench.clock.at_s += 60
    assert bench.condition("Degraded")["reason"] == "AsExpected"


@pytest.mark.parametrize("answers_after_s", [15, 120])
async def test_a_tug_of_war_is_one_though_each_write_stands_for_a_while(
    bench: Bench, answers_after_s: float
) -> None:
    """As with an autoscaler, between whose looks the operator looks at what it wrote itself."""
    (name,) = bench.kube.names(DEPLOYMENT)
    began_s = bench.clock.at_s
    while bench.clock.at_s < began_s + 3600:
        bench.kube.find(DEPLOYMENT, name)["spec"]["replicas"] = 5
        await bench.tick()
        await bench.tick()
        bench.clock.at_s += answers_after_s
    assert len(bench.kube.written("Deployment")) <= 9
    assert "spec.replicas is 5" in bench.condition("Degraded")["message"]
    await bench.tick()
    bench.clock.at_s += 3600
    await bench.tick()
    bench.clock.at_s += 300
    await bench.tick()
    bench.kube.writes.clear()
    change_back(bench)
    await bench.tick()
    assert len(bench.kube.written("Deployment")) == 1


async def test_what_is_deleted_again_and_again_is_made_again_each_time(bench: Bench) -> None:
    for _ in range(6):
        bench.kube.remove(SERVICE, "llm", "kimi")
        await bench.tick()
        await bench.tick()
        assert bench.kube.names(SERVICE) == ["kimi"]


async def test_a_clock_that_is_set_back_keeps_no_tug_of_war_alive(bench: Bench) -> None:
    for _ in range(4):
        change_back(bench)
        await bench.tick()
    bench.clock.at_s -= 86_400
    await bench.tick()
    await bench.tick()
    assert "changed back by something else" in bench.condition("Degraded")["message"]
    bench.clock.at_s += OVER_AFTER_S
    await bench.tick()
    assert bench.condition("Degraded")["reason"] == "AsExpected"


async def test_a_bad_spec_names_its_field_and_what_runs_keeps_running(bench: Bench) -> None:
    deployments = bench.kube.names(DEPLOYMENT)
    bench.edit({"engine.args": ["--port", "1234"], "replicas": 3})
    await bench.until_ready()
    assert bench.kube.names(DEPLOYMENT) == deployments
    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "InvalidSpec")
    assert "spec.engine.args" in degraded["message"]
    assert "what runs keeps running" in degraded["message"]
    # Replicas follow all the same.
    assert bench.kube.find(DEPLOYMENT, deployments[0])["spec"]["replicas"] == 3
    assert bench.status["ready"] == "3/3"


async def test_the_last_good_spec_survives_the_operator(bench: Bench) -> None:
    deployments = bench.kube.names(DEPLOYMENT)
    bench.edit({"draft.method": "telepathy"})
    bench.restart()
    await bench.until_ready()
    assert bench.kube.names(DEPLOYMENT) == deployments
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"
    bench.edit({"draft.method": "eagle3"})
    await bench.until_ready()
    assert bench.condition("Degraded")["reason"] == "AsExpected"


async def test_a_bad_first_spec_starts_nothing() -> None:
    bench = Bench({"speculation.tokens": 9, "speculation.maxTokens": 4})
    await bench.until_ready()
    assert bench.kube.names(DEPLOYMENT) == []
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"
    assert "spec.speculation.tokens" in bench.condition("Degraded")["message"]
    assert "nothing is started" in bench.condition("Degraded")["message"]


async def test_a_value_that_does_not_exist_is_said_and_never_a_wrong_pod(bench: Bench) -> None:
    deployments = bench.kube.names(DEPLOYMENT)
    bench.edit({"speculation.tuning.actuation": "Rollout"})
    await bench.until_ready()
    assert bench.kube.names(DEPLOYMENT) == deployments
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"
    assert "spec.speculation.tuning.actuation" in bench.condition("Degraded")["message"]


async def test_nothing_is_written_for_a_resource_that_is_being_deleted(bench: Bench) -> None:
    resource = bench.resource
    resource["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    bench.kube.put(SPECULATIVE_DEPLOYMENT, resource)
    bench.kube.remove(SERVICE, "llm", "kimi")
    await bench.tick()
    assert bench.kube.writes == []


async def test_what_no_event_tells_of_is_seen_within_two_minutes(bench: Bench) -> None:
    """Services are not watched, and a watch may fall silent."""
    await bench.run_for(45)
    bench.kube.remove(SERVICE, "llm", "kimi")
    await bench.run_for(120)
    assert bench.kube.names(SERVICE) == ["kimi"]


async def test_a_clock_that_is_set_back_makes_nothing_unseen(bench: Bench) -> None:
    await bench.run_for(45)
    bench.kube.remove(SERVICE, "llm", "kimi")
    bench.clock.at_s -= 3600
    await bench.run_for(5)
    assert bench.kube.names(SERVICE) == ["kimi"]


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
    bench = Bench({"engine.image": image})
    await bench.until_ready()
    assert bench.status["ready"] == "1/1"
    assert bench.kube.names(CONFIG_MAP) == config_maps


async def test_depths_that_no_pod_reads_any_more_are_removed_though_the_plugin_stays() -> None:
    bench = Bench()
    await bench.until_ready()
    assert "kimi-depth" in bench.kube.names(CONFIG_MAP)
    bench.edit({"engine.image": "vllm/vllm-openai:v0.28.0"})
    await bench.until_rolled()
    assert bench.kube.names(CONFIG_MAP) == ["kimi-plugin-aaaaaaaaaa", "kimi-tuning"]


async def test_pods_that_run_without_the_plugin_get_it_with_the_next_rollout_only() -> None:
    bench = Bench({"engine.image": "vllm/vllm-openai:v0.28.0", "replicas": 2})
    await bench.until_ready()
    (name,) = bench.kube.names(DEPLOYMENT)
    # As a Fathom that did not count there has started them.
    deployment = bench.kube.find(DEPLOYMENT, name)
    annotations = deployment["metadata"]["annotations"]
    del annotations[names.ANNOTATION_PLUGIN]
    annotations[names.ANNOTATION_RENDERED_BY] = "0.1.0"
    pod = deployment["spec"]["template"]["spec"]
    pod["volumes"] = [each for each in pod["volumes"] if each["name"] != "fathom-plugin"]
    bench.kube.put(DEPLOYMENT, deployment)
    for each in bench.kube.all_of(POD):
        each["spec"]["volumes"] = pod["volumes"]
        bench.kube.put(POD, each)
    bench.restart()
    await bench.run_for(300)
    assert bench.kube.names(DEPLOYMENT) == [name]
    assert bench.kube.find(DEPLOYMENT, name)["spec"]["template"]["spec"] == pod
    assert "get the plugin when a rollout replaces them" in bench.status["engine"]["reason"]

    bench.edit({"speculation.tuning.mode": "Advise"})
    bench.edit({"replicas": 3})
    await bench.run_for(300)
    assert bench.kube.names(DEPLOYMENT) == [name]

    bench.edit({"speculation.tokens": 5})
    await bench.run_for(60)
    (new,) = set(bench.kube.names(DEPLOYMENT)) - {name}
    template = bench.kube.find(DEPLOYMENT, new)["spec"]["template"]["spec"]
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
    bench = Bench(changes, decide=decide)
    await bench.until_ready()
    await bench.run_for(120)
    assert bench.condition("Tuning")["reason"] == reason
    assert bench.status["depth"]["summary"] == depth
    written = len(bench.kube.writes)
    await bench.run_for(600)
    assert len(bench.kube.writes) == written


async def test_without_drafting_no_draft_is_loaded() -> None:
    bench = Bench({"speculation.drafting": "Disabled"})
    await bench.until_ready()

    (deployment,) = bench.kube.all_of(DEPLOYMENT)
    text = str(deployment["spec"]["template"])
    assert "--speculative-config" not in text
    assert "fathom_vllm" in text
    assert bench.condition("DraftCompatible")["reason"] == "NoDraft"


async def test_depth_is_told_of_what_serves_while_an_engine_without_it_is_on_trial() -> None:
    bench = Bench({"replicas": 2, "rollout.canaryMinutes": 60}, decide=decide)
    await bench.until_ready()
    assert bench.status["depth"]["summary"] == "3"
    bench.edit({"speculation.drafting": "Disabled"})
    for _ in range(8):
        bench.clock.at_s += await bench.tick() or 0
        bench.play_controllers()
    assert len(bench.kube.names(DEPLOYMENT)) == 2
    assert bench.status["depth"]["summary"] == "3"

    # Those that serve are steered all the same.
    stable = next(p for p in bench.kube.all_of(POD) if "speculative" in str(p["spec"]))
    stable["metadata"]["annotations"] = {names.ANNOTATION_PIN_DEPTH: "7"}
    bench.kube.put(POD, stable)
    for _ in range(3):
        bench.clock.at_s += await bench.tick() or 0
    document = bench.kube.find(CONFIG_MAP, "kimi-depth")["data"]["depth.json"]
    assert stable["metadata"]["name"] in document
    assert bench.condition("Tuning")["reason"] != "DraftingDisabled"


async def test_the_loop_ends_with_its_resource(bench: Bench) -> None:
    bench.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    assert await bench.tick() is None
    assert bench.kube.writes == []


async def test_an_unreachable_api_server_is_waited_for_and_longer_each_time(bench: Bench) -> None:
    def unreachable(_verb: str, _kind: Kind) -> KubeError:
        return KubeError(0, "no answer")

    bench.kube.fail = unreachable
    delays = [await bench.tick() for _ in range(4)]
    assert delays == [1, 2, 4, 8]
    for _ in range(10):
        await bench.tick()
    assert await bench.tick() == 300
    bench.kube.fail = lambda _verb, _kind: None
    assert await bench.tick() == 30
    assert bench.kube.writes == []


async def test_a_refused_child_is_told_and_retried() -> None:
    bench = Bench()

    def forbidden(verb: str, kind: Kind) -> KubeError | None:
        refused = verb == "create" and kind == DEPLOYMENT
        return KubeError(403, "exceeded quota: gpus") if refused else None

    bench.kube.fail = forbidden
    assert await bench.tick() == SHORTEST_SLEEP_S
    assert await bench.loop.tick() == 1
    degraded = bench.condition("Degraded")
    assert degraded["reason"] == "ChildRefused"
    assert "exceeded quota: gpus" in degraded["message"]
    bench.kube.fail = lambda _verb, _kind: None
    bench.clock.at_s += 1
    await bench.until_ready()
    assert bench.condition("Degraded")["reason"] == "AsExpected"


async def test_a_bug_of_ours_is_an_event_and_stops_nothing(bench: Bench) -> None:
    good = bench.decide

    def broken(_: object) -> object:
        raise ZeroDivisionError("division by zero")

    await bench.tick()
    state = bench.loop._state
    assert state is not None
    gained = Gained(since_s=1.0, measured_gpu_s=2.0)
    bench.loop._state = replace(state, tuner=replace(state.tuner, gained=gained))
    bench.decide = broken  # type: ignore[assignment]
    assert await bench.tick() == 1
    assert await bench.tick() == 2
    assert bench.loop._state is not None
    assert bench.loop._state.tuner == TuningState(gained=gained)
    (event,) = bench.kube.written("Event")
    assert event.body["reason"] == "InternalError"
    assert "division by zero" in event.body["message"]
    bench.decide = good
    assert await bench.tick() == 30


async def test_what_was_learned_outlives_a_bug_outside_of_the_tuner(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.tick()
    state = bench.loop._state
    assert state is not None

    def broken(*_: object, **__: object) -> object:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(step, "tuning_snapshot", broken)
    await bench.tick()
    assert bench.loop._state is not None
    assert bench.loop._state.tuner == state.tuner


async def test_its_own_status_is_known_before_the_events_that_come_of_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch tells of it while they are posted, and that must not wake the loop."""
    apply, create = bench.kube.apply, bench.kube.create
    written, known = [""], list[bool]()

    async def applied(*given: Any, **more: Any) -> Any:
        after = await apply(*given, **more)
        if more.get("subresource") == "status":
            written[0] = after["metadata"]["resourceVersion"]
        return after

    async def posted(*given: Any) -> Any:
        if written[0]:
            state = bench.loop._state
            known.append(state is not None and state.said.version == written[0])
        return await create(*given)

    monkeypatch.setattr(bench.kube, "apply", applied)
    monkeypatch.setattr(bench.kube, "create", posted)
    await bench.until_ready()
    bench.edit({"engine.args": ["--port", "1"]})
    written[0] = ""
    await bench.tick()
    assert known, "no event came of a status"
    assert all(known)


async def test_without_metrics_depth_is_held(bench: Bench) -> None:
    bench.metrics.down = True
    await bench.run_for(300)
    assert bench.condition("Tuning")["reason"] == "NoMetrics"
    assert bench.kube.written("ConfigMap") == []
    assert len(bench.kube.written("SpeculativeDeployment")) == 1


async def test_only_ready_pods_are_asked_for_their_metrics(bench: Bench) -> None:
    first, second = (pod["metadata"]["name"] for pod in bench.kube.all_of(POD))
    bench.set_ready(first, ready=False)
    await bench.tick()
    assert bench.metrics.asked == [second]


async def test_scaling_to_zero_and_back(bench: Bench) -> None:
    bench.edit({"replicas": 0})
    await bench.until_ready()
    assert bench.condition("Ready")["reason"] == "ScaledToZero"
    bench.edit({"replicas": 1})
    await bench.until_ready()
    assert bench.status["ready"] == "1/1"


async def test_another_resource_of_the_same_name_inherits_nothing(bench: Bench) -> None:
    resource = bench.resource
    resource["metadata"]["uid"] = "another"
    resource["spec"]["draft"]["method"] = "telepathy"
    resource.pop("status")
    bench.kube.put(SPECULATIVE_DEPLOYMENT, resource)
    await bench.tick()
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"
    assert bench.loop.key == KEY
    assert bench.status["observedGeneration"] == bench.resource["metadata"]["generation"]
