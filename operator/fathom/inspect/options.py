"""Options that several commands share, and how they refuse."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fathom.adapters.kube_config import NoClusterError
from fathom.adapters.ports import KubeError
from fathom.inspect.completion import names_beginning
from fathom.inspect.resources import REFUSED

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Of the SpeculativeDeployment.", autocompletion=names_beginning
    ),
]

Namespace = Annotated[
    str, typer.Option("-n", "--namespace", help="Default: the context's, as with kubectl.")
]
Context = Annotated[str, typer.Option(help="Of the kubeconfig; default: its current one.")]
Kubeconfig = Annotated[
    Path | None, typer.Option(help="Default: what KUBECONFIG names, else ~/.kube/config.")
]


@contextmanager
def refusing() -> Iterator[None]:
    """Turns what a cluster cannot give into a sentence and exit code 2."""
    try:
        yield
    except NoClusterError as error:
        refuse(str(error))
    except KubeError as error:
        refuse(kube_sentence(error))


def refuse(sentence: str) -> NoReturn:
    """Say why on stderr, and end.

    Raises:
        typer.Exit: always, with exit code 2.
    """
    typer.echo(sentence, err=True)
    raise typer.Exit(REFUSED)


def kube_sentence(error: KubeError) -> str:
    """What went wrong with the API server, and what to look at."""
    if error.forbidden:
        return f"The API server does not let you do this: {error.message}"
    return f"The API server cannot be asked: {error.message}"
