"""A CRD of a later release than the operator's: after a roll-back, or before its upgrade."""

import copy
import json
from typing import Any

import pytest

from fathom.core.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD, SPECULATIVE_DEPLOYMENT
from support.bench import Bench


async def test_a_default_of_a_newer_crd_stops_no_older_operator() -> None:
    """An operator that was rolled back; the CRD is kept (`crds.keep`), and its server fills in
    what nobody wrote. Also for the minute between a release's CRD and its operator."""
    bench = Bench({"replicas": 2, "rollout": {"laterField": "Auto"}})
    await bench.until_ready()
    assert bench.kube.names(DEPLOYMENT)
    assert bench.condition("Degraded")["status"] == "False", bench.condition("Degraded")["message"]
    assert bench.condition("Ready")["status"] == "True"


async def test_a_field_that_is_not_obeyed_is_named(bench: Bench) -> None:
    assert "laterField" not in bench.condition("Progressing")["message"]
    bench.edit({"engine.laterField": 3, "rollout.other": {"deep": True}})
    await bench.until_ready()
    progressing = bench.condition("Progressing")
    assert progressing["reason"] == "UpToDate"
    assert "spec.engine.laterField" in progressing["message"]
    assert "spec.rollout.other" in progressing["message"]
    bench.edit({"engine.laterField": None, "rollout.other": None})
    document = copy.deepcopy(bench.resource)
    del document["spec"]["engine"]["laterField"], document["spec"]["rollout"]["other"]
    bench.kube.put(SPECULATIVE_DEPLOYMENT, document)
    await bench.until_ready()
    assert "spec." not in bench.condition("Progressing")["message"]


def newer(kube: Any) -> None:
    """What a later operator leaves behind in a cluster whose CRD knows its fields."""
    document = copy.deepcopy(kube.find(SPECULATIVE_DEPLOYMENT, "kimi"))
    document["spec"]["rollout"] = {**document["spec"].get("rollout", {}), "laterField": "Auto"}
    document["status"]["depth"]["later"] = 0
    document["status"]["laterStatus"] = {"summary": "later"}
    kube.put(SPECULATIVE_DEPLOYMENT, document)
    kept = copy.deepcopy(kube.find(CONFIG_MAP, "kimi-tuning"))
    for key in ("lastGoodSpec.json", "acceptedSpec.json", "stableSpec.json"):
        if kept["data"].get(key, "null") != "null":
            spec = json.loads(kept["data"][key])
            spec["rollout"] = {**spec.get("rollout", {}), "laterField": "Auto"}
            kept["data"][key] = json.dumps(spec)
    # Which revision a later operator gave, an earlier one need not find by itself.
    text = json.dumps(kept["data"]).replace(kept["data"]["revision"], "abcdef01")
    kept["data"] = json.loads(text)
    kube.put(CONFIG_MAP, kept)


async def test_an_operator_that_is_rolled_back_rolls_no_pod(bench: Bench) -> None:
    revision = bench.kube.find(CONFIG_MAP, "kimi-tuning")["data"]["revision"]
    pods = {each["metadata"]["name"] for each in bench.kube.all_of(POD)}
    for kind in (DEPLOYMENT, POD):
        for each in copy.deepcopy(bench.kube.all_of(kind)):
            text = json.dumps(each)
            bench.kube.remove(kind, "llm", each["metadata"]["name"])
            bench.kube.put(kind, json.loads(text.replace(revision, "abcdef01")))
    pods = {each["metadata"]["name"] for each in bench.kube.all_of(POD)}
    newer(bench.kube)
    bench.restart()
    await bench.run_for(300)
    assert {each["metadata"]["name"] for each in bench.kube.all_of(POD)} == pods
    assert bench.kube.names(DEPLOYMENT) == ["kimi-abcdef01"]
    bench.kube.writes.clear()
    await bench.run_for(3600)
    assert bench.kube.writes == []


async def test_what_the_status_told_before_is_known_to_an_operator_that_is_rolled_back(
    bench: Bench,
) -> None:
    """Else times of conditions would begin anew, and events be told twice."""
    before = copy.deepcopy(bench.status["conditions"])
    newer(bench.kube)
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
    bench.edit({"engine.laterField": 3, "replicas": 3})
    await bench.until_ready()
    for key, text in bench.kube.find(CONFIG_MAP, "kimi-tuning")["data"].items():
        assert "laterField" not in text, key


@pytest.mark.parametrize("beside", ["spec", "apiVersion"])
async def test_a_newer_crds_place_beside_the_spec_stops_nothing(bench: Bench, beside: str) -> None:
    document = {**copy.deepcopy(bench.resource), f"{beside}Later": {"deep": True}}
    bench.kube.put(SPECULATIVE_DEPLOYMENT, document)
    bench.edit({"replicas": 3})
    await bench.until_ready()
    assert bench.status["ready"] == "3/3"
