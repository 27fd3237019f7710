"""What `top` and `status` show of SpeculationTuners: statuses that the real loop has written."""

from dataclasses import replace
from typing import Any

import pytest
import typer

from fathom.adapters.ports import KubeError
from fathom.api.tuner import Level
from fathom.cli.arguments import Asked, asked_for, bare_name, offered
from fathom.cli.cluster import AnyReported, read_all, read_reported, read_subject
from fathom.cli.explain import attention, live_view
from fathom.cli.explanation_document import ExplanationReport, explanation_report
from fathom.cli.history import read_past
from fathom.cli.options import first_of, left_out, no_resource
from fathom.cli.status import list_view, status_report, status_view
from fathom.cli.top import top_list, top_table
from fathom.cluster.kinds import (
    RESOURCE_KINDS,
    SPECULATION_TUNER,
    SPECULATIVE_DEPLOYMENT,
    Kind,
    ObjectKey,
)
from fathom.health import UNWATCHED_S
from fathom.measurement.counters import Unread
from fathom.page.subject import explanation_of
from manifest_samples import manifest
from support.fake_kube import FakeKube
from support.tuner_harness import KEY, LIVE, MAX_BATCH, TunerHarness
from unit.cli.test_explain import shown

AUTO = {"tuning": {"mode": "Auto", "windowSeconds": 10}}
GONE = KubeError(404, "404 page not found")
FORBIDDEN = KubeError(403, "speculationtuners is forbidden.")


def harness(spec: dict[str, Any] | None = None, *, plugin: bool = True) -> TunerHarness:
    """Two pods that serve six requests at a time."""
    found = TunerHarness(spec, pods=0)
    for number in range(2):
        found.start(f"qwen-{number}", plugin=plugin)
    found.concurrency = 6
    return found


async def of(scene: TunerHarness) -> AnyReported:
    """What the commands read of it."""
    reported = await read_reported(scene.kube, KEY)
    assert reported is not None
    return reported


def lines(reported: AnyReported, now_s: float) -> list[str]:
    return shown(status_view(status_report(reported, now_s)), width=500).splitlines()


def line(reported: AnyReported, subject: str, now_s: float) -> str:
    """The one about a subject, with its mark."""
    (found,) = [each for each in lines(reported, now_s) if each[2:].startswith(subject)]
    return " ".join(found.split())


# -- top


async def test_a_tuner_is_listed_among_the_others_with_its_level() -> None:
    scene = harness(AUTO)
    await scene.run_for(600)
    document = manifest()
    document["metadata"] |= {"namespace": KEY.namespace, "name": KEY.name}
    scene.kube.put(SPECULATIVE_DEPLOYMENT, document)

    listed = (await read_all(scene.kube, KEY.namespace)).found
    table = top_table(listed, scene.clock.at_s, with_namespace=False)
    header, *rows = shown(table, width=300).splitlines()
    tuner, deployment = (row.split() for row in rows)

    assert header.split()[:5] == ["NAME", "ALARMS", "READY", "LEVEL", "DEPTH"]
    assert deployment == ["qwen", *["–"] * 11]
    assert tuner[:4] == ["tuner/qwen", "–", "2/2", "Live"]
    assert scene.status["depth"]["summary"] in rows[0]
    assert str(scene.status["measured"]["tokensPerSecond"]) in tuner
    first, second = top_list(listed, scene.clock.at_s).items
    assert (first.resource_kind, first.name, first.ready) == ("SpeculationTuner", "qwen", "2/2")
    assert first.level is Level.LIVE
    assert (second.resource_kind, second.level) == ("SpeculativeDeployment", None)


async def test_at_level_metrics_what_is_not_measured_is_a_dash() -> None:
    scene = harness(plugin=False)
    await scene.run_for(300)
    (row,) = top_list([await of(scene)], scene.clock.at_s).items

    assert (row.level, row.ready) == (Level.METRICS, "2/2")
    assert row.acceptance_length is not None
    assert (row.gain_percent, row.schedule, row.tpot_milliseconds) == (None, None, None)


