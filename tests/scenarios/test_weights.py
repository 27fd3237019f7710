"""Weights are fetched before pods start; pods load what was fetched, and no pod that runs moves."""

import json
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import (
    COMPUTE_DOMAIN,
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    LEADER_WORKER_SET,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE,
    ServedApis,
)
from support.loop_harness import LoopHarness

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DRAFT_COMMIT = "fedcba9876543210fedcba9876543210fedcba98"
NEWER = "1111111111111111111111111111111111111111"
GIB = 1 << 30
RESULT = json.dumps(
    {
        "model": {"commit": COMMIT, "bytes": 554 * GIB},
        "draft": {"commit": DRAFT_COMMIT, "bytes": 2 * GIB},
    }
)


def cached(**changes: Any) -> LoopHarness:
    return LoopHarness({"cache.claimName": "weights", "replicas": 2, **changes})


def job_of(harness: LoopHarness) -> dict[str, Any]:
    (job,) = harness.kube.all_of(JOB)
    return job


def play_job(
    harness: LoopHarness, container: dict[str, Any], phase: str = "Running", *beside: dict[str, Any]
) -> str:
    """Give the Job its pod, in this state, with what an injector put beside."""
    job = job_of(harness)
    name = f"{job['metadata']['name']}-x"
    running = "running" in container.get("state", {})
    template = job["spec"]["template"]
    harness.kube.put(
        POD,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "llm",
                "labels": template["metadata"]["labels"],
                "ownerReferences": [{"uid": job["metadata"]["uid"], "kind": "Job"}],
            },
            "spec": template["spec"],
            "status": {
                "phase": phase,
                "podIP": "10.0.0.9",
                "conditions": [{"type": "Ready", "status": str(running)}],
                "containerStatuses": [*beside, {"name": "fetch", **container}],
            },
        },
    )
    return name


def play_progress(harness: LoopHarness, present_gib: int, total_gib: int = 556) -> str:
    harness.fetches.shown = (present_gib * GIB, total_gib * GIB)
    return play_job(harness, {"state": {"running": {}}})


def finish(harness: LoopHarness, result: str = RESULT, status: str = "Complete") -> None:
    ended = {"state": {"terminated": {"exitCode": 0, "message": result}}}
    play_job(harness, ended, phase="Succeeded")
    job = job_of(harness)
    job["status"] = {"conditions": [{"type": status, "status": "True"}]}
    harness.kube.put(JOB, job)


async def fetched(**changes: Any) -> LoopHarness:
    """Two replicas that serve what was fetched, at rest."""
    harness = cached(**changes)
    await harness.tick()
    finish(harness)
    await harness.until_ready()
    harness.kube.writes.clear()
    harness.fetches.asked.clear()
    return harness


def serving(harness: LoopHarness) -> dict[str, Any]:
    (deployment,) = harness.kube.all_of(DEPLOYMENT)
    return deployment


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


