"""`fathom retry`."""

import typer

from fathom.adapters.ports import KubePort, SystemClock
from fathom.api import names
from fathom.api.conditions import ConditionStatus, ConditionType, Reason
from fathom.api.status import ArmState, SpeculativeDeploymentStatus
from fathom.cli.cluster import read_reported
from fathom.cli.options import Context, Kubeconfig, Name, Namespace, refuse
from fathom.cli.target import annotate, on_resource
from fathom.cluster.kinds import JOB, ObjectKey
from fathom.cluster.manifest import Seen
from fathom.cluster.observed import ObservedJob
from fathom.fetch.state import COMPONENT
from fathom.rollout.rollout import Stage
from fathom.times import rfc3339

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
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
    reported = await read_reported(kube, key)
    if reported is None:
        return None
    status = reported.status or SpeculativeDeploymentStatus()
    done: list[str] = []
    waits = waits_for_a_wish(status)
    if waits or was_rolled_back(status) or was_compared_in_vain(status):
        await annotate(kube, key, names.ANNOTATION_RETRY_ROLLOUT, rfc3339(now_s))
        done.append(
            "the revision that waits gets a canary."
            if waits
            else "the revision that was given up gets another canary."
        )
    degraded = reported.condition(ConditionType.DEGRADED)
    if degraded is not None and degraded.status is not ConditionStatus.TRUE:
        degraded = None
    if degraded is not None and degraded.reason == Reason.WEIGHTS_NOT_FETCHED:
        done += [f"the fetch {each} begins again." for each in await _fetch_anew(kube, key)]
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
