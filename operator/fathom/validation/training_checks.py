"""Checks of `draft.training.template`, the pod that trains. Pure.

Whoever may write it may run pods anyway; so all that is refused is what would not train, or would
take more than its user allowed.
"""

from collections.abc import Iterator
from typing import Final

from fathom.api.accelerators import AMD, NVIDIA
from fathom.api.pod_fields import amount_of
from fathom.api.problem import Problem
from fathom.manifests.strategic_merge import schema_problems
from fathom.manifests.template_parts import Part, by, part, parts
from fathom.manifests.training_job import CONTAINER, OWN_LABELS
from fathom.text import counted
from fathom.validation.candidate import Candidate, Rule
from fathom.validation.pod_template_errors import OWN_PREFIX, own_variable_sentence

_TRAINING: Final = "spec.draft.training"
_FIELD: Final = f"{_TRAINING}.template"
_KINDS: Final = ("containers", "initContainers")


def template(candidate: Candidate) -> Iterator[Problem]:
    """A pod that Kubernetes takes, with a container that trains."""
    training = candidate.spec.draft.training
    if training is None:
        return
    found = tuple(schema_problems(training.template, _FIELD))
    yield from found
    if found:
        return
    for name in sorted(part(training.template, "metadata", "labels")):
        if name.startswith(OWN_LABELS):
            yield Problem(
                field=f"{_FIELD}.metadata.labels",
                message=f"labels called {OWN_LABELS}… are Fathom's own: remove {name}.",
            )
    trainer = by("name", parts(training.template, "spec", "containers")).get(CONTAINER)
    if trainer is None:
        yield Problem(
            field=f"{_FIELD}.spec.containers",
            message=f"none is called {CONTAINER}, which gets the data and the place for the "
            "draft: give the container that trains this name.",
        )
    for each in _containers(training.template):
        if not each.get("image"):
            yield Problem(
                field=f"{_FIELD}.spec", message=f"the container {each.get('name')} has no image."
            )
        for name in sorted(by("name", parts(each, "env"))):
            if name.startswith(OWN_PREFIX):
                yield Problem(field=f"{_FIELD}.spec", message=own_variable_sentence(name))


def gpus(candidate: Candidate) -> Iterator[Problem]:
    """What the budget counts is what the pod asks for."""
    training = candidate.spec.draft.training
    if training is None:
        return
    asked = sum(map(_gpus, _containers(training.template)))
    if asked > training.gpus:
        yield Problem(
            field=f"{_TRAINING}.gpus",
            message=f"the template asks for {counted(asked, 'GPU')}, and the budget counts "
            f"{training.gpus}: set gpus to {asked} or more.",
        )


def _containers(pod: Part) -> Iterator[Part]:
    for kind in _KINDS:
        yield from parts(pod, "spec", kind)


def _gpus(container: Part) -> int:
    asked = [part(container, "resources", each) for each in ("limits", "requests")]
    kinds = [each.get(vendor.resource, 0) for each in asked for vendor in (NVIDIA, AMD)]
    return max(int(amount_of(each) or 0) for each in kinds)


RULES: Final = (
    Rule(
        id="training-template",
        check=template,
        says="The template of a training is a pod with a container that trains.",
        source="kubernetes: pkg/apis/core/validation/validation.go",
    ),
    Rule(
        id="training-gpus",
        check=gpus,
        says="The budget of a training counts the GPUs that its pod asks for.",
        source="the API of Fathom",
    ),
)