def env(deployment: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value") for each in container(deployment)["env"]}


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


async def test_no_pod_starts_before_the_weights_are_there() -> None:
    harness = cached()
    await harness.tick()
    assert harness.kube.all_of(DEPLOYMENT) == []
    job = job_of(harness)["spec"]["template"]["spec"]
    assert "nvidia.com/gpu" not in json.dumps(job["containers"])
    play_progress(harness, 412)
    await harness.run_for(60)
    assert harness.kube.all_of(DEPLOYMENT) == []
    finish(harness)
    await harness.until_ready()
    assert harness.status["ready"] == "2/2"


async def test_pods_load_the_commits_that_were_fetched_under_their_own_name_and_offline() -> None:
    harness = await fetched()
    args = container(serving(harness))["args"]
    assert after(args, "--revision") == COMMIT
    assert after(args, "--served-model-name") == "nvidia/Kimi-K2.6-NVFP4"
    assert json.loads(after(args, "--speculative-config"))["revision"] == DRAFT_COMMIT
    assert env(serving(harness))["HF_HUB_OFFLINE"] == "1"
    assert harness.status["weights"] == {
        "summary": "556 GiB fetched",
        "percent": 100,
        "models": [
            {"id": "nvidia/Kimi-K2.6-NVFP4", "commit": COMMIT},
            {"id": "lightseekorg/kimi-k2.6-eagle3.1-mla", "commit": DRAFT_COMMIT},
        ],
    }


async def test_progress_is_told_with_rate_and_time_left() -> None:
    harness = cached()
    await harness.tick()
    for present_gib in (400, 406, 412):
        play_progress(harness, present_gib)
        assert await harness.tick() == 5.0
        harness.clock.at_s += 5
    said = "412 GiB of 556 GiB, 1.2 GiB/s, 2 min left"
    assert harness.status["weights"] == {"summary": said, "percent": 74, "models": []}
    progressing = harness.condition("Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "FetchingWeights")
    assert progressing["message"].startswith(
        f"pods wait until the weights are in claim weights: {said}."
    )


async def test_the_status_is_written_when_the_percentage_moves_and_not_at_every_look() -> None:
    harness = cached()
    await harness.tick()
    play_progress(harness, 100, 100_000)
    await harness.tick()
    harness.kube.writes.clear()
    for present_gib in (110, 120, 130):
        harness.fetches.shown = (present_gib * GIB, 100_000 * GIB)
        harness.clock.at_s += 5
        await harness.loop.tick()
    assert harness.kube.written("SpeculativeDeployment") == []


async def test_at_rest_nobody_is_asked_and_nothing_is_written() -> None:
    harness = await fetched()
    await harness.run_for(600)
    assert harness.fetches.asked == []
    assert harness.kube.news == []


async def test_what_was_fetched_is_told_once() -> None:
    harness = cached()
    await harness.tick()
    finish(harness)
    await harness.until_ready()
    (event,) = [e for e in harness.kube.written("Event") if e.body["reason"] == "WeightsFetched"]
    assert event.body["message"] == (
        f"In claim weights: nvidia/Kimi-K2.6-NVFP4 at {COMMIT}, "
        f"lightseekorg/kimi-k2.6-eagle3.1-mla at {DRAFT_COMMIT}, 556 GiB."
    )


async def test_a_failed_attempt_says_why_and_that_it_is_tried_again() -> None:
    harness = cached()
    await harness.tick()
    said = "org/x cannot be fetched: it is gated."
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    ended = {"terminated": {"exitCode": 1, "message": said}}
    play_job(harness, {"state": waiting, "lastState": ended, "restartCount": 3})
    await harness.tick()
    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "WeightsNotFetched")
    assert degraded["message"] == f"{said} It is tried again."

    play_job(harness, {"state": {"running": {}}, "lastState": ended, "restartCount": 4})
    await harness.tick()
    assert harness.condition("Degraded")["reason"] == "WeightsNotFetched"
    harness.fetches.shown = (GIB, 2 * GIB)
    await harness.tick()
    assert harness.condition("Degraded")["status"] == "False"


async def test_a_sidecar_that_failed_once_is_no_failed_attempt() -> None:
    harness = cached()
    await harness.tick()
    running = {"name": "fetch", "state": {"running": {}}, "ready": True}
    ended = {"terminated": {"exitCode": 1, "message": "no certificate yet"}}
    proxy = {"name": "a-proxy", "state": {"running": {}}, "lastState": ended, "restartCount": 1}
    harness.set_ready(play_job(harness, running), containerStatuses=[proxy, running])
    await harness.tick()
    assert harness.condition("Degraded")["status"] == "False", harness.condition("Degraded")[
        "message"
    ]


async def test_a_job_that_was_given_up_says_how_to_go_on() -> None:
    harness = cached()
    await harness.tick()
    job = job_of(harness)
    failed = {"type": "Failed", "status": "True", "message": "it reached its backoff limit"}
    job["status"] = {"conditions": [failed]}
    harness.kube.put(JOB, job)
    await harness.tick()
    name = job["metadata"]["name"]
    assert harness.condition("Degraded")["message"] == (
        f"Job {name} was given up: it reached its backoff limit. Delete it to have it started "
        "again."
    )
    harness.kube.remove(JOB, "llm", name)
    await harness.tick()
    assert "status" not in job_of(harness)


async def test_a_pod_that_cannot_start_is_told_as_such() -> None:
    harness = cached()
    await harness.tick()
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    play_job(harness, {"image": "vllm", "state": waiting}, phase="Pending")
    await harness.tick()
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "ImageUnavailable"
    assert degraded["message"].startswith("the weights are not fetched: container fetch of pod ")


QUOTA = 'Error creating: pods "kimi-fetch-x" is forbidden: failed quota: must specify limits.cpu'


def refuse(harness: LoopHarness, at_s: float) -> None:
    harness.refuse_pod("Job", job_of(harness)["metadata"]["name"], QUOTA, at_s)


async def test_a_pod_that_the_cluster_refuses_is_told_in_its_words_until_it_comes() -> None:
    harness = cached()
    await harness.tick()
    refuse(harness, harness.clock.at_s)
    await harness.tick()
    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ChildRefused")
    assert degraded["message"] == (
        "the weights are not fetched: the cluster refuses pods of Job "
        f"{job_of(harness)['metadata']['name']}: {QUOTA}."
    )
    play_progress(harness, 1)
    await harness.tick()
    assert harness.condition("Degraded")["status"] == "False"


async def test_a_pod_that_is_refused_after_one_that_was_evicted_is_told_as_refused() -> None:
    harness = cached()
    await harness.tick()
    ended = {"state": {"terminated": {"exitCode": 137, "reason": "Evicted"}}}
    play_job(harness, ended, phase="Failed")
    await harness.tick()
    assert harness.condition("Degraded")["reason"] == "WeightsNotFetched"
    refuse(harness, harness.clock.at_s)
    await harness.tick()
    assert harness.condition("Degraded")["reason"] == "ChildRefused"


async def test_a_fetch_that_fails_hides_no_pod_that_does_not_serve() -> None:
    harness = cached()
    await harness.tick()
    play_job(harness, {"state": {"terminated": {"exitCode": 0, "message": RESULT}}}, "Succeeded")
    await harness.until_ready()
    harness.edit({"draft.id": "acme/other-draft"})
    await harness.run_for(60)
    ended = {"terminated": {"exitCode": 1, "message": "acme/other-draft is gated."}}
    play_job(harness, {"state": ended}, "Failed")
    waits = {"name": "vllm", "state": {"waiting": {"reason": "ErrImagePull", "message": "gone"}}}
    serving = min(each for each in harness.kube.names(POD) if "fetch" not in each)
    harness.set_ready(serving, ready=False, containerStatuses=[waits])
    await harness.tick()
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "WeightsNotFetched"
    assert "acme/other-draft is gated." in degraded["message"]
    assert f"pod {serving} cannot get" in degraded["message"]


async def test_nor_does_what_the_api_server_refuses_hide_the_fetch() -> None:
    harness = cached()
    await harness.tick()
    ended = {"terminated": {"exitCode": 1, "message": "acme/draft is gated."}}
    play_job(harness, {"state": ended}, "Failed")
    harness.kube.remove(SERVICE, "llm", "kimi")
    harness.kube.fail = lambda verb, kind: (
        KubeError(403, "denied") if kind is SERVICE and verb in {"create", "apply"} else None
    )
    await harness.run_for(120)
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "ChildRefused"
    assert "Service kimi could not be written: denied" in degraded["message"]
    assert "And acme/draft is gated." in degraded["message"]
    assert harness.condition("Progressing")["message"].endswith("in claim weights: see Degraded.")


PROXY = {"name": "a-proxy", "state": {"running": {}}, "ready": True}
"""What an injector put beside: it never ends, so that the Job is never complete."""


async def test_what_was_fetched_counts_though_a_sidecar_goes_on_and_then_its_job_goes() -> None:
    harness = cached()
    await harness.tick()
    play_job(
        harness, {"state": {"terminated": {"exitCode": 0, "message": RESULT}}}, "Running", PROXY
    )
    await harness.until_ready()
    assert after(container(serving(harness))["args"], "--revision") == COMMIT
    assert harness.status["weights"]["summary"] == "556 GiB fetched"
    verbs = [each.verb for each in harness.kube.written("Job")]
    assert verbs == ["create", "delete"]
    harness.restart()
    await harness.run_for(60)
    assert harness.kube.all_of(JOB) == []
    assert harness.status["weights"]["models"][0]["commit"] == COMMIT


async def test_a_job_goes_only_once_it_is_kept_what_it_has_fetched() -> None:
    harness = cached()
    await harness.tick()
    play_job(
        harness, {"state": {"terminated": {"exitCode": 0, "message": RESULT}}}, "Running", PROXY
    )
    await harness.tick()
    assert COMMIT in json.dumps(harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"])
    assert len(harness.kube.all_of(JOB)) == 1


async def test_a_job_whose_pod_has_just_ended_is_left_to_complete() -> None:
    harness = cached()
    await harness.tick()
    play_job(harness, {"state": {"terminated": {"exitCode": 0, "message": RESULT}}}, "Succeeded")
    for _ in range(3):
        await harness.tick()
    assert harness.status["weights"]["summary"] == "556 GiB fetched"
    assert len(harness.kube.all_of(JOB)) == 1


async def test_a_fetch_that_ended_without_a_word_beside_a_sidecar_is_told() -> None:
    harness = cached()
    await harness.tick()
    play_job(harness, {"state": {"terminated": {"exitCode": 0}}}, "Running", PROXY)
    await harness.tick()
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "WeightsNotFetched"
    assert "it left no message that says what it fetched" in degraded["message"]


async def test_what_a_sidecar_says_is_no_result() -> None:
    harness = cached()
    await harness.tick()
    ended = {"name": "a-job", "state": {"terminated": {"exitCode": 0, "message": RESULT}}}
    play_job(harness, {"state": {"running": {}}}, "Running", ended)
    await harness.run_for(60)
    assert harness.kube.all_of(DEPLOYMENT) == []
    assert harness.condition("Progressing")["reason"] == "FetchingWeights"


async def test_another_draft_is_fetched_while_the_old_one_serves_and_then_rolled_out() -> None:
    harness = await fetched()
    before = serving(harness)
    harness.edit({"draft.id": "org/better", "rollout": {"canaryMinutes": 0}})
    await harness.run_for(300)
    assert [each["metadata"]["name"] for each in harness.kube.all_of(DEPLOYMENT)] == [
        before["metadata"]["name"]
    ]
    assert serving(harness)["spec"] == before["spec"]
    assert harness.status["ready"] == "2/2"
    assert harness.condition("Progressing")["reason"] == "FetchingWeights"
    assert harness.status["rollout"]["message"] == "begins when its weights are fetched."
    assert (
        "draft" in harness.status["rollout"]["why"]
        or "org/better" in harness.status["rollout"]["why"]
    )
    finish(harness, RESULT.replace(DRAFT_COMMIT, NEWER))
    await harness.until_rolled()
    config = json.loads(after(container(serving(harness))["args"], "--speculative-config"))
    assert (config["model"], config["revision"]) == ("org/better", NEWER)


async def test_another_engine_setting_fetches_nothing_and_keeps_the_commits() -> None:
    harness = await fetched()
    harness.edit({"engine.args": ["--seed", "1"], "rollout": {"canaryMinutes": 0}})
    await harness.until_rolled()
    assert [write for write in harness.kube.written("Job") if write.verb == "apply"] == []
    assert after(container(serving(harness))["args"], "--revision") == COMMIT
    events = [e.body["message"] for e in harness.kube.written("Event")]
    assert not any("--revision" in message for message in events)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model.revision": "v2"}, f"--revision {COMMIT} became v2"),
        ({"draft.revision": "v2"}, f"revision {DRAFT_COMMIT} became v2"),
        ({"draft.id": "org/better"}, "model lightseekorg/kimi-k2.6-eagle3.1-mla became org/better"),
    ],
)
async def test_why_new_pods_are_needed_is_told_before_their_commits_are_known(
    changes: dict[str, Any], said: str
) -> None:
    harness = await fetched()
    harness.edit(changes)
    await harness.tick()
    assert harness.status["rollout"]["why"].endswith(said)


