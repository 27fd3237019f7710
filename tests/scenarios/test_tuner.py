"""A SpeculationTuner over pods that somebody else started: levels, advice, depth, no harm."""

from dataclasses import replace
from typing import Any, Final

import pytest

from fathom.api import names
from fathom.cluster.kinds import CONFIG_MAP, EVENT, POD, SPECULATION_TUNER
from fathom.engine.depth import DepthRange, depth_at, flat
from fathom.measurement.counters import Unread, UnreadKind
from support.tuner_harness import DOCUMENT, LIVE, MAX_BATCH, TunerHarness
from unit.tuning.plant import EASY, MIDDLE

STATE = ("ConfigMap", "qwen-tuner-state")
STOCK: Final = {"plugin": False, "document": ""}


def harness_of(spec: dict[str, Any] | None = None, **pod: Any) -> TunerHarness:
    """Two alike pods."""
    found = TunerHarness(spec, pods=0)
    found.start("qwen-0", **pod)
    found.start("qwen-1", **pod)
    return found


def attached(harness: TunerHarness) -> tuple[str, str, str]:
    found = harness.condition("Attached")
    return found["status"], found["reason"], found["message"]


# -- levels


async def test_of_a_stock_engine_acceptance_and_break_evens_are_known_and_no_depth() -> None:
    harness = harness_of(**STOCK)
    harness.concurrency, harness.acceptance = 4, MIDDLE
    await harness.run_for(150)

    status, reason, message = attached(harness)
    assert (harness.status["level"], status, reason) == ("Metrics", "False", "PluginMissing")
    assert "2 pods (Metrics):" in message
    assert "`fathom attach` prints the patch" in message
    evens = {each["depth"]: each for each in harness.status["breakEven"]}
    assert [*evens] == [2, 1]
    # 1 + 0.7 + 0.49 + 0.343 = 2.533 tokens per step at depth 3, 2.19 of them at depth 2.
    assert 84 <= int(evens[2]["keepsPercent"]) <= 89
    assert int(evens[2]["keepsPercent"]) + int(evens[2]["paysIfShorterByPercent"]) == 100
    tuning = harness.condition("Tuning")["message"]
    assert "Break-even of a decode step: depth 2 keeps" in tuning
    assert "whole requests" in tuning
    assert "Would move" not in tuning
    assert harness.status["measured"]["acceptanceLength"]
    assert harness.document is None


async def test_without_a_document_engines_run_at_the_depth_that_they_were_started_with() -> None:
    harness = harness_of()
    await harness.tick()
    assert (harness.status["depth"]["summary"], harness.status["tokens"]) == ("3", 3)

    own = (DepthRange(1, 8, 5), DepthRange(9, MAX_BATCH, 3))
    scheduled = harness_of(report=replace(LIVE, schedule=own))
    await scheduled.tick()
    # Depth there is by batch, as its host has it.
    assert "summary" not in scheduled.status["depth"]

    other = harness_of(document="other-tuner-depth")
    await other.tick()
    # And here another tuner may have changed it.
    assert "summary" not in other.status["depth"]


async def test_where_depth_varies_a_stock_engine_has_no_break_even() -> None:
    harness = harness_of(**STOCK)
    harness.concurrency = 4
    # One of them drafts at another depth: later positions are of fewer drafts.
    harness.engines["qwen-1"].other_depth = 5
    await harness.run_for(150)

    assert harness.status["breakEven"] == []
    assert harness.status["measured"]["survival"] == []


async def test_a_plugin_without_a_schedule_counts_and_changes_nothing() -> None:
    harness = harness_of({"tuning": {"mode": "Auto", "windowSeconds": 10}})
    for engine in harness.engines.values():
        engine.live = False
    harness.concurrency = 4
    await harness.run_for(150)

    status, reason, message = attached(harness)
    assert (harness.status["level"], status, reason) == ("Counted", "False", "NoSchedule")
    assert "num_speculative_tokens_per_batch_size" in message
    message = harness.condition("Tuning")["message"]
    assert "Measured at depth 3" in message
    assert "spec.speculation" not in message
    assert harness.document is None


async def test_pods_of_different_depths_are_compared_where_none_can_be_changed() -> None:
    harness = TunerHarness(pods=0)
    for number, depth in enumerate((3, 3, 5)):
        report = replace(LIVE, depths=(depth,), schedule=())
        engine = harness.start(f"qwen-{number}", report=report)
        engine.live, engine.other_depth = False, depth
    harness.concurrency = 2
    await harness.run_for(300)

    message = harness.condition("Tuning")["message"]
    assert "Measured at depth 3" in message
    assert "compared with it, 95 %: depth 5: " in message
    assert harness.status["breakEven"] == []


async def test_advice_comes_without_a_document() -> None:
    harness = harness_of()
    harness.concurrency = 2
    await harness.run_for(90)

    assert attached(harness)[:2] == ("True", "Attached")
    assert harness.status["level"] == "Live"
    assert harness.status["tuning"]["summary"] == "Advise/Advising"
    assert "Would move" in harness.condition("Tuning")["message"]
    assert harness.document is None
    assert harness.written() <= {STATE}


