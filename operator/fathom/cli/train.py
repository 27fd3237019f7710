"""`fathom train`: what becomes of the training of a draft, and what a person says of it.

Writes annotations alone. The edit that adopts a draft is printed, for whoever keeps the spec.
"""

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Final

import typer

from fathom.adapters.ports import KubeError, KubePort, SystemClock
from fathom.api import names
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.api.training import TrainingPhase, TrainingStatus
from fathom.cli.arguments import Name
from fathom.cli.cluster import Reported, read_deployment
from fathom.cli.options import (
    Context,
    Kubeconfig,
    Namespace,
    annotate,
    kube_sentence,
    on_resource,
    refuse,
)
from fathom.cluster.kinds import ObjectKey
from fathom.health import (
    UNREADABLE,
    UNREPORTED,
    unseen_in_words,
    unwatched_in_words,
    unwatched_since,
)
from fathom.resource import known_part, parse
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
        str | None,
        typer.Option(metavar="RUN", help="Have this very run begin: it costs GPU hours."),
    ] = None,
    dismiss: Annotated[
        str | None, typer.Option(metavar="RUN", help="End this run, at whatever phase it is.")
    ] = None,
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
    propose, to approve, to dismiss or to adopt.

    Example: fathom train kimi-k2 -n llm --approve 7f3a90c1
    """
    wishes = (propose, approve is not None, dismiss is not None, output is not None)
    if sum(wishes) > 1:
        refuse("Give one of --propose, --approve, --dismiss and -o patch.")
    for option, run in (("--approve", approve), ("--dismiss", dismiss)):
        if run is not None and not run.strip():
            at = f" -n {namespace}" if namespace else ""
            refuse(f"{option} names no run: `kubectl fathom train {name}{at}` shows which it is.")
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
    approve: str | None = None
    dismiss: str | None = None
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
    if reported.unreadable or reported.hides_training:
        refuse(f"The training of {key} is not known. {UNREADABLE}")
    found = _Found(key=key, reported=reported, now_s=now_s)
    if asked.patch:
        return _patch(found)
    if asked.propose:
        return await _proposed(kube, found)
    if asked.approve is not None:
        return await _approved(kube, found, asked.approve.strip())
    if asked.dismiss is not None:
        return await _dismissed(kube, found, asked.dismiss.strip())
    return found.shown(found.training())


def in_words(key: ObjectKey, training: TrainingStatus) -> str:
    """Phase, run and message, and what of the week's GPU hours is begun."""
    run = f", run {training.run}" if training.run else ""
    message = f" {training.message}" if training.message else ""
    begun = training.gpu_hours_this_week
    spent = f"\nGPU hours begun within seven days, at most: {begun}." if begun else ""
    return f"{key}: {training.phase}{run}.{message}{spent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The resource as it was read, at a moment."""

    key: ObjectKey
    reported: _Deployment
    now_s: float

    @property
    def status(self) -> SpeculativeDeploymentStatus:
        return self.reported.status or SpeculativeDeploymentStatus()

    @property
    def command(self) -> str:
        return f"kubectl fathom train {self.key.name} -n {self.key.namespace}"

    def annotation(self, name: str) -> str:
        return self.reported.metadata.annotations.get(name, "").strip()

    def shown(self, training: TrainingStatus) -> str:
        """How it is, and why it may be otherwise by now."""
        return "\n".join(filter(None, (in_words(self.key, training), self.doubt())))

    def doubt(self) -> str:
        """Why its status is not of the present; empty: it is."""
        if not self.status.last_reconcile_time:
            return UNREPORTED
        since = unwatched_since(self.status, self.now_s)
        return unwatched_in_words(since) if since else self.unseen()

    def unseen(self) -> str:
        """That its last edit is not in its status; empty: it is."""
        return unseen_in_words(self.status, self.reported.metadata.generation)

    def training(self) -> TrainingStatus:
        """What its status tells of one.

        Raises:
            typer.Exit: nothing; stderr says what there is to do.
        """
        known = self.status.training
        if known is None:
            refuse(f"No training was proposed for {self.key}{self._what_to_do()}")
        return known

    def _what_to_do(self) -> str:
        if why := self.why_none():
            return f". {why}"
        if self.annotation(names.ANNOTATION_PROPOSE_TRAINING):
            return f" yet, and one is asked for. {self.doubt() or self.next()}"
        return (
            f". spec.draft.training allows one, and `{self.command} --propose` asks for it "
            "(docs/training.md)."
        )

    def why_none(self) -> str:
        """Why its spec has no training proposed, in sentences; empty: one may be."""
        sd = parse(known_part(self.reported.resource).known)
        if isinstance(sd, tuple):
            problems = "\n".join(f"  {each}" for each in sd)
            return f"The spec of {self.key} is refused. Correct it first:\n{problems}"
        if sd.spec.draft.training is None:
            return "Its spec allows none: write spec.draft.training first (docs/training.md)."
        if not sd.spec.drafts:
            return "No replica has a draft: set spec.speculation.drafting to Enabled first."
        return ""

    def next(self) -> str:
        """Where to see what comes of a wish; or that no operator is there."""
        if not self.status.last_reconcile_time:
            return "But no operator has reported on it yet: nothing happens until one runs."
        if since := unwatched_since(self.status, self.now_s):
            return (
                f"But no operator has watched since {since}, by the clock here: nothing happens "
                "until one runs."
            )
        return f"`{self.command}` shows what becomes of it."


