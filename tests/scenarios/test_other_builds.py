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
from fathom.core.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD, SPECULATIVE_DEPLOYMENT
from fathom.core.plugin import PluginBundle
from fathom.inspect.asking.annotation import annotate
from fathom.inspect.asking.rollout_command import asked_for
from support.bench import KEY, Bench

A = PluginBundle({"fathom_vllm/__init__.py": "one = 1\n"}, "aaaaaaaaaa")
B = PluginBundle({"fathom_vllm/__init__.py": "two = 2\n"}, "bbbbbbbbbb")
C = PluginBundle({"fathom_vllm/__init__.py": "three = 3\n"}, "cccccccccc")
IMAGE = "vllm/vllm-openai:v0.32.1"


def only(bench: Bench) -> dict[str, Any]:
    (found,) = bench.kube.all_of(DEPLOYMENT)
    return found


def revision(manifest: dict[str, Any]) -> str:
    found: str = manifest["metadata"]["labels"][names.LABEL_REVISION]
    return found


def plugins(bench: Bench) -> dict[str, str]:
    """By revision: the plugin that its pods mount."""
    return {
        revision(each): each["metadata"]["annotations"][names.ANNOTATION_PLUGIN].split("-")[-1]
        for each in bench.kube.all_of(DEPLOYMENT)
    }


def of_another_build(bench: Bench, rendered_by: str) -> None:
    """What runs is of a build that gave pods a minute to end."""
    deployment = copy.deepcopy(only(bench))
    deployment["metadata"]["annotations"][names.ANNOTATION_RENDERED_BY] = rendered_by
    pods = deployment["spec"]["template"]["spec"]
    pods["terminationGracePeriodSeconds"] = 60
    bench.kube.put(DEPLOYMENT, deployment)
    for pod in bench.kube.all_of(POD):
        bench.kube.put(POD, {**pod, "spec": copy.deepcopy(pods)})


def leads(bench: Bench, bundle: PluginBundle) -> None:
    """An operator of this build takes over."""
    bench.bundle = bundle
    bench.restart()
    bench.kube.writes.clear()


@pytest.fixture
async def upgraded(bench: Bench) -> Bench:
    """Two replicas that build A has rendered, and build B has seen."""
    leads(bench, B)
    await bench.run_for(60)
    return bench


async def ask(bench: Bench) -> str:
    """As `kubectl fathom rollout`; the revision."""
    offered = await asked_for(bench.kube, KEY)
    assert offered is not None
    bench.loop.wake()
    return offered.revision


async def withdraw(bench: Bench) -> None:
    await annotate(bench.kube, KEY, names.ANNOTATION_ROLLOUT, None)
    bench.loop.wake()


async def canary(bench: Bench) -> None:
    """Its workload is there, and its pod serves."""
    for _ in range(10):
        await bench.run_for(10)
        bench.play_controllers()
        if len({revision(pod) for pod in bench.kube.all_of(POD)}) > 1:
            break
    await bench.tick()
    assert bench.status["rollout"]["stage"] == "Canary"


BUILDS = ["0.1.0", "0.1.0 0123456789abcdef", "0.2.0 0123456789abcdef", "0.0.9", ""]


@pytest.mark.parametrize("rendered_by", BUILDS)
@pytest.mark.parametrize("mode", ["Auto", "Static"])
async def test_an_upgrade_restarts_nothing(mode: str, rendered_by: str) -> None:
    bench = Bench({"replicas": 3, "speculation.tuning.mode": mode})
    await bench.until_ready()
    of_another_build(bench, rendered_by)
    template = only(bench)["spec"]["template"]
    leads(bench, bench.bundle)
    await bench.run_for(600)
    assert bench.kube.written("Deployment") == []
    bench.edit({"replicas": 2, "rollout.maxUnavailable": 2})
    await bench.until_ready()
    assert only(bench)["spec"]["template"] == template
    assert only(bench)["spec"]["replicas"] == 2
    offered = bench.status["rollout"]
    assert (offered["stage"], offered["reason"]) == ("Offered", "RenderedOtherwise")
    assert offered["why"] == "terminationGracePeriodSeconds: 60 became 140"


async def test_what_is_rendered_alike_is_of_no_other_build(bench: Bench) -> None:
    """A Fathom that left no hash is one, too: what it lacks of ours, if anything, would be told."""
    leads(bench, bench.bundle)
    await bench.run_for(600)
    assert bench.kube.writes == []
    deployment = copy.deepcopy(only(bench))
    deployment["metadata"]["annotations"][names.ANNOTATION_RENDERED_BY] = "0.1.0"
    deployment["spec"]["template"]["spec"]["tolerations"] += [{"key": "by-a-webhook"}]
    bench.kube.put(DEPLOYMENT, deployment)
    leads(bench, bench.bundle)
    await bench.run_for(600)
    assert bench.kube.writes == []
    assert "rollout" not in bench.status


