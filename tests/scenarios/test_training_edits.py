"""What becomes of a trained draft whose user edits the spec meanwhile."""

import json
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.kinds import CONFIG_MAP, JOB, Kind
from fathom.cluster.manifest import Manifest
from scenarios.test_arm import events, pass_minutes
from scenarios.test_draft_trial import NEW, TRIAL, Counting, pods_with
from scenarios.test_training import Alarmed, asked, ready, taken_in
from scenarios.test_weights import COMMIT, DRAFT_COMMIT, NEWER, RESULT, fetched, finish
from support.loop_harness import LoopHarness
from support.played_training import FOLDER, TRAINING, annotate, approve, end_job, jobs, training_of


async def faster(**changes: Any) -> LoopHarness:
    """One whose trained draft was found faster."""
    harness = await taken_in(**changes)
    harness.metrics = Counting(harness, faster=0.1, draft=FOLDER)
    await pass_minutes(harness, 30)
    assert training_of(harness)["phase"] == "Faster"
    return harness


async def refused() -> LoopHarness:
    """One whose Job the API server has not taken for 40 minutes."""
    harness = await asked()
    refusal = KubeError(403, "exceeded quota: gpu, requested: count/jobs.batch=1")
    harness.kube.fail = lambda verb, kind: refusal if (verb, kind) == ("create", JOB) else None
    approve(harness)
    await pass_minutes(harness, 40)
    return harness


async def declined() -> LoopHarness:
    """One whose alarm lasts, though a person has declined what it proposed."""
    harness = await ready()
    harness.decide = Alarmed(harness, Reason.ACCEPTANCE_BELOW_REFERENCE)
    await pass_minutes(harness, 2)
    annotate(harness, names.ANNOTATION_DISMISS_TRAINING, training_of(harness)["run"])
    await pass_minutes(harness, 5)
    assert training_of(harness)["phase"] == "Dismissed"
    return harness


def kept_training(harness: LoopHarness) -> dict[str, Any]:
    """The ConfigMap in which a training is kept."""
    maps = harness.kube.all_of(CONFIG_MAP)
    (found,) = (each for each in maps if "training.json" in each.get("data", {}))
    return found


async def test_dismissed_its_replica_goes_though_the_newest_spec_is_refused() -> None:
    harness = await faster()
    harness.edit({"speculation.tokens": 99999})
    await pass_minutes(harness, 5)
    assert pods_with(harness, FOLDER)
    assert training_of(harness)["phase"] == "Faster"
    annotate(harness, names.ANNOTATION_DISMISS_TRAINING, training_of(harness)["run"])
    await pass_minutes(harness, 10)
    assert training_of(harness)["phase"] == "Dismissed"
    assert not pods_with(harness, FOLDER)
    assert "draftTrial" not in harness.status
    assert "spec.draft.trial" not in json.dumps(harness.status)


async def test_a_draft_by_hand_stays_on_trial_while_the_newest_spec_is_refused() -> None:
    harness = await taken_in(**{"draft.trial": {"id": "someone/third"}})
    await pass_minutes(harness, 5)
    annotate(harness, names.ANNOTATION_DISMISS_TRAINING, training_of(harness)["run"])
    harness.edit({"speculation.tokens": 99999})
    await pass_minutes(harness, 5)
    assert training_of(harness)["phase"] == "Dismissed"
    assert pods_with(harness, "someone/third")


async def test_it_is_tried_once_another_trial_was_taken_back() -> None:
    harness = await taken_in(**{"draft.trial": {"id": "someone/third"}})
    harness.metrics = Counting(harness, faster=-0.1, draft="someone/third")
    await pass_minutes(harness, 30)
    assert harness.status["draftTrial"]["result"] == "Slower"
    harness.metrics = Counting(harness, faster=0.1, draft=FOLDER)
    harness.edit({"draft.trial": None})
    await pass_minutes(harness, 40)
    assert training_of(harness)["phase"] == "Faster"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"replicas": 0}, "set spec.replicas to 2 or more"),
        ({"speculation.drafting": "Canary"}, "speculation.drafting is compared first"),
        ({"engine.image": "vllm/vllm-openai:v0.31.0"}, "a rollout is under way"),
    ],
    ids=["no replicas", "another comparison", "another engine"],
)
async def test_that_it_was_faster_is_still_there_while_it_is_compared_again(
    edit: dict[str, Any], words: str
) -> None:
    harness = await faster()
    harness.edit(edit)
    await pass_minutes(harness, 1)
    found = training_of(harness)
    assert found["phase"] == "Faster"
    assert found["message"].startswith("Its replica was faster than the others; it is compared")
    assert words in found["message"]
    assert "spec.draft.trial" not in json.dumps(harness.status)


