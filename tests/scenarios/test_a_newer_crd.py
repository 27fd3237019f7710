"""A CRD of a later release than the operator's: after a roll-back, or before its upgrade."""

import copy
import json

from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD, SPECULATIVE_DEPLOYMENT
from support.fake_kube import FakeKube
from support.loop_harness import LoopHarness

LATER_REVISION = "abcdef01"
"""What a later release calls the same spec: an earlier one would not come to that by itself."""


async def test_a_default_of_a_newer_crd_stops_no_older_operator() -> None:
    """An operator that was rolled back, beside a CRD that was not, whose server fills in what
    nobody wrote. Also in the minute between a release's CRD and its operator."""
    harness = LoopHarness({"replicas": 2, "rollout": {"laterField": "Auto"}})
    await harness.until_ready()
    assert harness.kube.names(DEPLOYMENT)
    assert harness.condition("Degraded")["status"] == "False", harness.condition("Degraded")[
        "message"
    ]
    assert harness.condition("Ready")["status"] == "True"


async def test_a_field_that_is_not_obeyed_is_named(harness: LoopHarness) -> None:
    harness.edit({"engine.laterField": 3, "rollout.other": {"deep": True}})
    await harness.until_ready()
    progressing = harness.condition("Progressing")
    assert progressing["reason"] == "UpToDate"
    said = "Without effect: spec.engine.laterField, spec.rollout.other, which the CRD has"
    assert said in progressing["message"]
    document = copy.deepcopy(harness.resource)
    del document["spec"]["engine"]["laterField"], document["spec"]["rollout"]["other"]
    harness.kube.put(SPECULATIVE_DEPLOYMENT, document)
    await harness.until_ready()
    assert "Without effect" not in harness.condition("Progressing")["message"]


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


async def test_an_operator_that_is_rolled_back_rolls_no_pod(harness: LoopHarness) -> None:
    revision = harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"]["revision"]
    for kind in (DEPLOYMENT, POD, CONFIG_MAP):
        for each in copy.deepcopy(harness.kube.all_of(kind)):
            harness.kube.remove(kind, "llm", each["metadata"]["name"])
            harness.kube.put(kind, json.loads(json.dumps(each).replace(revision, LATER_REVISION)))
    leave_later_fields(harness.kube)
    harness.restart()
    await harness.run_for(300)
    assert harness.kube.written("Deployment") == []
    assert harness.condition("Progressing")["reason"] == "UpToDate"
    harness.kube.writes.clear()
    await harness.run_for(3600)
    assert harness.kube.news == []


async def test_what_the_status_told_before_is_known_to_an_operator_that_is_rolled_back(
    harness: LoopHarness,
) -> None:
    """Else times of conditions would begin anew, and events be told twice."""
    before = copy.deepcopy(harness.status["conditions"])
    leave_later_fields(harness.kube)
    harness.kube.writes.clear()
    harness.restart()
    await harness.run_for(300)
    times = {each["type"]: each["lastTransitionTime"] for each in before}
    now = {each["type"]: each["lastTransitionTime"] for each in harness.status["conditions"]}
    assert now == times
    assert harness.kube.written("Event") == []


async def test_a_field_that_was_not_obeyed_is_rolled_out_by_the_operator_that_knows_it(
    harness: LoopHarness,
) -> None:
    """So it must not be kept as one that the pods were made with."""
    harness.edit({"engine.laterField": 3, "speculation.tuning.windowSeconds": 45})
    await harness.until_ready()
    kept = json.loads(harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"]["lastGoodSpec.json"])
    assert kept["speculation"] == {"tuning": {"windowSeconds": 45}}
    assert "laterField" not in kept["engine"]


async def test_what_a_newer_crd_has_beside_the_spec_stops_nothing(harness: LoopHarness) -> None:
    document = {**copy.deepcopy(harness.resource), "later": {"deep": True}}
    harness.kube.put(SPECULATIVE_DEPLOYMENT, document)
    harness.edit({"replicas": 3})
    await harness.until_ready()
    assert harness.status["ready"] == "3/3"