async def test_a_cluster_without_the_definition_of_tuners_lists_the_rest() -> None:
    kube = FakeKube()
    kube.put(SPECULATIVE_DEPLOYMENT, manifest())
    kube.fail = lambda _, kind: GONE if kind == SPECULATION_TUNER else None

    listed = await read_all(kube, "")

    assert [str(each.key) for each in listed.found] == ["llm/kimi"]
    assert left_out(listed) == ()


@pytest.mark.parametrize("kind", RESOURCE_KINDS, ids=lambda kind: kind.kind)
async def test_a_kind_that_may_not_be_listed_is_left_out_and_named(kind: Kind) -> None:
    scene = harness()
    document = manifest()
    scene.kube.put(SPECULATIVE_DEPLOYMENT, document)
    scene.kube.fail = lambda _, asked: FORBIDDEN if asked == kind else None

    listed = await read_all(scene.kube, "")

    assert {each.kind for each in listed.found} == set(RESOURCE_KINDS) - {kind}
    (sentence,) = left_out(listed)
    assert sentence.startswith(f"{kind.kind}s are left out. The API server does not let you do")


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (None, "There is no SpeculativeDeployment in namespace llm."),
        (SPECULATION_TUNER, "There is no SpeculativeDeployment in namespace llm."),
        (SPECULATIVE_DEPLOYMENT, "There is no SpeculationTuner in namespace llm."),
    ],
)
async def test_of_a_kind_that_may_not_be_listed_it_is_not_told_that_there_is_none(
    refused: Kind | None, sentence: str
) -> None:
    kube = FakeKube()
    kube.fail = lambda _, asked: FORBIDDEN if asked == refused else None
    assert no_resource("llm", await read_all(kube, "llm")) == sentence


async def test_where_none_may_be_listed_it_is_an_error() -> None:
    kube = FakeKube()
    kube.fail = lambda _verb, _kind: FORBIDDEN
    with pytest.raises(KubeError):
        await read_all(kube, "")


# -- status


async def test_one_that_tunes_is_well() -> None:
    scene = harness(AUTO)
    await scene.run_for(600)
    reported, now_s = await of(scene), scene.clock.at_s

    assert lines(reported, now_s)[0].startswith("SpeculationTuner llm/qwen is well.")
    assert status_report(reported, now_s).well
    assert line(reported, "attached", now_s) == "✔ attached Attached: 2 pods (Live): depth is live."
    assert line(reported, "pods", now_s) == (
        "✔ pods 2/2 readable, level Live, vLLM 0.32.0, Model Runner V2, depths 0, 1, 3, 5, 7"
    )
    assert "in force on 2 of 2 tuned pods" in line(reported, "depth", now_s)
    assert line(reported, "tuning", now_s).startswith("✔ tuning Auto/AtBest: ")
    assert line(reported, "alarms", now_s) == "✔ alarms none is active"
    assert "tokens per second" in line(reported, "traffic", now_s)
    assert line(reported, "gain ", now_s).startswith("✔ gain +")


async def test_one_that_advises_on_stock_engines_is_well_and_says_what_is_missing() -> None:
    scene = harness(plugin=False)
    await scene.run_for(300)
    reported, now_s = await of(scene), scene.clock.at_s

    assert status_report(reported, now_s).well
    missing = line(reported, "attached", now_s)
    assert missing.startswith("! attached PluginMissing: 2 pods (Metrics): the engine runs without")
    assert line(reported, "pods", now_s) == "✔ pods 2/2 readable, level Metrics"
    assert line(reported, "depth", now_s) == "· depth not known"
    assert line(reported, "tuning", now_s) == "· tuning Advise/PluginMissing: see attached"
    assert line(reported, "break-even", now_s).startswith("✔ break-even At depth 3 a request gets")
    # Nobody can know it without the plugin.
    assert not [each for each in lines(reported, now_s) if each[2:].startswith("gain")]


