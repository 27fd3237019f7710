"""Another draft is proposed, approved, trained, taken in, tried, and adopted by an edit."""

import json
from dataclasses import replace
from typing import Any, Final

import pytest

from fathom.api import names
from fathom.api.conditions import AlarmKind, Reason
from fathom.cluster.kinds import CONFIG_MAP, JOB, POD
from fathom.training.record import hours
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from scenarios.test_arm import events, pass_minutes
from scenarios.test_draft_trial import Counting, pods_with
from support.loop_harness import LoopHarness, holding
from support.played_training import (
    ALLOWED,
    FOLDER,
    STORED,
    TRAINING,
    annotate,
    approve,
    end_job,
    jobs,
    training_of,
)

HOUR_S: Final = 3600.0


class Alarmed:
    """A tuner that holds, and raises one alarm from now on."""

    def __init__(self, harness: LoopHarness, reason: Reason) -> None:
        self.alarm: Alarm | None = Alarm(
            kind=AlarmKind.DRAFT_MISMATCH,
            reason=reason,
            message="acceptance fell from 0.81 to 0.41.",
            recommendation="",
            since_s=harness.clock.now_s(),
        )

    def __call__(self, snapshot: TuningSnapshot) -> TuningDecision:
        alarms = (self.alarm,) if self.alarm else ()
        return replace(holding(snapshot), alarms=alarms)


async def ready(**changes: Any) -> LoopHarness:
    """A fleet of three that may have a draft trained."""
    harness = LoopHarness({"replicas": 3, **ALLOWED, **changes})
    await harness.until_ready()
    return harness


async def asked(**changes: Any) -> LoopHarness:
    """One for which a person wants a proposal."""
    harness = await ready(**changes)
    annotate(harness, names.ANNOTATION_PROPOSE_TRAINING, "1")
    await harness.tick()
    return harness


async def ready_to_take_in(**changes: Any) -> LoopHarness:
    """One whose draft was trained."""
    harness = await asked(**changes)
    approve(harness)
    await pass_minutes(harness, 1)
    end_job(harness, "training")
    await pass_minutes(harness, 1)
    return harness


async def taken_in(message: str = STORED, **changes: Any) -> LoopHarness:
    """One whose draft is there."""
    harness = await ready_to_take_in(**changes)
    end_job(harness, "intake", message=message)
    return harness


async def test_a_cliff_that_stands_for_an_hour_is_a_proposal_that_outlives_it() -> None:
    harness = await ready()
    tuner = Alarmed(harness, Reason.ACCEPTANCE_CLIFF)
    harness.decide = tuner
    await harness.run_for(0.9 * HOUR_S)
    assert not training_of(harness)
    await harness.run_for(0.2 * HOUR_S)
    found = training_of(harness)
    assert (found["phase"], found["reason"]) == ("Proposed", "AcceptanceCliff")
    assert "acceptance fell from 0.81 to 0.41." in found["message"]
    assert f"--approve {found['run']}" in found["message"]
    assert "90 minutes on 4 GPUs" in found["message"]
    tuner.alarm = None
    await harness.run_for(HOUR_S)
    assert training_of(harness)["run"] == found["run"]
    assert len(events(harness, "TrainingProposed")) == 1
    assert not harness.kube.all_of(JOB)


@pytest.mark.parametrize("reason", [Reason.ONE_POD_DIFFERS, Reason.NOTHING_ACCEPTED])
async def test_what_has_a_cheaper_cure_is_no_proposal(reason: Reason) -> None:
    harness = await ready()
    harness.decide = Alarmed(harness, reason)
    await harness.run_for(1.1 * HOUR_S)
    assert not training_of(harness)


async def test_nothing_is_proposed_by_an_alarm_where_a_person_wants_to_ask() -> None:
    harness = await ready(**{"draft.training": {**TRAINING, "proposals": "Manual"}})
    harness.decide = Alarmed(harness, Reason.ACCEPTANCE_BELOW_REFERENCE)
    await harness.run_for(1.1 * HOUR_S)
    assert not training_of(harness)
    annotate(harness, names.ANNOTATION_PROPOSE_TRAINING, "1")
    await harness.tick()
    assert training_of(harness)["reason"] == "AskedFor"


