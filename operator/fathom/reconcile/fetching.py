"""The fetch of weights within one reconcile: its state, how it is reported, what it needs. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.api.status import FetchedModel, WeightsStatus
from fathom.cluster.events import Event, EventReason, Severity
from fathom.cluster.kinds import CONFIG_MAP, JOB, PERSISTENT_VOLUME_CLAIM
from fathom.cluster.observed_pods import ContainerStatus, ObservedPod
from fathom.cluster.pod_failures import Trouble, pods_refused, trouble_with_pod
from fathom.cluster.snapshot import Objects
from fathom.fetch.state import (
    COMPONENT,
    CONTAINER,
    Fetch,
    FetchProgram,
    FetchProgress,
    FetchStage,
    FetchStanding,
    pinned,
    size,
    standing_of,
)
from fathom.manifests.cache import wanted_fetch
from fathom.manifests.config_maps import fetch_config_map
from fathom.manifests.fetch_job import cache_claim, fetch_job
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.operations import Create, Operation, brought_about, deleted
from fathom.resource import SpeculativeDeployment
from fathom.rollout.progress import Progress

LOOK_S: Final = 5.0
"""Between two looks at a fetch under way."""
_LONGEST_WORDS: Final = 400
"""Characters: the end of a traceback says more than its beginning."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return FetchFindings(
            status=WeightsStatus(summary=summary, percent=100, models=_models(standing))
        )
    trouble = None if answered else _trouble(standing, objects)
    stands = "see Degraded" if trouble else seen.summary
    message = f"pods wait until the weights are in claim {_claim(standing.fetch)}: {stands}."
    return FetchFindings(
        status=WeightsStatus(summary=seen.summary, percent=seen.percent),
        progress=Progress(Reason.FETCHING_WEIGHTS, message),
        trouble=trouble,
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
            f"Job {job.name} was given up: {said.rstrip('.')}. Delete it to have it started again.",
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


def fetch_operations(
    objects: Objects,
    sd: SpeculativeDeployment,
    standing: FetchStanding,
    program: FetchProgram,
    *,
    held: bool = False,
) -> tuple[Operation, ...]:
    """The writes that are missing; at rest there are none.

    Args:
        objects: what the cluster holds.
        sd: whose weights.
        standing: where the fetch that the newest spec wants stands.
        program: that fetches.
        held: whether no fetch may begin yet.
    """
    return (
        *_claim_operations(objects, sd),
        *(() if held else _begun(objects, sd, standing, program)),
        *_unwanted(objects, standing),
    )


def _claim_operations(objects: Objects, sd: SpeculativeDeployment) -> Iterator[Operation]:
    """Before the pods that mount it; never deleted."""
    if not sd.spec.cache.size:
        return
    operation = brought_about(objects, PERSISTENT_VOLUME_CLAIM, cache_claim(sd))
    if operation is not None:
        yield operation


def _begun(
    objects: Objects, sd: SpeculativeDeployment, standing: FetchStanding, program: FetchProgram
) -> Iterator[Operation]:
    if standing.stage is not FetchStage.MISSING or standing.fetch is None:
        return
    config_map = fetch_config_map(sd, program)
    if (CONFIG_MAP, names.fetch_config_map(sd.metadata.name, program.content)) not in objects.live:
        yield Create(CONFIG_MAP, config_map, "it does not exist")
    yield Create(JOB, fetch_job(sd, standing.fetch, program), "the weights are not fetched yet")


def _unwanted(objects: Objects, standing: FetchStanding) -> Iterator[Operation]:
    used: frozenset[str] = frozenset()
    for job in objects.jobs:
        if job.component != COMPONENT:
            continue
        if standing.job is None or job.name != standing.job.name:
            why = "the spec does not ask for these weights any more"
            yield deleted(objects, JOB, job.name, why)
        elif standing.stage is FetchStage.FORGOTTEN:
            # What is there is not fetched again: the next one only says once more what it is.
            yield deleted(objects, JOB, job.name, "what it has fetched is not known any more")
        elif standing.outlived:
            why = "what it has fetched is kept, and its pod still runs"
            yield deleted(objects, JOB, job.name, why)
        else:
            used |= job.spec.template.spec.config_maps
    if standing.stage is FetchStage.MISSING:
        # The one that is made now mounts what is in no list yet.
        return
    for each in objects.config_maps:
        if each.component == COMPONENT and each.name not in used:
            yield deleted(objects, CONFIG_MAP, each.name, "no Job mounts it")
