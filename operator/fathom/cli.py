"""The `fathom` command.

Exit codes: 0, all is well; 2, something was refused, and stderr says what and where.
"""

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, cast

import typer
from pydantic import JsonValue
from typer.core import TyperCommand, TyperGroup

from fathom import __version__
from fathom.adapters.model_files import local_config
from fathom.adapters.yaml_documents import UnreadableManifestError, read_documents, to_yaml
from fathom.api.crd import custom_resource_definition
from fathom.api.problem import Problem
from fathom.api.resource import SpeculativeDeployment, is_speculative_deployment, parse
from fathom.core.capability import live_depth_refusal
from fathom.core.plugin import plugin_bundle
from fathom.core.preflight import DraftVerdict, check_draft
from fathom.core.revision import revision_of
from fathom.core.support import not_yet_supported
from fathom.manifests.problems import problems_of
from fathom.manifests.render import children

REFUSED: Final = 2

_ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "run": "fathom.runtime.command",
        "top": "fathom.inspect.top_command",
        "explain": "fathom.inspect.explain_command",
        "replay": "fathom.inspect.replay_command",
        "local": "fathom_local.cli",
    }
)
"""Subcommands that are imported when they are asked for: `render` should not wait for Kopf, and
what `fathom_local` needs may not be installed. Each module has a Typer called `app`."""
_LOCAL_NEEDS: Final = ("psutil", "scipy")
"""What the extra `local` brings; an operator's image is built without."""


class _Commands(TyperGroup):
    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override] # typer's private base class
        elsewhere = [name for name, module in _ELSEWHERE.items() if _installed(module)]
        return [*super().list_commands(ctx), *elsewhere]

    def get_command(  # type: ignore[override] # typer's private base class
        self, ctx: typer.Context, cmd_name: str
    ) -> TyperCommand | TyperGroup | None:
        module = _ELSEWHERE.get(cmd_name)
        if module is not None and _installed(module):
            command = typer.main.get_command(importlib.import_module(module).app)
            command.name = cmd_name
        else:
            command = super().get_command(ctx, cmd_name)  # type: ignore[assignment]
        return cast("TyperCommand | TyperGroup | None", command)


def _installed(module: str) -> bool:
    needed = (module, *_LOCAL_NEEDS) if module.startswith("fathom_local") else (module,)
    try:
        return all(importlib.util.find_spec(name) is not None for name in needed)
    except ModuleNotFoundError:
        return False


app = typer.Typer(
    cls=_Commands,
    name="fathom",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Files = Annotated[
    list[str],
    typer.Option("-f", "--filename", metavar="FILE", help="Manifests in YAML; - reads stdin."),
]


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's signature
    if wanted:
        typer.echo(f"fathom {__version__}")
        raise typer.Exit


@app.callback()
def main(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Speculative decoding on Kubernetes whose depth follows live measurements."""


@app.command()
def render(filename: Files) -> None:
    """Print the objects that a SpeculativeDeployment becomes. Asks no cluster.

    Other kinds in the file are passed over. Of a resource that is refused nothing is printed.
    """
    bundle = plugin_bundle()
    refused = False
    for document in _read(filename):
        if isinstance(document, _Refused):
            document.print()
            refused = True
        else:
            typer.echo(to_yaml(children(document.resource, bundle)), nl=False)
    raise typer.Exit(REFUSED if refused else 0)


@app.command()
def check(filename: Files) -> None:
    """Say what is wrong with a SpeculativeDeployment, or what is known of its draft and depth."""
    refused = False
    for document in _read(filename):
        if isinstance(document, _Refused):
            document.print()
            refused = True
        else:
            for line in _findings(document):
                typer.echo(line)
    raise typer.Exit(REFUSED if refused else 0)


@app.command(hidden=True)
def crd() -> None:
    """Print the CustomResourceDefinition."""
    typer.echo(to_yaml([custom_resource_definition()]), nl=False)


@dataclass(frozen=True, slots=True)
class _Accepted:
    resource: SpeculativeDeployment
    draft: DraftVerdict


@dataclass(frozen=True, slots=True)
class _Refused:
    where: str
    problems: tuple[Problem, ...]

    def print(self) -> None:
        for problem in self.problems:
            typer.echo(f"{self.where}: {problem}", err=True)


def _read(files: list[str]) -> Iterator[_Accepted | _Refused]:
    """Every SpeculativeDeployment in the files, judged."""
    for file in files:
        where = "stdin" if file == "-" else file
        try:
            documents = [
                document for document in read_documents(file) if is_speculative_deployment(document)
            ]
        except UnreadableManifestError as error:
            typer.echo(f"{where}: {error}", err=True)
            raise typer.Exit(REFUSED) from error
        if not documents:
            typer.echo(f"{where}: holds no SpeculativeDeployment.", err=True)
        for document in documents:
            yield _judge(document, where if len(documents) == 1 else f"{where}: {_name(document)}")


def _judge(document: Mapping[str, JsonValue], where: str) -> _Accepted | _Refused:
    parsed = parse(document)
    if not isinstance(parsed, SpeculativeDeployment):
        return _Refused(where, parsed)
    target_config = local_config(parsed.spec.model.id)
    draft_config = local_config(parsed.spec.draft.id)
    problems = problems_of(parsed, target_config=target_config, draft_config=draft_config)
    if not problems and (unsupported := not_yet_supported(parsed.spec)) is not None:
        problems = (unsupported,)
    if problems:
        return _Refused(where, problems)
    return _Accepted(parsed, check_draft(parsed.spec, target_config, draft_config))


def _findings(accepted: _Accepted) -> Iterator[str]:
    spec, draft = accepted.resource.spec, accepted.draft
    yield f"{accepted.resource.metadata.name}: valid, revision {revision_of(spec)}"
    yield f"  draft: {draft.reason}: {draft.message}"
    refusal = live_depth_refusal(spec)
    if not spec.tunable:
        yield f"  depth: Static: {spec.speculation.tokens}, as tuning.mode asks."
    elif refusal is not None:
        yield f"  depth: {refusal[0]}: {refusal[1]}"
    else:
        depths = spec.speculation
        yield (
            f"  depth: Live: from {depths.min_tokens} to {depths.effective_max_tokens}, "
            f"starting at {depths.tokens}."
        )


def _name(document: Mapping[str, JsonValue]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
