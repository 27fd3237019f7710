"""A draft is trained by a Job of a real cluster, taken in by another, tried and adopted."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from fathom.api import names
from local_cluster.kube import Object
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, operator, resource
from support.pages import REPOSITORY
from support.waiting import until

__all__ = ["operator", "resource"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

TRAINER: Final = """
import json, os
from pathlib import Path
from support.trained_drafts import Output

json.loads(Path(os.environ["FATHOM_EVIDENCE"]).read_text())["run"]
assert not os.access("/cache", os.W_OK)
output = Output(Path(os.environ["FATHOM_OUTPUT"])).write()
output.leave_what_trainers_leave(Path("/tmp/marker"))
"""
TRAINING: Final[Mapping[str, Any]] = {
    "gpus": 0,
    "deadlineMinutes": 5,
    "gpuHoursPerWeek": 0,
    "template": {
        "spec": {
            "containers": [
                {
                    "name": "train",
                    "image": SPEC["engine"]["image"],
                    "command": ["python", "-c", TRAINER],
                    "env": [{"name": "PYTHONPATH", "value": str(REPOSITORY / "tests")}],
                }
            ]
        }
    },
}
FLEET: Final[Mapping[str, Any]] = {
    **SPEC,
    "draft": {"id": "draft", "training": TRAINING},
    "cache": {"size": "1Gi", "prefetch": False},
    "rollout": {"canaryMinutes": 20},
}


async def training_at(resource: Resource, phase: str) -> Object:
    """What the status says of the training, once it is at this phase."""

    async def look() -> Object | None:
        found: Object = (await resource.get()).get("status", {}).get("training", {})
        assert found.get("phase") == phase or found.get("phase") not in {"Failed", "Refused"}, found
        return found if found.get("phase") == phase else None

    return await until(look, f"the training is at {phase}")


async def test_it_is_trained_taken_in_tried_and_adopted(
    namespace: TestNamespace, resource: Resource
) -> None:
    await resource.apply(FLEET)
    await resource.wait("Ready", "True")
    await resource.annotate({names.ANNOTATION_PROPOSE_TRAINING: "1"})
    proposed = await training_at(resource, "Proposed")
    assert await namespace.all_of("Job") == []

    await resource.annotate({names.ANNOTATION_APPROVE_TRAINING: proposed["run"]})
    tried = await training_at(resource, "Trial")
    draft = tried["adopt"]["id"]
    assert draft.startswith("/cache/fathom/drafts/")

    async def one_has_it() -> list[Object] | None:
        pods = [pod for pod in await namespace.all_of("Pod") if draft in json.dumps(pod["spec"])]
        serving = [pod for pod in pods if names.LABEL_ROLE in pod["metadata"]["labels"]]
        return serving or None

    assert len(await until(one_has_it, "a replica has the trained draft")) == 1
    assert "trial" not in (await resource.get())["spec"]["draft"]
    kinds = sorted(
        job["metadata"]["labels"][names.LABEL_COMPONENT] for job in await namespace.all_of("Job")
    )
    assert kinds == ["intake", "training"]

    await resource.edit({"draft": {"id": draft}, "rollout": {"canaryMinutes": 0}})
    await training_at(resource, "Adopted")
    await resource.wait("Progressing", "False", "UpToDate")
    await resource.wait("Degraded", "False")
    events = [event["reason"] for event in await namespace.all_of("Event")]
    assert {"TrainingProposed", "TrainingStarted", "DraftTakenIn", "DraftAdopted"} <= set(events)