async def test_auto_moves_the_depth_of_pods_that_it_does_not_own() -> None:
    harness = harness_of()
    harness.concurrency = 2
    await harness.run_for(150)
    harness.edit({"tuning": {"mode": "Auto", "windowSeconds": 10}})
    await harness.run_for(300)

    document = harness.document
    assert document is not None
    assert depth_at(document.schedule, 2) == 7
    assert document.tokens == flat(3, MAX_BATCH)
    assert all(depth_at(each.schedule, 2) == 7 for each in harness.engines.values())
    assert harness.status["depth"]["appliedReplicas"] == 2
    assert float(harness.status["measured"]["gainPercent"]) > 5
    pods = {("Pod", name) for name in harness.engines}
    assert harness.written() <= {STATE, ("ConfigMap", DOCUMENT), *pods}


async def test_back_in_advise_all_goes_back_to_the_user_s_depth() -> None:
    harness = harness_of({"tuning": {"mode": "Auto", "windowSeconds": 10}})
    harness.concurrency = 2
    await harness.run_for(300)
    harness.edit({"tuning": {"mode": "Advise", "windowSeconds": 10}})
    await harness.run_for(150)

    assert harness.document is not None
    assert harness.document.schedule == flat(3, MAX_BATCH)
    assert not harness.document.pods
    assert {depth_at(each.schedule, 2) for each in harness.engines.values()} == {3}


async def test_a_restarted_operator_goes_on() -> None:
    harness = harness_of({"tuning": {"mode": "Auto", "windowSeconds": 10}})
    harness.concurrency = 2
    await harness.run_for(300)
    before = harness.document
    harness.restart()
    await harness.run_for(150)

    assert before is not None
    assert harness.document is not None
    assert harness.document.schedule == before.schedule
    assert harness.status["tuning"]["history"]


# -- what is missing


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (replace(LIVE, version="0.31.1"), "EngineTooOld"),
        (replace(LIVE, data_parallel=2), "DataParallel"),
        (replace(LIVE, runner="V1", graph_mode="FULL_AND_PIECEWISE"), "ModelRunnerV1"),
        (replace(LIVE, depths=(0,)), "DraftingDisabled"),
        (
            replace(
                LIVE,
                schedule=(DepthRange(1, 4, 3), DepthRange(5, 8, 2), DepthRange(9, MAX_BATCH, 1)),
            ),
            "OwnSchedule",
        ),
        (
            replace(
                LIVE,
                graph_mode="FULL_AND_PIECEWISE",
                depths=(1, 2, 3),
                capture_sizes=(1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64),
            ),
            "GraphsDoNotFit",
        ),
    ],
)
async def test_what_keeps_depth_from_being_live_is_told_by_the_engine(
    report: Any, reason: str
) -> None:
    harness = harness_of({"tuning": {"mode": "Auto", "windowSeconds": 10}}, report=report)
    harness.concurrency = 2
    await harness.run_for(150)

    assert (harness.status["level"], attached(harness)[1]) == ("Counted", reason)
    assert harness.document is None


async def test_a_host_s_own_schedule_is_tuned_once_its_user_names_a_depth() -> None:
    own = replace(LIVE, schedule=(DepthRange(1, 8, 3), DepthRange(9, MAX_BATCH, 1)))
    harness = harness_of({"tokens": 3, "tuning": {"mode": "Auto"}}, report=own)
    await harness.run_for(30)

    assert attached(harness)[1] == "Attached"
    assert harness.document is not None


@pytest.mark.parametrize(
    ("mounted", "reason"),
    [("", "NoDocumentMounted"), ("other-tuner-depth", "MountsAnotherDocument")],
)
async def test_a_pod_that_does_not_mount_this_document_is_only_read(
    mounted: str, reason: str
) -> None:
    harness = harness_of({"tuning": {"mode": "Auto"}}, document=mounted)
    harness.concurrency = 2
    await harness.run_for(150)

    assert attached(harness)[1] == reason
    assert harness.status["level"] == "Counted"
    assert harness.document is None


async def test_pods_of_a_speculative_deployment_are_left_alone() -> None:
    harness = harness_of({"tuning": {"mode": "Auto"}}, labels={names.LABEL_NAME: "kimi"})
    await harness.run_for(30)

    assert attached(harness)[:2] == ("Unknown", "OwnedByFathom")
    assert harness.document is None


async def test_without_pods_the_selector_is_named() -> None:
    harness = TunerHarness(pods=0)
    await harness.tick()

    assert attached(harness) == (
        "False",
        "NoPods",
        "no pod of this namespace has the labels app=qwen.",
    )


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Unread("qwen-0", "/metrics on port 8000 cannot be read: refused"), "Unreachable"),
        (Unread("qwen-0", "it shows no vllm: metrics", UnreadKind.NOT_VLLM), "NotVLLM"),
        (Unread("qwen-0", "Prometheus says 401", UnreadKind.REFUSED), "MetricsRefused"),
    ],
)
async def test_why_nothing_is_read_is_told_apart(failure: Unread, reason: str) -> None:
    harness = TunerHarness(pods=1)
    harness.unreadable["qwen-0"] = failure
    await harness.tick()

    status, found, message = attached(harness)
    assert (status, found) == ("Unknown", reason)
    assert failure.cause in message
    assert harness.status["readable"] == "0/1"


