"""What the tuner is told of pods that Fathom did not start. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from fathom.api.choices import TuningMode
from fathom.api.conditions import Reason
from fathom.api.tuner import Level
from fathom.attach.evidence import PodEvidence, depths_of, has_own_schedule
from fathom.cluster.snapshot import SelectedObjects
from fathom.engine.depth import DepthDocument, depth_at
from fathom.engine.report import EngineReport, served_by_all
from fathom.reconcile.annotations import new_reference_of, pause_of, pinned_depth
from fathom.resource import SpeculationTuner
from fathom.tuning.interface import (
    MOST_REQUESTS,
    Settings,
    TunedPod,
    TuningSnapshot,
    as_started,
    settings_of_tuner,
)
from fathom.tuning.learned_state import TuningState


def tuning_snapshot(
    tuner: SpeculationTuner,
    objects: SelectedObjects,
    found: Sequence[PodEvidence],
    state: TuningState,
    *,
    followers: Sequence[PodEvidence],
    now_s: float,
    document_written_at_s: float,
    document_before: DepthDocument | None,
) -> TuningSnapshot:
    """Everything the tuner may know.

    Args:
        tuner: whose pods.
        objects: what the cluster holds.
        found: the pods to judge by, which are alike; one at least.
        state: what was learned.
        followers: all pods that follow the document, alike or not.
        now_s: Unix seconds.
        document_written_at_s: the same, of the depth document.
        document_before: what was in force before there was none in the cluster; None: not known.
    """
    missing, live = found[0].missing, found[0].level is Level.LIVE
    settings = settings_of(tuner, found, followers)
    document = objects.depth
    if document is None and not (live and settings.mode is TuningMode.AUTO):
        # No document is written before mode Auto may act: the engines run as they were started.
        document = as_started(settings)
    return TuningSnapshot(
        now_s=now_s,
        settings=settings,
        pods=tuple(_tuned_pod(each, now_s) for each in found),
        document=document,
        document_written_at_s=document_written_at_s,
        live_refusal=None if missing is None else (missing.reason, missing.sentence),
        state=state,
        document_before=document_before,
        # What brings pods to rest is a write, and without live depth nothing is written.
        read=live,
        gpus=_gpus(found[0].report),
        paused=pause_of(objects.metadata.annotations),
        started_elsewhere=True,
        pair=served_by_all(each.pod.spec.served_pair for each in found),
        new_reference=new_reference_of(objects.metadata.annotations),
    )


def settings_of(
    tuner: SpeculationTuner, found: Sequence[PodEvidence], followers: Sequence[PodEvidence]
) -> Settings:
    """What the user asks for, in the tuner's units, within what these engines have.

    Args:
        tuner: whose pods.
        found: the pods to judge by.
        followers: all pods that follow the document: an engine refuses one with a depth that it
            does not have.
    """
    spec = tuner.spec
    if found[0].level is Level.LIVE:
        own = {frozenset(each.report.depths) for each in followers if each.report.depths}
        named = frozenset.intersection(*own) if own else None
    else:
        named = frozenset(depths_of(found)) or None
    return settings_of_tuner(
        spec,
        tokens=spec.tokens or _startup_depth(found),
        named=named,
        deepest=_deepest(found),
        max_batch=max(_largest_batch(each) for each in found),
    )


def _largest_batch(each: PodEvidence) -> int:
    counted = each.counters.cells if each.counters is not None else ()
    return each.report.max_num_seqs or max(
        (cell.batch_le for cell in counted), default=MOST_REQUESTS
    )


def _startup_depth(found: Sequence[PodEvidence]) -> int:
    """The depth that most of these engines were started at, for small batches."""
    depths = Counter(_startup_depths(found))
    return depths.most_common(1)[0][0] if depths else _deepest(found)


def _startup_depths(found: Sequence[PodEvidence]) -> Iterator[int]:
    for report in (each.report for each in found):
        if report.depths:
            yield depth_at(report.schedule, 1) if report.schedule else max(report.depths)


def started_at(found: Sequence[PodEvidence]) -> int | None:
    """The depth that all of these engines have while no document changes it; None: not known."""
    several = len(depths_of(found)) > 1
    depths = {*_startup_depths(found)}
    if len(depths) != 1 or (several and any(map(_may_have_others, found))):
        return None
    return depths.pop()


def _may_have_others(each: PodEvidence) -> bool:
    """Whether an engine may run at any of its depths, by its host's schedule or another tuner."""
    report, missing = each.report, each.missing
    elsewhere = missing is not None and missing.reason is Reason.MOUNTS_ANOTHER_DOCUMENT
    return elsewhere or has_own_schedule(report.schedule, report.max_num_seqs or 0)


def _deepest(found: Sequence[PodEvidence]) -> int:
    """The largest depth that these engines draft: as they say, or as their drafts are long."""
    depths = [max(each.report.depths) for each in found if each.report.depths]
    if depths:
        return max(1, *depths)
    engines = [each.counters.engine for each in found if each.counters is not None]
    drafts = sum(each.drafts for each in engines)
    return max(1, round(sum(each.draft_tokens for each in engines) / drafts)) if drafts else 1


def _gpus(report: EngineReport) -> int:
    ranks = (report.tensor_parallel or 1) * (report.pipeline_parallel or 1)
    return report.devices or ranks


def _tuned_pod(each: PodEvidence, now_s: float) -> TunedPod:
    pod, since = each.pod, each.pod.ready_since_s
    named = each.report.depths
    return TunedPod(
        name=pod.name,
        ready=pod.ready,
        ready_for_s=0.0 if since is None else max(0.0, now_s - since),
        pinned_depth=pinned_depth(pod, named) if named else None,
        counters=each.counters,
    )