async def test_a_directory_is_adopted_whatever_revision_was_left_there() -> None:
    harness = await faster(**{"draft.revision": "a" * 40})
    harness.edit({"draft.id": FOLDER})
    await pass_minutes(harness, 1)
    assert training_of(harness)["phase"] == "Adopted"


async def test_what_was_adopted_and_taken_back_is_not_what_the_spec_names() -> None:
    harness = await faster()
    before = harness.resource["spec"]["draft"]["id"]
    harness.edit({"draft.id": FOLDER})
    await harness.until_rolled()
    assert training_of(harness)["message"] == f"The spec names draft {FOLDER}."
    harness.edit({"draft.id": before})
    await pass_minutes(harness, 1)
    found = training_of(harness)
    assert found["phase"] == "Adopted"
    assert found["message"] == f"The spec named draft {FOLDER}, and does not any more."


async def test_without_drafts_its_end_says_that_and_not_that_the_field_is_gone() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 2)
    harness.edit({"speculation.drafting": "Disabled"})
    await pass_minutes(harness, 2)
    assert not jobs(harness, "training")
    assert "speculation.drafting is Disabled" in training_of(harness)["message"]


async def test_the_trainer_gets_the_commit_of_the_draft_that_serves() -> None:
    harness = await fetched(**{"replicas": 3, "draft.training": TRAINING})
    harness.metrics = Counting(harness, faster=0.1, draft=NEW)
    harness.edit(TRIAL)
    await pass_minutes(harness, 2)
    finish(harness, RESULT.replace(DRAFT_COMMIT, NEWER))
    await pass_minutes(harness, 3)
    assert harness.status["draftTrial"]["state"] == "Comparing"
    annotate(harness, names.ANNOTATION_PROPOSE_TRAINING, "1")
    await harness.tick()
    approve(harness)
    await pass_minutes(harness, 2)
    (job,) = jobs(harness, "training")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["FATHOM_TARGET_COMMIT"] == COMMIT
    assert env["FATHOM_DRAFT_COMMIT"] == DRAFT_COMMIT


async def test_a_job_that_is_refused_is_tried_for_an_hour_and_it_says_where_to_read_why() -> None:
    harness = await refused()
    found = training_of(harness)
    assert found["phase"] == "Training"
    assert (
        "begins once the API server takes it; where that refuses, Degraded says why"
        in found["message"]
    )
    degraded = next(each for each in harness.status["conditions"] if each["type"] == "Degraded")
    assert "exceeded quota" in degraded["message"]
    harness.kube.fail = lambda _verb, _kind: None
    await pass_minutes(harness, 10)
    assert len(jobs(harness, "training")) == 1


async def test_paused_no_intake_begins_and_the_sentence_says_so() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 1)
    annotate(harness, names.ANNOTATION_PAUSED, "a freeze")
    end_job(harness, "training")
    await pass_minutes(harness, 2)
    found = training_of(harness)
    assert found["phase"] == "Intake"
    assert not jobs(harness, "intake")
    assert "is to be made: " in found["message"]
    assert "a freeze" in found["message"]


async def test_nothing_begins_while_another_draft_serves_than_the_spec_names() -> None:
    harness = await ready()
    harness.metrics = Counting(harness, faster=-0.4, draft=NEW)
    harness.edit({"draft.id": NEW})
    await pass_minutes(harness, 60)
    assert harness.status["rollout"]["stage"] == "RolledBack"
    annotate(harness, names.ANNOTATION_PROPOSE_TRAINING, "1")
    await pass_minutes(harness, 1)
    approve(harness)
    await pass_minutes(harness, 2)
    found = training_of(harness)
    assert found["phase"] == "Approved"
    assert "was rolled back: see Degraded" in found["message"]
    assert not jobs(harness, "training")
    assert found["gpuHoursThisWeek"] == "0/12"


