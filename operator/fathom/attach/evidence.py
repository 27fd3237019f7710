"""What can be done with each pod that a selector finds, and what is missing first for more. Pure.

Only what the engine's own page says counts, and what its pod mounts: a pod's arguments say what
somebody asked for, in one of many forms, and not what vLLM made of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.api.tuner import Level
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.capability_table import LIVE_DEPTH
from fathom.engine.cuda_graphs import GraphMode, Graphs
from fathom.engine.depth import Schedule
from fathom.engine.report import EngineReport
from fathom.engine.start import parsed_version
from fathom.measurement.counters import PodCounters, Unread, UnreadKind

PATCH: Final = "`fathom attach` prints the patch for what makes these pods"
_WITHOUT_GRAPHS: Final = frozenset({"", GraphMode.NONE.value, GraphMode.PIECEWISE.value})


class Missing(NamedTuple):
    """What keeps a pod from the next level."""

    reason: Reason
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvidence:
    """One pod, by what its engine's page says."""

    pod: ObservedPod
    counters: PodCounters | None
    """None: its page was not read."""
    level: Level | None
    """None: nothing is known of it."""
    missing: Missing | None
    """What is missing first for `Level.LIVE`; None: nothing."""

    @property
    def report(self) -> EngineReport:
        """What the engine says that it runs with.

        Raises:
            ValueError: its page was not read.
        """
        if self.counters is None:
            raise ValueError(f"nothing was read of {self.pod.name}")
        return self.counters.report


def with_start(counters: PodCounters, pod: ObservedPod | None) -> PodCounters:
    """A page with the time at which its engine started, which one of several processes lacks.

    production-stack's chart always sets PROMETHEUS_MULTIPROC_DIR, and without a start no acceptance
    is found to decay. After a restart it is rather too late than too early.
    """
    if counters.started_at_s > 0 or pod is None:
        return counters
    restarted = any(each.restart_count for each in pod.status.container_statuses)
    started_at_s = pod.ready_since_s if restarted else pod.made_at_s
    return replace(counters, started_at_s=started_at_s or 0.0)


def evidence_of(
    pods: Sequence[ObservedPod],
    counters: Mapping[str, PodCounters],
    failures: Sequence[Unread],
    *,
    document: str,
    tokens_given: bool,
) -> tuple[PodEvidence, ...]:
    """Judge each pod, in their order.

    Args:
        pods: that the selector finds and that have not ended.
        counters: by pod, as far as they could be read.
        failures: why the others could not.
        document: name of the ConfigMap with this tuner's depth document.
        tokens_given: whether the user wrote a depth of their own.
    """
    causes = {each.pod: each for each in failures}
    return tuple(
        _of_one(
            pod,
            counters.get(pod.name),
            causes.get(pod.name),
            document,
            tokens_given=tokens_given,
        )
        for pod in pods
    )


def _of_one(
    pod: ObservedPod,
    counters: PodCounters | None,
    failure: Unread | None,
    document: str,
    *,
    tokens_given: bool,
) -> PodEvidence:
    level: Level | None
    missing: Missing | None
    if names.LABEL_NAME in pod.metadata.labels:
        level, missing = None, _OWNED
    elif counters is None:
        level, missing = None, _unread(pod, failure)
    elif not counters.has_plugin:
        level, missing = Level.METRICS, _NO_PLUGIN
    else:
        missing = next(_not_live(pod, counters, document, tokens_given=tokens_given), None)
        level = Level.LIVE if missing is None else Level.COUNTED
        if missing is not None and missing.reason is Reason.NO_COUNTERS:
            level = Level.METRICS
    return PodEvidence(pod=pod, counters=counters, level=level, missing=missing)


_OWNED: Final = Missing(
    Reason.OWNED_BY_FATHOM,
    "they belong to a SpeculativeDeployment, which tunes them: choose a selector without them.",
)
_NO_PLUGIN: Final = Missing(
    Reason.PLUGIN_MISSING,
    f"the engine runs without Fathom's plugin, so nothing is known of its batches and depths: "
    f"{PATCH}, which takes one restart of them.",
)


def _unread(pod: ObservedPod, failure: Unread | None) -> Missing:
    if not pod.ready:
        return Missing(Reason.PODS_NOT_READY, "they are not ready.")
    if failure is None:
        return Missing(Reason.UNREACHABLE, "they have no address yet.")
    if failure.refused:
        return Missing(Reason.METRICS_REFUSED, f"{failure.cause}.")
    if failure.kind is UnreadKind.NOT_VLLM:
        return Missing(
            Reason.NOT_VLLM, f"{failure.cause}: set spec.metrics.port, or choose another selector."
        )
    return Missing(
        Reason.UNREACHABLE,
        f"{failure.cause}: check spec.metrics.port, that vLLM serves plain HTTP there, and that no "
        "NetworkPolicy keeps the operator out.",
    )


