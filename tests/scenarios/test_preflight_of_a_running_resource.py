"""What a loop does when more becomes known of its models."""

import asyncio
import json
from dataclasses import replace
from typing import Any

from fathom.cluster.kinds import DEPLOYMENT
from fathom.model_facts import ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom.reconcile.holding import PATIENCE_S
from fathom.runtime.caches import NOT_YET
from fathom.runtime.loop_registry import Turns, pass_after_pass
from fathom_intake.model_weights import Tensor, Weights
from support.hybrid_target import HYBRID
from support.loop_harness import AT_ONCE, LoopHarness
from support.waiting import turns, until

TARGET = ModelRef("org/target")
DRAFT = ModelRef("org/draft", "v1")
FITS = ModelFacts(
    config=ModelConfig(
        architectures=("Eagle3LlamaForCausalLM",), hidden_size=64, vocab_size=256, layers=1
    )
)
OTHER = ModelFacts(config=ModelConfig(hidden_size=32))

CHANGES = {"model.id": TARGET.id, "draft.id": DRAFT.id, "draft.revision": DRAFT.revision}


async def past_waiting(models: dict[ModelRef, ModelFacts]) -> LoopHarness:
    """A replica that serves, of a spec of which the hub told nothing in time."""
    harness = LoopHarness(CHANGES, models=models)
    await harness.until_ready()
    assert harness.kube.names(DEPLOYMENT) == []
    harness.clock.at_s += PATIENCE_S
    await harness.until_ready()
    return harness


async def test_unknown_until_known_and_what_runs_does_not_wait_for_it() -> None:
    harness = await past_waiting({TARGET: NOT_YET, DRAFT: NOT_YET})
    before = harness.condition("DraftCompatible")

    harness.models |= {TARGET: FITS, DRAFT: FITS}
    harness.told[DRAFT]()
    await harness.loop.tick()

    assert harness.status["ready"] == "1/1"
    assert (before["status"], before["reason"]) == ("Unknown", "NotChecked")
    assert "(it is being asked for)" in before["message"]
    assert harness.condition("DraftCompatible")["reason"] == "Compatible"
    assert harness.status["draft"] == {"family": "EAGLE-3"}


async def test_what_runs_without_an_answer_does_not_wait_for_one_again() -> None:
    harness = await past_waiting({TARGET: NOT_YET, DRAFT: NOT_YET})
    harness.restart()
    harness.edit({"replicas": 2})
    await harness.until_ready()
    assert harness.status["ready"] == "2/2"
    assert harness.condition("Progressing")["reason"] == "UpToDate"


async def test_a_sleeping_loop_wakes_when_more_is_known() -> None:
    harness = LoopHarness(CHANGES, models={TARGET: NOT_YET, DRAFT: NOT_YET})
    await harness.until_ready()
    task = asyncio.create_task(pass_after_pass(harness.loop, Turns(), AT_ONCE))
    await turns()  # until it has nothing left to do

    harness.models |= {TARGET: FITS, DRAFT: FITS}
    harness.told[DRAFT]()
    kind, reason = "DraftCompatible", "Compatible"
    await until(lambda: harness.condition(kind)["reason"] == reason, "a pass that has seen it")

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_pair_that_turns_out_not_to_fit_stops_no_pod() -> None:
    harness = await past_waiting({TARGET: NOT_YET, DRAFT: NOT_YET})
    deployments = harness.kube.names(DEPLOYMENT)

    harness.models |= {TARGET: FITS, DRAFT: OTHER}
    await harness.until_ready()

    assert harness.kube.names(DEPLOYMENT) == deployments
    assert harness.condition("Ready")["status"] == "True"
    assert harness.condition("DraftCompatible")["reason"] == "Incompatible"
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    assert "org/draft reads hidden states of size 32" in harness.condition("Degraded")["message"]


async def test_what_only_a_header_says_stops_no_pod_and_scaling_goes_on() -> None:
    harness = LoopHarness(CHANGES, models={TARGET: FITS, DRAFT: FITS})
    await harness.until_ready()
    deployments = harness.kube.names(DEPLOYMENT)

    # As after an upgrade of the operator, which asks again and reads more.
    short = (Tensor("fc.weight", "BF16", (64, 192)), Tensor("lm_head.weight", "BF16", (128, 64)))
    told = replace(FITS, weights=Weights(tensors=short))
    harness.models[DRAFT] = told
    harness.restart()
    await harness.until_ready()
    refused = harness.condition("DraftCompatible")
    harness.edit({"replicas": 2})
    await harness.until_ready()

    assert (refused["status"], refused["reason"]) == ("False", "Incompatible")
    assert (
        "hold lm_head.weight of 128 by 64, and its config.json means 256 by 64"
        in (refused["message"])
    )
    assert harness.kube.names(DEPLOYMENT) == deployments
    assert harness.status["ready"] == "2/2"
    assert harness.condition("Ready")["status"] == "True"


async def test_a_pair_known_not_to_fit_starts_nothing() -> None:
    harness = LoopHarness(CHANGES, models={TARGET: FITS, DRAFT: OTHER})

    await harness.tick()

    assert harness.kube.names(DEPLOYMENT) == []
    assert harness.condition("DraftCompatible")["status"] == "False"


MTP = {
    "model.id": TARGET.id,
    "draft.id": None,
    "draft.method": "mtp",
    "speculation.tokens": 2,
    "rollout.canaryMinutes": 0,
}


async def deepest(harness: LoopHarness) -> set[int]:
    """The depths that the engines of all workloads are sized for."""
    found = [
        await harness.kube.get(DEPLOYMENT, "llm", name) for name in harness.kube.names(DEPLOYMENT)
    ]
    specs: list[Any] = [each["spec"] for each in found if each is not None]
    args = (each["template"]["spec"]["containers"][0]["args"] for each in specs)
    configs = (json.loads(each[each.index("--speculative-config") + 1]) for each in args)
    return {config["num_speculative_tokens"] for config in configs}


async def test_a_hybrid_target_has_space_for_tokens_whatever_the_hub_says_later() -> None:
    harness = LoopHarness(MTP, models={TARGET: HYBRID})
    await harness.until_ready()
    names = harness.kube.names(DEPLOYMENT)
    assert await deepest(harness) == {2}

    harness.models[TARGET] = NOT_YET
    harness.restart()
    await harness.until_ready()
    assert (harness.kube.names(DEPLOYMENT), await deepest(harness)) == (names, {2})
    assert harness.condition("Progressing")["reason"] == "UpToDate"


async def test_a_hybrid_target_that_runs_keeps_its_depths() -> None:
    harness = LoopHarness(MTP, models={TARGET: NOT_YET})
    await harness.until_ready()
    harness.clock.at_s += PATIENCE_S
    await harness.until_ready()
    names = harness.kube.names(DEPLOYMENT)
    assert await deepest(harness) == {7}

    harness.models[TARGET] = HYBRID
    harness.told[TARGET]()
    await harness.until_ready()
    assert (harness.kube.names(DEPLOYMENT), await deepest(harness)) == (names, {7})

    harness.edit({"engine.user": 2000})
    await harness.until_rolled()
    assert await deepest(harness) == {2}