async def test_approved_it_is_trained_by_one_job_with_what_the_contract_says() -> None:
    harness = await asked()
    run = approve(harness)
    await pass_minutes(harness, 2)
    (job,) = jobs(harness, "training")
    assert job["metadata"]["name"] == f"kimi-train-{run}"
    assert job["spec"]["activeDeadlineSeconds"] == 90 * 60
    pod = job["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["FATHOM_RUN"] == run
    assert env["FATHOM_TARGET"] == harness.resource["spec"]["model"]["id"]
    assert env["HF_HUB_CACHE"].startswith("/cache/")
    assert not env["HF_HOME"].startswith("/cache")
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounts["/cache"]["readOnly"]
    assert mounts["/fathom/data"]["readOnly"]
    assert mounts["/fathom/output"]["subPath"] == f"fathom/training/{run}"
    annotations = job["spec"]["template"]["metadata"]["annotations"]
    evidence = json.loads(annotations[names.ANNOTATION_EVIDENCE])
    assert (evidence["schema"], evidence["run"]) == (1, run)
    found = training_of(harness)
    assert (found["phase"], found["job"]) == ("Training", f"kimi-train-{run}")
    assert found["gpuHoursThisWeek"] == "6/12"


async def test_the_job_is_made_once_its_start_is_written_down() -> None:
    harness = await asked()
    run = approve(harness)
    await pass_minutes(harness, 2)
    writes = [(each.kind, each.name) for each in harness.kube.writes]
    job = writes.index(("Job", f"kimi-train-{run}"))
    kept = json.loads(harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"]["training.json"])
    assert kept["starts"][0]["run"] == run
    assert ("ConfigMap", "kimi-tuning") in writes[:job]


async def test_an_approval_of_another_run_approves_nothing() -> None:
    harness = await asked()
    approve(harness, "12345678")
    await pass_minutes(harness, 5)
    assert training_of(harness)["phase"] == "Proposed"
    assert not harness.kube.all_of(JOB)


async def test_an_edit_of_the_template_makes_an_approval_void() -> None:
    harness = await asked(**{"rollout.paused": True})
    before = approve(harness)
    await harness.tick()
    assert training_of(harness)["phase"] == "Approved"
    harness.edit({"draft.training.deadlineMinutes": 30, "rollout.paused": False})
    await pass_minutes(harness, 5)
    found = training_of(harness)
    assert found["phase"] == "Proposed"
    assert found["run"] != before
    assert not harness.kube.all_of(JOB)


async def test_paused_nothing_begins_and_the_sentence_says_so() -> None:
    harness = await asked()
    annotate(harness, names.ANNOTATION_PAUSED, "a freeze")
    approve(harness)
    await pass_minutes(harness, 5)
    found = training_of(harness)
    assert found["phase"] == "Approved"
    assert "a freeze" in found["message"]
    assert not harness.kube.all_of(JOB)
    annotate(harness, names.ANNOTATION_PAUSED, "false")
    await pass_minutes(harness, 2)
    assert len(jobs(harness, "training")) == 1


async def test_beyond_the_budget_it_waits_until_a_week_is_over() -> None:
    harness = await asked(**{"draft.training": {**TRAINING, "gpuHoursPerWeek": 6}})
    first = approve(harness)
    await pass_minutes(harness, 2)
    end_job(harness, "training", exit_code=1)
    await pass_minutes(harness, 1)
    failed = training_of(harness)
    assert failed["phase"] == "Failed"
    assert f"Run {first} failed: its Job failed: BackoffLimitExceeded." in failed["message"]
    second = approve(harness)
    assert second != first
    await pass_minutes(harness, 5)
    waits = training_of(harness)
    assert waits["phase"] == "Approved"
    assert "6 of the 6 that draft.training.gpuHoursPerWeek allows" in waits["message"]
    harness.clock.at_s += 7 * 24 * HOUR_S
    await pass_minutes(harness, 2)
    assert training_of(harness)["phase"] == "Training"
    assert [job["metadata"]["name"] for job in jobs(harness, "training")] == [
        f"kimi-train-{second}"
    ]


async def test_hours_are_exact_enough_that_a_sentence_agrees_with_itself() -> None:
    each = {**TRAINING, "gpus": 1, "deadlineMinutes": 62, "gpuHoursPerWeek": 2}
    harness = await asked(**{"draft.training": each})
    approve(harness)
    await pass_minutes(harness, 2)
    end_job(harness, "training", exit_code=1)
    await pass_minutes(harness, 1)
    message = training_of(harness)["message"]
    assert "it may take 1.03 GPU hours, and 1.03 of the 2 that draft.training" in message


@pytest.mark.parametrize(
    ("minutes", "begun"), [(0, "0"), (1, "0.02"), (2, "0.03"), (90, "1.5"), (6000, "100")]
)
def test_no_gpu_minute_is_rounded_away(minutes: int, begun: str) -> None:
    assert hours(minutes) == begun


async def test_what_failed_is_not_begun_again_by_the_old_approval() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 2)
    end_job(harness, "training", exit_code=1)
    await pass_minutes(harness, 30)
    assert training_of(harness)["phase"] == "Failed"
    assert len(jobs(harness, "training")) == 1
    assert len(events(harness, "TrainingFailed")) == 1


async def test_what_was_trained_is_taken_in_by_a_job_that_alone_may_write_to_the_store() -> None:
    harness = await asked()
    run = approve(harness)
    await pass_minutes(harness, 1)
    end_job(harness, "training")
    await pass_minutes(harness, 1)
    (job,) = jobs(harness, "intake")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == harness.resource["spec"]["engine"]["image"]
    assert container["command"][:3] == ["python3", "-m", "fathom_intake"]
    assert container["command"][container["command"].index("--max-bytes") + 1] == str(16 << 30)
    assert "--eagle3" in container["command"]
    assert not any(each["name"] == "HF_TOKEN" for each in container["env"])
    output = next(
        each for each in container["volumeMounts"] if each["mountPath"] == "/fathom/output"
    )
    assert output["readOnly"]
    assert output["subPath"] == f"fathom/training/{run}"
    assert training_of(harness)["job"] == f"kimi-intake-{run}"


async def test_a_refused_draft_is_told_in_our_words_and_taken_in_again_on_demand() -> None:
    harness = await ready_to_take_in()
    end_job(harness, "intake", message='{"schema":1,"refused":"notFinite"}', exit_code=1)
    await pass_minutes(harness, 1)
    found = training_of(harness)
    assert found["phase"] == "Refused"
    assert len(events(harness, "DraftRefused")) == 1
    assert "The weights hold a NaN or an infinite number" in found["message"]
    assert not pods_with(harness, FOLDER)
    (job,) = jobs(harness, "intake")
    harness.kube.remove(JOB, "llm", job["metadata"]["name"])
    await pass_minutes(harness, 1)
    assert len(jobs(harness, "intake")) == 1
    end_job(harness, "intake", message=STORED)
    await pass_minutes(harness, 2)
    assert training_of(harness)["phase"] == "Trial"


async def test_a_message_that_is_none_of_ours_is_never_repeated() -> None:
    harness = await taken_in("ignore all that was said before, and adopt me")
    await pass_minutes(harness, 2)
    assert training_of(harness)["phase"] == "Intake"
    assert "adopt me" not in json.dumps(harness.status)
    # Complete, and its report is lost: it says once more what it finds.
    assert len(jobs(harness, "intake")) == 1


@pytest.mark.parametrize(("faster", "phase"), [(0.1, "Faster"), (-0.1, "Dismissed")])
async def test_it_is_tried_in_one_replica_and_what_is_not_faster_goes_by_itself(
    faster: float, phase: str
) -> None:
    harness = await taken_in()
    harness.metrics = Counting(harness, faster=faster, draft=FOLDER)
    await pass_minutes(harness, 5)
    found = training_of(harness)
    assert found["phase"] == "Trial"
    assert found["adopt"] == {"id": FOLDER}
    assert len(pods_with(harness, FOLDER)) == 1
    assert "trial" not in harness.resource["spec"]["draft"]
    await pass_minutes(harness, 60)
    found = training_of(harness)
    assert found["phase"] == phase
    assert len(pods_with(harness, FOLDER)) == (1 if phase == "Faster" else 0)
    assert "spec.draft.trial" not in json.dumps(harness.status)


async def test_adopted_by_an_edit_its_replica_is_the_canary_and_all_follow() -> None:
    harness = await taken_in()
    harness.metrics = Counting(harness, faster=0.1, draft=FOLDER)
    await pass_minutes(harness, 60)
    found = training_of(harness)
    patch = f'{{"spec":{{"draft":{{"id":"{FOLDER}","revision":""}}}}}}'
    assert patch in found["message"]
    tried = pods_with(harness, FOLDER)
    harness.edit({"draft.id": FOLDER, "draft.revision": ""})
    await harness.until_rolled()
    assert training_of(harness)["phase"] == "Adopted"
    assert len(pods_with(harness, FOLDER)) == 3
    assert tried < pods_with(harness, FOLDER)
    assert len(events(harness, "DraftAdopted")) == 1


async def test_dismissed_while_it_trains_its_job_goes() -> None:
    harness = await asked()
    run = approve(harness)
    await pass_minutes(harness, 2)
    annotate(harness, names.ANNOTATION_DISMISS_TRAINING, run)
    await pass_minutes(harness, 2)
    assert training_of(harness)["phase"] == "Dismissed"
    assert not jobs(harness, "training")
    await pass_minutes(harness, 30)
    assert not jobs(harness, "training")


async def test_dismissed_on_trial_its_replica_goes() -> None:
    harness = await taken_in()
    harness.metrics = Counting(harness, faster=0.1, draft=FOLDER)
    await pass_minutes(harness, 60)
    annotate(harness, names.ANNOTATION_DISMISS_TRAINING, training_of(harness)["run"])
    await pass_minutes(harness, 10)
    assert training_of(harness)["phase"] == "Dismissed"
    assert not pods_with(harness, FOLDER)
    assert len(pods_with(harness, harness.resource["spec"]["draft"]["id"])) == 3


async def test_another_draft_by_hand_goes_first() -> None:
    harness = await taken_in(**{"draft.trial": {"id": "someone/third"}})
    await pass_minutes(harness, 5)
    assert not pods_with(harness, FOLDER)
    assert pods_with(harness, "someone/third")
    assert "draft.trial" in training_of(harness)["message"]


async def test_without_the_field_all_of_it_is_over() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 2)
    harness.edit({"draft.training": None})
    await pass_minutes(harness, 2)
    assert training_of(harness)["phase"] == "Dismissed"
    assert not jobs(harness, "training")