async def test_leader_and_workers_of_a_group_wait_and_load_the_same() -> None:
    kinds = ((kind.api_version, kind.kind) for kind in (LEADER_WORKER_SET, COMPUTE_DOMAIN))
    changes = {"cache.claimName": "weights", "engine.tensorParallelSize": 8}
    harness = LoopHarness(changes, served=ServedApis(kinds=frozenset(kinds)))
    await harness.run_for(30)
    assert harness.kube.all_of(LEADER_WORKER_SET) == []
    finish(harness)
    await harness.tick()
    (group,) = harness.kube.all_of(LEADER_WORKER_SET)
    templates = group["spec"]["leaderWorkerTemplate"]
    for role in ("leaderTemplate", "workerTemplate"):
        (engine,) = templates[role]["spec"]["containers"]
        assert {"name": "HF_HUB_OFFLINE", "value": "1"} in engine["env"]
        assert COMMIT in " ".join([*engine["command"], *engine["args"]])
    assert COMMIT in group["metadata"]["annotations"]["fathom.dev/weights"]


async def test_a_spec_that_goes_back_waits_for_nothing() -> None:
    harness = await fetched()
    harness.edit({"draft.id": "org/better"})
    await harness.run_for(60)
    harness.edit({"draft.id": "lightseekorg/kimi-k2.6-eagle3.1-mla"})
    await harness.until_ready()
    assert harness.condition("Progressing")["reason"] == "UpToDate"
    assert harness.kube.all_of(JOB) == []
    assert after(container(serving(harness))["args"], "--revision") == COMMIT


