"""The documents of `-o json` and `-o yaml`: typed, with a version and a published schema.

The rule for changing one is in docs/documents.md. Unlike in the API, decimals are numbers here,
and what is unknown is null.
"""

import json
from enum import StrEnum
from math import isfinite
from typing import Annotated, Final, Literal

import typer
import yaml
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from fathom.cluster.kinds import SPECULATION_TUNER, Kind

API_VERSION: Final = "cli.fathom.dev/v1alpha1"


class Output(StrEnum):
    """How a command prints what it found."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


AsOutput = Annotated[
    Output, typer.Option("-o", "--output", help="text; json or yaml for programs.")
]


ResourceKind = Literal["SpeculativeDeployment", "SpeculationTuner"]


def resource_kind(kind: Kind) -> ResourceKind:
    """A kind as documents name it."""
    return "SpeculationTuner" if kind == SPECULATION_TUNER else "SpeculativeDeployment"


class Part(BaseModel):
    """A part of a document: frozen, camelCase outside."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )


class Document(Part):
    """A whole one; each kind is a subclass, and narrows `kind` to its name."""

    api_version: Literal["cli.fathom.dev/v1alpha1"] = API_VERSION
    kind: str


def written(document: Document, output: Output) -> str:
    """The text of a document, without a line break at its end."""
    text = document.model_dump_json(by_alias=True, indent=2)
    if output is Output.JSON:
        return text
    # By way of JSON, which has no infinity: it is null in both.
    return yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip()


def number(text: str) -> float | None:
    """A decimal of the API, where it is text; None: it is not known, or no number of JSON."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None
