"""The SpeculativeDeployments in manifests, each with what refuses it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from pydantic import JsonValue

from fathom.adapters.yaml_documents import UnreadableManifestError, read_documents
from fathom.api.problem import Problem
from fathom.core.models.facts import ModelFacts, ModelRef
from fathom.manifests.preflight import preflight_of
from fathom.manifests.problems import doubts_of, problems_of
from fathom.preflight.input import PreflightInput
from fathom.preflight.verdict import DraftVerdict, check_draft
from fathom.resource import SpeculativeDeployment, is_speculative_deployment, parse

REFUSED: Final = 2
"""Exit code of a command that refused something."""

Files = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE]...", help="Manifests in YAML; - reads stdin.")
]
FilesByFlag = Annotated[
    list[str] | None,
    typer.Option("-f", "--filename", metavar="FILE", help="The same, as with kubectl."),
]


@dataclass(frozen=True, slots=True)
class Document:
    """One SpeculativeDeployment of a file."""

    where: str
    """The file, and the resource's name where the file holds several."""
    parsed: SpeculativeDeployment | tuple[Problem, ...]
    """The resource, or what is wrong with its schema and rules."""


def named(files: Sequence[str] | None, by_flag: Sequence[str] | None) -> tuple[str, ...]:
    """The files of a command that takes them with `-f`, without, or both."""
    return (*(files or ()), *(by_flag or ()))


def read(files: Sequence[str]) -> Iterator[Document]:
    """Every SpeculativeDeployment in the files; other kinds are passed over.

    Args:
        files: paths; `-` is stdin.

    Raises:
        typer.Exit: a file cannot be read; stderr says why. Or, after all others were read, one
            holds none: what is to be checked and is not must not look well.
    """
    missed = False
    for file in files:
        where = "stdin" if file == "-" else file
        try:
            documents = [each for each in read_documents(file) if is_speculative_deployment(each)]
        except UnreadableManifestError as error:
            typer.echo(f"{where}: {error}", err=True)
            raise typer.Exit(REFUSED) from error
        if not documents:
            typer.echo(f"{where}: holds no SpeculativeDeployment.", err=True)
            missed = True
        for document in documents:
            one = where if len(documents) == 1 else f"{where}: {_name(document)}"
            yield Document(one, parse(document))
    if missed:
        raise typer.Exit(REFUSED)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of one resource, and what stands against it."""

    given: PreflightInput
    verdict: DraftVerdict
    problems: tuple[Problem, ...]
    """Why it is refused; empty: it is not."""
    doubts: tuple[Problem, ...]
    """What to see to in one that is not refused."""


def judged(resource: SpeculativeDeployment, models: Mapping[ModelRef, ModelFacts]) -> Judgement:
    """Judge a resource.

    Args:
        resource: that `parse` accepted.
        models: what is known of the models that it names.
    """
    given = preflight_of(resource.engine, models)
    verdict = check_draft(given)
    problems = problems_of(resource, verdict)
    return Judgement(given, verdict, problems, () if problems else doubts_of(resource))


def tell(where: str, problems: Sequence[Problem]) -> None:
    """Say on stderr what is wrong."""
    for problem in problems:
        typer.echo(f"{where}: {problem}", err=True)


def _name(document: Mapping[str, JsonValue]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
