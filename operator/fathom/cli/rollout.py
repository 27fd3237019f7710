"""`fathom rollout`, `retry`, `pause` and `resume`: what asks the operator for something.

Each writes an annotation, and `retry` may delete a Job.
"""

from typing import Annotated

import typer

from fathom.adapters.ports import KubeError, KubePort, SystemClock
from fathom.api import names
from fathom.api.conditions import ConditionStatus, ConditionType, Reason
from fathom.api.status import OFFERED, ArmState, RolloutStatus, SpeculativeDeploymentStatus
from fathom.cli.arguments import Name
from fathom.cli.cluster import AnyReported, read_deployment, read_reported
from fathom.cli.options import (
    Context,
    Kubeconfig,
    Namespace,
    annotate,
    kube_sentence,
    on_resource,
    refuse,
)
from fathom.cluster.kinds import JOB, ObjectKey
from fathom.cluster.manifest import Seen
from fathom.cluster.observed import ObservedJob
from fathom.fetch.state import COMPONENT
from fathom.health import UNREADABLE, unwatched_since
from fathom.reconcile.annotations import PAUSED_WITHOUT_REASON, pause_of
from fathom.rollout.rollout import Stage
from fathom.times import rfc3339

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
retry_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
pause_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
resume_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def rollout_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Roll out what the operator renders otherwise since it was upgraded or rolled back.

    Pods stay as they run until then. Names the revision that status.rollout offers in the
    annotation fathom.dev/rollout; the spec stays as it is. Exit code 2: nothing is offered.

    Example: fathom rollout kimi-k2 -n llm
    """
    key, offered = on_resource(
        name, asked_for, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    typer.echo(
        f"{key}: revision {offered.revision} replaces {offered.stable}, one canary first: "
        f"{offered.why}. `kubectl annotate sd {name} {names.ANNOTATION_ROLLOUT}-` takes that back."
    )


async def asked_for(kube: KubePort, key: ObjectKey) -> RolloutStatus | None:
    """Ask for the rollout that is offered.

    Args:
        kube: the cluster.
        key: the SpeculativeDeployment.

    Returns:
        What was offered; None: there is no such resource.

    Raises:
        KubeError: something could not be read or written.
        typer.Exit: nothing is offered; stderr says what stands there instead.
    """
    reported = await read_deployment(kube, key)
    if reported is None:
        return None
    if reported.unreadable:
        refuse(f"What is offered for {key} is not known. {UNREADABLE}")
    rollout = reported.status.rollout if reported.status else None
    if rollout is None or rollout.stage != OFFERED:
        last = f" Its rollout to {rollout.revision} is at {rollout.stage}." if rollout else ""
        refuse(f"Nothing is offered for {key}: its pods are what its operator renders.{last}")
    there = await annotate(kube, key, names.ANNOTATION_ROLLOUT, rollout.revision)
    return rollout if there else None


@retry_app.command()
def retry_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Try once more what was given up: a revision that was rolled back, a fetch of weights.

    Also starts the canary that waits because the spec of what serves is not known.

    Gives the annotation fathom.dev/retry-rollout a new value, or deletes the Job of the fetch, for
    the operator to start it again. The spec stays as it is. Exit code 2: nothing was given up.

    Example: fathom retry kimi-k2 -n llm
    """
    now_s = SystemClock().now_s()

    async def retry(kube: KubePort, key: ObjectKey) -> tuple[str, ...] | None:
        return await retried(kube, key, now_s)

    key, done = on_resource(
        name, retry, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    for sentence in done:
        typer.echo(f"{key}: {sentence}")


async def retried(kube: KubePort, key: ObjectKey, now_s: float) -> tuple[str, ...] | None:
    """Ask for another try of all that was given up.

    Args:
        kube: the cluster.
        key: the SpeculativeDeployment.
        now_s: Unix seconds; what makes the annotation's value a new one.

    Returns:
        A sentence for each; None: there is no such resource.

    Raises:
        KubeError: something could not be read or written.
        typer.Exit: nothing was given up; stderr says what stands in the way instead.
    """
    reported = await read_deployment(kube, key)
    if reported is None:
        return None
    if reported.unreadable:
        refuse(f"What was given up of {key} is not known. {UNREADABLE}")
    status = reported.status or SpeculativeDeploymentStatus()
    done: list[str] = []
    waits = waits_for_a_wish(status)
    if waits or was_rolled_back(status) or was_compared_in_vain(status):
        if not await annotate(kube, key, names.ANNOTATION_RETRY_ROLLOUT, rfc3339(now_s)):
            return None
        done.append(
            "the revision that waits gets a canary."
            if waits
            else "the revision that was given up gets another canary."
        )
    degraded = reported.condition(ConditionType.DEGRADED)
    if degraded is not None and degraded.status is not ConditionStatus.TRUE:
        degraded = None
    if degraded is not None:
        # Its reason is that of the first trouble; a fetch may be behind another one.
        try:
            done += [f"the fetch {each} begins again." for each in await _fetch_anew(kube, key)]
        except KubeError as error:
            if not done or not error.forbidden:
                raise
            done.append(f"fetches of weights are left out. {kube_sentence(error)}")
    if not done:
        stands = f" It is degraded for another reason: {degraded.message}" if degraded else ""
        refuse(f"Nothing of {key} was given up, so there is nothing to try again.{stands}")
    return tuple(done)


def was_rolled_back(status: SpeculativeDeploymentStatus) -> bool:
    """Whether the newest revision failed as a canary, and is not tried again by itself."""
    return status.rollout is not None and status.rollout.stage == Stage.ROLLED_BACK


def waits_for_a_wish(status: SpeculativeDeploymentStatus) -> bool:
    """Whether the newest revision has no canary, since the spec of what serves is not known."""
    rollout = status.rollout
    return (
        rollout is not None
        and rollout.stage == Stage.SETTLING
        and rollout.reason == Reason.STABLE_SPEC_UNKNOWN
    )


def was_compared_in_vain(status: SpeculativeDeploymentStatus) -> bool:
    """Whether the one replica that was compared was given up."""
    compared = status.comparison
    return compared is not None and compared.state is ArmState.FAILED


async def _fetch_anew(kube: KubePort, key: ObjectKey) -> list[str]:
    """Delete the Jobs whose fetch was given up; the operator makes them again."""
    deleted = []
    for manifest in await kube.select(JOB, key.namespace, f"{names.LABEL_NAME}={key.name}"):
        job = ObservedJob.model_validate(manifest)
        if job.metadata.labels.get(names.LABEL_COMPONENT) == COMPONENT and job.failed is not None:
            await kube.delete(JOB, key.namespace, job.name, Seen.of(manifest))
            deleted.append(job.name)
    return deleted


@pause_app.command()
def pause_command(
    name: Name,
    *,
    reason: Annotated[
        str, typer.Option(help="For whoever finds it paused; the status shows it.")
    ] = PAUSED_WITHOUT_REASON,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Hold what the operator does by itself. Restarts nothing.

    Depth stays as it is, rollouts and refreshes wait; scaling and edits that change depth
    continue. Writes the annotation fathom.dev/paused, not the spec, so that what syncs the spec
    from Git finds no difference. `fathom resume` ends it.

    Example: fathom pause kimi-k2 -n llm --reason "incident 42"
    """
    if not pause_of({names.ANNOTATION_PAUSED: reason}):
        refuse(f"--reason {reason!r} would be no pause: say why, or leave it out.")

    async def paused(kube: KubePort, key: ObjectKey) -> AnyReported | None:
        await annotate(kube, key, names.ANNOTATION_PAUSED, reason)
        return await read_reported(kube, key)

    key, reported = on_resource(
        name, paused, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    typer.echo(paused_in_words(key, reported, SystemClock().now_s()))


def paused_in_words(key: ObjectKey, reported: AnyReported, now_s: float) -> str:
    """What a pause does, or that nobody is there to do it.

    Args:
        key: of the resource.
        reported: as it is since it has the annotation.
        now_s: Unix seconds.
    """
    end = f"`kubectl fathom resume {key.name}` ends it."
    if reported.status and (since := unwatched_since(reported.status, now_s)):
        return (
            f"{key} has the annotation of a pause, but no operator has watched since {since}: it is"
            f" held once an operator runs that watches this namespace. {end}"
        )
    return (
        f"{key} is paused: depth stays as it is, and rollouts wait. REASON says Paused once the "
        f"operator has seen it. {end}"
    )


@resume_app.command()
def resume_command(
    name: Name,
    *,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """End a pause: what was held continues where it was.

    Example: fathom resume kimi-k2 -n llm
    """

    async def resumed(kube: KubePort, key: ObjectKey) -> AnyReported | None:
        before = await read_reported(kube, key)
        if before is not None and pause_of(before.metadata.annotations):
            await annotate(kube, key, names.ANNOTATION_PAUSED, None)
        return before

    key, before = on_resource(
        name, resumed, namespace=namespace, context=context, kubeconfig=kubeconfig
    )
    if not pause_of(before.metadata.annotations):
        refuse(
            f"{key} is not paused by annotation {names.ANNOTATION_PAUSED}, so there is nothing to "
            "end. A rollout that its spec holds continues with rollout.paused: false."
        )
    typer.echo(f"{key} continues where it was.")