def _not_live(
    pod: ObservedPod, counters: PodCounters, document: str, *, tokens_given: bool
) -> Iterator[Missing]:
    """What keeps depth from being changed, the first first."""
    report = counters.report
    if not counters.counters_shown:
        yield Missing(
            Reason.NO_COUNTERS,
            "the plugin's counters do not reach /metrics: most often /dev/shm was full when the "
            "engine started. The pod's log says why (search it for fathom).",
        )
    version = parsed_version(report.version)
    if version is not None and not LIVE_DEPTH.in_version(version):
        yield Missing(
            Reason.ENGINE_TOO_OLD,
            f"depth can be changed live in vLLM {LIVE_DEPTH.versions}, and this is {version}.",
        )
    if (report.data_parallel or 1) > 1:
        yield Missing(
            Reason.DATA_PARALLEL,
            "vLLM drops the depth schedule with data parallelism: use more pods instead.",
        )
    if report.runner == "V1" and report.graph_mode not in {"", GraphMode.NONE.value}:
        yield Missing(
            Reason.MODEL_RUNNER_V1,
            "the engine runs on vLLM's Model Runner V1, which gives up its full CUDA graphs where "
            "depth is live: remove what selects it.",
        )
    if report.depths == (0,):
        yield Missing(Reason.DRAFTING_DISABLED, "the engine was started without speculation.")
    if not counters.live_depth:
        yield Missing(
            Reason.NO_SCHEDULE,
            "the engine's plugin is loaded, and has no depth schedule to change: "
            "num_speculative_tokens_per_batch_size is not in its --speculative-config, or "
            f"--scheduler-cls is not the plugin's. {PATCH}.",
        )
    if not tokens_given and has_own_schedule(report.schedule, report.max_num_seqs or 0):
        yield Missing(
            Reason.OWN_SCHEDULE,
            "the engine was started with depths by batch of its host's own, which Fathom does not "
            "flatten: write spec.tokens, the depth that changes are to be judged against and that "
            "all goes back to.",
        )
    yield from _graphs_that_do_not_fit(report)
    yield from _other_document(pod, document)


def has_own_schedule(schedule: Schedule, most: int) -> bool:
    """Whether a startup schedule is more than a list of depths to capture graphs for.

    The plugin's own form has one depth nearly everywhere, and one batch at the top for each other.

    Args:
        schedule: an engine's; empty: it has one depth.
        most: requests that it takes at a time.
    """
    named = sum(each.first == each.last for each in schedule)
    spread = [each for each in schedule if each.first < each.last]
    return len(spread) > 1 or (bool(spread) and named > 0 and spread[0].last + named < most)


def _graphs_that_do_not_fit(report: EngineReport) -> Iterator[Missing]:
    mode = report.graph_mode
    if mode in _WITHOUT_GRAPHS or mode not in GraphMode.__members__ or not report.depths:
        return
    graphs = Graphs(
        mode=GraphMode[mode],
        sizes=report.capture_sizes,
        max_num_seqs=report.max_num_seqs or 1,
        depths=frozenset(report.depths),
        deepest=max(report.depths),
    )
    if strays := graphs.strays:
        depth, batches = next(iter(strays.items()))
        yield Missing(
            Reason.GRAPHS_DO_NOT_FIT,
            f"at depth {depth}, drafts of batch {batches[0]} would replay the CUDA graph of more "
            "requests, in which single steps took seconds on an H100: give the engine "
            "--cudagraph-capture-sizes that suit its depths. "
            f"{PATCH}.",
        )


def _other_document(pod: ObservedPod, document: str) -> Iterator[Missing]:
    mounted = pod.spec.config_maps
    if document in mounted:
        return
    others = sorted(each for each in mounted if each.endswith(names.DEPTH_SUFFIX))
    if others:
        yield Missing(
            Reason.MOUNTS_ANOTHER_DOCUMENT,
            f"they mount ConfigMap {others[0]} and not {document}: another tuner acts on them.",
        )
    else:
        yield Missing(
            Reason.NO_DOCUMENT_MOUNTED,
            f"they do not mount ConfigMap {document}, so no depth can reach them: {PATCH}.",
        )


class Alike(NamedTuple):
    """By what engines are alike."""

    level: Level | None
    version: str
    runner: str
    depths: tuple[int, ...]
    max_num_seqs: int | None
    reason: Reason


def alike(each: PodEvidence) -> Alike:
    """What this pod's engine has in common with its like."""
    reason = Reason.ATTACHED if each.missing is None else each.missing.reason
    if each.counters is None:
        return Alike(each.level, "", "", (), None, reason)
    report = each.report
    # Where depth is not live, pods that were started at different depths show what each is worth.
    depths = report.depths if each.level is Level.LIVE else ()
    return Alike(each.level, report.version, report.runner, depths, report.max_num_seqs, reason)


def depths_of(found: Sequence[PodEvidence]) -> tuple[int, ...]:
    """The depths that these engines say they were started with, ascending."""
    reports = (each.report for each in found if each.counters is not None)
    return tuple(sorted({depth for report in reports for depth in report.depths}))


_RANK: Final[Mapping[Level | None, int]] = {
    Level.LIVE: 0,
    Level.COUNTED: 1,
    Level.METRICS: 2,
    None: 3,
}


def kinds_of_engines(
    found: Sequence[PodEvidence],
) -> tuple[tuple[Alike, tuple[PodEvidence, ...]], ...]:
    """The pods of each kind of engine; the one to judge by first.

    That is the largest kind of those with which most can be done.
    """
    kinds: dict[Alike, list[PodEvidence]] = {}
    for each in found:
        kinds.setdefault(alike(each), []).append(each)

    def order(each: tuple[Alike, list[PodEvidence]]) -> tuple[object, ...]:
        kind, pods = each
        return _RANK[kind.level], -len(pods), kind.version, kind.runner, kind.depths, kind.reason

    return tuple((kind, tuple(pods)) for kind, pods in sorted(kinds.items(), key=order))


def judged(found: Sequence[PodEvidence]) -> tuple[PodEvidence, ...]:
    """Those to judge by; empty: nothing is known of any."""
    kinds = kinds_of_engines(found)
    return kinds[0][1] if kinds and kinds[0][0].level is not None else ()


def first_missing(found: Sequence[PodEvidence]) -> Missing | None:
    """What is missing first for most of these; None: nothing, or there are none."""
    reasons = Counter(each.missing for each in found)
    return reasons.most_common(1)[0][0] if reasons else None
