"""How often it writes: at once what people wait for, the rest once a minute."""

import copy
import json
from dataclasses import replace
from itertools import pairwise

import pytest

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.kinds import CHILD_KINDS, CONFIG_MAP, DEPLOYMENT, EVENT, POD, SERVICE, Kind
from fathom.engine.depth import DepthDocument, flat
from fathom.engine.report import EngineReport
from fathom.times import rfc3339
from fathom.tuning.estimate.measured import Measured
from fathom.tuning.interface import Action, TuningDecision, TuningSnapshot
from fathom.tuning.tuner import decide as decide_for_real
from manifest_samples import started_with
from support.loop_harness import LoopHarness, holding, moved


@pytest.fixture
def counting(harness: LoopHarness) -> LoopHarness:
    """Steady traffic: every decision has new numbers and a new sentence."""
    ticks = iter(range(100_000))

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        tick = next(ticks)
        measured = Measured(
            at_s=snapshot.now_s,
            window_seconds=30,
            tokens_per_second=1000 + tick,
            mean_batch=4.0,
            acceptance_length=3.0,
            acceptance_rate=0.67,
            survival=(0.8, 0.7, 0.5),
            tpot_seconds=0.01,
            gain=0.1,
        )
        state = replace(snapshot.state, generation=tick)
        decision = replace(holding(snapshot), wake_after_s=5, measured=measured, state=state)
        reason = Reason.PROBING if tick % 2 else Reason.AT_BEST
        return replace(decision, message=f"{tick} steps.", reason=reason)

    harness.decide = decide
    return harness


async def test_steady_traffic_costs_one_status_and_one_tuning_write_a_minute(
    counting: LoopHarness,
) -> None:
    await counting.run_for(600)
    assert 9 <= len(counting.kube.written("SpeculativeDeployment")) <= 10
    assert 9 <= len(counting.kube.written("ConfigMap")) <= 10
    assert len(counting.kube.writes) <= 20
    assert counting.status["measured"]["tokensPerSecond"] > 1000
    assert counting.status["measured"]["acceptanceLength"] == "3.00"
    assert counting.status["measured"]["gainPercent"] == "10.0"
    assert counting.status["tuning"]["summary"] in {"Auto/AtBest", "Auto/Probing"}


async def test_a_restarted_operator_has_nothing_urgent_to_say(counting: LoopHarness) -> None:
    await counting.run_for(130)
    counting.restart()
    counting.kube.writes.clear()
    await counting.run_for(55)
    assert counting.kube.writes == []


async def test_a_restarted_operator_knows_since_when_the_depths_are_asked_for(
    harness: LoopHarness,
) -> None:
    """So that engines that do not obey are told of as soon as by the operator before."""
    written: list[float] = []

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        written.append(snapshot.document_written_at_s)
        return holding(snapshot)

    harness.decide = decide
    await harness.tick()
    harness.clock.at_s += 600
    harness.restart()
    await harness.tick()
    before, after = written
    assert after == before < harness.clock.at_s - 600


async def test_a_pass_that_only_measures_reads_nothing(counting: LoopHarness) -> None:
    # Past the writes of the minute: each is followed by one look at what it did.
    await counting.run_for(71)
    reads: list[str] = []

    def note(verb: str, kind: Kind) -> None:
        if verb in {"get", "list"}:
            reads.append(kind.kind)

    counting.kube.fail = note
    await counting.run_for(20)
    assert reads == []
    counting.loop.wake()
    await counting.loop.tick()
    assert len(reads) == 1 + len(CHILD_KINDS)


async def test_autoscaling_rewrites_only_the_deployment(harness: LoopHarness) -> None:
    harness.edit({"replicas": 3})
    await harness.until_ready()
    assert harness.kube.written("ConfigMap") == []
    assert len(harness.kube.written("Deployment")) == 1


