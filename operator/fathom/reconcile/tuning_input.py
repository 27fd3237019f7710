"""What the tuner is told, from a spec and a snapshot."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from fathom.api.conditions import Reason
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.cluster.observed_pods import ObservedPod
from fathom.core.cluster.snapshot import Objects, Snapshot
from fathom.core.measurement import PodCounters
from fathom.core.revision import changed_restart_fields
from fathom.engine.capability import live_depth, live_depth_refusal, why_not_counted
from fathom.engine.depth import DepthDocument, nearest_depth
from fathom.engine.depth_set import named_depths
from fathom.engine.nodes_per_replica import gpus_per_engine
from fathom.manifests.render import max_batch
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.pins import pinned_depth
from fathom.tuning.interface import Settings, TunedPod, TuningSnapshot
from fathom.tuning.settings import settings_from
from fathom.tuning.state import TuningState

_TOKENS: Final = "spec.speculation.tokens"


def tuning_snapshot(
    snapshot: Snapshot,
    desired: DesiredState,
    state: TuningState,
    *,
    document_written_at_s: float,
    document_before: DepthDocument | None,
    pods: Sequence[ObservedPod],
) -> TuningSnapshot:
    """Everything the tuner may know, in its own words.

    Args:
        snapshot: this pass's view.
        desired: what it carries out.
        state: what the tuner learnt.
        document_written_at_s: when the depth document was written (Unix seconds).
        document_before: what was in force before there was none in the cluster; None: not known.
        pods: those to judge by.
    """
    spec = desired.tuned_spec
    return TuningSnapshot(
        now_s=snapshot.now_s,
        settings=settings_of(
            spec, snapshot.objects.leaders, live=desired.live, counters=snapshot.counters
        ),
        pods=tuple(_tuned_pod(pod, snapshot, spec, desired.held.get(pod.name)) for pod in pods),
        document=snapshot.objects.depth,
        document_written_at_s=document_written_at_s,
        live_refusal=why_not_live(snapshot.objects, desired),
        state=state,
        # Pods that are yet to come have run nothing.
        document_before=document_before if desired.following.get(desired.tuned_revision) else None,
        read=desired.read,
        gpus=gpus_per_engine(spec),
        paused=desired.paused,
    )


def why_not_live(objects: Objects, desired: DesiredState) -> tuple[Reason, str] | None:
    """Why the depth of the pods that serve cannot be changed live; None: it can.

    And if that is so, why nothing is counted by batch in them either.
    """
    if desired.live:
        return None
    spec, revision = desired.tuned_spec, desired.tuned_revision
    refusal = live_depth_refusal(spec)
    if refusal is None:
        return _started_without(revision) if spec.tunable else None
    if not (spec.tunable and spec.drafts):
        return refusal
    workload = next((each for each in objects.workloads if each.revision == revision), None)
    why = why_not_counted(spec)
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
    refusal = live_depth_refusal(desired.fleet.spec)
    if not desired.live or refusal is None:
        return ""
    return (
        f"it is live in the pods of revision {desired.tuned_revision}, as they were started. In "
        f"those that replace them it is not: {refusal[1]}"
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
    tuned, live_when_new = desired.tuned_revision, live_depth(desired.sd.spec)
    if (
        desired.stable is not None
        and not (desired.live or live_when_new)
        and changed_restart_fields(desired.stable.spec, desired.sd.spec) == (_TOKENS,)
    ):
        return leaders
    if tuned != desired.revision and live_when_new and not desired.following.get(tuned, False):
        return ()
    return tuple(pod for pod in leaders if pod.revision == tuned) or leaders


def settings_of(
    spec: SpeculativeDeploymentSpec,
    pods: Sequence[ObservedPod],
    *,
    live: bool,
    counters: Mapping[str, PodCounters] = MappingProxyType({}),
) -> Settings:
    """What the user asks for in the tuner's units, within what the engines have that serve.

    Args:
        spec: the user's.
        pods: those that read the depth document, of whatever revision.
        live: whether depth is.
        counters: by pod, as far as it could be read.
    """
    ready = [pod for pod in pods if pod.ready]
    settings = settings_from(spec.speculation, _largest_batch(spec, ready, counters))
    if not live:
        return settings
    named = [_named(pod, counters.get(pod.name)) for pod in ready]
    return _among(settings, spec, [each for each in named if each is not None])


def _largest_batch(
    spec: SpeculativeDeploymentSpec,
    pods: Iterable[ObservedPod],
    counters: Mapping[str, PodCounters],
) -> int:
    """As all engines say that could be read, or else as they were started."""
    told = [counters[pod.name].report.max_num_seqs for pod in pods if pod.name in counters]
    known = [each for each in told if each]
    return max(known) if known and len(known) == len(told) else max_batch(spec)


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
    settings: Settings, spec: SpeculativeDeploymentSpec, engines: Sequence[frozenset[int]]
) -> Settings:
    """Only depths that all engines have; while those share none that the user allows, most's."""
    own = frozenset(named_depths(spec))
    common = frozenset.intersection(*engines) if engines else own
    if spec.speculation.depths is not None:
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
    pod: ObservedPod, snapshot: Snapshot, spec: SpeculativeDeploymentSpec, held: int | None
) -> TunedPod:
    counters = snapshot.counters.get(pod.name)
    since, named = pod.ready_since_s, _named(pod, counters) or named_depths(spec)
    pinned = pinned_depth(pod, named)
    if pinned is not None:
        settings = settings_from(spec.speculation, max_batch(spec))
        pinned = nearest_depth(pinned, _allowed(named, settings) or sorted(named))
    return TunedPod(
        name=pod.name,
        ready=pod.ready,
        ready_for_s=0.0 if since is None else max(0.0, snapshot.now_s - since),
        pinned_depth=pinned if held is None else held,
        checked=held is not None,
        counters=counters,
    )
