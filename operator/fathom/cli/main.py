"""The `fathom` command.

Exit codes: 0, all is well; 1, what was asked for was found, and is not well (`status`, `bench`,
`check --live`, `record`, `traffic`, `attach --check`, `detach`); 2, something was refused, and
stderr says what and where.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, cast

import typer
from typer.core import (  # type: ignore[attr-defined] # typer has no public name for it
    CompletionItem,
    TyperCommand,
    TyperGroup,
)

from fathom import version_and_build
from fathom.adapters.model_files import is_directory, local_facts
from fathom.adapters.yaml_documents import to_yaml
from fathom.api.crd import custom_resource_definition
from fathom.api.names import KIND, TUNER_KIND
from fathom.api.suggestions import nearest
from fathom.cli.resources import REFUSED, Files, FilesByFlag, judged, named, read, tell
from fathom.engine.plugin import plugin_bundle
from fathom.fetch.state import fetch_program
from fathom.manifests.render import children
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef, model_refs
from fathom.resource import SpeculativeDeployment

_ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "check": "fathom.cli.check",
        "status": "fathom.cli.status",
        "top": "fathom.cli.top",
        "explain": "fathom.cli.explain",
        "advise": "fathom.cli.explain:advise_app",
        "history": "fathom.cli.history",
        "version": "fathom.cli.version",
        "pause": "fathom.cli.rollout:pause_app",
        "resume": "fathom.cli.rollout:resume_app",
        "retry": "fathom.cli.rollout:retry_app",
        "rollout": "fathom.cli.rollout",
        "train": "fathom.cli.train",
        "record": "fathom.replay.record",
        "replay": "fathom.replay.command",
        "report": "fathom.replay.command:report_app",
        "run": "fathom.runtime.main",
        "bench": "fathom.bench.command",
        "traffic": "fathom.cli.traffic",
        "attach": "fathom.cli.attach",
        "detach": "fathom.cli.detach",
        "local": "local_cluster.cli",
    }
)
"""Subcommands that are imported when they are asked for: `render` should not wait for Kopf, and
`local` is not in the operator's package. The Typer is `app`, or the name after a colon."""
_LOCAL_NEEDS: Final = ("local_cluster", "psutil", "scipy")
"""What a checkout has, and what its dependency group `local` brings."""
_NO_LOCAL: Final = (
    "`fathom local` is not in the operator's package, but in a checkout of Fathom's repository: "
    "run `make setup` there, then `.venv/bin/fathom local`."
)


class _Commands(TyperGroup):
    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override] # typer's private base class
        elsewhere = [name for name in _ELSEWHERE if name != "local" or _has_local()]
        return [*super().list_commands(ctx), *elsewhere]

    def get_command(  # type: ignore[override] # typer's private base class
        self, ctx: typer.Context, cmd_name: str
    ) -> TyperCommand | TyperGroup | None:
        if cmd_name == "local" and not _has_local():
            ctx.fail(_NO_LOCAL)
        if cmd_name in _ELSEWHERE:
            module, _, typed = _ELSEWHERE[cmd_name].partition(":")
            command = typer.main.get_command(
                getattr(importlib.import_module(module), typed or "app")
            )
            command.name = cmd_name
        else:
            command = super().get_command(ctx, cmd_name)  # type: ignore[assignment]
        return cast("TyperCommand | TyperGroup | None", command)

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[CompletionItem]:  # type: ignore[override] # typer's private base class
        """Names alone: to say what each does, all would be imported while somebody waits."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        shown = [
            name
            for name in self.list_commands(ctx)
            if name in _ELSEWHERE or not self.commands[name].hidden
        ]
        return [CompletionItem(name) for name in shown if name.startswith(incomplete)]

    def resolve_command(  # type: ignore[override] # typer's private base class
        self, ctx: typer.Context, args: list[str]
    ) -> tuple[str | None, TyperCommand | TyperGroup | None, list[str]]:
        # Typer's own suggestion knows those commands only that are imported.
        near = nearest(args[0], self.list_commands(ctx))
        if near and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near}'?")
        return super().resolve_command(ctx, args)  # type: ignore[return-value]


def _has_local() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in _LOCAL_NEEDS)


app = typer.Typer(
    cls=_Commands,
    name="fathom",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's signature
    if wanted:
        typer.echo(f"fathom {version_and_build()}")
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
def render(files: Files = None, *, filename: FilesByFlag = None) -> None:
    """Print the objects that a SpeculativeDeployment becomes. Asks no cluster.

    Other kinds in the file are skipped. Nothing is printed for a resource that is refused.

    Example: fathom render -f kimi.yaml
    """
    manifests = named(files, filename)
    if not manifests:
        typer.echo("Name the files to render.", err=True)
        raise typer.Exit(REFUSED)
    bundle, program = plugin_bundle(), fetch_program()
    refused = False
    for document in read(manifests):
        resource = document.parsed
        if isinstance(resource, SpeculativeDeployment):
            judgement = judged(resource, _directories(resource))
            resource, problems = judgement.candidate.resource, judgement.errors
        else:
            problems = resource
        tell(document.where, problems)
        refused = refused or bool(problems)
        if isinstance(resource, SpeculativeDeployment) and not problems:
            typer.echo(to_yaml(children(resource, bundle, program)), nl=False)
    raise typer.Exit(REFUSED if refused else 0)


@app.command(hidden=True)
def crd(
    kind: Annotated[str, typer.Argument(help=f"{KIND} or {TUNER_KIND}.", show_default=True)] = KIND,
) -> None:
    """Print a CustomResourceDefinition."""
    typer.echo(to_yaml([custom_resource_definition(kind)]), nl=False)


def _directories(resource: SpeculativeDeployment) -> Mapping[ModelRef, ModelFacts]:
    """What is known of those models that lie on this machine. `render` asks no hub."""
    return {ref: local_facts(ref) for ref in model_refs(resource.spec) if is_directory(ref)}
