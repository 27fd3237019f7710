"""Checks of what a spec says outside of `engine.args` and `podTemplate`. Pure."""

from collections.abc import Iterator

from fathom.api.problem import Problem
from fathom.api.rules import CREATION_RULES
from fathom.core.models.names import is_model_name
from fathom.core.prometheus_labels import bad_label_names
from fathom.engine.version import parsed_version
from fathom.validation.candidate import Candidate
from fathom.validation.pod_template_errors import OWN_PREFIX, own_variable_sentence


def creation_rules(candidate: Candidate) -> Iterator[Problem]:
    """Rules that hold for new resources, and that a CRD cannot hold for all that are stored."""
    for rule in CREATION_RULES:
        if not rule.holds(candidate.resource.metadata.name, candidate.spec):
            yield Problem(rule.field, rule.message)


def version(candidate: Candidate) -> Iterator[Problem]:
    stated = candidate.spec.engine.version
    if stated and parsed_version(stated) is None:
        yield Problem(
            "spec.engine.version",
            f"{stated!r} is not a version: write vLLM's, such as 0.32.0.",
        )


def model_names(candidate: Candidate) -> Iterator[Problem]:
    spec = candidate.spec
    for field, name in (("model.id", spec.model.id), ("draft.id", spec.draft.id)):
        if name and not is_model_name(name):
            yield Problem(
                f"spec.{field}",
                "this is neither a Hugging Face id (organisation/name) nor an absolute path in the "
                "pod: write one of them, without hf:// and the like. What lies in a claim has a "
                "path once cache.claimName or podTemplate mounts it.",
            )


def prometheus_labels(candidate: Candidate) -> Iterator[Problem]:
    for label in bad_label_names(candidate.spec.metrics.prometheus_labels):
        yield Problem(
            "spec.metrics.prometheusLabels",
            f"{label!r} is no label of a Prometheus: write letters, digits and _, with no digit at "
            "its beginning.",
        )


def variable_names(candidate: Candidate) -> Iterator[Problem]:
    """Names that no Kubernetes takes; before 1.30 it takes fewer still, and says so itself."""
    for index, variable in enumerate(candidate.spec.engine.env):
        name = variable.name
        if name.startswith(OWN_PREFIX):
            yield Problem(f"spec.engine.env[{index}]", own_variable_sentence(name))
        if "=" in name or not (name.isascii() and name.isprintable()):
            # What stands there is not repeated: it may well be a secret.
            yield Problem(
                f"spec.engine.env[{index}].name",
                "the name of a variable has no = and printable ASCII only: what it is to hold "
                "goes into value.",
            )


def draft_fits(candidate: Candidate) -> Iterator[Problem]:
    """What is known of target and draft: `fathom.validation.models` judges them."""
    verdict = candidate.verdict
    if verdict.refused:
        yield Problem(verdict.field, verdict.message)
