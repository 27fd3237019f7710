"""What a fetch needs in the cluster, and what is left of one that nobody wants any more. Pure."""

from collections.abc import Iterator

from fathom.api import names
from fathom.core.cluster.kinds import CONFIG_MAP, JOB, PERSISTENT_VOLUME_CLAIM
from fathom.core.cluster.snapshot import Objects
from fathom.fetch.program import FetchProgram
from fathom.fetch.standing import COMPONENT, FetchStage, FetchStanding
from fathom.manifests.children.cache_claim import cache_claim
from fathom.manifests.children.fetch_config_map import fetch_config_map
from fathom.manifests.children.fetch_job import fetch_job
from fathom.reconcile.writing.operations import Create, Operation, brought_about, deleted
from fathom.resource import SpeculativeDeployment


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
        *_claim(objects, sd),
        *(() if held else _begun(objects, sd, standing, program)),
        *_unwanted(objects, standing),
    )


def _claim(objects: Objects, sd: SpeculativeDeployment) -> Iterator[Operation]:
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
        if standing.job is None or job.name != standing.job.name:
            why = "the spec does not ask for these weights any more"
            yield deleted(objects, JOB, job.name, why)
        elif standing.stage is FetchStage.FORGOTTEN:
            # What is there is not fetched again: the next one only says once more what it is.
            yield deleted(objects, JOB, job.name, "what it has fetched is not known any more")
        elif standing.outlived:
            why = "what it has fetched is kept, and something beside its fetch goes on"
            yield deleted(objects, JOB, job.name, why)
        else:
            used |= job.spec.template.spec.config_maps
    if standing.stage is FetchStage.MISSING:
        # The one that is made now mounts what is in no list yet.
        return
    for each in objects.config_maps:
        if each.component == COMPONENT and each.name not in used:
            yield deleted(objects, CONFIG_MAP, each.name, "no Job mounts it")