def _patch(found: _Found) -> str:
    training = found.training()
    if training.phase is not TrainingPhase.FASTER or training.adopt is None:
        refuse(f"There is no draft of {found.key} to adopt. {found.shown(training)}")
    if doubt := found.doubt():
        typer.echo(doubt, err=True)
    return adoption_patch(training.adopt)


async def _proposed(kube: KubePort, found: _Found) -> str | None:
    training = found.status.training
    if training is not None and training.phase not in ENDED:
        refuse(f"{found.key} has one already. {found.shown(training)}")
    if why := found.why_none():
        refuse(f"No training can be proposed for {found.key}. {why}")
    done = f"{found.key}: a training is to be proposed. {found.next()}"
    value = f"{found.now_s:.0f}"
    return done if await _written(kube, found, names.ANNOTATION_PROPOSE_TRAINING, value) else None


async def _approved(kube: KubePort, found: _Found, run: str) -> str | None:
    training = found.training()
    if training.phase not in AWAITS_APPROVAL or training.run != run:
        refuse(f"Run {run} does not wait for approval. {found.shown(training)}")
    if why := found.why_none():
        refuse(f"Run {run} cannot begin. {why}")
    if found.annotation(names.ANNOTATION_DISMISS_TRAINING) == run:
        refuse(
            f"Run {run} is dismissed already, by annotation {names.ANNOTATION_DISMISS_TRAINING}, "
            f"which counts before an approval. {found.next()}"
        )
    done = f"{found.key}: run {run} is approved. {found.next()}"
    if unseen := found.unseen():
        done += f" {unseen} If that edit makes it another run, this approval is void."
    return done if await _written(kube, found, names.ANNOTATION_APPROVE_TRAINING, run) else None


async def _dismissed(kube: KubePort, found: _Found, run: str) -> str | None:
    training = found.training()
    if training.phase in ENDED or training.run != run:
        refuse(f"Run {run} is not under way. {found.shown(training)}")
    done = f"{found.key}: run {run} is dismissed. {found.next()}"
    return done if await _written(kube, found, names.ANNOTATION_DISMISS_TRAINING, run) else None


async def _written(kube: KubePort, found: _Found, annotation: str, value: str) -> bool:
    """Set an annotation; False: the resource is not there any more.

    Raises:
        KubeError: it was not written.
        typer.Exit: whether it was written is not known; stderr says so.
    """
    try:
        return await annotate(kube, found.key, annotation, value)
    except KubeError as error:
        if error.status and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        why = kube_sentence(error).rstrip(".")
        refuse(f"{why}. It may have been taken: `{found.command}` shows it.")
