"""What a check looks at: a resource that parses, and what is known of its models and cluster."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.cluster.kinds import Kind, ServedApis
from fathom.engine.profile import EngineProfile
from fathom.model_facts import ModelFacts, ModelRef
from fathom.resource import SpeculativeDeployment
from fathom.validation.model_input import PreflightInput, preflight_of
from fathom.validation.model_verdict import DraftVerdict, check_draft


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
    """None: it is for no cluster in particular, and nothing is said of any."""

    @property
    def spec(self) -> SpeculativeDeploymentSpec:
        return self.resource.spec

    @property
    def engine(self) -> EngineProfile:
        return self.resource.engine


def candidate_of(
    resource: SpeculativeDeployment,
    models: Mapping[ModelRef, ModelFacts],
    *,
    cluster: Cluster | None = None,
) -> Candidate:
    """A resource that parses as it is to be judged.

    Args:
        resource: whose spec may be carried out.
        models: what is known of the models that it names.
        cluster: where it is to be carried out; None: nowhere in particular.
    """
    given = preflight_of(resource.engine, models)
    return Candidate(
        resource=resource,
        models=given,
        verdict=check_draft(given),
        cluster=cluster,
    )
