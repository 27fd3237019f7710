"""The fetch of weights within one pass: where it stands, and how that is told."""

from dataclasses import dataclass, field, replace
from typing import Final

from fathom.api.conditions import EventReason, Reason
from fathom.api.status import FetchedModel, WeightsStatus
from fathom.core.cluster.kinds import JOB
from fathom.core.cluster.observed_pods import ContainerStatus, ObservedPod
from fathom.core.cluster.pod_trouble import Trouble, pods_refused, trouble_with_pod
from fathom.core.cluster.snapshot import Objects
from fathom.core.plan import Progress
from fathom.core.reporting.events import Event, Severity
from fathom.fetch.progress import FetchProgress, size
from fathom.fetch.standing import (
    CONTAINER,
    Fetch,
    FetchStage,
    FetchStanding,
    pinned,
    standing_of,
)
from fathom.manifests.cache import wanted_fetch
from fathom.reconcile.checkpoint import Checkpoint
from fathom.resource import SpeculativeDeployment

LOOK_S: Final = 5.0
"""Between two looks at a fetch under way."""


def fetch_standing(
    sd: SpeculativeDeployment, revision: str, objects: Objects, checkpoint: Checkpoint
) -> FetchStanding:
    """Where the fetch stands that a spec wants.

    Args:
        sd: the spec, as the user wrote it.
        revision: of it.
        objects: what the cluster holds.
        checkpoint: what was fetched before.
    """
    found = (each for each in objects.workloads if each.revision == revision)
    return standing_of(
        wanted_fetch(sd),
        sd.metadata.name,
        workload=next(found, None),
        jobs=objects.jobs,
        pods=objects.pods,
        kept=checkpoint.weights,
    )


def pinned_to_fetched(
    sd: SpeculativeDeployment, revision: str, objects: Objects, checkpoint: Checkpoint
) -> SpeculativeDeployment:
    """The resource as its pods are rendered: with the commits that lie in the cache."""
    return pinned(sd, fetch_standing(sd, revision, objects, checkpoint).fetched)


def fetched_news(standing: FetchStanding) -> tuple[Event, ...]:
    """What to say once, when a fetch has ended."""
    if not standing.news or standing.fetch is None or standing.fetched is None:
        return ()
    models = ", ".join(f"{each.id} at {each.commit}" for each in _models(standing))
    message = f"In claim {standing.fetch.claim}: {models}, {size(standing.fetched.total_bytes)}."
    return (Event(Severity.NORMAL, EventReason.WEIGHTS_FETCHED, message),)


@dataclass(frozen=True, slots=True)
class FetchFindings:
    """What one pass has to report of a fetch."""

    status: WeightsStatus | None = None
    """None: no fetch is wanted."""
    progress: Progress | None = None
    """While pods wait for it."""
    trouble: Trouble | None = None
    seen: FetchProgress = field(default_factory=FetchProgress)
    """For the next pass."""
    wake_after_s: float = float("inf")


def asks_a_pod(standing: FetchStanding) -> bool:
    """Whether its pod is asked how far it is; at rest nobody is."""
    at_rest = standing.stage in {FetchStage.NOT_WANTED, FetchStage.PODS_AS_THEY_ARE}
    return not at_rest and standing.fetched is None


def fetch_findings(
    standing: FetchStanding, objects: Objects, seen: FetchProgress, *, answered: bool
) -> FetchFindings:
    """What to report of a fetch.

    Args:
        standing: where the fetch stands.
        objects: what the cluster holds.
        seen: how far it is, as far as its pod told by now.
        answered: whether its pod told so in this pass.
    """
    if standing.stage in {FetchStage.NOT_WANTED, FetchStage.PODS_AS_THEY_ARE}:
        return FetchFindings()
    if standing.fetched is not None:
        total = standing.fetched.total_bytes
        summary = f"{size(total)} fetched" if total else "fetched"
        return FetchFindings(WeightsStatus(summary=summary, percent=100, models=_models(standing)))
    message = f"pods wait until the weights are in claim {_claim(standing.fetch)}: {seen.summary}."
    return FetchFindings(
        status=WeightsStatus(summary=seen.summary, percent=seen.percent),
        progress=Progress(Reason.FETCHING_WEIGHTS, message),
        trouble=None if answered else _trouble(standing, objects),
        seen=seen,
        wake_after_s=LOOK_S,
    )


def _claim(fetch: Fetch | None) -> str:
    return fetch.claim if fetch else ""


def _models(standing: FetchStanding) -> tuple[FetchedModel, ...]:
    fetch, fetched = standing.fetch, standing.fetched
    if fetch is None or fetched is None:
        return ()
    return tuple(
        FetchedModel(id=ref.id, commit=fetched.commit(role)) for role, ref in fetch.by_role.items()
    )


def _trouble(standing: FetchStanding, objects: Objects) -> Trouble | None:
    """Why it does not get on, as far as its pod tells, or the cluster that takes none."""
    job, pod = standing.job, standing.pod
    if standing.stage is FetchStage.GIVEN_UP and job is not None:
        said = _last_words(pod) or job.failed or "it left no message that says what it fetched"
        return Trouble(
            Reason.WEIGHTS_NOT_FETCHED,
            f"Job {job.name} was given up: {said.rstrip('.')}. Delete it to have it started anew.",
        )
    if job is not None and (refused := objects.refused_pods.get(job.name)):
        trouble: Trouble | None = pods_refused(JOB, job.name, refused)
    elif said := _last_words(pod):
        return Trouble(Reason.WEIGHTS_NOT_FETCHED, f"{said.rstrip('.')}. It is tried again.")
    else:
        trouble = trouble_with_pod(pod, objects.nodes) if pod else None
    return trouble and replace(trouble, message=f"the weights are not fetched: {trouble.message}")


def _last_words(pod: ObservedPod | None) -> str:
    """What its last failed attempt said; empty: none has failed yet."""
    statuses = pod.status.container_statuses if pod else ()
    return next((_failure(status) for status in statuses if status.name == CONTAINER), "")


def _failure(status: ContainerStatus) -> str:
    ended = status.state.terminated or status.last_state.terminated
    if ended is None or ended.exit_code == 0:
        return ""
    words = " ".join(ended.message.split()) or ended.reason or f"exit code {ended.exit_code}"
    return words[-_LONGEST_WORDS:]


_LONGEST_WORDS: Final = 400
"""Characters: the end of a traceback says more than its beginning."""
