"""What `pause`, `resume` and `retry` write: an annotation or a Job's end, never a spec."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import typer

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.cli.cluster import read_reported
from fathom.cli.options import annotate
from fathom.cli.rollout import asked_for, paused_in_words, retried
from fathom.cluster.kinds import JOB, POD, SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.health import UNWATCHED_S
from fathom.times import rfc3339
from manifest_samples import manifest
from support.fake_kube import FakeKube
from support.loop_harness import START_S, LoopHarness

KEY = ObjectKey("llm", "kimi")


def cluster(status: dict[str, Any] | None = None, **annotations: str) -> FakeKube:
    kube = FakeKube()
    document = manifest()
    document["metadata"]["annotations"] = annotations
    if status is not None:
        document["status"] = status
    kube.put(SPECULATIVE_DEPLOYMENT, document)
    return kube


def degraded(reason: str, message: str = "it is so.") -> dict[str, Any]:
    return {
        "type": "Degraded",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def job(name: str, ended: str = "Failed", component: str = "fetch") -> dict[str, Any]:
    labels = {names.LABEL_NAME: "kimi", names.LABEL_COMPONENT: component}
    conditions = [{"type": ended, "status": "True"}] if ended else []
    return {
        "metadata": {"name": name, "namespace": "llm", "labels": labels},
        "status": {"conditions": conditions},
    }


def found(kube: FakeKube) -> dict[str, Any]:
    return kube.find(SPECULATIVE_DEPLOYMENT, "kimi")


async def test_an_annotation_is_set_and_removed_and_nothing_else_is_touched() -> None:
    kube = cluster(mine="stays")
    before = copy.deepcopy(found(kube))

    assert await annotate(kube, KEY, names.ANNOTATION_PAUSED, "incident 42")
    paused = found(kube)
    assert paused["metadata"]["annotations"] == {
        "mine": "stays",
        "fathom.dev/paused": "incident 42",
    }
    assert (paused["spec"], paused["metadata"]["generation"]) == (
        before["spec"],
        before["metadata"]["generation"],
    )
    assert await annotate(kube, KEY, names.ANNOTATION_PAUSED, None)
    assert found(kube)["metadata"]["annotations"] == {"mine": "stays"}
    assert not await annotate(FakeKube(), KEY, names.ANNOTATION_PAUSED, "true")


@pytest.mark.parametrize(
    ("away_s", "sentence"),
    [
        (UNWATCHED_S, "llm/kimi is paused: depth stays as it is"),
        (
            UNWATCHED_S + 1,
            "llm/kimi has the annotation of a pause, but no operator has watched since 2",
        ),
    ],
)
async def test_a_pause_that_nobody_is_there_to_keep_says_so(away_s: float, sentence: str) -> None:
    reported = await read_reported(cluster({"lastReconcileTime": rfc3339(START_S)}), KEY)
    assert reported is not None
    words = paused_in_words(KEY, reported, START_S + away_s)
    assert words.startswith(sentence)
    assert words.endswith("`kubectl fathom resume kimi` ends it.")


async def test_a_revision_that_was_rolled_back_gets_another_try_each_time() -> None:
    kube = cluster({"rollout": {"stage": "RolledBack"}, "conditions": [degraded("RolledBack")]})

    values = []
    for at_s in (START_S, START_S + 1):
        done = await retried(kube, KEY, at_s)
        assert done == ("the revision that was given up gets another canary.",)
        values.append(found(kube)["metadata"]["annotations"][names.ANNOTATION_RETRY_ROLLOUT])
    assert len({*values}) == 2


@pytest.mark.parametrize("asks", [retried, lambda kube, key, _: asked_for(kube, key)])
async def test_of_a_status_that_another_release_wrote_nothing_is_said(
    asks: Callable[..., Awaitable[object]], capsys: pytest.CaptureFixture[str]
) -> None:
    kube = cluster({"rollout": "rolled back, in a way of its own"})
    with pytest.raises(typer.Exit):
        await asks(kube, KEY, START_S)
    assert "another release wrote it" in capsys.readouterr().err
    assert names.ANNOTATION_RETRY_ROLLOUT not in found(kube)["metadata"]["annotations"]


async def test_a_revision_that_waits_gets_its_canary() -> None:
    kube = cluster({"rollout": {"stage": "Settling", "reason": "StableSpecUnknown"}})

    assert await retried(kube, KEY, START_S) == ("the revision that waits gets a canary.",)
    assert names.ANNOTATION_RETRY_ROLLOUT in found(kube)["metadata"]["annotations"]


async def test_the_operator_tries_it_again() -> None:
    harness = LoopHarness({"replicas": 2})
    await harness.until_ready()
    (stable,) = {
        pod["metadata"]["labels"][names.LABEL_REVISION] for pod in harness.kube.all_of(POD)
    }
    harness.edit({"engine.image": "vllm/vllm-openai:v0.33.0"})
    for _ in range(400):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()
        for pod in harness.kube.all_of(POD):
            if pod["metadata"]["labels"][names.LABEL_REVISION] != stable:
                harness.set_ready(pod["metadata"]["name"], ready=False)
        if harness.status.get("rollout", {}).get("stage") == "RolledBack":
            break
    assert harness.status["reason"] == "RolledBack"

    assert await retried(harness.kube, KEY, harness.clock.at_s)
    await harness.tick()
    assert harness.status["rollout"]["stage"] in {"Settling", "Canary"}


@pytest.mark.parametrize("reason", ["WeightsNotFetched", "ChildRefused"])
async def test_a_fetch_that_was_given_up_begins_anew(reason: str) -> None:
    kube = cluster({"conditions": [degraded(reason)]})
    others = job("kimi-fetch-b", "Complete"), job("kimi-fetch-c", ""), job("x", component="x")
    for each in (job("kimi-fetch-a"), *others):
        kube.put(JOB, each)

    assert await retried(kube, KEY, START_S) == ("the fetch kimi-fetch-a begins again.",)
    assert kube.names(JOB) == ["kimi-fetch-b", "kimi-fetch-c", "x"]
    assert found(kube)["metadata"]["annotations"] == {}


@pytest.mark.parametrize("stage", ["RolledBack", "Complete"])
async def test_who_may_not_list_jobs_is_told_that_fetches_are_left_out(stage: str) -> None:
    kube = cluster({"rollout": {"stage": stage}, "conditions": [degraded("RolledBack")]})
    kube.fail = lambda _, kind: KubeError(403, "no.") if kind == JOB else None
    if stage == "Complete":
        with pytest.raises(KubeError, match="no"):
            await retried(kube, KEY, START_S)
        return
    assert await retried(kube, KEY, START_S) == (
        "the revision that was given up gets another canary.",
        "fetches of weights are left out. The API server does not let you do this: no.",
    )


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "there is nothing to try again."),
        ({"rollout": {"stage": "Complete"}}, "there is nothing to try again."),
        (
            {"conditions": [degraded("InvalidSpec", "spec.speculation.tokens: mend it.")]},
            "degraded for another reason: spec.speculation.tokens: mend it.",
        ),
    ],
)
async def test_where_nothing_was_given_up_it_says_so_and_writes_nothing(
    status: dict[str, Any] | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = cluster(status)
    with pytest.raises(typer.Exit) as ended:
        await retried(kube, KEY, START_S)

    assert ended.value.exit_code == 2
    assert said in capsys.readouterr().err
    assert kube.writes == []


async def test_one_that_is_not_there_is_none_and_a_refusal_is_passed_on() -> None:
    assert await retried(FakeKube(), KEY, START_S) is None

    kube = cluster({"rollout": {"stage": "RolledBack"}})
    kube.fail = lambda verb, _: KubeError(403, "no") if verb == "patch" else None
    with pytest.raises(KubeError, match="no"):
        await retried(kube, KEY, START_S)