async def test_a_move_is_written_told_and_remembered_at_once(harness: LoopHarness) -> None:
    await harness.run_for(1)

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        held = holding(snapshot)
        assert snapshot.document is not None
        if snapshot.document.generation > 1:
            return held
        return moved(
            held,
            DepthDocument(generation=2, schedule=flat(5, 256)),
            action=Action.MOVE,
            reason=Reason.MOVED,
            message="depth 5 is 12 % faster than 3.",
            expected_gain=0.12,
            notable=True,
        )

    harness.decide = decide
    await harness.tick()
    assert harness.status["depth"]["summary"] == "5"
    assert harness.status["tuning"]["lastDecision"]["action"] == "Move"
    assert harness.status["tuning"]["lastDecision"]["expectedGainPercent"] == "12.0"
    assert "[[1,256,5]]" in harness.kube.find(CONFIG_MAP, "kimi-depth")["data"]["depth.json"]
    (event,) = harness.kube.written("Event")
    assert event.body["message"] == "depth 5 is 12 % faster than 3."
    for pod in harness.kube.all_of(POD):
        assert pod["metadata"]["annotations"][names.ANNOTATION_DEPTH_GENERATION] == "2"
    harness.kube.writes.clear()
    await harness.run_for(300)
    assert [each for each in harness.kube.writes if each.kind != "SpeculativeDeployment"] == []


async def test_of_a_document_that_is_not_written_no_pod_is_told(harness: LoopHarness) -> None:
    probe = DepthDocument(generation=2, schedule=flat(5, 1024))
    harness.decide = lambda snapshot: moved(holding(snapshot), probe, action=Action.PROBE)
    harness.kube.fail = lambda verb, kind: (
        KubeError(422, "a policy says no") if kind == CONFIG_MAP and verb != "list" else None
    )
    await harness.tick()
    assert harness.kube.written("Pod") == []


async def test_a_document_that_no_status_tells_of_is_there_since_it_was_seen(
    harness: LoopHarness,
) -> None:
    """Whoever wrote it ended before it could tell."""
    config_map = copy.deepcopy(harness.kube.find(CONFIG_MAP, "kimi-depth"))
    later = DepthDocument(
        generation=harness.status["depth"]["generation"] + 1, schedule=flat(5, 1024)
    )
    config_map["data"]["depth.json"] = later.to_json()
    harness.kube.put(CONFIG_MAP, config_map)
    harness.clock.at_s += 500
    harness.restart()
    await harness.tick()
    depth = harness.status["depth"]
    assert depth["generation"] == later.generation
    assert depth["since"] == rfc3339(harness.clock.at_s)


async def test_a_probe_touches_only_its_pod(harness: LoopHarness) -> None:
    first, second = (pod["metadata"]["name"] for pod in harness.kube.all_of(POD))
    probe = DepthDocument(generation=2, schedule=flat(3, 1024), pods={first: flat(4, 1024)})
    harness.decide = lambda snapshot: moved(holding(snapshot), probe, action=Action.PROBE)
    await harness.tick()
    assert "annotations" in harness.kube.find(POD, first)["metadata"]
    assert "annotations" not in harness.kube.find(POD, second)["metadata"]
    # What everybody else runs has not changed: the status may wait.
    assert harness.kube.written("SpeculativeDeployment") == []


async def test_a_poke_is_a_change_each_time(harness: LoopHarness) -> None:
    harness.decide = lambda snapshot: replace(holding(snapshot), action=Action.POKE)
    await harness.tick()
    pod = harness.kube.names(POD)[0]
    first = harness.kube.find(POD, pod)["metadata"]["annotations"]
    harness.clock.at_s += 120
    await harness.tick()
    assert harness.kube.find(POD, pod)["metadata"]["annotations"] != first