async def test_what_keeps_a_tuner_from_what_it_was_asked_for_comes_first() -> None:
    scene = harness(AUTO, plugin=False)
    await scene.run_for(60)
    report = status_report(await of(scene), scene.clock.at_s)

    assert not report.well
    assert report.headline == "is not well"
    assert report.cause.startswith("PluginMissing: 2 pods (Metrics): the engine runs without")
    (attached,) = [each for each in report.checks if each.subject == "attached"]
    # The headline has the cause.
    assert (attached.state, attached.text) == ("failed", "PluginMissing")


@pytest.mark.parametrize(
    ("unreadable", "headline", "cause"),
    [
        (True, "is not known to be well", "Unreachable: 2 pods, and nothing is known of them:"),
        (False, "is not well", "NoPods: no pod of this namespace has the labels app=other."),
    ],
)
async def test_a_tuner_without_pods_to_judge_by_is_not_well(
    headline: str, cause: str, *, unreadable: bool
) -> None:
    scene = harness(None if unreadable else {"selector": {"matchLabels": {"app": "other"}}})
    for pod in scene.engines if unreadable else ():
        scene.unreadable[pod] = Unread(pod, "no connection")
    await scene.tick()
    reported, now_s = await of(scene), scene.clock.at_s
    report = status_report(reported, now_s)

    assert (report.headline, report.well) == (headline, False)
    assert report.cause.startswith(cause)
    assert line(reported, "traffic", now_s) == "· traffic not measured"
    assert "nothing is measured" in line(reported, "alarms", now_s)


async def test_what_was_measured_before_its_pods_went_is_not_of_now() -> None:
    scene = harness()
    await scene.run_for(60)
    for pod in scene.engines:
        scene.unreadable[pod] = Unread(pod, "no connection")
    await scene.tick()
    await scene.tick()
    reported, now_s = await of(scene), scene.clock.at_s

    assert line(reported, "traffic", now_s).startswith("· traffic not known now; last: ")
    (row,) = top_list([reported], now_s).items
    header, shown_row = shown(top_table([reported], now_s, with_namespace=False), 300).splitlines()
    assert header.split()[5:8] == ["ACCEPT", "TOK/S", "TPOT"]
    assert shown_row.split()[5:8] == ["–", "–", "–"]
    assert row.alarms == ("Attached/Unreachable",)


async def test_pods_that_differ_are_listed_by_kind() -> None:
    scene = harness()
    scene.start("qwen-2", plugin=False)
    await scene.tick()
    found = line(await of(scene), "pods", scene.clock.at_s)

    assert found.startswith("✔ pods 3/3 readable: 2 pods Live, vLLM 0.32.0, Model Runner V2, ")
    assert found.endswith("; 1 pod Metrics, PluginMissing")


async def test_one_that_nobody_watches_is_said_to_be() -> None:
    scene = harness()
    await scene.run_for(60)
    reported, now_s = await of(scene), scene.clock.at_s + UNWATCHED_S + 60
    report = status_report(reported, now_s)

    assert report.headline == "is not known to be well"
    assert report.cause.startswith("No operator has watched it since ")
    assert "ok" not in {each.state for each in report.checks}


async def test_a_new_one_has_not_been_reported_on() -> None:
    scene = harness()
    report = status_report(await of(scene), scene.clock.at_s)

    assert (report.headline, len(report.checks)) == ("is not known to be well", 1)
    assert shown(list_view([report]), 300).startswith("! SpeculationTuner llm/qwen is not known")


