"""Who takes part in a training besides the operator: a person, and the pods of two Jobs."""

import copy
import json
from typing import Any, Final

from fathom.api import names
from fathom.cluster.kinds import JOB, POD, SPECULATIVE_DEPLOYMENT
from support.loop_harness import LoopHarness

TEMPLATE: Final = {"spec": {"containers": [{"name": "train", "image": "example/trainer:1"}]}}
TRAINING: Final = {
    "gpus": 4,
    "deadlineMinutes": 90,
    "gpuHoursPerWeek": 12,
    "dataClaim": "logs",
    "template": TEMPLATE,
}
ALLOWED: Final = {"cache.claimName": "weights", "cache.prefetch": False, "draft.training": TRAINING}
"""A fleet in which drafts may be trained; its weights are there already."""
STORED: Final = json.dumps(
    {
        "schema": 1,
        "draft": {
            "folder": "3f9a1c0be2d74a51",
            "digest": "3f9a1c0be2d74a51",
            "bytes": 1 << 30,
            "files": 2,
            "leftBehind": 3,
            "config": {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 7168},
            "tensors": [["fc.weight", "BF16", [7168, 21504]]],
        },
    }
)
FOLDER: Final = "/cache/fathom/drafts/3f9a1c0be2d74a51"


def training_of(harness: LoopHarness) -> dict[str, Any]:
    found: dict[str, Any] = harness.status.get("training", {})
    return found


def annotate(harness: LoopHarness, name: str, value: str) -> None:
    """A person asks for something."""
    document = copy.deepcopy(harness.resource)
    document["metadata"].setdefault("annotations", {})[name] = value
    harness.kube.put(SPECULATIVE_DEPLOYMENT, document)
    harness.loop.wake()


def approve(harness: LoopHarness, run: str = "") -> str:
    """A person approves what the status names, or another run; the run."""
    run = run or training_of(harness)["run"]
    annotate(harness, names.ANNOTATION_APPROVE_TRAINING, run)
    return run


def jobs(harness: LoopHarness, component: str) -> list[dict[str, Any]]:
    """The Jobs that there are of one kind."""
    labelled = ((job["metadata"]["labels"], job) for job in harness.kube.all_of(JOB))
    return [job for labels, job in labelled if labels[names.LABEL_COMPONENT] == component]


def end_job(
    harness: LoopHarness, component: str, *, message: str = "", exit_code: int = 0
) -> dict[str, Any]:
    """The pod of the only such Job ends, and its controller says so."""
    (job,) = jobs(harness, component)
    template = job["spec"]["template"]
    container = template["spec"]["containers"][0]["name"]
    ended = {"terminated": {"exitCode": exit_code, "message": message}}
    harness.kube.put(
        POD,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{job['metadata']['name']}-x",
                "namespace": "llm",
                "labels": template["metadata"]["labels"],
                "ownerReferences": [{"uid": job["metadata"]["uid"], "kind": "Job"}],
            },
            "spec": template["spec"],
            "status": {
                "phase": "Failed" if exit_code else "Succeeded",
                "containerStatuses": [{"name": container, "state": ended}],
            },
        },
    )
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    complete = {"type": "Complete", "status": "True"}
    job["status"] = {"conditions": [failed if exit_code else complete]}
    harness.kube.put(JOB, job)
    harness.loop.wake()
    return job