async def test_a_poke_comes_first_to_those_that_no_nudge_has_reached(harness: LoopHarness) -> None:
    """There may not be time for all pods of a large fleet, and the same ones would be left out."""
    first, second = harness.kube.names(POD)
    pod = harness.kube.find(POD, first)
    document = harness.kube.find(CONFIG_MAP, "kimi-depth")["data"]["depth.json"]
    generation = json.loads(document)["generation"]
    pod["metadata"]["annotations"] = {names.ANNOTATION_DEPTH_GENERATION: f"{generation}.77"}
    harness.kube.put(POD, pod)
    harness.kube.writes.clear()
    harness.decide = lambda snapshot: replace(holding(snapshot), action=Action.POKE)
    await harness.tick()
    assert [each.name for each in harness.kube.written("Pod")] == [second, first]


async def test_depth_that_is_not_obeyed_is_degraded(harness: LoopHarness) -> None:
    pod = harness.kube.names(POD)[0]
    harness.decide = lambda snapshot: replace(
        holding(snapshot), reason=Reason.DEPTH_NOT_OBEYED, not_obeyed=(pod,)
    )
    await harness.tick()
    assert harness.condition("Degraded")["reason"] == "DepthNotObeyed"
    assert pod in harness.condition("Degraded")["message"]


async def test_an_engine_that_runs_with_something_else_is_degraded(harness: LoopHarness) -> None:
    """Whoever changed the pod: what was rendered stands in the workload."""
    first, second = harness.kube.names(POD)
    changed = harness.kube.find(POD, first)
    changed["spec"]["containers"][0]["args"] = ["--max-num-seqs", "128"]
    harness.kube.put(POD, changed)
    harness.metrics.reports[first] = EngineReport(version="0.32.0", max_num_seqs=128)
    await harness.tick()
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "EngineDiffers"
    sentence = f"the engine of {first} says that it runs with max_num_seqs 128 instead of 1024"
    assert sentence in degraded["message"]
    assert "more pod" not in degraded["message"]

    harness.metrics.reports[second] = EngineReport(version="0.28.0")
    await harness.run_for(120)
    assert "1 more pod differs." in harness.condition("Degraded")["message"]

    del harness.metrics.reports[first]
    harness.metrics.reports[second] = EngineReport(version="0.28.0", tensor_parallel=16)
    await harness.run_for(120)
    sentence = "vLLM 0.28 instead of 0.32, tensor_parallel_size 16 instead of 4,"
    assert sentence in harness.condition("Degraded")["message"]

    harness.metrics.reports.clear()
    await harness.run_for(120)
    assert harness.condition("Degraded")["reason"] == "AsExpected"


async def test_an_engine_that_obeys_another_document_of_this_generation_is_degraded(
    harness: LoopHarness,
) -> None:
    first, second = harness.kube.names(POD)
    written = harness.kube.find(CONFIG_MAP, "kimi-depth")["data"]["depth.json"]
    document = DepthDocument.from_json(written)
    assert document is not None
    harness.metrics.schedule_hash = document.hash_for_pod(first)
    await harness.tick()
    assert harness.condition("Degraded")["reason"] == "AsExpected"

    other = replace(document, schedule=flat(7, 1024))
    harness.metrics.schedule_hash = other.hash_for_pod(second)
    await harness.run_for(120)
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "EngineDiffers"
    assert f"hash {other.hash_for_pod(first):08x} instead of" in degraded["message"]

    harness.metrics.generation += 1
    await harness.run_for(120)
    assert harness.condition("Degraded")["reason"] == "AsExpected"


async def test_a_pin_that_is_no_depth_is_told_once(harness: LoopHarness) -> None:
    pod = harness.kube.find(POD, harness.kube.names(POD)[0])
    pod["metadata"]["annotations"] = {names.ANNOTATION_PIN_DEPTH: "deep"}
    harness.kube.put(POD, pod)
    await harness.run_for(120)
    (event,) = harness.kube.written("Event")
    assert event.body["reason"] == "PinIgnored"
    assert "'deep'" in event.body["message"]


async def test_a_pin_of_an_engine_that_would_not_find_it_is_told(harness: LoopHarness) -> None:
    harness.metrics.named = False
    pod = harness.kube.find(POD, harness.kube.names(POD)[0])
    pod["metadata"]["annotations"] = {names.ANNOTATION_PIN_DEPTH: "3"}
    harness.kube.put(POD, pod)
    await harness.run_for(120)
    (event,) = harness.kube.written("Event")
    assert event.body["reason"] == "PinIgnored"
    assert "the engine does not know its pod's name" in event.body["message"]