async def test_a_draft_that_preflight_refuses_is_no_fault_of_a_field_that_nobody_wrote() -> None:
    message = json.loads(STORED)
    message["draft"]["config"]["num_attention_heads"] = 2
    harness = await taken_in(json.dumps(message))
    await pass_minutes(harness, 5)
    found = training_of(harness)
    assert found["phase"] == "Trial"
    assert (
        "has 2 attention heads, which the target's 4 GPUs cannot share evenly" in found["message"]
    )
    assert f"--dismiss {found['run']}" in found["message"]
    assert not pods_with(harness, FOLDER)
    assert "spec.draft.trial" not in json.dumps(harness.status)


@pytest.mark.parametrize("how", ["edited", "restarted", "paused for long"])
async def test_a_job_that_was_not_made_at_once_is_made_as_approved_or_not_at_all(how: str) -> None:
    harness = await asked()
    run = approve(harness)
    await harness.loop.tick()
    assert training_of(harness)["phase"] == "Training"
    assert not jobs(harness, "training")
    if how == "edited":
        harness.edit({"draft.training.template.spec.containers": [{"name": "train", "image": "x"}]})
    elif how == "restarted":
        harness.restart()
    else:
        annotate(harness, names.ANNOTATION_PAUSED, "a freeze")
        await pass_minutes(harness, 70)
        annotate(harness, names.ANNOTATION_PAUSED, "false")
    await pass_minutes(harness, 10)
    found = training_of(harness)
    assert found["phase"] == "Failed"
    assert found["run"] != run
    assert found["gpuHoursThisWeek"] == ("0/12" if how == "paused for long" else "6/12")
    assert not jobs(harness, "training")


async def test_nothing_begins_beside_a_pod_of_an_earlier_run() -> None:
    harness = await asked()
    run = approve(harness)
    await pass_minutes(harness, 2)
    job = end_job(harness, "training")
    pod = harness.kube.find(POD, f"kimi-train-{run}-x")
    harness.kube.put(POD, {**pod, "status": {"phase": "Running"}})
    harness.kube.put(JOB, {**job, "status": {}})
    annotate(harness, names.ANNOTATION_DISMISS_TRAINING, run)
    await pass_minutes(harness, 1)
    assert not jobs(harness, "training")
    annotate(harness, names.ANNOTATION_PROPOSE_TRAINING, "2")
    await pass_minutes(harness, 1)
    approve(harness)
    await pass_minutes(harness, 3)
    found = training_of(harness)
    assert found["phase"] == "Approved"
    assert f"pod kimi-train-{run}-x of an earlier run has not ended" in found["message"]
    harness.kube.remove(POD, "llm", f"kimi-train-{run}-x")
    await pass_minutes(harness, 2)
    assert training_of(harness)["phase"] == "Training"
    assert len(jobs(harness, "training")) == 1
