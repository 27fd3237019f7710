"""What is said of the engine: its version, and whether its depth is live."""

from fathom.api import names
from fathom.cluster.kinds import DEPLOYMENT
from support.loop_harness import LoopHarness


async def test_a_live_engine_needs_no_reason(harness: LoopHarness) -> None:
    assert harness.status["engine"] == {"version": "0.32.0", "actuation": "Live"}


async def test_an_engine_whose_depth_is_not_live_says_why() -> None:
    harness = LoopHarness({"engine.image": "vllm/vllm-openai:v0.28.0"})
    await harness.until_ready()
    engine = harness.status["engine"]
    assert (engine["version"], engine["actuation"]) == ("0.28.0", "None")
    assert "0.28.0" in engine["reason"]


async def test_pods_that_an_earlier_version_started_without_the_plugin_are_not_called_live(
    harness: LoopHarness,
) -> None:
    (name,) = harness.kube.names(DEPLOYMENT)
    deployment = harness.kube.find(DEPLOYMENT, name)
    annotations = deployment["metadata"]["annotations"]
    del annotations[names.ANNOTATION_PLUGIN]
    annotations[names.ANNOTATION_RENDERED_BY] = "0.1.0"
    harness.kube.put(DEPLOYMENT, deployment)
    harness.restart()
    await harness.run_for(120)
    engine = harness.status["engine"]
    assert engine["actuation"] == "None"
    assert "once a rollout replaces them" in engine["reason"]