async def test_a_pin_reaches_the_tuner(harness: LoopHarness) -> None:
    pod = harness.kube.find(POD, harness.kube.names(POD)[0])
    pod["metadata"]["annotations"] = {names.ANNOTATION_PIN_DEPTH: "7"}
    harness.kube.put(POD, pod)
    seen: list[int | None] = []

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        seen.extend(each.pinned_depth for each in snapshot.pods)
        return holding(snapshot)

    harness.decide = decide
    await harness.tick()
    assert sorted(seen, key=str) == [7, None]


@pytest.mark.parametrize(
    ("pin", "named", "told"),
    [
        ("2", (0, 1, 3, 7), "write one of 0, 1, 3, 7, which its engine has, or remove it."),
        ("2", (), "write one of 0, 1, 3, 7, which its engine has, or remove it."),
        ("3", (), ""),
        ("2", (0, 2), ""),
    ],
)
async def test_a_pin_is_judged_by_what_its_own_engine_was_started_with(
    harness: LoopHarness, pin: str, named: tuple[int, ...], told: str
) -> None:
    pod = harness.kube.find(POD, harness.kube.names(POD)[0])
    pod["metadata"]["annotations"] = {names.ANNOTATION_PIN_DEPTH: pin}
    pod["spec"]["containers"][0]["args"] = started_with(named)
    harness.kube.put(POD, pod)
    await harness.tick()
    messages = [event.body["message"] for event in harness.kube.written("Event")]
    assert [each.partition("ignored: ")[2] for each in messages] == [told] * bool(told)


async def test_a_decision_that_could_not_be_written_is_not_told(harness: LoopHarness) -> None:
    harness.kube.fail = lambda verb, kind: (
        KubeError(403, "no") if (verb, kind) == ("apply", CONFIG_MAP) else None
    )
    harness.decide = lambda snapshot: moved(
        holding(snapshot),
        DepthDocument(generation=2, schedule=flat(5, 256)),
        action=Action.MOVE,
        notable=True,
    )
    told = len(harness.kube.all_of(EVENT))
    await harness.tick()
    assert [event.body["reason"] for event in harness.kube.written("Event")] == ["ChildRefused"]
    assert len(harness.kube.all_of(EVENT)) == told + 1
    assert "lastDecision" not in harness.status["tuning"]


async def test_with_the_real_tuner_rest_is_rest() -> None:
    harness = LoopHarness({"replicas": 2}, decide=decide_for_real)
    harness.metrics.generation = 1
    await harness.until_ready()
    await harness.run_for(180)
    harness.kube.writes.clear()
    await harness.run_for(600)
    assert harness.kube.news == []
    harness.restart()
    await harness.run_for(600)
    assert harness.kube.news == []


@pytest.mark.parametrize("mode", ["Advise", "Static"])
async def test_changing_the_mode_at_rest_is_told_once(mode: str) -> None:
    harness = LoopHarness({"replicas": 2}, decide=decide_for_real)
    harness.metrics.generation = 1
    await harness.until_ready()
    await harness.run_for(180)
    harness.edit({"speculation.tuning.mode": mode})
    await harness.until_ready(passes=40)
    await harness.run_for(180)
    harness.kube.writes.clear()
    await harness.run_for(600)
    assert harness.kube.news == []
    assert harness.status["tuning"]["summary"].startswith(f"{mode}/")


async def test_auto_to_advise_restarts_nothing() -> None:
    harness = LoopHarness({"replicas": 2}, decide=decide_for_real)
    await harness.until_ready()
    pods = harness.kube.names(POD)
    harness.kube.writes.clear()
    harness.edit({"speculation.tuning.mode": "Advise"})
    await harness.until_ready()
    assert harness.kube.names(POD) == pods
    assert harness.kube.written("Deployment") == []


