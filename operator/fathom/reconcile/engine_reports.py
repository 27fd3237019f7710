"""Where engines say that they run with something else than was rendered for them."""

from collections.abc import Iterator
from dataclasses import replace

from fathom.core.cluster.snapshot import Snapshot
from fathom.core.measurement import PodCounters
from fathom.engine.depth import DepthDocument
from fathom.engine.report import Difference, EngineReport, differences
from fathom.reconcile.desired_state import DesiredState


def differing_engines(
    snapshot: Snapshot, desired: DesiredState
) -> dict[str, tuple[Difference, ...]]:
    """By pod that serves: in what its engine differs. Only those that do.

    What was rendered stands in the workload, whichever Fathom wrote it: an admission webhook may
    have changed the pod.
    """
    asked = dict(_asked(snapshot, desired))
    found = {
        pod.name: (
            *differences(snapshot.counters[pod.name].report, asked[pod.revision]),
            *_other_schedule(snapshot.counters[pod.name], snapshot.objects.depth),
        )
        for pod in sorted(snapshot.objects.leaders, key=lambda each: each.name)
        if pod.name in snapshot.counters and pod.revision in asked and not pod.terminating
    }
    return {pod: differing for pod, differing in found.items() if differing}


def _other_schedule(counters: PodCounters, document: DepthDocument | None) -> Iterator[Difference]:
    """Where an engine obeys a document of the same generation that says something else."""
    if document is None or counters.depth_generation != document.generation:
        return
    told, asked = counters.schedule_hash, document.hash_for_pod(counters.pod)
    if told not in {0, asked}:
        yield Difference(
            f"depths of generation {document.generation} with hash", f"{told:08x}", f"{asked:08x}"
        )


def _asked(snapshot: Snapshot, desired: DesiredState) -> Iterator[tuple[str, EngineReport]]:
    """What was asked of the engines, by revision that has a workload."""
    known = {desired.revision: desired.sd}
    if desired.stable is not None:
        known[desired.tuned_revision] = desired.stable
    for workload in snapshot.objects.workloads:
        asked, sd = workload.leader.asks_for, known.get(workload.revision)
        if sd is not None:
            version, ranks = sd.engine.version, sd.spec.engine.tensor_parallel_size
            asked = replace(asked, version=str(version or ""), tensor_parallel=ranks)
        yield workload.revision, asked