async def test_a_job_that_could_not_be_made_has_taken_no_gpu_hours() -> None:
    harness = await refused()
    assert training_of(harness)["gpuHoursThisWeek"] == "6/12"
    await pass_minutes(harness, 30)
    found = training_of(harness)
    assert found["phase"] == "Failed"
    assert "its Job could not be made within an hour" in found["message"]
    assert found["gpuHoursThisWeek"] == "0/12"


async def test_a_training_ends_with_the_model_that_it_was_approved_for() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 2)
    assert jobs(harness, "training")
    harness.edit({"model.revision": "c" * 40})
    await pass_minutes(harness, 2)
    assert training_of(harness)["phase"] == "Training"
    harness.edit({"model.id": "someone/model"})
    await pass_minutes(harness, 2)
    found = training_of(harness)
    assert found["phase"] == "Dismissed"
    assert found["message"] == "It is over: the spec names another model by now."
    assert not jobs(harness, "training")
    await harness.until_rolled()
    harness.decide = Alarmed(harness, Reason.ACCEPTANCE_BELOW_REFERENCE)
    await pass_minutes(harness, 2)
    assert training_of(harness)["phase"] == "Proposed"


@pytest.mark.parametrize("edit", [{"model.id": "someone/typo"}, {"draft.id": "someone/typo"}])
async def test_a_typo_that_is_corrected_at_once_ends_no_training(edit: dict[str, Any]) -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 2)
    (field,) = edit
    part, name = field.split(".")
    before = harness.resource["spec"][part][name]
    harness.edit(edit)
    await harness.tick()
    harness.clock.at_s += 5
    await harness.tick()
    assert training_of(harness)["phase"] == "Training"
    harness.edit({field: before})
    await pass_minutes(harness, 2)
    assert training_of(harness)["phase"] == "Training"
    assert len(jobs(harness, "training")) == 1


async def test_an_alarm_about_the_model_that_serves_asks_nothing_for_the_one_on_trial() -> None:
    harness = await declined()
    harness.edit({"model.id": "someone/model"})
    stages = []
    while "Complete" not in stages:
        assert training_of(harness)["phase"] == "Dismissed"
        await pass_minutes(harness, 1)
        stages.append(harness.status.get("rollout", {}).get("stage"))
    assert "Canary" in stages


async def test_a_record_that_knows_no_model_asks_no_sooner_and_learns_it() -> None:
    harness = await declined()
    kept = kept_training(harness)
    record = json.loads(kept["data"]["training.json"])
    assert record.pop("target")
    kept["data"]["training.json"] = json.dumps(record)
    harness.kube.put(CONFIG_MAP, kept)
    harness.restart()
    harness.decide = Alarmed(harness, Reason.ACCEPTANCE_BELOW_REFERENCE)
    await pass_minutes(harness, 5)
    assert training_of(harness)["phase"] == "Dismissed"


async def test_a_job_that_may_have_been_made_is_not_made_again_and_counts() -> None:
    harness = await asked()
    create = harness.kube.create

    async def unanswered(kind: Kind, manifest: Manifest) -> Manifest:
        found = await create(kind, manifest)
        if kind == JOB:
            raise KubeError(504, "the request timed out")
        return found

    harness.kube.create = unanswered  # type: ignore[method-assign]
    approve(harness)
    await harness.tick()
    await harness.tick()
    harness.kube.create = create  # type: ignore[method-assign]
    (made,) = jobs(harness, "training")
    harness.kube.remove(JOB, "llm", made["metadata"]["name"])
    await pass_minutes(harness, 10)
    found = training_of(harness)
    assert found["phase"] == "Failed"
    assert "the API server did not answer" in found["message"]
    assert found["gpuHoursThisWeek"] == "6/12"
    assert not jobs(harness, "training")


async def test_a_second_run_is_told_without_the_job_of_the_first() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 2)
    end_job(harness, "training", exit_code=1)
    (job,) = jobs(harness, "training")
    job["status"]["startTime"] = "2020-12-01T10:00:00Z"
    harness.kube.put(JOB, job)
    await pass_minutes(harness, 1)
    approve(harness)
    await pass_minutes(harness, 2)
    started = [str(each) for each in events(harness, "TrainingStarted")]
    assert len(started) == 2
    assert all("is to be made: it begins now" in each for each in started)


