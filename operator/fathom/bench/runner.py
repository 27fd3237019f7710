"""Carries a bench out, with the rights of whoever asks: a Job is made, watched, read and removed.

Nothing of the fleet is touched. Whoever asks may vanish at any time: the Job ends by itself, its
code goes with it, and until then another can go on watching.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final

from fathom.adapters.jobs import JobCluster, Room, look, make, remove_job
from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.api.accelerators import vendor_of
from fathom.api.conditions import Reason
from fathom.bench.job import BenchProgram, bench_code, bench_job
from fathom.bench.log import Heard, heard
from fathom.bench.planning import PlannedBench
from fathom.bench.request import BenchRefusedError, DataVolume
from fathom.bench.result import result_config_map
from fathom.cluster.kinds import CONFIG_MAP, JOB, PERSISTENT_VOLUME_CLAIM, ObjectKey
from fathom.cluster.manifest import Manifest, Meta, Seen, place_of
from fathom.cluster.observed import ObservedJob
from fathom.measurement.bench_result import DepthBench
from fathom.resource import SpeculativeDeployment

EVERY_S: Final = 2.0
GONE_S: Final = 60.0
"""That the Job of an earlier bench may take to go."""


async def start(
    cluster: JobCluster,
    sd: SpeculativeDeployment,
    bench: PlannedBench,
    *,
    run: str,
    deadline_minutes: int,
    program: BenchProgram,
) -> None:
    """Make the Job, and what its pod mounts.

    Raises:
        BenchRefusedError: one is under way.
        KubeError: it cannot be made; nothing is left then.
    """
    namespace, name = sd.metadata.namespace, names.bench(sd.metadata.name)
    for volume in {each.volume for each in bench.data if each.volume}:
        await _require(cluster, namespace, volume)
    await _clear(cluster, ObjectKey(namespace, name))
    job = bench_job(sd, bench, run=run, deadline_minutes=deadline_minutes, program=program)
    try:
        await make(
            cluster,
            job,
            lambda owner: bench_code(sd, bench, run=run, program=program, owner=owner),
            lambda: remove(cluster, sd, run),
        )
    except KubeError as error:
        if error.outdated:
            raise BenchRefusedError(_under_way(sd)) from error
        raise


async def follow(
    cluster: JobCluster,
    sd: SpeculativeDeployment,
    *,
    run: str,
    room_s: float,
    tell: Callable[[Heard], None],
) -> Heard:
    """Watch a bench to its end.

    Args:
        cluster: where.
        sd: whose.
        run: which.
        room_s: seconds that its pod may have trouble to start, such as to find a node.
        tell: is given where it stands, again and again.

    Returns:
        All that it said.

    Raises:
        BenchRefusedError: there is none, or it could not start.
        KubeError: it cannot be watched.
    """
    key = _key(sd)
    told, room = Heard(), Room(seconds=room_s, clock=cluster.clock)
    while True:
        try:
            seen = await look(cluster, key, partial(_is, run))
        except KubeError as error:
            # What is gone for a moment need not end the watching.
            if not error.transient:
                raise
            await cluster.pause(EVERY_S)
            continue
        if seen is None:
            return _left_of(told, _gone(sd))
        # A log goes before its pod does, and takes nothing back.
        told = max(told, heard(seen.log), key=lambda each: each.said)
        if told.ended:
            return told
        trouble = seen.trouble
        if ended := _ended(seen.job):
            why = f"{ended} {trouble.message}" if trouble else ended
            return replace(told, failures=(*told.failures, why))
        in_trouble = trouble is not None and told.runs is None
        if room.is_over(in_trouble=in_trouble) and trouble is not None:
            raise BenchRefusedError(_no_start(sd, trouble.reason, trouble.message))
        if trouble is not None and in_trouble:
            tell(replace(told, now=trouble.message))
        else:
            tell(told if told.now else replace(told, now="waits for its pod to start"))
        await cluster.pause(EVERY_S)


async def keep(cluster: JobCluster, sd: SpeculativeDeployment, bench: DepthBench) -> None:
    """Put the result where it stays.

    Raises:
        KubeError: it cannot be written.
    """
    manifest = result_config_map(sd, bench)
    live = await cluster.kube.get(CONFIG_MAP, *place_of(manifest))
    if live is None:
        await cluster.kube.create(CONFIG_MAP, manifest)
    else:
        await cluster.kube.apply(CONFIG_MAP, manifest, Seen.of(live))


async def under_way(cluster: JobCluster, sd: SpeculativeDeployment) -> str:
    """Which bench of a resource is there.

    Raises:
        BenchRefusedError: there is none.
        KubeError: it cannot be read.
    """
    namespace, name = sd.metadata.namespace, names.bench(sd.metadata.name)
    job = await cluster.kube.get(JOB, namespace, name)
    if job is None:
        raise BenchRefusedError(_gone(sd))
    return _run_of(job)


async def remove(cluster: JobCluster, sd: SpeculativeDeployment, run: str) -> str:
    """Delete this run's Job, and with it its pod and code.

    Returns:
        Why it may still be there, as a sentence; empty: it is not. It goes by itself in the end.
    """
    return await remove_job(cluster, _key(sd), partial(_is, run), holds="GPUs")


def _key(sd: SpeculativeDeployment) -> ObjectKey:
    return ObjectKey(sd.metadata.namespace, names.bench(sd.metadata.name))


def _is(run: str, job: Manifest) -> bool:
    return _run_of(job) == run


def _run_of(job: Manifest) -> str:
    return Meta.model_validate(job["metadata"]).annotations.get(names.ANNOTATION_BENCH_RUN, "")


def _left_of(told: Heard, gone: str) -> Heard:
    """What a bench had measured before its Job went.

    Raises:
        BenchRefusedError: nothing.
    """
    if not told.results:
        raise BenchRefusedError(gone)
    return replace(told, failures=(*told.failures, gone))


def _gone(sd: SpeculativeDeployment) -> str:
    key = _key(sd)
    return (
        f"There is no Job {key}, or not the same one any more: its result was fetched and it went, "
        "or it was deleted. The operator deletes it where a replica has no place: event "
        f"BenchEnded in `kubectl describe sd {sd.metadata.name} --namespace {key.namespace}` says "
        "so."
    )


async def _clear(cluster: JobCluster, key: ObjectKey) -> None:
    """Let the Job of an earlier bench go, if it has ended."""
    deadline_s = cluster.clock.now_s() + GONE_S
    while (job := await cluster.kube.get(JOB, key.namespace, key.name)) is not None:
        observed = ObservedJob.model_validate(job)
        if not _ended(observed) and observed.metadata.deletion_timestamp is None:
            raise BenchRefusedError(
                f"A bench is under way, Job {key}: --follow watches it, `kubectl delete job "
                f"{key.name} --namespace {key.namespace}` ends it."
            )
        if cluster.clock.now_s() >= deadline_s:
            raise BenchRefusedError(
                f"Job {key} of an earlier bench does not go: see what holds it."
            )
        if observed.metadata.deletion_timestamp is None:
            await cluster.kube.delete(JOB, key.namespace, key.name, Seen.of(job))
        await cluster.pause(EVERY_S)


async def _require(cluster: JobCluster, namespace: str, volume: DataVolume) -> None:
    """A pod whose volume is not there waits for it without a word."""
    kind = PERSISTENT_VOLUME_CLAIM if volume.kind == "pvc" else CONFIG_MAP
    try:
        there = await cluster.kube.get(kind, namespace, volume.name)
    except KubeError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return  # Who may not look may have one mounted anyway.
        raise
    if there is None:
        raise BenchRefusedError(
            f"There is no {kind.kind} {namespace}/{volume.name} to read prompts from."
        )


def _ended(job: ObservedJob) -> str:
    """Why nothing more comes of a Job; empty: something may."""
    if job.failed is not None:
        return f"the Job was given up: {job.failed}."
    return "the pod ended before everything was measured." if job.complete else ""


def _under_way(sd: SpeculativeDeployment) -> str:
    return f"Another bench of {sd.metadata.name} has just begun: --follow watches it."


def _no_start(sd: SpeculativeDeployment, reason: Reason, message: str) -> str:
    if reason is not Reason.POD_UNSCHEDULABLE:
        return f"The bench could not start: {message}"
    vendor, name = vendor_of(sd.spec.node_pool), sd.metadata.name
    asked = f"{sd.engine.layout.gpus_per_pod} {vendor.resource}" if vendor else "its processors"
    return (
        f"There is no capacity for the bench: {message} It needs, in addition to the fleet, what "
        f"a replica needs: {asked} on one node. Free one: "
        f"`kubectl scale sd {name} --replicas={max(0, sd.spec.replicas - 1)}` drains a replica "
        "without losing a request; scale back afterwards."
    )
