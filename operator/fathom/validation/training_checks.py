"""Checks of `draft.training.template`, the pod that trains. Pure.

Whoever may write it may run pods anyway; so all that is refused is what would not train, or would
take more than its user allowed.
"""

from collections.abc import Iterator
from typing import Final

from fathom.api.accelerators import AMD, NVIDIA
from fathom.api.pod_fields import amount_of
from fathom.api.problem import Problem
from fathom.api.training import TrainingSpec
from fathom.manifests.strategic_merge import schema_problems
from fathom.manifests.template_parts import Overlay, Part, by, part, parts
from fathom.manifests.training_job import CONTAINER, OWN_LABELS, OWN_VOLUMES, own_mounts
from fathom.text import counted
from fathom.validation.candidate import Candidate, Rule
from fathom.validation.merged_template import overlay_problems
from fathom.validation.placement_checks import resource_problems
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
    yield from _in_pod(training)


def _in_pod(training: TrainingSpec) -> Iterator[Problem]:
    """What the API server would refuse, once a person has approved it and its GPU hours count."""
    yield from overlay_problems(Overlay(_FIELD, training.template))
    yield from _volumes(training)
    for each in _containers(training.template):
        yield from _mounts(each, training)
        where = f"{_FIELD}.spec: resources of the container {each.get('name')}"
        yield from resource_problems(part(each, "resources"), where)


def _volumes(training: TrainingSpec) -> Iterator[Problem]:
    for name in by("name", parts(training.template, "spec", "volumes")):
        if name in OWN_VOLUMES:
            yield Problem(
                field=f"{_FIELD}.spec.volumes",
                message=f"volume {name} is one that Fathom adds: give yours another name.",
            )


def _mounts(container: Part, training: TrainingSpec) -> Iterator[Problem]:
    name = container.get("name")
    ours = own_mounts("", training, trains=name == CONTAINER)
    taken = {str(each["mountPath"]): "Fathom" for each in ours}
    volumes = {
        *by("name", parts(training.template, "spec", "volumes")),
        *(str(each["name"]) for each in ours),
    }
    for mount in parts(container, "volumeMounts"):
        path, volume = str(mount.get("mountPath")), str(mount.get("name"))
        if volume not in volumes:
            yield Problem(
                field=f"{_FIELD}.spec",
                message=f"the container {name} mounts volume {volume}, which is not there: add it "
                f"to {_FIELD}.spec.volumes.",
            )
        if path in taken:
            yield Problem(
                field=f"{_FIELD}.spec",
                message=f"{taken[path]} mounts a volume at {path} of the container {name} already: "
                "choose another path.",
            )
        taken[path] = "another line"


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