async def test_pods_without_a_fetch_are_left_as_they_are() -> None:
    """As after an upgrade from a Fathom that fetched nothing."""
    harness = await fetched()
    deployment = serving(harness)
    del deployment["metadata"]["annotations"]["fathom.dev/weights"]
    harness.kube.put(DEPLOYMENT, deployment)
    kept = harness.kube.find(CONFIG_MAP, "kimi-tuning")
    del kept["data"]["weights.json"]
    harness.kube.put(CONFIG_MAP, kept)
    for name in [job["metadata"]["name"] for job in harness.kube.all_of(JOB)]:
        harness.kube.remove(JOB, "llm", name)
    harness.restart()
    harness.edit({"replicas": 3})
    await harness.until_ready()
    assert harness.kube.all_of(JOB) == []
    assert serving(harness)["spec"]["template"] == deployment["spec"]["template"]
    assert harness.status["ready"] == "3/3"
    assert "weights" not in harness.status


async def test_the_commits_survive_the_loss_of_what_was_kept() -> None:
    harness = await fetched()
    template = serving(harness)["spec"]["template"]
    harness.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    harness.kube.remove(JOB, "llm", job_of(harness)["metadata"]["name"])
    harness.restart()
    await harness.until_ready()
    assert serving(harness)["spec"]["template"] == template
    assert harness.status["weights"]["models"][0]["commit"] == COMMIT
    assert harness.kube.all_of(JOB) == []


