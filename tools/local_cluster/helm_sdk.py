"""Helm's library behind Helm's command line, as far as `local_cluster.helm` uses it.

A process of its own: the library brings a Go runtime, which is no guest for a test process.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import helm_python  # type: ignore[import-not-found] # in the cache, never in this environment
import typer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

Namespace = Annotated[str, typer.Option("--namespace")]
Values = Annotated[typer.FileText | None, typer.Option("--values")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Over what --values has.")
]
Kubeconfig = Annotated[Path, typer.Option("--kubeconfig")]
Timeout = Annotated[str, typer.Option("--timeout", help="Seconds, such as 120s.")]
Destination = Annotated[Path, typer.Option("--destination")]
PlainHttp = Annotated[bool, typer.Option("--plain-http")]
Wait = Annotated[bool, typer.Option("--wait")]
ERROR_SEVERITY = 3
WARNING_SEVERITY = 2


@app.command()
def version(*, short: Annotated[bool, typer.Option("--short")] = False) -> None:
    """Print Helm's version."""
    text = helm_python.helm_sdk_version()
    typer.echo(text if short else f"Helm {text}")


@app.command()
def lint(
    chart: Path,
    *,
    values: Values = None,
    strict: Annotated[bool, typer.Option("--strict")] = False,
) -> None:
    """Examine a chart."""
    report = helm_python.lint(chart, _read(values), strict=strict)
    limit = WARNING_SEVERITY if strict else ERROR_SEVERITY
    for message in report["messages"]:
        typer.echo(f"[{message['severity']}] {message['path']}: {message['error']}")
    if any(message["severity"] >= limit for message in report["messages"]):
        raise typer.Exit(1)


@app.command()
def template(
    name: str, chart: Path, *, namespace: Namespace = "default", values: Values = None
) -> None:
    """Render a chart without a cluster."""
    with helm_python.Chart.load(chart) as loaded:
        rendered = loaded.render(_read(values), name=name, namespace=namespace, is_install=True)
    for path, text in rendered.items():
        if text.strip() and not path.endswith("NOTES.txt"):
            typer.echo(f"---\n# Source: {path}\n{text}")


@app.command()
def package(chart: Path, *, destination: Destination) -> None:
    """Pack a chart."""
    packed = helm_python.package(chart, destination=destination)
    typer.echo(f"Successfully packaged chart and saved it to: {packed}")


@app.command()
def push(archive: Path, registry: str, *, plain_http: PlainHttp = False) -> None:
    """Upload a packed chart to an OCI registry."""
    with helm_python.RegistryClient(plain_http=plain_http) as client:
        client.push(archive, registry, plain_http=plain_http)


@app.command()
def pull(
    chart: str,
    *,
    version: Annotated[str, typer.Option("--version")],
    destination: Destination,
    plain_http: PlainHttp = False,
) -> None:
    """Download a packed chart from an OCI registry."""
    with helm_python.RegistryClient(plain_http=plain_http) as client:
        client.pull(chart, version=version, destination=destination, plain_http=plain_http)


@app.command()
def install(
    name: str,
    chart: Path,
    *,
    kubeconfig: Kubeconfig,
    namespace: Namespace = "default",
    values: Values = None,
    assigned: Set = None,
    timeout: Timeout = "300s",
    wait: Wait = False,
    create_namespace: Annotated[bool, typer.Option("--create-namespace")] = False,
) -> None:
    """Install a chart."""
    with helm_python.Config(kubeconfig_path=kubeconfig, namespace=namespace) as config:
        config.install(
            chart,
            name,
            _read(values, assigned),
            namespace=namespace,
            timeout=_seconds(timeout),
            wait="watcher" if wait else "hookOnly",
            create_namespace=create_namespace,
        )


@app.command()
def upgrade(
    name: str,
    chart: Path,
    *,
    kubeconfig: Kubeconfig,
    namespace: Namespace = "default",
    values: Values = None,
    timeout: Timeout = "300s",
    wait: Wait = False,
) -> None:
    """Upgrade a release."""
    with helm_python.Config(kubeconfig_path=kubeconfig, namespace=namespace) as config:
        config.upgrade(
            chart,
            name,
            _read(values),
            namespace=namespace,
            timeout=_seconds(timeout),
            wait="watcher" if wait else "hookOnly",
        )


@app.command()
def rollback(
    name: str,
    revision: int,
    *,
    kubeconfig: Kubeconfig,
    namespace: Namespace = "default",
    timeout: Timeout = "300s",
    wait: Wait = False,
) -> None:
    """Go back to an earlier revision of a release."""
    with helm_python.Config(kubeconfig_path=kubeconfig, namespace=namespace) as config:
        config.rollback(
            name,
            version=revision,
            timeout=_seconds(timeout),
            wait="watcher" if wait else "hookOnly",
        )


@app.command()
def uninstall(
    name: str,
    *,
    kubeconfig: Kubeconfig,
    namespace: Namespace = "default",
    timeout: Timeout = "300s",
) -> None:
    """Remove a release."""
    with helm_python.Config(kubeconfig_path=kubeconfig, namespace=namespace) as config:
        config.uninstall(name, timeout=_seconds(timeout))


def _read(
    values: typer.FileText | None, assigned: Sequence[str] | None = None
) -> dict[str, object]:
    parsed: dict[str, Any] = helm_python.values_from_yaml(values.read()) if values else {}
    for each in assigned or ():
        path, _, value = each.partition("=")
        *outer, last = path.split(".")
        inner = parsed
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = helm_python.values_from_yaml(f"value: {value}")["value"]
    return parsed


def _seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


def main() -> None:
    """Run, and say what Helm says on stderr, as Helm does."""
    try:
        app()
    except helm_python.HelmError as error:
        sys.stderr.write(f"Error: {error}\n")
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