async def test_a_training_is_shown_while_no_spec_can_be_carried_out() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 2)
    kept = kept_training(harness)
    kept["data"] = {key: value for key, value in kept["data"].items() if "pec" not in key}
    harness.kube.put(CONFIG_MAP, kept)
    harness.restart()
    harness.edit({"speculation.tokens": 99999})
    await pass_minutes(harness, 2)
    assert training_of(harness)["phase"] == "Training"
    assert jobs(harness, "training")


async def test_it_says_when_the_job_is_ended_by_when_that_began() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 2)
    assert "It is ended" not in training_of(harness)["message"]
    (job,) = jobs(harness, "training")
    job["status"] = {"startTime": "2026-12-01T10:00:00Z"}
    harness.kube.put(JOB, job)
    await pass_minutes(harness, 1)
    assert "It is ended at 2026-12-01T11:30:00Z." in training_of(harness)["message"]


async def test_it_says_when_the_job_is_ended_by_what_the_job_was_made_from() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 2)
    (job,) = jobs(harness, "training")
    job["status"] = {"startTime": "2026-12-01T10:00:00Z"}
    harness.kube.put(JOB, job)
    harness.edit({"draft.training.deadlineMinutes": 30})
    await pass_minutes(harness, 1)
    assert "It is ended at 2026-12-01T11:30:00Z." in training_of(harness)["message"]


async def test_an_edit_that_is_taken_back_brings_no_approval_back() -> None:
    harness = await asked(**{"rollout.paused": True})
    approved = approve(harness)
    await pass_minutes(harness, 1)
    assert training_of(harness)["phase"] == "Approved"
    harness.edit({"draft.training.deadlineMinutes": 30})
    await pass_minutes(harness, 60)
    harness.edit({"draft.training.deadlineMinutes": 90, "rollout.paused": False})
    await pass_minutes(harness, 5)
    found = training_of(harness)
    assert found["phase"] == "Proposed"
    assert found["run"] != approved
    assert not jobs(harness, "training")


async def test_an_intake_that_the_api_server_refuses_says_where_to_read_why() -> None:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 1)
    refusal = KubeError(403, "exceeded quota: jobs, requested: count/jobs.batch=1")
    harness.kube.fail = lambda verb, kind: refusal if (verb, kind) == ("create", JOB) else None
    end_job(harness, "training")
    await harness.tick()
    assert "is to be made: it begins now." in training_of(harness)["message"]
    await pass_minutes(harness, 5)
    found = training_of(harness)
    assert found["phase"] == "Intake"
    assert (
        "begins once the API server takes it; where that refuses, Degraded says why."
        in found["message"]
    )
    degraded = next(each for each in harness.status["conditions"] if each["type"] == "Degraded")
    assert "exceeded quota" in degraded["message"]


async def test_a_second_wish_asks_for_nothing_once_the_first_is_dismissed() -> None:
    harness = await asked()
    annotate(harness, names.ANNOTATION_PROPOSE_TRAINING, "2")
    await harness.tick()
    annotate(harness, names.ANNOTATION_DISMISS_TRAINING, training_of(harness)["run"])
    await pass_minutes(harness, 5)
    assert training_of(harness)["phase"] == "Dismissed"


async def test_a_wish_beside_the_proposal_of_an_alarm_asks_for_nothing_after_it_is_adopted() -> (
    None
):
    harness = await faster()
    annotate(harness, names.ANNOTATION_PROPOSE_TRAINING, "2")
    await pass_minutes(harness, 1)
    harness.edit({"draft.id": FOLDER})
    await harness.until_rolled()
    await pass_minutes(harness, 5)
    assert training_of(harness)["phase"] == "Adopted"


async def test_dismissed_and_wished_for_in_one_edit_another_is_proposed() -> None:
    harness = await asked()
    run = training_of(harness)["run"]
    annotate(harness, names.ANNOTATION_DISMISS_TRAINING, run)
    annotate(harness, names.ANNOTATION_PROPOSE_TRAINING, "2")
    await pass_minutes(harness, 2)
    found = training_of(harness)
    assert found["phase"] == "Proposed"
    assert found["run"] != run


async def test_what_became_of_the_last_one_stays_without_the_field() -> None:
    harness = await asked()
    harness.edit({"draft.training": None})
    await pass_minutes(harness, 30)
    assert training_of(harness)["phase"] == "Dismissed"
