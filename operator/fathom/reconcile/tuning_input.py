"""What the tuner is told, from a spec and a snapshot."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from fathom.api.conditions import Reason
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.engine.depth import DepthDocument, nearest_depth
from fathom.engine.profile import EngineProfile
from fathom.engine.report import served_by_all
from fathom.measurement.counters import PodCounters
from fathom.reconcile.annotations import new_reference_of, pinned_depth
from fathom.reconcile.desired_state import DesiredState
from fathom.resource import SpeculativeDeployment
from fathom.rollout.revision import changed_restart_fields
from fathom.rollout.rollout import Rollout, Stage
from fathom.tuning.interface import Settings, TunedPod, TuningSnapshot, settings_from
from fathom.tuning.learned_state import TuningState

_TOKENS: Final = "spec.speculation.tokens"


def tuning_snapshot(
    snapshot: Snapshot,
    desired: DesiredState,
    state: TuningState,
    *,
    document_written_at_s: float,
    document_before: DepthDocument | None,
    pods: Sequence[ObservedPod],
    draft: str,
) -> TuningSnapshot:
    """Everything the tuner may know, in its own words.

    Args:
        snapshot: this pass's view.
        desired: what it carries out.
        state: what the tuner learned.
        document_written_at_s: when the depth document was written (Unix seconds).
        document_before: what was in force before there was none in the cluster; None: not known.
        pods: those to judge by.
        draft: that the spec in force names, as people do.
    """
    sd, rollout = desired.tuned, desired.rollout
    on_trial = _draft_on_trial(snapshot.objects, desired)
    pods, trying = _by_draft(pods, snapshot.objects, on_trial=on_trial, rollout=rollout)
    return TuningSnapshot(
        now_s=snapshot.now_s,
        settings=settings_of(
            sd, snapshot.objects.leaders, live=desired.live, counters=snapshot.counters
        ),
        pods=tuple(
            replace(
                _tuned_pod(pod, snapshot, sd, desired.held.get(pod.name)),
                tries_draft=pod in trying,
            )
            for pod in (*pods, *trying)
        ),
        document=snapshot.objects.depth,
        document_written_at_s=document_written_at_s,
        live_refusal=why_not_live(snapshot.objects, desired),
        state=state,
        # Pods that are yet to come have run nothing.
        document_before=document_before if desired.following.get(desired.tuned_revision) else None,
        read=desired.read,
        gpus=sd.engine.layout.ranks_per_engine,
        paused=desired.paused,
        draft_on_trial=on_trial,
        adopted_draft=(
            draft if not on_trial and (rollout is None or rollout.stage is Stage.PROMOTED) else ""
        ),
        compared=desired.baking and sum(pod.ready for pod in pods) == 1,
        pair=served_by_all(pod.spec.served_pair for pod in pods),
        new_reference=new_reference_of(snapshot.objects.metadata.annotations),
    )


def _draft_on_trial(objects: Objects, desired: DesiredState) -> str:
    """The draft whose pods are tuned apart from the others; empty: none is.

    Once it is promoted, too, for as long as pods with the one before it serve.
    """
    rollout = desired.rollout
    if rollout is None or not (rollout.draft and desired.live):
        return ""
    ends = rollout.stage is Stage.PROMOTED
    beside_others = ends and any(pod.revision != rollout.revision for pod in objects.leaders)
    live = desired.following.get(rollout.revision, True)
    return rollout.draft if live and (rollout.on_trial or beside_others) else ""


def _by_draft(
    pods: Sequence[ObservedPod], objects: Objects, *, on_trial: str, rollout: Rollout | None
) -> tuple[Sequence[ObservedPod], Sequence[ObservedPod]]:
    """Those with the draft that all have, or had, and those with the one on trial."""
    if rollout is None or not on_trial:
        return pods, ()
    there = [pod for pod in objects.leaders if not pod.terminating]
    trying = [pod for pod in there if pod.revision == rollout.revision]
    if rollout.stage is Stage.PROMOTED:
        pods = there
    return [pod for pod in pods if pod.revision != rollout.revision], trying


def why_not_live(objects: Objects, desired: DesiredState) -> tuple[Reason, str] | None:
    """Why the depth of the pods that serve cannot be changed live; None: it can.

    And if that is so, why nothing is counted by batch in them either.
    """
    if desired.live:
        return None
    sd, revision = desired.tuned, desired.tuned_revision
    refusal = sd.engine.not_live
    if refusal is None:
        return _started_without(revision) if sd.spec.tunable else None
    if not (sd.spec.tunable and sd.spec.drafts):
        return refusal
    workload = next((each for each in objects.workloads if each.revision == revision), None)
    why = sd.engine.not_counted
    if why is None and workload is not None and not workload.plugin:
        why = f"pods of revision {revision} get the plugin when a rollout replaces them"
    reason, sentence = refusal
    return reason, f"{sentence} Nothing is counted by batch: {why}." if why else sentence


def _started_without(revision: str) -> tuple[Reason, str]:
    return Reason.LIVE_DEPTH_UNSUPPORTED, (
        f"the pods of revision {revision} were started by an earlier Fathom, which did not change "
        "the depth of such an engine, so depth stays as it was: it is live once a rollout replaces "
        "them."
    )


def why_not_live_again(desired: DesiredState) -> str:
    """Why depth is live now and would not be in pods that replace those; empty: it would."""
    refusal = desired.fleet.engine.not_live
    if not desired.live or refusal is None:
        return ""
    return (
        f"it is live in the pods of revision {desired.tuned_revision}, as they were started. In "
        f"those that replace them it is not: {refusal.sentence}"
    )


def tuned_pods(objects: Objects, desired: DesiredState) -> tuple[ObservedPod, ...]:
    """The pods to judge by: those of the revision that most replicas are, or else all.

    During a rollout two kinds of engine serve. What an old one reports, at an old `maxTokens` or
    without the plugin, says nothing about the new ones, and it need not obey either. While a canary
    is on trial it is the other way round; and stable ones without the depth document cannot obey.

    Where depth is not live, a canary that differs in `tokens` alone is the one pod that shows what
    another depth is worth.
    """
    leaders = tuple(pod for pod in objects.leaders if not pod.terminating)
    tuned, live_when_new = desired.tuned_revision, desired.sd.engine.live
    if (
        desired.stable is not None
        and not (desired.live or live_when_new)
        and changed_restart_fields(desired.stable, desired.sd) == (_TOKENS,)
    ):
        return leaders
    if tuned != desired.revision and live_when_new and not desired.following.get(tuned, False):
        return ()
    return tuple(pod for pod in leaders if pod.revision == tuned) or leaders


def settings_of(
    sd: SpeculativeDeployment,
    pods: Sequence[ObservedPod],
    *,
    live: bool,
    counters: Mapping[str, PodCounters] = MappingProxyType({}),
) -> Settings:
    """What the user asks for in the tuner's units, within what the engines have that serve.

    Args:
        sd: the user's.
        pods: those that read the depth document, of whatever revision.
        live: whether depth is.
        counters: by pod, as far as it could be read.
    """
    ready = [pod for pod in pods if pod.ready]
    settings = settings_from(sd.spec.speculation, _largest_batch(sd.engine, ready, counters))
    if not live:
        return settings
    named = [_named(pod, counters.get(pod.name)) for pod in ready]
    return _among(settings, sd.engine, [each for each in named if each is not None])


def _largest_batch(
    engine: EngineProfile,
    pods: Iterable[ObservedPod],
    counters: Mapping[str, PodCounters],
) -> int:
    """As all engines say that could be read, or else as they were started."""
    told = [counters[pod.name].report.max_num_seqs for pod in pods if pod.name in counters]
    known = [each for each in told if each]
    return max(known) if known and len(known) == len(told) else engine.max_num_seqs


def _named(pod: ObservedPod, counters: PodCounters | None) -> frozenset[int] | None:
    """The depths that its engine was told of, as it says, or else as its arguments do.

    With as many depths as batches some may have found no place (`started_depths`).
    """
    if counters is not None and counters.live_depth:
        depths, most = counters.report.depths, counters.report.max_num_seqs or 0
        if 0 < len(depths) < most:
            return frozenset(depths)
    return pod.spec.named_depths


def _among(
    settings: Settings, engine: EngineProfile, engines: Sequence[frozenset[int]]
) -> Settings:
    """Only depths that all engines have; while those share none that the user allows, most's."""
    own = frozenset(engine.depths)
    common = frozenset.intersection(*engines) if engines else own
    if engine.spec.speculation.depths is not None:
        common &= own
    if not _allowed(common, settings) and engines:
        # Any depth runs, with fewer graphs: that costs less than to be where nobody wants to be.
        reach = frozenset(range(min(map(max, engines)) + 1))
        ((most, _),) = Counter(engines).most_common(1)
        common = most & reach if _allowed(most & reach, settings) else reach
    tokens = nearest_depth(settings.tokens, _allowed(common, settings) or sorted(common))
    return replace(
        settings,
        max_tokens=max(settings.max_tokens, tokens),
        min_tokens=min(settings.min_tokens, tokens),
        tokens=tokens,
        named=common,
    )


def _allowed(depths: Iterable[int], settings: Settings) -> list[int]:
    return sorted(each for each in depths if settings.min_tokens <= each <= settings.max_tokens)


def _tuned_pod(
    pod: ObservedPod, snapshot: Snapshot, sd: SpeculativeDeployment, held: int | None
) -> TunedPod:
    counters = snapshot.counters.get(pod.name)
    since, named = pod.ready_since_s, _named(pod, counters) or sd.engine.depths
    pinned = pinned_depth(pod, named)
    if pinned is not None:
        settings = settings_from(sd.spec.speculation, sd.engine.max_num_seqs)
        pinned = nearest_depth(pinned, _allowed(named, settings) or sorted(named))
    return TunedPod(
        name=pod.name,
        ready=pod.ready,
        ready_for_s=0.0 if since is None else max(0.0, snapshot.now_s - since),
        pinned_depth=pinned if held is None else held,
        checked=held is not None,
        counters=counters,
    )