async def test_two_builds_that_take_turns_write_no_pods(bench: Bench) -> None:
    template = only(bench)["spec"]["template"]
    for bundle in (B, A, B, A):
        leads(bench, bundle)
        await bench.run_for(300)
        assert only(bench)["spec"]["template"] == template
        assert bench.kube.written("Deployment") == []
        assert ("rollout" in bench.status) is (bundle is B)


async def test_the_status_says_what_is_kept_and_how_to_have_it_otherwise(upgraded: Bench) -> None:
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
    assert upgraded.kube.writes == []


async def test_what_is_asked_for_is_rolled_out_by_a_canary(upgraded: Bench) -> None:
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
    upgraded: Bench,
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
    upgraded: Bench, bundle: PluginBundle
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


async def test_another_build_does_not_begin_what_was_not_meant_for_it(upgraded: Bench) -> None:
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


async def test_withdrawn_it_turns_round(upgraded: Bench) -> None:
    before = revision(only(upgraded))
    await ask(upgraded)
    await canary(upgraded)
    await withdraw(upgraded)
    await upgraded.until_rolled()
    assert plugins(upgraded) == {before: "aaaaaaaaaa"}
    assert upgraded.status["rollout"]["stage"] == "Offered"


async def test_an_edit_supersedes_it(upgraded: Bench) -> None:
    asked = await ask(upgraded)
    await canary(upgraded)
    upgraded.edit({"engine.image": IMAGE})
    await upgraded.until_rolled()
    (new,) = plugins(upgraded)
    assert new != asked
    assert only(upgraded)["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE


async def vetoed(bench: Bench) -> str:
    """The canary crashes."""
    asked = await ask(bench)
    await canary(bench)
    for pod in bench.kube.all_of(POD):
        if revision(pod) == asked:
            crashed = {"name": "vllm", "restartCount": 3, "state": {}}
            bench.set_ready(pod["metadata"]["name"], ready=False, containerStatuses=[crashed])
    await bench.tick()
    assert bench.status["rollout"]["stage"] == "RolledBack"
    bench.play_controllers()
    return asked


@pytest.mark.parametrize("lost", [False, True])
async def test_a_veto_outlives_builds_that_take_turns(upgraded: Bench, *, lost: bool) -> None:
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
    assert (
        f"The spec of {before} is served until annotation fathom.dev/rollout goes, or spec asks "
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
    upgraded: Bench, bundle: PluginBundle, *, unseen: bool
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


def renamed(bench: Bench, to: str) -> None:
    """As a build calls the pods of this spec that knows other fields, or other engines."""
    (before,) = plugins(bench)
    for kind in (DEPLOYMENT, POD):
        for each in copy.deepcopy(bench.kube.all_of(kind)):
            bench.kube.remove(kind, "llm", each["metadata"]["name"])
            bench.kube.put(kind, json.loads(json.dumps(each).replace(before, to)))


async def test_pods_with_a_name_from_elsewhere_stay_where_the_status_knows_them(
    bench: Bench,
) -> None:
    renamed(bench, "01de4a11")
    bench.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    leads(bench, B)
    await bench.run_for(600)
    assert plugins(bench) == {"01de4a11": "aaaaaaaaaa"}
    assert bench.kube.find(CONFIG_MAP, "kimi-tuning")["data"]["revision"] == "01de4a11"
    assert bench.status["rollout"]["stage"] == "Offered"


async def test_an_edit_that_nobody_has_seen_is_still_rolled_out(bench: Bench) -> None:
    renamed(bench, "01de4a11")
    bench.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    bench.edit({"engine.image": IMAGE})
    leads(bench, B)
    await bench.run_for(60)
    assert bench.status["rollout"]["stage"] in {"Settling", "Canary"}


@pytest.mark.parametrize("rendered_by", ["0.1.0", "0.1.0 0123456789abcdef"])
async def test_the_plugin_of_pods_that_are_kept_is_made_again(
    bench: Bench, rendered_by: str
) -> None:
    """Else a pod whose node dies has no successor."""
    of_another_build(bench, rendered_by)
    bench.kube.remove(CONFIG_MAP, "llm", "kimi-plugin-aaaaaaaaaa")
    leads(bench, bench.bundle)
    await bench.run_for(60)
    assert "kimi-plugin-aaaaaaaaaa" in bench.kube.names(CONFIG_MAP)


def is_paused(bench: Bench) -> None:
    bench.resource["metadata"].setdefault("annotations", {})[names.ANNOTATION_PAUSED] = "true"


def says_paused(bench: Bench) -> None:
    bench.edit({"rollout.paused": True})


@pytest.mark.parametrize("pause", [is_paused, says_paused])
async def test_paused_it_waits(upgraded: Bench, pause: Callable[[Bench], None]) -> None:
    pause(upgraded)
    await ask(upgraded)
    await upgraded.run_for(300)
    assert len(plugins(upgraded)) == 1


async def test_where_nothing_is_offered_the_command_says_so(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        await asked_for(bench.kube, KEY)
    assert ended.value.exit_code == 2
    assert "Nothing is offered for llm/kimi" in capsys.readouterr().err
    assert names.ANNOTATION_ROLLOUT not in bench.resource["metadata"].get("annotations", {})