# -- which one is meant


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("qwen", Asked("qwen")),
        ("sd/qwen", Asked("qwen", SPECULATIVE_DEPLOYMENT)),
        ("tuner/qwen", Asked("qwen", SPECULATION_TUNER)),
        ("spectuner/qwen", Asked("qwen", SPECULATION_TUNER)),
        ("SpeculationTuners.fathom.dev/qwen", Asked("qwen", SPECULATION_TUNER)),
    ],
)
def test_a_name_may_have_its_kind_before_it(typed: str, asked: Asked) -> None:
    assert asked_for(typed) == asked


@pytest.mark.parametrize("typed", ["pod/qwen", "tuner/", "/qwen"])
def test_what_is_of_neither_kind_is_refused(typed: str) -> None:
    with pytest.raises(typer.BadParameter, match="and no SpeculationTuner"):
        asked_for(typed)


def test_commands_about_one_kind_refuse_the_other() -> None:
    with pytest.raises(typer.BadParameter, match="tuner/qwen is no SpeculativeDeployment"):
        bare_name("tuner/qwen")


async def test_a_plain_name_is_a_deployment_and_else_a_tuner() -> None:
    scene = harness()
    asked = Asked(KEY.name)
    key, _ = await first_of(scene.kube, asked, KEY.namespace, read_reported)
    assert key == KEY

    document = manifest()
    document["metadata"] |= {"namespace": KEY.namespace, "name": KEY.name}
    scene.kube.put(SPECULATIVE_DEPLOYMENT, document)
    key, _ = await first_of(scene.kube, asked, KEY.namespace, read_reported)
    assert key == ObjectKey(KEY.namespace, KEY.name)
    meant = Asked(KEY.name, SPECULATION_TUNER)
    key, _ = await first_of(scene.kube, meant, KEY.namespace, read_reported)
    assert key == KEY


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (Asked("none"), "There is no SpeculativeDeployment llm/none.\n"),
        (Asked("none", SPECULATION_TUNER), "There is no SpeculationTuner llm/none.\n"),
    ],
)
async def test_where_there_is_none_it_says_of_what(
    asked: Asked, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        await first_of(FakeKube(), asked, "llm", read_reported)
    assert capsys.readouterr().err == sentence


async def test_a_right_that_is_lacking_for_the_other_kind_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kube = FakeKube()
    kube.fail = lambda _, kind: FORBIDDEN if kind == SPECULATION_TUNER else None
    with pytest.raises(typer.Exit):
        await first_of(kube, Asked("none"), "llm", read_reported)
    assert capsys.readouterr().err == (
        "There is no SpeculativeDeployment llm/none. Whether there is a SpeculationTuner of that "
        "name is not known. The API server does not let you do this: speculationtuners is "
        "forbidden.\n"
    )


@pytest.mark.parametrize(
    ("incomplete", "words"),
    [
        ("", ["kimi", "qwen", "llama", "tuner/qwen"]),
        ("l", ["llama"]),
        ("t", ["tuner/llama", "tuner/qwen"]),
        ("tuner/q", ["tuner/qwen"]),
        ("x", []),
    ],
)
def test_a_tuner_is_completed_by_its_name_where_that_means_it(
    incomplete: str, words: list[str]
) -> None:
    assert offered(["kimi", "qwen"], ["llama", "qwen"], incomplete) == words


# -- explain


async def explained(scene: TunerHarness) -> tuple[str, ExplanationReport]:
    """What it prints, and its document."""
    subject = await read_subject(scene.kube, KEY)
    assert subject is not None
    now_s = scene.clock.at_s
    found = explanation_of(subject, now_s)
    parts = "\n".join(shown(part, width=300) for part in live_view(subject, now_s))
    return parts, explanation_report(subject, found, attention(subject.status))


async def test_at_level_metrics_it_explains_acceptance_and_break_evens_and_nothing_else() -> None:
    scene = harness(plugin=False)
    await scene.run_for(300)
    text, report = await explained(scene)

    assert text.startswith("SpeculationTuner qwen: mode Advise, objective Throughput, tokens not")
    assert text.count("the engine runs without Fathom's plugin") == 2  # now, and as decided
    assert "Acceptance by position" in text
    assert "│ 2     │" in text.split("Break-even of a decode step")[1]
    assert "Tokens per second by batch" not in text
    # One window alone has no error.
    assert "±" not in text
    assert (report.level, report.tokens) == (Level.METRICS, None)
    (pods,) = report.tuned
    assert (pods.buckets, pods.positions, pods.next_step) == ((), (), "")
    measured = [float(each) for each in scene.status["measured"]["survival"]]
    assert [*report.survival] == measured
    assert [each.depth for each in report.break_even] == [2, 1]


async def test_without_a_window_nothing_is_explained() -> None:
    scene = harness(plugin=False)
    scene.concurrency = 0
    await scene.tick()
    text, report = await explained(scene)

    assert "Acceptance by position" not in text
    assert "Break-even" not in text
    assert (report.tuned, report.survival, report.break_even) == ((), (), ())


async def test_engines_that_only_count_are_explained_at_the_depth_that_runs() -> None:
    scene = TunerHarness(pods=0)
    scene.start("qwen-0", report=replace(LIVE, depths=(3,), schedule=(), runner="V1"))
    scene.engines["qwen-0"].live, scene.concurrency = False, 6
    await scene.run_for(300)
    text, report = await explained(scene)

    assert "it is not live; a step takes" in text
    # Its depth is not the spec's.
    assert "spec.speculation" not in text
    assert "start a pod with another num_speculative_tokens" in text
    assert (report.level, report.tokens) == (Level.COUNTED, 3)


async def test_acceptance_by_context_is_explained_of_engines_that_count_it() -> None:
    scene = harness()
    for engine in scene.engines.values():
        engine.long_requests = (0.25, 0.9)
    await scene.run_for(300)
    text, report = await explained(scene)

    assert "Acceptance by context" in text
    (pods,) = report.tuned
    short, long = pods.contexts
    assert (short.context_ge, short.context_le, long.context_ge) == (2048, 4095, 32768)
    assert long.share == pytest.approx(0.25)
    assert short.first is not None
    assert long.first == pytest.approx(0.9 * short.first)


async def test_advice_is_explained_over_the_depth_that_the_engines_were_started_with() -> None:
    scene = harness()
    await scene.run_for(300)
    text, report = await explained(scene)

    assert "tokens 3 within 1 to 7" in text
    assert "Depth in force 3 at batch 1-16 (as the engines were started)" in text
    assert "Tokens per second by batch and depth, over depth 3" in text
    assert scene.document is None
    (pods,) = report.tuned
    assert [each.depth for each in pods.buckets[0].worths] == [1, 3, 5, 7]


async def test_what_the_operator_tunes_by_is_what_is_explained() -> None:
    scene = harness({"tuning": {"mode": "Auto", "windowSeconds": 10}, "maxTokens": 5})
    await scene.run_for(300)
    text, _ = await explained(scene)
    subject = await read_subject(scene.kube, KEY)

    assert subject is not None
    assert subject.document == scene.document
    assert subject.tuned.settings is not None
    # As the loop itself has them of the pods.
    assert subject.tuned.settings.depths == (1, 3, 5)
    assert subject.tuned.settings.max_batch == MAX_BATCH
    assert f"(generation {scene.document.generation if scene.document else 0})" in text


# -- history


async def test_its_past_is_its_decisions_and_its_own_events() -> None:
    scene = harness(AUTO)
    await scene.run_for(600)
    past = await read_past(scene.kube, KEY)

    assert past is not None
    assert past.missing == ()
    moves = [each for each in past.happened if each.what == "Move"]
    assert moves
    assert all(each.source == "tuner" for each in moves)
    # Each thing once, though an event tells of it as well.
    assert len({each.why for each in past.happened}) == len(past.happened)
