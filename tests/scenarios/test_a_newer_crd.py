"""A CRD of a later release than the operator's: after a roll-back, or before its upgrade."""

import copy
import json

from fathom.core.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD, SPECULATIVE_DEPLOYMENT
from support.bench import Bench
from support.fake_kube import FakeKube

LATER_REVISION = "abcdef01"
"""What a later release calls the same spec: an earlier one would not come to that by itself."""


async def test_a_default_of_a_newer_crd_stops_no_older_operator() -> None:
    """An operator that was rolled back, beside a CRD that was not, whose server fills in what
    nobody wrote. Also in the minute between a release's CRD and its operator."""
    bench = Bench({"replicas": 2, "rollout": {"laterField": "Auto"}})
    await bench.until_ready()
    assert bench.kube.names(DEPLOYMENT)
    assert bench.condition("Degraded")["status"] == "False", bench.condition("Degraded")["message"]
    assert bench.condition("Ready")["status"] == "True"


async def test_a_field_that_is_not_obeyed_is_named(bench: Bench) -> None:
    bench.edit({"engine.laterField": 3, "rollout.other": {"deep": True}})
    await bench.until_ready()
    progressing = bench.condition("Progressing")
    assert progressing["reason"] == "UpToDate"
    said = "Without effect: spec.engine.laterField, spec.rollout.other, which the CRD has"
    assert said in progressing["message"]
    document = copy.deepcopy(bench.resource)
    del document["spec"]["engine"]["laterField"], document["spec"]["rollout"]["other"]
    bench.kube.put(SPECULATIVE_DEPLOYMENT, document)
    await bench.until_ready()
    assert "Without effect" not in bench.condition("Progressing")["message"]


def leave_later_fields(kube: FakeKube) -> None:
    """What a later operator leaves behind in a cluster whose CRD knows its fields."""
    document = copy.deepcopy(kube.find(SPECULATIVE_DEPLOYMENT, "kimi"))
    document["spec"]["rollout"] = {**document["spec"].get("rollout", {}), "laterField": "Auto"}
    document["status"]["depth"]["later"] = 0
    document["status"]["laterStatus"] = {"summary": "later"}
    kube.put(SPECULATIVE_DEPLOYMENT, document)
    kept = copy.deepcopy(kube.find(CONFIG_MAP, "kimi-tuning"))
    good = json.loads(kept["data"]["lastGoodSpec.json"])
    good["rollout"] = {**good.get("rollout", {}), "laterField": "Auto"}
    kept["data"]["lastGoodSpec.json"] = json.dumps(good)
    kube.put(CONFIG_MAP, kept)


async def test_an_operator_that_is_rolled_back_rolls_no_pod(bench: Bench) -> None:
    revision = bench.kube.find(CONFIG_MAP, "kimi-tuning")["data"]["revision"]
    for kind in (DEPLOYMENT, POD, CONFIG_MAP):
        for each in copy.deepcopy(bench.kube.all_of(kind)):
            bench.kube.remove(kind, "llm", each["metadata"]["name"])
            bench.kube.put(kind, json.loads(json.dumps(each).replace(revision, LATER_REVISION)))
    leave_later_fields(bench.kube)
    bench.restart()
    await bench.run_for(300)
    assert bench.kube.written("Deployment") == []
    assert bench.condition("Progressing")["reason"] == "UpToDate"
    bench.kube.writes.clear()
    await bench.run_for(3600)
    assert bench.kube.writes == []


async def test_what_the_status_told_before_is_known_to_an_operator_that_is_rolled_back(
    bench: Bench,
) -> None:
    """Else times of conditions would begin anew, and events be told twice."""
    before = copy.deepcopy(bench.status["conditions"])
    leave_later_fields(bench.kube)
    bench.kube.writes.clear()
    bench.restart()
    await bench.run_for(300)
    times = {each["type"]: each["lastTransitionTime"] for each in before}
    now = {each["type"]: each["lastTransitionTime"] for each in bench.status["conditions"]}
    assert now == times
    assert bench.kube.written("Event") == []


async def test_a_field_that_was_not_obeyed_is_rolled_out_by_the_operator_that_knows_it(
    bench: Bench,
) -> None:
    """So it must not be kept as one that the pods were made with."""
    bench.edit({"engine.laterField": 3, "speculation.tuning.windowSeconds": 45})
    await bench.until_ready()
    kept = json.loads(bench.kube.find(CONFIG_MAP, "kimi-tuning")["data"]["lastGoodSpec.json"])
    assert kept["speculation"] == {"tuning": {"windowSeconds": 45}}
    assert "laterField" not in kept["engine"]


async def test_what_a_newer_crd_has_beside_the_spec_stops_nothing(bench: Bench) -> None:
    document = {**copy.deepcopy(bench.resource), "later": {"deep": True}}
    bench.kube.put(SPECULATIVE_DEPLOYMENT, document)
    bench.edit({"replicas": 3})
    await bench.until_ready()
    assert bench.status["ready"] == "3/3"
