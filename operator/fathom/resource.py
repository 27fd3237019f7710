"""A resource of either kind, and how it is read: a manifest becomes a model, or problems."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from fathom.api.base import NullIsAbsent
from fathom.api.bounded_json import DEEPEST
from fathom.api.cel_rules import violations
from fathom.api.names import (
    API_VERSION,
    KIND,
    LONGEST_NAME,
    LONGEST_NAMESPACE,
    NAME_PATTERN,
    NAMESPACE_PATTERN,
    TUNER_KIND,
)
from fathom.api.newer_release import Pruned, pruned
from fathom.api.problem import Problem, broken
from fathom.api.refusals import refusals
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.api.tuner import TUNER_RULES, SpeculationTunerSpec
from fathom.engine.profile import EngineProfile, profile_of


class Metadata(NullIsAbsent):
    """What the operator needs of ObjectMeta; the rest passes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=LONGEST_NAME)]
    namespace: Annotated[str, Field(pattern=NAMESPACE_PATTERN, max_length=LONGEST_NAMESPACE)] = ""
    """Empty: whoever applies the manifest decides. In a cluster it is always there."""
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


_Kind = TypeVar("_Kind")
_Spec = TypeVar("_Spec")
_Read = TypeVar("_Read", bound=BaseModel)


class _Manifest(NullIsAbsent, Generic[_Kind, _Spec]):
    model_config = ConfigDict(frozen=True, extra="forbid")

    api_version: Annotated[Literal["fathom.dev/v1alpha1"], Field(alias="apiVersion")]
    kind: _Kind
    metadata: Metadata
    spec: _Spec
    status: Mapping[str, JsonValue] = Field(default_factory=dict)


class _DeploymentManifest(_Manifest[Literal["SpeculativeDeployment"], SpeculativeDeploymentSpec]):
    pass


class _TunerManifest(_Manifest[Literal["SpeculationTuner"], SpeculationTunerSpec]):
    pass


def _read(model: type[_Read], manifest: Mapping[str, JsonValue]) -> _Read | tuple[Problem, ...]:
    try:
        # By alias only: the names of Python's attributes are none that an API server knows.
        return model.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError as error:
        return refusals(model, error.errors(include_url=False))


@dataclass(frozen=True)
class SpeculativeDeployment:
    """One resource as its user wrote it, valid, and the engine that follows from it."""

    metadata: Metadata
    spec: SpeculativeDeploymentSpec

    @cached_property
    def engine(self) -> EngineProfile:
        """What its pods run; derived once."""
        return profile_of(self.spec)

    def with_spec(self, spec: SpeculativeDeploymentSpec) -> "SpeculativeDeployment":
        """The same resource, were this its spec."""
        return self if spec is self.spec else replace(self, spec=spec)


def is_speculative_deployment(manifest: Mapping[str, JsonValue]) -> bool:
    """Whether a document of a manifest file is meant to be one of ours.

    By kind or by group: if the other one is misspelt, `parse` says so.
    """
    kind, group = manifest.get("kind"), str(manifest.get("apiVersion", "")).split("/", 1)[0]
    return kind != TUNER_KIND and (kind == KIND or group == API_VERSION.split("/", 1)[0])


def parse(
    manifest: Mapping[str, JsonValue],
) -> SpeculativeDeployment | tuple[Problem, ...]:
    """Read a manifest; every problem found is returned, none raised."""
    if (field := _nested_too_deeply(manifest.get("spec"))) is not None:
        return (
            Problem(
                field=f"spec.{field}",
                message=f"nested more than {DEEPEST} deep: no pod template is.",
            ),
        )
    parsed = _read(_DeploymentManifest, manifest)
    if isinstance(parsed, tuple):
        return parsed
    return violations(parsed.spec) or SpeculativeDeployment(parsed.metadata, parsed.spec)


def known_part(manifest: Mapping[str, JsonValue]) -> Pruned:
    """A resource of a cluster without the fields that only a CRD of another release knows.

    In a manifest that a user writes they are misspelt, and `parse` refuses them.
    """
    return pruned(_DeploymentManifest, manifest)


def _nested_too_deeply(spec: JsonValue) -> str | None:
    """The field of a spec below which it is; None: none is. No recursion, which has an end."""
    level = list(spec.items()) if isinstance(spec, dict) else []
    for _ in range(1, DEEPEST):
        level = [(field, child) for field, value in level for child in _children(value)]
    return level[0][0] if level else None


def _children(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def why_not_live(resource: SpeculativeDeployment, status: SpeculativeDeploymentStatus) -> str:
    """Why depth is not live; empty: it is.

    The operator sees how its pods were started; the spec alone tells less.
    """
    actuation = status.engine.actuation
    if actuation:
        said = status.engine.reason or f"status.engine.actuation is {actuation}."
        return "" if actuation == "Live" else said
    refusal = resource.engine.not_live
    return refusal.sentence if refusal else ""


@dataclass(frozen=True, slots=True)
class SpeculationTuner:
    """One resource as its user wrote it, valid."""

    metadata: Metadata
    spec: SpeculationTunerSpec


def is_speculation_tuner(manifest: Mapping[str, JsonValue]) -> bool:
    """Whether a document of a manifest file is meant to be one."""
    return manifest.get("kind") == TUNER_KIND


def parse_tuner(manifest: Mapping[str, JsonValue]) -> SpeculationTuner | tuple[Problem, ...]:
    """Read a manifest; every problem found is returned, none raised."""
    parsed = _read(_TunerManifest, manifest)
    if isinstance(parsed, tuple):
        return parsed
    return broken(TUNER_RULES, parsed.spec) or SpeculationTuner(parsed.metadata, parsed.spec)


def known_part_of_tuner(manifest: Mapping[str, JsonValue]) -> Pruned:
    """A resource of a cluster without the fields that only a CRD of another release knows."""
    return pruned(_TunerManifest, manifest)