async def test_a_job_that_ended_without_a_word_is_not_run_over_and_over() -> None:
    harness = cached()
    await harness.tick()
    finish(harness, result="done")
    harness.kube.writes.clear()
    await harness.run_for(600)
    assert harness.kube.written("Job") == []
    assert harness.kube.all_of(DEPLOYMENT) == []
    said = harness.condition("Degraded")["message"]
    assert said.endswith(
        "was given up: it left no message that says what it fetched. Delete it to have it started "
        "again."
    )


async def test_a_job_whose_result_is_lost_is_asked_again() -> None:
    harness = cached()
    await harness.tick()
    first = job_of(harness)
    finish(harness, result="")
    harness.kube.remove(POD, "llm", f"{first['metadata']['name']}-x")
    await harness.tick()
    assert harness.kube.all_of(JOB) == []
    await harness.tick()
    assert job_of(harness)["metadata"]["uid"] != first["metadata"]["uid"]
    assert harness.kube.all_of(DEPLOYMENT) == []


async def test_a_restarted_operator_goes_on_where_it_was() -> None:
    harness = cached()
    await harness.tick()
    play_progress(harness, 100)
    await harness.tick()
    harness.restart()
    await harness.run_for(60)
    assert len(harness.kube.all_of(JOB)) == 1
    finish(harness)
    harness.restart()
    await harness.until_ready()
    assert after(container(serving(harness))["args"], "--revision") == COMMIT


