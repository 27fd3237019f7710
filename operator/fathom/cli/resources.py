"""The SpeculativeDeployments in manifests, each with what refuses it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from pydantic import JsonValue

from fathom.adapters.yaml_documents import UnreadableManifestError, read_documents
from fathom.api.problem import Problem, Severity
from fathom.model_facts import ModelFacts, ModelRef
from fathom.resource import SpeculativeDeployment, is_speculative_deployment, parse
from fathom.validation.candidate import Candidate, candidate_of
from fathom.validation.chain import problems_of

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is known of a resource that parses."""

    candidate: Candidate
    errors: tuple[Problem, ...]
    """Why it is refused; empty: it is not."""
    warnings: tuple[Problem, ...]
    """What its user should know of one that is not refused."""


def judged(resource: SpeculativeDeployment, models: Mapping[ModelRef, ModelFacts]) -> Judgement:
    """Judge a resource, for no cluster in particular.

    Args:
        resource: that `parse` accepted.
        models: what is known of the models that it names.
    """
    candidate = candidate_of(resource, models)
    found = problems_of(candidate)
    return Judgement(
        candidate=candidate,
        errors=tuple(each for each in found if each.severity is Severity.ERROR),
        warnings=tuple(each for each in found if each.severity is Severity.WARNING),
    )


def tell(where: str, problems: Sequence[Problem]) -> None:
    """Say on stderr what is wrong."""
    for problem in problems:
        typer.echo(f"{where}: {problem}", err=True)


def _name(document: Mapping[str, JsonValue]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
