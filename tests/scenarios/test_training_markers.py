"""What a trainer may write gets nowhere that people or programs read: it may hold prompts."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest

from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cli.train import in_words
from fathom.cluster.kinds import EVENT, JOB, POD
from fathom.page.rendering import resource_page
from fathom.page.resource_view import resource_view
from fathom.page.subject import subject_in
from fathom.tuning.learned_state import TuningState
from scenarios.test_arm import pass_minutes
from scenarios.test_draft_trial import Counting, pods_with
from scenarios.test_training import asked
from support.loop_harness import KEY, LoopHarness
from support.played_training import approve, end_job, training_of
from support.trained_drafts import MARK, Output, new_intake, tensors_file

Spoil = Callable[[Output], Any]


def spoken(harness: LoopHarness) -> str:
    """All that the operator has written so far, and what its commands and pages show."""
    document = harness.resource
    status = SpeculativeDeploymentStatus.model_validate(document["status"])
    assert status.training is not None
    subject = subject_in(KEY, document, status, document=None, state=TuningState())
    view = resource_view(subject, harness.clock.now_s())
    return "\n".join(
        [
            json.dumps(document),
            *(json.dumps(each.body, default=str) for each in harness.kube.writes),
            generate_latest(harness.world.telemetry.registry).decode(),
            in_words(KEY, status.training),
            resource_page(view, home=False),
        ]
    )


def mark_trainer(harness: LoopHarness, *, exit_code: int) -> None:
    """Its container's message, and whatever may be written about its Job, hold the mark."""
    job = end_job(harness, "training", exit_code=exit_code, message=MARK)
    (condition,) = job["status"]["conditions"]
    job["status"]["conditions"] = [{**condition, "message": f"The pod said: {MARK}"}]
    harness.kube.put(JOB, job)
    pod = harness.kube.find(POD, f"{job['metadata']['name']}-x")
    pod["status"] |= {"message": MARK, "reason": MARK}
    harness.kube.put(POD, pod)
    harness.kube.put(
        EVENT,
        {
            "metadata": {"name": "of-the-trainer", "namespace": "elsewhere"},
            "involvedObject": {"kind": "Pod", "name": pod["metadata"]["name"]},
            "reason": "Failed",
            "message": MARK,
        },
    )


async def trained() -> LoopHarness:
    harness = await asked(**{"engine.tensorParallelSize": 2})
    approve(harness)
    await pass_minutes(harness, 1)
    mark_trainer(harness, exit_code=0)
    await pass_minutes(harness, 1)
    return harness


def _honest(output: Output) -> None:
    """A draft that is taken, with the mark wherever one may be."""
    output.result({"schema": 1, "draft": "draft", "trainer": MARK, MARK: MARK})
    output.write_config(
        **{MARK: MARK, "_name_or_path": MARK, "torch_dtype": MARK, "rope_theta_type": MARK},
        rope_scaling={"rope_type": MARK},
    )
    output.weights.unlink()
    content = tensors_file({**output.shapes, f"midlayer.{MARK}.weight": (1,)})
    (output.draft / f"{MARK}.safetensors").write_bytes(content)
    (output.draft / f"{MARK}.txt").write_text(MARK)


async def test_a_draft_that_is_taken_brings_no_text_of_the_trainers() -> None:
    harness = await trained()
    with new_intake() as intake:
        _honest(intake.output)
        taken = intake.run()
        (stored,) = intake.stored
    assert taken.exit_code == 0
    end_job(harness, "intake", message=taken.text)
    folder = f"/cache/fathom/drafts/{stored}"
    harness.metrics = Counting(harness, faster=0.1, draft=folder)
    await pass_minutes(harness, 60)
    assert training_of(harness)["phase"] == "Faster"
    assert MARK not in spoken(harness)


@pytest.mark.parametrize(
    ("code", "spoil"),
    [
        ("badResult", lambda output: output.result({"schema": MARK, "draft": MARK})),
        ("badFolder", lambda output: output.result({"schema": 1, "draft": f"../{MARK}"})),
        ("badResult", lambda output: output.result({"schema": 1, "hub": {"id": f"{MARK} x"}})),
        (
            "notACommit",
            lambda output: output.result({"schema": 1, "hub": {"id": "a/b", "revision": MARK}}),
        ),
        ("unknownClass", lambda output: output.write_config(architectures=[MARK])),
        ("badConfig", lambda output: output.write_config(hidden_size=MARK)),
        ("badType", lambda output: output.tensors(dtypes={"fc.weight": MARK})),
        ("badName", lambda output: output.tensors({**output.shapes, f"{MARK}!": (1,)})),
        ("badHeader", lambda output: output.weights.write_text(MARK * 9)),
    ],
)
async def test_a_draft_that_is_refused_brings_none_either(code: str, spoil: Spoil) -> None:
    harness = await trained()
    with new_intake() as intake:
        spoil(intake.output)
        taken = intake.run()
    assert taken.refused == code
    end_job(harness, "intake", message=taken.text, exit_code=1)
    await pass_minutes(harness, 1)
    assert training_of(harness)["phase"] == "Refused"
    assert MARK not in spoken(harness)


@pytest.mark.parametrize(
    "message",
    [
        MARK,
        json.dumps({"schema": 1, "refused": MARK}),
        json.dumps({"schema": 1, "draft": {"folder": MARK, "bytes": 1}}),
        json.dumps({"schema": 1, "hub": {"id": "a/b", "revision": MARK}}),
    ],
)
async def test_a_message_that_no_intake_writes_is_not_repeated(message: str) -> None:
    harness = await trained()
    end_job(harness, "intake", message=message, exit_code=1)
    await pass_minutes(harness, 1)
    assert MARK not in spoken(harness)


async def test_a_training_that_failed_is_told_without_its_words() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 1)
    mark_trainer(harness, exit_code=1)
    await pass_minutes(harness, 1)
    found = training_of(harness)
    assert found["phase"] == "Failed"
    assert "its Job failed: BackoffLimitExceeded." in found["message"]
    assert MARK not in spoken(harness)


async def test_an_engine_that_quotes_the_drafts_config_is_not_quoted() -> None:
    harness = await trained()
    with new_intake() as intake:
        _honest(intake.output)
        taken = intake.run()
        (stored,) = intake.stored
    end_job(harness, "intake", message=taken.text)
    folder = f"/cache/fathom/drafts/{stored}"
    await pass_minutes(harness, 2)
    (pod,) = pods_with(harness, folder)
    ended = {"exitCode": 1, "message": f"ValueError: unknown rope type {MARK}", "reason": "Error"}
    crashed = {
        "name": "vllm",
        "image": "x",
        "restartCount": 6,
        "ready": False,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
        "lastState": {"terminated": ended},
    }
    harness.set_ready(pod, ready=False, containerStatuses=[crashed])
    await harness.tick()
    await harness.tick()
    found = training_of(harness)
    assert found["phase"] == "Dismissed"
    assert "see its log" in found["message"]
    assert MARK not in spoken(harness)
