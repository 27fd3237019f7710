"""The page of a SpeculationTuner, from what the real loop hands to it."""

import re
from dataclasses import replace
from typing import Any

from fathom.cluster.kinds import ObjectKey
from fathom.measurement.counters import Unread
from fathom.page.overview import Health, overview_of
from fathom.page.rendering import overview_page, resource_page
from fathom.page.resource_view import ResourceView, resource_view
from support.page_subjects import lived
from support.tuner_harness import KEY, LIVE, TunerHarness

AUTO = {"tuning": {"mode": "Auto", "windowSeconds": 10}}


def harness(spec: dict[str, Any] | None = None, **pod: Any) -> TunerHarness:
    """Two pods that serve six requests at a time."""
    found = TunerHarness(spec, pods=0)
    for number in range(2):
        found.start(f"qwen-{number}", **pod)
    found.concurrency = 6
    return found


def view_of(scene: TunerHarness) -> ResourceView:
    return resource_view(scene.shown.subject(KEY), scene.clock.at_s)


def facts_of(view: ResourceView) -> dict[str, str]:
    return {fact.name: fact.value for group in view.groups for fact in group.facts}


def group_of(view: ResourceView, title: str) -> dict[str, str]:
    (found,) = [each for each in view.groups if each.title.startswith(title)]
    return {fact.name: f"{fact.value} {fact.note}".strip() for fact in found.facts}


async def test_one_that_tunes_has_charts_facts_and_the_surface() -> None:
    scene = harness(AUTO)
    await scene.run_for(600)
    view, status = view_of(scene), scene.status

    assert (view.kind, view.health, view.notices) == ("SpeculationTuner", Health.WELL, ())
    facts = facts_of(view)
    assert (facts["Pods readable"], facts["Level"], facts["Your own depth"]) == ("2/2", "Live", "3")
    assert facts["Depth"] == status["depth"]["summary"]
    assert group_of(view, "Engines, by kind") == {
        "2 pods": "level Live Depth can be changed live, vLLM 0.32.0, Model Runner V2, depths 0, "
        "1, 3, 5, 7"
    }
    assert set(view.panels) == {
        *("depth", "tokens_per_second", "mean_batch", "acceptance_length", "gain_percent")
    }
    assert view.empty == ()
    assert view.depths == (1, 3, 5, 7)
    assert {each.kind for each in view.moments} == {"Decision", "Condition"}
    assert not [each for each in view.moments if each.bad]


async def test_at_level_metrics_what_nobody_counts_is_said_to_be_unknown() -> None:
    scene = harness(plugin=False)
    await scene.run_for(300)
    view = view_of(scene)
    facts = facts_of(view)

    assert (facts["Level"], facts["Depth"], facts["Your own depth"]) == ("Metrics", "–", "–")
    assert facts["Requests per step"] == "not measured"
    assert facts["Gain over your own depth"] == "not measured"
    assert "Depth 2" in group_of(view, "Break-even of a decode step")
    assert [*group_of(view, "Accepted by position")] == ["Position 1", "Position 2", "Position 3"]
    assert set(view.panels) == {"tokens_per_second", "acceptance_length"}
    missing = {name: each.missing for each in view.empty for name in each.names}
    assert missing["mean_batch"].startswith("Of these engines acceptance is known, and nothing of")
    assert missing["gain_percent"] == missing["mean_batch"]
    assert "the engine runs without" in missing["depth"]
    assert (view.heat, view.depths) == ((), ())
    (notice,) = view.notices
    assert (notice.code, notice.health) == ("Attached/PluginMissing", Health.PAUSED)
    assert view.health is Health.WELL