async def test_a_job_and_its_program_go_with_the_wish_for_them() -> None:
    harness = await fetched()
    (program,) = [
        each
        for each in harness.kube.all_of(CONFIG_MAP)
        if each["metadata"]["labels"].get("fathom.dev/component") == "fetch"
    ]
    harness.edit({"cache.prefetch": False, "rollout": {"canaryMinutes": 0}})
    await harness.until_rolled()
    assert harness.kube.all_of(JOB) == []
    assert program["metadata"]["name"] not in harness.kube.names(CONFIG_MAP)
    assert "--revision" not in container(serving(harness))["args"]
    assert "HF_HUB_OFFLINE" not in env(serving(harness))


async def test_the_claim_is_made_once_belongs_to_nobody_and_grows_without_new_pods() -> None:
    harness = LoopHarness({"cache.size": "800Gi", "cache.prefetch": False})
    await harness.until_ready()
    (claim,) = harness.kube.all_of(PERSISTENT_VOLUME_CLAIM)
    assert claim["metadata"]["name"] == "kimi-cache"
    assert "ownerReferences" not in claim["metadata"]
    # As the API server writes it.
    claim["spec"]["resources"]["requests"]["storage"] = "0.78125Ti"
    harness.kube.put(PERSISTENT_VOLUME_CLAIM, claim)
    before = serving(harness)
    harness.kube.writes.clear()
    await harness.run_for(300)
    assert harness.kube.writes == []
    harness.edit({"cache.size": "900Gi"})
    await harness.until_ready()
    (claim,) = harness.kube.all_of(PERSISTENT_VOLUME_CLAIM)
    assert claim["spec"]["resources"]["requests"]["storage"] == "900Gi"
    assert serving(harness) == before
    harness.edit({"cache": {}, "rollout": {"canaryMinutes": 0}})
    await harness.until_rolled()
    assert len(harness.kube.all_of(PERSISTENT_VOLUME_CLAIM)) == 1


async def test_a_replica_that_is_compared_without_drafts_loads_the_commit_of_the_others() -> None:
    harness = await fetched(replicas=3)
    harness.edit({"speculation.drafting": "Canary"})
    for _ in range(60):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()
        if len(harness.kube.all_of(DEPLOYMENT)) > 1:
            break
    found = [container(each)["args"] for each in harness.kube.all_of(DEPLOYMENT)]
    without = [args for args in found if "--speculative-config" not in args]
    assert len(found) == 2
    assert [after(args, "--revision") for args in without] == [COMMIT]
    assert len(harness.kube.all_of(JOB)) == 1
