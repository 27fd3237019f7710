"""`fathom train`: what becomes of the training of a draft, and what a person says of it.

Writes annotations alone. The edit that adopts a draft is printed, for whoever keeps the spec.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from fathom.adapters.ports import KubePort, SystemClock
from fathom.api import names
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.api.training import TrainingPhase, TrainingStatus
from fathom.cli.arguments import Name
from fathom.cli.cluster import Reported, read_deployment
from fathom.cli.options import Context, Kubeconfig, Namespace, annotate, on_resource, refuse
from fathom.cluster.kinds import ObjectKey
from fathom.health import unwatched_since
from fathom.training.record import AWAITS_APPROVAL, ENDED
from fathom.training.status import adoption_patch

_Deployment = Reported[SpeculativeDeploymentStatus]
app: Final = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class AsPatch(StrEnum):
    """What is printed instead of sentences."""

    PATCH = "patch"


@app.command()
def train_command(
    name: Name,
    *,
    propose: Annotated[
        bool, typer.Option("--propose", help="Have a training proposed, whatever is measured.")
    ] = False,
    approve: Annotated[
        str, typer.Option(metavar="RUN", help="Have this very run begin: it costs GPU hours.")
    ] = "",
    dismiss: Annotated[
        str, typer.Option(metavar="RUN", help="End this run, at whatever phase it is.")
    ] = "",
    output: Annotated[
        AsPatch | None,
        typer.Option("-o", "--output", help="patch: only the merge patch that adopts the draft."),
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show the training of a draft; propose, approve or dismiss one.

    Writes annotations, never the spec: `-o patch` prints the edit that adopts a draft which was
    found faster, for Git or for `kubectl patch --type merge`. Exit code 2: there is nothing to
    approve, to dismiss or to adopt.

    Example: fathom train kimi-k2 -n llm --approve 7f3a90c1
    """
    if sum(map(bool, (propose, approve, dismiss, output))) > 1:
        refuse("Give one of --propose, --approve, --dismiss and -o patch.")
    now_s = SystemClock().now_s()

    asked = Asked(propose=propose, approve=approve, dismiss=dismiss, patch=output is not None)

    async def answer(kube: KubePort, key: ObjectKey) -> str | None:
        return await answered(kube, key, asked, now_s)

    _, text = on_resource(name, answer, namespace=namespace, context=context, kubeconfig=kubeconfig)
    typer.echo(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person wants; of these one at most. Without any, it is shown how things are."""

    propose: bool = False
    approve: str = ""
    dismiss: str = ""
    patch: bool = False


async def answered(kube: KubePort, key: ObjectKey, asked: Asked, now_s: float) -> str | None:
    """Do what a person wants, and say what is done.

    Args:
        kube: the cluster.
        key: the SpeculativeDeployment.
        asked: what is wanted.
        now_s: Unix seconds.

    Returns:
        What to print; None: there is no such resource.

    Raises:
        KubeError: something could not be read or written.
        typer.Exit: there is nothing of that kind to do; stderr says what there is instead.
    """
    reported = await read_deployment(kube, key)
    if reported is None:
        return None
    if asked.patch:
        return _patch(key, reported)
    if asked.propose:
        return await _proposed(kube, key, reported, now_s)
    if asked.approve:
        return await _approved(kube, key, reported, asked.approve, now_s)
    if asked.dismiss:
        return await _dismissed(kube, key, reported, asked.dismiss, now_s)
    return in_words(key, _training(key, reported))


def in_words(key: ObjectKey, training: TrainingStatus) -> str:
    """Phase, run and message, and what of the week's GPU hours is begun."""
    begun = training.gpu_hours_this_week
    spent = f"\nGPU hours begun within seven days, at most: {begun}." if begun else ""
    return f"{key}: {training.phase}, run {training.run}. {training.message}{spent}"


def _training(key: ObjectKey, reported: _Deployment) -> TrainingStatus:
    found = reported.status.training if reported.status else None
    if found is None:
        refuse(
            f"No training was proposed for {key}. spec.draft.training allows one, and "
            f"`kubectl fathom train {key.name} --propose` asks for it (docs/training.md)."
        )
    return found


def _patch(key: ObjectKey, reported: _Deployment) -> str:
    training = _training(key, reported)
    if training.phase is not TrainingPhase.FASTER or training.adopt is None:
        refuse(f"There is no draft of {key} to adopt: {training.phase}. {training.message}")
    return adoption_patch(training.adopt)


async def _proposed(kube: KubePort, key: ObjectKey, reported: _Deployment, now_s: float) -> str:
    training = reported.status.training if reported.status else None
    if training is not None and training.phase not in ENDED:
        refuse(f"{key} has one already. {in_words(key, training)}")
    await annotate(kube, key, names.ANNOTATION_PROPOSE_TRAINING, f"{now_s:.0f}")
    return f"{key}: a training is to be proposed. {_next(key, reported, now_s)}"


async def _approved(
    kube: KubePort, key: ObjectKey, reported: _Deployment, run: str, now_s: float
) -> str:
    training = _training(key, reported)
    if training.phase not in AWAITS_APPROVAL or training.run != run:
        refuse(f"Run {run} does not wait for approval. {in_words(key, training)}")
    await annotate(kube, key, names.ANNOTATION_APPROVE_TRAINING, run)
    return f"{key}: run {run} is approved. {_next(key, reported, now_s)}"


async def _dismissed(
    kube: KubePort, key: ObjectKey, reported: _Deployment, run: str, now_s: float
) -> str:
    training = _training(key, reported)
    if training.phase in ENDED or training.run != run:
        refuse(f"Run {run} is not under way. {in_words(key, training)}")
    await annotate(kube, key, names.ANNOTATION_DISMISS_TRAINING, run)
    return f"{key}: run {run} is dismissed. {_next(key, reported, now_s)}"


def _next(key: ObjectKey, reported: _Deployment, now_s: float) -> str:
    """Where to see what comes of it; or that nobody is there."""
    if reported.status and (since := unwatched_since(reported.status, now_s)):
        return f"But no operator has watched since {since}: nothing happens until one runs."
    return f"`kubectl fathom train {key.name} -n {key.namespace}` shows what becomes of it."