async def test_acceptance_of_the_past_is_not_shown_as_of_now() -> None:
    scene = harness(plugin=False)
    await scene.run_for(300)
    later = resource_view(scene.shown.subject(KEY), scene.clock.at_s + 3600)
    past = [each.title.split(",")[0].split(";")[0] for each in later.groups if each.past]
    assert past[1:] == ["Accepted by position", "Break-even of a decode step"]

    for pod in scene.engines:
        scene.unreadable[pod] = Unread(pod, "no connection")
    await scene.tick()
    await scene.tick()
    view = view_of(scene)

    assert view.health is Health.UNKNOWN
    assert facts_of(view)["Level"] == "–"
    (last,) = [each for each in view.groups if each.past]
    assert last.title.startswith("Nothing is measured now. Last measured in the 10 s until")
    (notice, *_) = view.notices
    assert (notice.code, notice.health) == ("Attached/Unreachable", Health.UNKNOWN)
    assert view.explanation.nothing.startswith("Nothing is tuned: 2 pods, and nothing is known of")


async def test_a_mode_that_cannot_be_carried_out_is_read_first() -> None:
    scene = harness(AUTO, plugin=False)
    await scene.run_for(60)
    view = view_of(scene)

    assert view.health is Health.NOT_WELL
    # The notice has the cause.
    assert view.cause == ""
    assert [(each.code, each.health) for each in view.notices] == [
        ("Attached/PluginMissing", Health.NOT_WELL)
    ]


async def test_advice_leaves_depth_and_says_so() -> None:
    scene = harness()
    await scene.run_for(300)
    view = view_of(scene)

    missing = {name: each.missing for each in view.empty for name in each.names}
    assert missing["depth"].endswith("mode Advise leaves it as the engines were started.")
    assert view.depths == (1, 3, 5, 7)
    assert view.explanation.next_step.startswith("Nothing, since mode Advise never tries")


async def test_a_spec_that_is_refused_is_shown_too() -> None:
    scene = harness({"tokens": 9, "maxTokens": 5})
    await scene.tick()
    view = view_of(scene)

    assert view.health is Health.NOT_WELL
    assert view.notices[0].code == "Attached/InvalidSpec"
    assert view.explanation.nothing == "Nothing is tuned: the spec is refused."


async def test_engines_that_differ_are_listed_by_kind() -> None:
    scene = harness()
    scene.start("qwen-2", report=replace(LIVE, depths=(3,), schedule=()))
    scene.engines["qwen-2"].live = False
    await scene.tick()

    found = group_of(view_of(scene), "Engines, by kind")
    assert [*found] == ["2 pods", "1 pod"]
    assert found["1 pod"].startswith("level Counted The engines have no depth schedule")


async def test_the_list_shows_both_kinds_and_each_has_a_page_of_its_own() -> None:
    scene = harness(AUTO)
    await scene.run_for(300)
    deployment, _ = lived()
    same_name = ObjectKey(KEY.namespace, KEY.name)
    both = [*scene.shown.statuses(), (same_name, deployment.status)]
    overview = overview_of(both, scene.clock.at_s)
    page = overview_page(overview, scene.clock.at_s)

    assert overview.tuners == 1
    tuner = next(row for row in overview.rows if row.engines)
    assert (tuner.engines, tuner.ready) == ("tuner, level Live", "2/2")
    assert set(re.findall(r'href="(/\w+/llm/qwen)"', page)) == {
        "/tuners/llm/qwen",
        "/resources/llm/qwen",
    }
    assert "<h1>SpeculativeDeployments and SpeculationTuners</h1>" in page


async def test_its_own_page_names_its_kind_and_is_saved_from_its_own_address() -> None:
    scene = harness()
    await scene.tick()
    page = resource_page(view_of(scene), home=True)

    assert 'qwen <span class="dim">SpeculationTuner</span></h1>' in page
    assert 'href="/tuner-reports/llm/qwen"' in page


async def test_it_is_shown_until_it_is_gone() -> None:
    scene = harness()
    await scene.tick()
    assert KEY in scene.shown
    scene.kube.remove(KEY.kind, KEY.namespace, KEY.name)
    await scene.tick()
    assert KEY not in scene.shown
