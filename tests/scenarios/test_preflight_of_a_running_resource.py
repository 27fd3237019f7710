"""What a loop does when more becomes known of its models."""

import asyncio

from fathom.core.cluster.kinds import DEPLOYMENT
from fathom.core.models.config import ModelConfig
from fathom.core.models.facts import ModelFacts, ModelRef
from fathom.reconcile.holding import PATIENCE_S
from fathom.runtime.loops import pass_after_pass
from fathom.runtime.model_cache import NOT_YET
from fathom.runtime.turns import Turns
from support.bench import AT_ONCE, Bench
from support.waiting import turns, until

TARGET = ModelRef("org/target")
DRAFT = ModelRef("org/draft", "v1")
FITS = ModelFacts(ModelConfig(hidden_size=64))
OTHER = ModelFacts(ModelConfig(hidden_size=32))

CHANGES = {"model.id": TARGET.id, "draft.id": DRAFT.id, "draft.revision": DRAFT.revision}


async def past_waiting(models: dict[ModelRef, ModelFacts]) -> Bench:
    """A replica that serves, of a spec of which the hub told nothing in time."""
    bench = Bench(CHANGES, models=models)
    await bench.until_ready()
    assert bench.kube.names(DEPLOYMENT) == []
    bench.clock.at_s += PATIENCE_S
    await bench.until_ready()
    return bench


async def test_unknown_until_known_and_what_runs_does_not_wait_for_it() -> None:
    bench = await past_waiting({TARGET: NOT_YET, DRAFT: NOT_YET})
    before = bench.condition("DraftCompatible")

    bench.models |= {TARGET: FITS, DRAFT: FITS}
    bench.told[DRAFT]()
    await bench.loop.tick()

    assert bench.status["ready"] == "1/1"
    assert (before["status"], before["reason"]) == ("Unknown", "NotChecked")
    assert "(it is being asked for)" in before["message"]
    assert bench.condition("DraftCompatible")["reason"] == "Compatible"
    assert bench.status["draft"] == {"family": "EAGLE-3"}


async def test_what_runs_without_an_answer_does_not_wait_for_one_again() -> None:
    bench = await past_waiting({TARGET: NOT_YET, DRAFT: NOT_YET})
    bench.restart()
    bench.edit({"replicas": 2})
    await bench.until_ready()
    assert bench.status["ready"] == "2/2"
    assert bench.condition("Progressing")["reason"] == "UpToDate"


async def test_a_sleeping_loop_wakes_when_more_is_known() -> None:
    bench = Bench(CHANGES, models={TARGET: NOT_YET, DRAFT: NOT_YET})
    await bench.until_ready()
    task = asyncio.create_task(pass_after_pass(bench.loop, Turns(), AT_ONCE))
    await turns()  # until it has nothing left to do

    bench.models |= {TARGET: FITS, DRAFT: FITS}
    bench.told[DRAFT]()
    kind, reason = "DraftCompatible", "Compatible"
    await until(lambda: bench.condition(kind)["reason"] == reason, "a pass that has seen it")

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_pair_that_turns_out_not_to_fit_stops_no_pod() -> None:
    bench = await past_waiting({TARGET: NOT_YET, DRAFT: NOT_YET})
    deployments = bench.kube.names(DEPLOYMENT)

    bench.models |= {TARGET: FITS, DRAFT: OTHER}
    await bench.until_ready()

    assert bench.kube.names(DEPLOYMENT) == deployments
    assert bench.condition("Ready")["status"] == "True"
    assert bench.condition("DraftCompatible")["reason"] == "Incompatible"
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"
    assert "org/draft reads hidden states of size 32" in bench.condition("Degraded")["message"]


async def test_a_pair_known_not_to_fit_starts_nothing() -> None:
    bench = Bench(CHANGES, models={TARGET: FITS, DRAFT: OTHER})

    await bench.tick()

    assert bench.kube.names(DEPLOYMENT) == []
    assert bench.condition("DraftCompatible")["status"] == "False"