async def test_the_largest_kind_of_those_with_which_most_can_be_done_is_judged() -> None:
    harness = TunerHarness(pods=1)
    harness.start("qwen-1", **STOCK)
    harness.start("qwen-2", **STOCK)
    await harness.tick()

    assert harness.status["level"] == "Live"
    assert harness.status["tunedPods"] == 1
    assert [(each["level"], each["pods"]) for each in harness.status["engines"]] == [
        ("Live", 1),
        ("Metrics", 2),
    ]


async def test_a_spec_that_cannot_be_is_refused_and_nothing_is_written() -> None:
    harness = TunerHarness({"selector": {}, "tuning": {"mode": "Auto"}})
    await harness.tick()

    status, reason, message = attached(harness)
    assert (status, reason) == ("False", "InvalidSpec")
    assert "spec.selector: an empty selector" in message
    assert harness.written() == set()


async def test_a_name_that_somebody_has_taken_is_left_as_it_is() -> None:
    harness = harness_of({"tuning": {"mode": "Auto"}})
    theirs = {"metadata": {"name": DOCUMENT, "namespace": "llm"}, "data": {"a": "b"}}
    harness.kube.put(CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", **theirs})
    await harness.run_for(150)

    assert attached(harness)[1] == "NameTaken"
    assert harness.kube.find(CONFIG_MAP, DOCUMENT)["data"] == {"a": "b"}


# -- no harm


async def test_the_user_s_depth_is_the_one_that_the_engines_were_started_with() -> None:
    five = replace(LIVE, schedule=(DepthRange(1, MAX_BATCH, 5),))
    harness = harness_of({"tuning": {"mode": "Auto"}}, report=five)
    await harness.run_for(30)

    assert harness.document is not None
    assert harness.document.tokens == flat(5, MAX_BATCH)


async def test_what_was_learned_and_cannot_be_read_is_reported_once() -> None:
    harness = harness_of()
    harness.concurrency = 2
    await harness.run_for(150)
    found = harness.kube.find(CONFIG_MAP, STATE[1])
    harness.kube.put(CONFIG_MAP, {**found, "data": {"state.json": "["}})
    harness.restart()
    await harness.run_for(60)

    resets = [each for each in harness.kube.all_of(EVENT) if each["reason"] == "StateReset"]
    (reset,) = resets
    assert "state.json of ConfigMap qwen-tuner-state cannot be read" in reset["message"]
    assert reset["involvedObject"]["kind"] == names.TUNER_KIND


async def test_a_paused_tuner_moves_nothing() -> None:
    harness = harness_of({"tuning": {"mode": "Auto", "windowSeconds": 10}})
    harness.concurrency = 2
    found = harness.resource
    found["metadata"]["annotations"] = {names.ANNOTATION_PAUSED: "until Monday"}
    harness.kube.put(SPECULATION_TUNER, found)
    await harness.run_for(200)

    assert harness.document is not None
    assert harness.document.schedule == flat(3, MAX_BATCH)
    assert "until Monday" in harness.condition("Tuning")["message"]


async def test_engines_that_its_host_replaces_by_stock_ones_get_no_document() -> None:
    harness = harness_of({"tuning": {"mode": "Auto", "windowSeconds": 10}})
    harness.concurrency = 2
    await harness.run_for(150)
    generation = harness.document.generation if harness.document else 0
    for name in [*harness.engines]:
        harness.kube.remove(POD, "llm", name)
        del harness.engines[name]
    harness.start("new-0", **STOCK)
    harness.acceptance = EASY
    await harness.run_for(130)

    assert harness.status["level"] == "Metrics"
    assert harness.document is not None
    assert harness.document.generation == generation


async def test_a_host_that_brings_the_plugin_is_told_of_no_pods_that_disobeyed() -> None:
    harness = harness_of(**STOCK)
    harness.concurrency = 4
    await harness.run_for(300)
    for name in ("qwen-0", "qwen-1"):
        harness.kube.remove(POD, "llm", name)
        del harness.engines[name]
        harness.start(f"{name}-live")
    await harness.run_for(300)

    assert harness.status["level"] == "Live"
    messages = [each["message"] for each in harness.kube.all_of(EVENT)]
    assert not [each for each in messages if "obey" in each]


async def test_at_rest_it_writes_nothing_but_that_it_watches() -> None:
    harness = harness_of({"tuning": {"mode": "Auto"}})
    await harness.run_for(200)
    before = len(harness.kube.writes)
    await harness.run_for(500)

    news = harness.kube.writes[before:]
    assert {each.kind for each in news} <= {names.TUNER_KIND}
    assert len(news) <= 1


async def test_a_tuner_that_is_gone_has_no_loop() -> None:
    harness = TunerHarness()
    await harness.tick()
    harness.kube.remove(SPECULATION_TUNER, "llm", "qwen")
    assert await harness.tick() is None
