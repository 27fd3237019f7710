"""A SpeculationTuner, and how it is read: a manifest becomes a model, or a list of problems."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from fathom.api.base import NullIsAbsent
from fathom.api.names import TUNER_KIND
from fathom.api.newer_release import Pruned, pruned
from fathom.api.problem import Problem, broken
from fathom.api.refusals import refusals
from fathom.api.tuner_spec import TUNER_RULES, SpeculationTunerSpec
from fathom.resource import Metadata


class _Manifest(NullIsAbsent):
    model_config = ConfigDict(frozen=True, extra="forbid")

    api_version: Annotated[Literal["fathom.dev/v1alpha1"], Field(alias="apiVersion")]
    kind: Literal["SpeculationTuner"]
    metadata: Metadata
    spec: SpeculationTunerSpec
    status: Mapping[str, JsonValue] = Field(default_factory=dict)


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
    try:
        # By alias only: the names of Python's attributes are none that an API server knows.
        parsed = _Manifest.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError as error:
        return refusals(_Manifest, error.errors(include_url=False))
    return broken(TUNER_RULES, parsed.spec) or SpeculationTuner(parsed.metadata, parsed.spec)


def known_part_of_tuner(manifest: Mapping[str, JsonValue]) -> Pruned:
    """A resource of a cluster without the fields that only a CRD of another release knows."""
    return pruned(_Manifest, manifest)
