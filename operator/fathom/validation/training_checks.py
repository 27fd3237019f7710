"""Checks of `draft.training`, above all of its pod, and of settings without effect. Pure.

Whoever may write the pod may run pods anyway; so all that is refused is what would not train, or
would take more than its user allowed.
"""

from collections.abc import Iterator
from typing import Final

from fathom.api.accelerators import AMD, NVIDIA
from fathom.api.pod_fields import amount_of
from fathom.api.problem import Problem, Severity, warning
from fathom.api.training import TrainingSpec
from fathom.manifests.strategic_merge import schema_problems
from fathom.manifests.template_parts import Overlay, Part, by, part, parts
from fathom.manifests.training_job import CONTAINER, OWN_LABELS, OWN_VOLUMES, own_mounts
from fathom.rollout.replicas import why_no_arm
from fathom.text import counted
from fathom.validation.candidate import Candidate, Rule
from fathom.validation.merged_template import overlay_problems
from fathom.validation.placement_checks import resource_problems
from fathom.validation.pod_template_errors import OWN_PREFIX, own_variable_sentence

_TRAINING: Final = "spec.draft.training"
_FIELD: Final = f"{_TRAINING}.template"
_KINDS: Final = ("containers", "initContainers")


_TEMPLATES: Final = {
    "Job": "its spec.template",
    "CronJob": "its spec.jobTemplate.spec.template",
    "PodTemplate": "its template",
}
"""Where an object has the template of its pods, by its kind."""


def template(candidate: Candidate) -> Iterator[Problem]:
    """A pod that Kubernetes takes, with a container that trains."""
    training = candidate.spec.draft.training
    if training is None:
        return
    if (kind := _other_kind(training.template)) is not None:
        yield Problem(field=_FIELD, message=_another_object(kind))
        return
    found = tuple(schema_problems(training.template, _FIELD))
    yield from found
    if any(each.severity is Severity.ERROR for each in found):
        return
    yield from _what_trains(training)
    yield from _in_pod(training)


def _what_trains(training: TrainingSpec) -> Iterator[Problem]:
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


def _other_kind(template: Part) -> str | None:
    """What was pasted in place of a template, as far as it says; None: it looks like one."""
    if kind := template.get("kind"):
        return str(kind)
    pod = part(template, "spec")
    if "template" in pod:
        return "Job"
    if "jobTemplate" in pod:
        return "CronJob"
    return "PodTemplate" if "template" in template else None


def _another_object(kind: str) -> str:
    if kind == "Pod":
        return "this is a Pod, where a template belongs: leave out its apiVersion and kind."
    here = _TEMPLATES.get(kind, "the template of its pods")
    return f"this is a {kind}, where the template of a pod belongs: put {here} here."


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


def settings_used(candidate: Candidate) -> Iterator[Problem]:
    """What is written and changes nothing, or takes GPU hours for what nothing would serve."""
    spec = candidate.spec
    if spec.draft.trial is not None and not spec.draft.tries_another:
        yield warning(
            "spec.draft.trial",
            "this is the draft that all replicas have, so that nothing is tried: name another "
            "draft or revision, or leave it out.",
        )
    tuning = spec.speculation.tuning
    if tuning.tpot_milliseconds is not None and not tuning.objective.keeps_slo:
        yield warning(
            "spec.speculation.tuning.tpotMilliseconds",
            f"objective {tuning.objective} does not keep to it: set objective to Goodput, or leave "
            "it out.",
        )
    training = spec.draft.training
    if training is None:
        return
    if not spec.drafts:
        yield warning(
            _TRAINING,
            "speculation.drafting is Disabled, so that no replica would serve what is trained: set "
            "it to Enabled, or leave this out.",
        )
    elif spec.replicas and (why := why_no_arm(spec)):
        yield warning(_TRAINING, f"a trained draft is tried in one replica, and {why}.")
    if not amount_of(training.max_draft_size):
        yield warning(
            f"{_TRAINING}.maxDraftSize",
            f"{training.max_draft_size} takes no draft, and each would be refused after its "
            "training: set the size of the largest one, such as 16Gi.",
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
    Rule(
        id="settings-used",
        check=settings_used,
        says="What is written has an effect, and a trained draft can be tried and served.",
        source="the API of Fathom",
    ),
)
