"""The template of a training: a pod that trains, and no more GPUs than its budget counts."""

from typing import Any

import pytest

from manifest_samples import resource
from support.played_training import ALLOWED, TEMPLATE, TRAINING
from support.validated import errors, warnings

GPUS = {"limits": {"nvidia.com/gpu": "3"}}
TOO_MUCH = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}


def refused(template: dict[str, Any], **changes: Any) -> list[str]:
    """What is wrong with a training of this template, as field and message."""
    training = {**TRAINING, **changes, "template": template}
    found = errors(resource({**ALLOWED, "draft.training": training}))
    return [f"{each.field}: {each.message}" for each in found]


def pod(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    trainer = {"name": "train", "image": "example/trainer:1"}
    return {"spec": {"containers": [trainer, *containers], **fields}}


def mounting(volume: str, *paths: str) -> dict[str, Any]:
    mounts = [{"name": volume, "mountPath": path} for path in paths]
    return {"name": "a", "image": "a/b", "volumeMounts": mounts}


@pytest.mark.parametrize(
    "template",
    [
        TEMPLATE,
        pod({"name": "log", "image": "a/b"}),
        {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "mine"}}, **pod()},
        pod({"name": "a", "image": "a/b", "resources": GPUS}),
        pod(mounting("x", "/scratch"), volumes=[{"name": "x", "emptyDir": {}}]),
    ],
    ids=["alone", "two containers", "a queue", "gpus", "a volume"],
)
def test_what_trains_is_taken(template: dict[str, Any]) -> None:
    assert refused(template) == []


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({}, "none is called train"),
        ({"spec": {"containers": [{"name": "main", "image": "a/b"}]}}, "none is called train"),
        ({"spec": {"containers": [{"name": "train"}]}}, "the container train has no image"),
        ({"spec": {"contaners": []}}, "contaners"),
        # What a newer Kubernetes may know hides nothing that is wrong.
        (
            {"spec": {"containers": [{"name": "main", "image": "a/b"}], "futureField": 1}},
            "none is called train",
        ),
        (
            {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pod()}},
            "this is a Job, where the template of a pod belongs: put its spec.template here",
        ),
        ({"spec": {"template": pod()}}, "put its spec.template here"),
        ({"kind": "Pod", **pod()}, "this is a Pod"),
        ({"spec": {"jobTemplate": {}}}, "put its spec.jobTemplate.spec.template here"),
        ({"template": pod()}, "this is a PodTemplate"),
        ({"kind": "PyTorchJob", "spec": {}}, "put the template of its pods here"),
        (
            pod({"name": "a", "image": "a/b", "env": [{"name": "FATHOM_RUN", "value": "1"}]}),
            "remove FATHOM_RUN",
        ),
        (
            {"metadata": {"labels": {"fathom.dev/role": "leader"}}, **pod()},
            "remove fathom.dev/role",
        ),
        (
            pod(
                {"name": "a", "image": "a/b", "resources": GPUS},
                initContainers=[{"name": "states", "image": "a/b", "resources": GPUS}],
            ),
            "the template asks for 6 GPUs, and the budget counts 4: set gpus to 6 or more",
        ),
        (pod(mounting("x", "/scratch")), "the container a mounts volume x, which is not there"),
        (
            pod(mounting("x", "/cache"), volumes=[{"name": "x", "emptyDir": {}}]),
            "Fathom mounts a volume at /cache of the container a already",
        ),
        (
            pod(mounting("x", "/x", "/x"), volumes=[{"name": "x", "emptyDir": {}}]),
            "another line mounts a volume at /x of the container a already",
        ),
        (
            pod(volumes=[{"name": "fathom-data", "emptyDir": {}}]),
            "volume fathom-data is one that Fathom adds",
        ),
        (pod({"name": "train", "image": "a/b"}), "another container of the pod is called train"),
        (
            pod({"name": "a", "image": "a/b", "resources": TOO_MUCH}),
            "the request, 2, is above the limit, 1",
        ),
    ],
    ids=[
        *("nothing", "another name", "no image", "misspelt", "newer", "a Job", "as in a Job"),
        *("a Pod", "as in a CronJob", "as in a PodTemplate", "another kind"),
        *("our variable", "our label", "gpus"),
        *("no volume", "our path", "one path twice", "our volume", "one name twice", "too much"),
    ],
)
def test_what_would_not_train_is_refused_with_what_to_do(
    template: dict[str, Any], words: str
) -> None:
    assert any(words in each for each in refused(template))


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        (
            {"speculation.drafting": "Disabled", **ALLOWED},
            "spec.draft.training",
            "no replica would serve what is trained",
        ),
        (
            {"rollout.maxSurge": 0, **ALLOWED},
            "spec.draft.training",
            "a trained draft is tried in one replica, and it is compared with another replica: set",
        ),
        (
            {**ALLOWED, "draft.training": {**TRAINING, "maxDraftSize": "0"}},
            "spec.draft.training.maxDraftSize",
            "0 takes no draft",
        ),
        (
            {"draft.id": "a/b", "draft.trial": {"id": "a/b"}},
            "spec.draft.trial",
            "this is the draft that all replicas have",
        ),
        (
            {"speculation.tuning.tpotMilliseconds": 50},
            "spec.speculation.tuning.tpotMilliseconds",
            "objective Throughput does not keep to it: set objective to Goodput",
        ),
    ],
    ids=["no drafts", "no replica beside", "no size", "the same draft", "no SLO"],
)
def test_what_is_written_for_nothing_is_told(
    changes: dict[str, Any], field: str, words: str
) -> None:
    (found,) = (each for each in warnings(resource(changes)) if each.rule == "settings-used")

    assert found.field == field
    assert words in found.message


@pytest.mark.parametrize(
    "changes",
    [
        ALLOWED,
        {"replicas": 0, **ALLOWED},
        {"draft.id": "a/b", "draft.trial": {"id": "a/b", "revision": "new"}},
        {"speculation.tuning": {"objective": "Goodput", "tpotMilliseconds": 50}},
    ],
    ids=["a training", "scaled to none", "another revision", "an SLO"],
)
def test_what_has_an_effect_is_not(changes: dict[str, Any]) -> None:
    assert "settings-used" not in {each.rule for each in warnings(resource(changes))}
