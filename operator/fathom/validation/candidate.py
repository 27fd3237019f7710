"""What a rule judges, a resource that parses with all that is known of it, and what a rule is."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from fathom.api.choices import Compares
from fathom.api.names import ANNOTATION_ENGINE_ARGUMENTS, SILENCE_PREFIX
from fathom.api.problem import Problem, Severity
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.cluster.kinds import Kind, ServedApis
from fathom.engine.profile import EngineProfile
from fathom.engine.start import is_release_image
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef
from fathom.resource import SpeculativeDeployment
from fathom.rollout.replicas import arm_of
from fathom.validation.model_input import PreflightInput, preflight_of
from fathom.validation.model_verdict import DraftVerdict, check_draft

UNCHECKED: Final = "Unchecked"
"""Value of the annotation by which a user takes what vLLM knows into their own hands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What a cluster offers."""

    served: ServedApis
    usable: Collection[Kind]
    """Kinds that the operator may use in it, among those that not every cluster has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A spec that may be carried out."""

    resource: SpeculativeDeployment
    models: PreflightInput
    """What is known of target and draft."""
    verdict: DraftVerdict
    """Whether they work together."""
    cluster: Cluster | None = None
    """None: it is for no cluster in particular, and none is judged."""
    accepted: bool = False
    """Whether this very revision was carried out before: a rule that is new warns of it."""
    trial: "Candidate | None" = None
    """The one replica with a draft on trial; None: none is."""

    @property
    def spec(self) -> SpeculativeDeploymentSpec:
        return self.resource.spec

    @property
    def engine(self) -> EngineProfile:
        return self.resource.engine

    @property
    def vllm_decides(self) -> bool:
        """Whether what a release of vLLM refuses is refused: its pods run that very release.

        Another image may know more than the release it was built from.
        """
        unchecked = self._annotation(ANNOTATION_ENGINE_ARGUMENTS) == UNCHECKED
        return is_release_image(self.spec.engine.image) and not (unchecked or self.accepted)

    def silenced(self, rule: str) -> str:
        """Why the user of the spec wants no warning of a rule; empty: they do."""
        return self._annotation(f"{SILENCE_PREFIX}{rule}").strip()

    def _annotation(self, name: str) -> str:
        return (self.resource.metadata.annotations or {}).get(name, "")


def candidate_of(
    resource: SpeculativeDeployment,
    models: Mapping[ModelRef, ModelFacts],
    *,
    cluster: Cluster | None = None,
    accepted: bool = False,
) -> Candidate:
    """A resource that parses as it is to be judged.

    Args:
        resource: whose spec may be carried out.
        models: what is known of the models that it names.
        cluster: where it is to be carried out; None: nowhere in particular.
        accepted: whether this very revision was carried out before.
    """
    given = preflight_of(resource.engine, models)
    arm = arm_of(resource.spec) if resource.spec.compares is Compares.DRAFT else None
    return Candidate(
        resource=resource,
        models=given,
        verdict=check_draft(given),
        cluster=cluster,
        accepted=accepted,
        trial=None if arm is None else candidate_of(resource.with_spec(arm), models),
    )


def as_sized(
    resource: SpeculativeDeployment, models: Mapping[ModelRef, ModelFacts]
) -> SpeculativeDeployment:
    """A new resource as it is carried out: a hybrid target has space for `tokens` and no more.

    Space for a deeper draft costs each running request a state for each token of it, whatever is
    drafted, and nothing can measure that: the tuner's own baseline runs in the same engine. It is
    the user's to ask for, by `maxTokens` or `depths`.

    Args:
        resource: whose pods are yet to start.
        models: what is known of the models that it names.
    """
    return resource.with_spec(only_tokens(resource.spec)) if hybrid(resource, models) else resource


def hybrid(resource: SpeculativeDeployment, models: Mapping[ModelRef, ModelFacts]) -> bool:
    """Whether the space for its drafts is states, and left to Fathom."""
    if not may_be_sized(resource):
        return False
    return preflight_of(resource.engine, models).keeps_states


def may_be_sized(resource: SpeculativeDeployment) -> bool:
    """Whether its deepest depth is left to Fathom, and matters."""
    speculation = resource.spec.speculation
    left_to_us = speculation.max_tokens is None and speculation.depths is None
    return left_to_us and resource.engine.live and resource.spec.drafts


def only_tokens(spec: SpeculativeDeploymentSpec) -> SpeculativeDeploymentSpec:
    """The spec with space for drafts of `tokens`."""
    speculation = spec.speculation
    sized = speculation.model_copy(update={"max_tokens": speculation.tokens})
    return spec.model_copy(update={"speculation": sized})


Check = Callable[[Candidate], Iterable[Problem]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the chain."""

    id: str
    """Stable: `-o json` has it, annotations name it."""
    check: Check
    says: str
    """What it refuses or warns of, in one line."""
    source: str
    """Where that is known from."""
    releases: str = ""
    """The releases of vLLM that it holds for; empty: it is not about vLLM, or holds for all."""
    engine: bool = False
    """Whether it knows what a release of vLLM refuses at start. Its errors are warnings where
    `Candidate.vllm_decides` is false."""
    starts: bool = False
    """Whether it only knows what keeps pods from starting: of a revision that was carried out
    before its errors are warnings."""

    def problems(self, candidate: Candidate) -> Iterator[Problem]:
        """What it finds, under its id."""
        for problem in self.check(candidate):
            severity, rule = problem.severity, problem.rule or self.id
            may_start = (self.engine and not candidate.vllm_decides) or (
                self.starts and candidate.accepted
            )
            if may_start and severity is Severity.ERROR:
                severity = Severity.WARNING
            warns = severity is Severity.WARNING
            yield replace(
                problem,
                rule=rule,
                severity=severity,
                silenced=candidate.silenced(rule) if warns else "",
            )
