"""Other builds of the operator: older, newer, of the same version. Pods stay as they run.

What another build renders is played in two ways: its Deployment lies in the cluster with its pods
and its annotation, or its plugin is another one.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import typer

from fathom import __version__
from fathom.api import names
from fathom.cli.options import annotate
from fathom.cli.rollout import asked_for
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD, SPECULATIVE_DEPLOYMENT
from fathom.engine.plugin import PluginBundle
from support.loop_harness import KEY, LoopHarness

A = PluginBundle({"fathom_vllm/__init__.py": "one = 1\n"}, "aaaaaaaaaa")
B = PluginBundle({"fathom_vllm/__init__.py": "two = 2\n"}, "bbbbbbbbbb")
C = PluginBundle({"fathom_vllm/__init__.py": "three = 3\n"}, "cccccccccc")
IMAGE = "vllm/vllm-openai:v0.32.1"


def only(harness: LoopHarness) -> dict[str, Any]:
    (found,) = harness.kube.all_of(DEPLOYMENT)
    return found


def revision(manifest: dict[str, Any]) -> str:
    found: str = manifest["metadata"]["labels"][names.LABEL_REVISION]
    return found


def plugins(harness: LoopHarness) -> dict[str, str]:
    """By revision: the plugin that its pods mount."""
    return {
        revision(each): each["metadata"]["annotations"][names.ANNOTATION_PLUGIN].split("-")[-1]
        for each in harness.kube.all_of(DEPLOYMENT)
    }


def of_another_build(harness: LoopHarness, rendered_by: str) -> None:
    """What runs is of a build that gave pods a minute to end."""
    deployment = copy.deepcopy(only(harness))
    deployment["metadata"]["annotations"][names.ANNOTATION_RENDERED_BY] = rendered_by
    pods = deployment["spec"]["template"]["spec"]
    pods["terminationGracePeriodSeconds"] = 60
    harness.kube.put(DEPLOYMENT, deployment)
    for pod in harness.kube.all_of(POD):
        harness.kube.put(POD, {**pod, "spec": copy.deepcopy(pods)})


def leads(harness: LoopHarness, bundle: PluginBundle) -> None:
    """An operator of this build takes over."""
    harness.bundle = bundle
    harness.restart()
    harness.kube.writes.clear()


@pytest.fixture
async def upgraded(harness: LoopHarness) -> LoopHarness:
    """Two replicas that build A has rendered, and build B has seen."""
    leads(harness, B)
    await harness.run_for(60)
    return harness


async def ask(harness: LoopHarness) -> str:
    """As `kubectl fathom rollout`; the revision."""
    offered = await asked_for(harness.kube, KEY)
    assert offered is not None
    harness.loop.wake()
    return offered.revision


async def withdraw(harness: LoopHarness) -> None:
    await annotate(harness.kube, KEY, names.ANNOTATION_ROLLOUT, None)
    harness.loop.wake()


async def canary(harness: LoopHarness) -> None:
    """Its workload is there, and its pod serves."""
    for _ in range(10):
        await harness.run_for(10)
        harness.play_controllers()
        if len({revision(pod) for pod in harness.kube.all_of(POD)}) > 1:
            break
    await harness.tick()
    assert harness.status["rollout"]["stage"] == "Canary"


BUILDS = ["0.1.0", "0.1.0 0123456789abcdef", "0.2.0 0123456789abcdef", "0.0.9", ""]


@pytest.mark.parametrize("rendered_by", BUILDS)
@pytest.mark.parametrize("mode", ["Auto", "Static"])
async def test_an_upgrade_restarts_nothing(mode: str, rendered_by: str) -> None:
    harness = LoopHarness({"replicas": 3, "speculation.tuning.mode": mode})
    await harness.until_ready()
    of_another_build(harness, rendered_by)
    template = only(harness)["spec"]["template"]
    leads(harness, harness.bundle)
    await harness.run_for(600)
    assert harness.kube.written("Deployment") == []
    harness.edit({"replicas": 2, "rollout.maxUnavailable": 2})
    await harness.until_ready()
    assert only(harness)["spec"]["template"] == template
    assert only(harness)["spec"]["replicas"] == 2
    offered = harness.status["rollout"]
    assert (offered["stage"], offered["reason"]) == ("Offered", "RenderedOtherwise")
    assert offered["why"] == "terminationGracePeriodSeconds: 60 became 140"


async def test_what_is_rendered_alike_is_of_no_other_build(harness: LoopHarness) -> None:
    """A Fathom that left no hash is one, too: what it lacks of ours, if anything, would be told."""
    leads(harness, harness.bundle)
    await harness.run_for(600)
    assert harness.kube.news == []
    deployment = copy.deepcopy(only(harness))
    deployment["metadata"]["annotations"][names.ANNOTATION_RENDERED_BY] = "0.1.0"
    deployment["spec"]["template"]["spec"]["tolerations"] += [{"key": "by-a-webhook"}]
    harness.kube.put(DEPLOYMENT, deployment)
    leads(harness, harness.bundle)
    await harness.run_for(600)
    assert harness.kube.news == []
    assert "rollout" not in harness.status


async def test_two_builds_that_take_turns_write_no_pods(harness: LoopHarness) -> None:
    template = only(harness)["spec"]["template"]
    for bundle in (B, A, B, A):
        leads(harness, bundle)
        await harness.run_for(300)
        assert only(harness)["spec"]["template"] == template
        assert harness.kube.written("Deployment") == []
        assert ("rollout" in harness.status) is (bundle is B)


async def test_the_status_says_what_is_kept_and_how_to_have_it_otherwise(
    upgraded: LoopHarness,
) -> None:
    offered, progressing = upgraded.status["rollout"], upgraded.condition("Progressing")
    stable = revision(only(upgraded))
    assert offered["stable"] == stable
    assert progressing["reason"] == "UpToDate"
    assert (
        f"Pods of revision {stable} stay as another build of Fathom {__version__} rendered them, "
        "and this build would render them otherwise (volumes: fathom-plugin.configMap.name "
        "kimi-plugin-aaaaaaaaaa became kimi-plugin-bbbbbbbbbb): `kubectl fathom rollout kimi` asks "
        f"for that as revision {offered['revision']}, one canary first."
    ) in progressing["message"]
    # It says so once.
    upgraded.kube.writes.clear()
    await upgraded.run_for(600)
    upgraded.restart()
    await upgraded.run_for(600)
    assert upgraded.kube.news == []


async def test_what_is_asked_for_is_rolled_out_by_a_canary(upgraded: LoopHarness) -> None:
    before = revision(only(upgraded))
    asked = await ask(upgraded)
    await canary(upgraded)
    assert plugins(upgraded) == {before: "aaaaaaaaaa", asked: "bbbbbbbbbb"}
    assert upgraded.status["rollout"]["why"].startswith("volumes: fathom-plugin")
    (rolling,) = (
        each.body["message"]
        for each in upgraded.kube.written("Event")
        if each.body["reason"] == "Rolling"
    )
    assert rolling.startswith(
        f"annotation fathom.dev/rollout asks for it, which needs new pods: "
        f"revision {before} is replaced by {asked}, one canary first"
    )
    await upgraded.until_rolled()
    assert plugins(upgraded) == {asked: "bbbbbbbbbb"}
    assert upgraded.status["rollout"]["stage"] == "Complete"
    # By now the annotation means nothing, and neither does its end.
    upgraded.kube.writes.clear()
    await withdraw(upgraded)
    await upgraded.run_for(600)
    assert upgraded.kube.written("Deployment") == []


async def test_its_live_edits_roll_nothing_and_an_edit_rolls_to_a_name_of_its_own(
    upgraded: LoopHarness,
) -> None:
    plain, asked = revision(only(upgraded)), await ask(upgraded)
    await upgraded.until_rolled()
    upgraded.edit({"replicas": 3, "speculation.tokens": 1})
    await upgraded.until_ready()
    assert plugins(upgraded) == {asked: "bbbbbbbbbb"}
    image = upgraded.resource["spec"]["engine"]["image"]
    upgraded.metrics.generation = 2
    for each in (IMAGE, image):
        upgraded.edit({"engine.image": each})
        await upgraded.until_rolled()
    assert plugins(upgraded) == {plain: "bbbbbbbbbb"}
    assert upgraded.status["rollout"]["stage"] == "Complete"


@pytest.mark.parametrize("bundle", [A, C])
async def test_another_build_goes_on_with_what_was_begun(
    upgraded: LoopHarness, bundle: PluginBundle
) -> None:
    before, asked = revision(only(upgraded)), await ask(upgraded)
    await canary(upgraded)
    leads(upgraded, bundle)
    await upgraded.until_rolled()
    assert plugins(upgraded) == {asked: "bbbbbbbbbb"}
    # And offers what it renders itself, by yet another name.
    await upgraded.run_for(60)
    offered = upgraded.status["rollout"]
    assert (offered["stage"], offered["stable"]) == ("Offered", asked)
    assert offered["revision"] not in {asked, before}


async def test_another_build_does_not_begin_what_was_not_meant_for_it(
    upgraded: LoopHarness,
) -> None:
    before, asked = revision(only(upgraded)), await ask(upgraded)
    await upgraded.tick()
    assert upgraded.status["rollout"]["stage"] == "Settling"
    leads(upgraded, C)
    await upgraded.run_for(300)
    assert plugins(upgraded) == {before: "aaaaaaaaaa"}
    assert upgraded.status["rollout"]["stage"] == "Offered"
    assert upgraded.status["rollout"]["revision"] != asked
    leads(upgraded, B)
    await upgraded.until_rolled()
    assert plugins(upgraded) == {asked: "bbbbbbbbbb"}


async def test_withdrawn_it_turns_round(upgraded: LoopHarness) -> None:
    before = revision(only(upgraded))
    await ask(upgraded)
    await canary(upgraded)
    await withdraw(upgraded)
    await upgraded.until_rolled()
    assert plugins(upgraded) == {before: "aaaaaaaaaa"}
    assert upgraded.status["rollout"]["stage"] == "Offered"


async def test_an_edit_supersedes_it(upgraded: LoopHarness) -> None:
    asked = await ask(upgraded)
    await canary(upgraded)
    upgraded.edit({"engine.image": IMAGE})
    await upgraded.until_rolled()
    (new,) = plugins(upgraded)
    assert new != asked
    assert only(upgraded)["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE


async def vetoed(harness: LoopHarness) -> str:
    """The canary crashes."""
    asked = await ask(harness)
    await canary(harness)
    for pod in harness.kube.all_of(POD):
        if revision(pod) == asked:
            crashed = {"name": "vllm", "restartCount": 3, "state": {}}
            harness.set_ready(pod["metadata"]["name"], ready=False, containerStatuses=[crashed])
    await harness.tick()
    assert harness.status["rollout"]["stage"] == "RolledBack"
    harness.play_controllers()
    return asked


@pytest.mark.parametrize("lost", [False, True])
async def test_a_veto_outlives_builds_that_take_turns(upgraded: LoopHarness, *, lost: bool) -> None:
    before = revision(only(upgraded))
    asked = await vetoed(upgraded)
    if lost:
        upgraded.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    for bundle in (B, A, B) if not lost else (B,):
        leads(upgraded, bundle)
        await upgraded.run_for(600)
        upgraded.play_controllers()
        assert upgraded.status["rollout"]["stage"] == "RolledBack"
        assert {revision(pod) for pod in upgraded.kube.all_of(POD)} == {before}
    stands = "not known any more, and its pods stay as they are" if lost else "in force"
    assert (
        f"The spec of {before} is {stands} until annotation fathom.dev/rollout goes, or spec asks "
        "for another revision"
    ) in upgraded.condition("Degraded")["message"]
    await withdraw(upgraded)
    await upgraded.run_for(60)
    assert upgraded.condition("Degraded")["status"] == "False"
    assert (upgraded.status["rollout"]["stage"], upgraded.status["rollout"]["revision"]) == (
        "Offered",
        asked,
    )


@pytest.mark.parametrize("bundle", [A, B, C])
@pytest.mark.parametrize("unseen", [False, True])
async def test_what_was_rolled_out_is_known_by_its_workload(
    upgraded: LoopHarness, bundle: PluginBundle, *, unseen: bool
) -> None:
    """Where what was kept is lost, and the status as well."""
    asked = await ask(upgraded)
    await upgraded.until_rolled()
    upgraded.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    if unseen:
        document = copy.deepcopy(upgraded.resource)
        del document["status"]
        upgraded.kube.put(SPECULATIVE_DEPLOYMENT, document)
    leads(upgraded, bundle)
    await upgraded.run_for(600)
    assert plugins(upgraded) == {asked: "bbbbbbbbbb"}
    assert upgraded.kube.written("Deployment") == []


def renamed(harness: LoopHarness, to: str) -> None:
    """As a build calls the pods of this spec that knows other fields, or other engines."""
    (before,) = plugins(harness)
    for kind in (DEPLOYMENT, POD):
        for each in copy.deepcopy(harness.kube.all_of(kind)):
            harness.kube.remove(kind, "llm", each["metadata"]["name"])
            harness.kube.put(kind, json.loads(json.dumps(each).replace(before, to)))


async def test_pods_with_a_name_from_elsewhere_stay_where_the_status_knows_them(
    harness: LoopHarness,
) -> None:
    renamed(harness, "01de4a11")
    harness.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    leads(harness, B)
    await harness.run_for(600)
    assert plugins(harness) == {"01de4a11": "aaaaaaaaaa"}
    assert harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"]["revision"] == "01de4a11"
    assert harness.status["rollout"]["stage"] == "Offered"


async def test_an_edit_that_nobody_has_seen_is_still_rolled_out(harness: LoopHarness) -> None:
    renamed(harness, "01de4a11")
    harness.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    harness.edit({"engine.image": IMAGE})
    leads(harness, B)
    await harness.run_for(60)
    assert harness.status["rollout"]["stage"] in {"Settling", "Canary"}


@pytest.mark.parametrize("rendered_by", ["0.1.0", "0.1.0 0123456789abcdef"])
async def test_the_plugin_of_pods_that_are_kept_is_made_again(
    harness: LoopHarness, rendered_by: str
) -> None:
    """Else a pod whose node dies has no successor."""
    of_another_build(harness, rendered_by)
    harness.kube.remove(CONFIG_MAP, "llm", "kimi-plugin-aaaaaaaaaa")
    leads(harness, harness.bundle)
    await harness.run_for(60)
    assert "kimi-plugin-aaaaaaaaaa" in harness.kube.names(CONFIG_MAP)


def is_paused(harness: LoopHarness) -> None:
    harness.resource["metadata"].setdefault("annotations", {})[names.ANNOTATION_PAUSED] = "true"


def says_paused(harness: LoopHarness) -> None:
    harness.edit({"rollout.paused": True})


@pytest.mark.parametrize("pause", [is_paused, says_paused])
async def test_paused_it_waits(upgraded: LoopHarness, pause: Callable[[LoopHarness], None]) -> None:
    pause(upgraded)
    await ask(upgraded)
    await upgraded.run_for(300)
    assert len(plugins(upgraded)) == 1


async def test_where_nothing_is_offered_the_command_says_so(
    harness: LoopHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        await asked_for(harness.kube, KEY)
    assert ended.value.exit_code == 2
    assert "Nothing is offered for llm/kimi" in capsys.readouterr().err
    assert names.ANNOTATION_ROLLOUT not in harness.resource["metadata"].get("annotations", {})
