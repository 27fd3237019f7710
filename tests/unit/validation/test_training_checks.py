"""The template of a training: a pod that trains, and no more GPUs than its budget counts."""

from typing import Any

import pytest

from manifest_samples import resource
from support.played_training import ALLOWED, TEMPLATE, TRAINING
from support.validated import errors

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
        *("nothing", "another name", "no image", "misspelt", "our variable", "our label", "gpus"),
        *("no volume", "our path", "one path twice", "our volume", "one name twice", "too much"),
    ],
)
def test_what_would_not_train_is_refused_with_what_to_do(
    template: dict[str, Any], words: str
) -> None:
    assert any(words in each for each in refused(template))