async def test_in_a_rollout_the_tuner_judges_by_the_new_pods(harness: LoopHarness) -> None:
    seen: list[set[str]] = []

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        seen.append({pod.name.split("-")[1] for pod in snapshot.pods})
        return holding(snapshot)

    harness.decide = decide
    (old,) = harness.kube.names(DEPLOYMENT)
    harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    await harness.until_ready(passes=30)
    (new,) = harness.kube.names(DEPLOYMENT)
    assert seen[0] == {old.split("-")[1]}
    assert seen[-1] == {new.split("-")[1]}
    assert all(len(revisions) == 1 for revisions in seen)


@pytest.mark.parametrize(
    ("status", "longest_s"), [(403, 5), (422, 5), (500, 60)], ids=["right", "policy", "webhook"]
)
async def test_what_is_refused_for_hours_does_not_keep_the_tuner_waiting(
    harness: LoopHarness, status: int, longest_s: float
) -> None:
    looked_at_s, tried_at_s = [], []

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        looked_at_s.append(snapshot.now_s)
        return replace(holding(snapshot), wake_after_s=5)

    def refused(verb: str, kind: Kind) -> KubeError | None:
        if kind != SERVICE or verb not in {"create", "apply"}:
            return None
        tried_at_s.append(harness.clock.at_s)
        return KubeError(status, "no services here")

    harness.decide = decide
    harness.kube.remove(SERVICE, "llm", "kimi")
    harness.kube.fail = refused
    await harness.tick()
    await harness.run_for(3600)
    pauses_s = [after - before for before, after in pairwise(looked_at_s)]
    assert max(pauses_s) <= longest_s
    assert "no services here" in harness.condition("Degraded")["message"]
    # And it is asked less and less often.
    assert 60 <= len(tried_at_s) <= 70
    harness.kube.fail = lambda _verb, _kind: None
    await harness.run_for(61)
    assert harness.condition("Degraded")["reason"] == "AsExpected"


async def test_a_tug_of_war_does_not_keep_the_tuner_waiting(harness: LoopHarness) -> None:
    looked_at_s = []

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        looked_at_s.append(snapshot.now_s)
        return replace(holding(snapshot), wake_after_s=5)

    harness.decide = decide
    until_s = harness.clock.at_s + 3600
    while harness.clock.at_s < until_s:
        harness.kube.find(SERVICE, "kimi")["spec"]["selector"] = {"app": "another"}
        await harness.run_for(5)
    pauses_s = [after - before for before, after in pairwise(looked_at_s)]
    assert max(pauses_s) <= 5
    assert "changed back by something else" in harness.condition("Degraded")["message"]


@pytest.mark.parametrize("answers_after_s", [1, 20])
async def test_a_tug_of_war_over_what_always_moves_is_one_too(
    counting: LoopHarness, answers_after_s: float
) -> None:
    """As with a ConfigMap that somebody exported and keeps in Git: ours has news in each write."""
    theirs = copy.deepcopy(counting.kube.find(CONFIG_MAP, "kimi-tuning")["data"])
    theirs["lastGoodSpec.json"] = "{}"
    for _ in range(180):
        counting.kube.find(CONFIG_MAP, "kimi-tuning")["data"] = dict(theirs)
        await counting.tick()
        await counting.tick()
        counting.clock.at_s += answers_after_s
    assert len(counting.kube.written("ConfigMap")) <= 9
    assert "ConfigMap kimi-tuning was written 3 times" in counting.condition("Degraded")["message"]


async def test_what_others_add_to_a_config_map_is_no_tug_of_war(counting: LoopHarness) -> None:
    for minute in range(30):
        config_map = counting.kube.find(CONFIG_MAP, "kimi-tuning")
        config_map["data"]["theirs"] = f"at minute {minute}"
        await counting.run_for(60)
    assert 28 <= len(counting.kube.written("ConfigMap")) <= 30
    assert counting.condition("Degraded")["status"] == "False"
