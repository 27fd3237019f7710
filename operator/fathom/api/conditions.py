"""Condition types and reasons. Reasons are part of the API: scripts and alerts match on them."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class ConditionType(StrEnum):
    """How things are: every resource has these, in the order in which a reader wants them.

    A new one could never be taken back: an older CRD lists these, and while a stored status has
    another one its API server refuses every edit of the spec.
    """

    READY = "Ready"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    DRAFT_COMPATIBLE = "DraftCompatible"
    TUNING = "Tuning"
    ATTACHED = "Attached"  # of a SpeculationTuner, which has none of the four before `Tuning`


class AlarmKind(StrEnum):
    """Conditions that are absent until raised once, by what is in `fathom.tuning.alarms.table`."""

    DRAFT_MISMATCH = "DraftMismatch"
    """Acceptance fell, at once or slowly: traffic the draft was not made for, or a wrong draft."""
    ACCEPTANCE_DECAY = "AcceptanceDecay"
    """Replicas that run for longer accept less than those that started lately."""
    SUSPICIOUS_ACCEPTANCE = "SuspiciousAcceptance"
    """Acceptance too good to be true, or an engine that drafts at another depth than asked."""
    SPECULATION_NEVER_PAYS = "SpeculationNeverPays"
    """Without speculation this model would be faster at every batch under load."""


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Why a condition has its status, or why the tuner acted or did not."""

    # Ready
    ALL_REPLICAS_READY = "AllReplicasReady"
    REPLICAS_NOT_READY = "ReplicasNotReady"
    SCALED_TO_ZERO = "ScaledToZero"
    # Progressing
    STARTING = "Starting"
    ROLLING_OUT = "RollingOut"
    SCALING = "Scaling"
    UP_TO_DATE = "UpToDate"
    ROLLOUT_PAUSED = "RolloutPaused"
    ROLLOUT_BLOCKED = "RolloutBlocked"
    PAUSED = "Paused"
    FETCHING_WEIGHTS = "FetchingWeights"
    WAITING_FOR_HUB = "WaitingForHub"
    # How a rollout goes
    SETTLING = "Settling"
    CANARY_STARTING = "CanaryStarting"
    AWAITING_CAPACITY = "AwaitingCapacity"
    NO_CAPACITY = "NoCapacity"
    CANARY_BAKING = "CanaryBaking"
    COMPARING = "Comparing"
    CANARY_AS_GOOD = "CanaryAsGood"
    CANARY_SLOWER = "CanarySlower"
    CANARY_TAIL_SLOWER = "CanaryTailSlower"
    CANARY_ERRORS = "CanaryErrors"
    CANARY_PREEMPTS = "CanaryPreempts"
    CANARY_IDLE = "CanaryIdle"
    CANARY_CRASHED = "CanaryCrashed"
    CANARY_NOT_READY = "CanaryNotReady"
    METRICS_LOST = "MetricsLost"
    NOTHING_TO_PROTECT = "NothingToProtect"
    REVERTED = "Reverted"
    RENDERED_OTHERWISE = "RenderedOtherwise"
    # Degraded
    AS_EXPECTED = "AsExpected"
    INVALID_SPEC = "InvalidSpec"
    API_MISSING = "ApiMissing"
    POD_FAILING = "PodFailing"
    POD_UNSCHEDULABLE = "PodUnschedulable"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    NAME_TAKEN = "NameTaken"
    CHILD_REFUSED = "ChildRefused"
    ROLLED_BACK = "RolledBack"
    STABLE_SPEC_UNKNOWN = "StableSpecUnknown"
    WEIGHTS_NOT_FETCHED = "WeightsNotFetched"
    DEPTH_NOT_OBEYED = "DepthNotObeyed"
    ENGINE_DIFFERS = "EngineDiffers"
    STATE_UNREADABLE = "StateUnreadable"
    # DraftCompatible
    KNOWN_PAIR = "KnownPair"
    COMPATIBLE = "Compatible"
    ENGINE_TOO_OLD = "EngineTooOld"
    INCOMPATIBLE = "Incompatible"
    DOUBTFUL = "Doubtful"
    NOT_CHECKED = "NotChecked"
    NO_DRAFT = "NoDraft"
    # Tuning: why it acts, or does not
    STATIC = "Static"
    ADVISING = "Advising"
    MEASURING = "Measuring"
    PROBING = "Probing"
    AT_BEST = "AtBest"
    MOVED = "Moved"
    RETURNED = "ReturnedToTokens"
    PINNED = "Pinned"
    HOLDING = "Holding"
    NO_METRICS = "NoMetrics"
    METRICS_REFUSED = "MetricsRefused"
    NO_TRAFFIC = "NoTraffic"
    STALE_METRICS = "StaleMetrics"
    PODS_NOT_READY = "PodsNotReady"
    GAIN_TOO_SMALL = "GainTooSmall"
    GAIN_UNCERTAIN = "GainUncertain"
    PROBING_DISABLED = "ProbingDisabled"
    TUNED_APART = "TunedApart"
    # Attached: what is missing first
    ATTACHED = "Attached"
    NO_PODS = "NoPods"
    OWNED_BY_FATHOM = "OwnedByFathom"
    NOT_VLLM = "NotVLLM"
    UNREACHABLE = "Unreachable"
    PLUGIN_MISSING = "PluginMissing"
    NO_COUNTERS = "NoCounters"
    DATA_PARALLEL = "DataParallel"
    MODEL_RUNNER_V1 = "ModelRunnerV1"
    NO_SCHEDULE = "NoSchedule"
    OWN_SCHEDULE = "OwnSchedule"
    GRAPHS_DO_NOT_FIT = "GraphsDoNotFit"
    NO_DOCUMENT_MOUNTED = "NoDocumentMounted"
    MOUNTS_ANOTHER_DOCUMENT = "MountsAnotherDocument"
    # Alarms
    ACCEPTANCE_CLIFF = "AcceptanceCliff"
    ACCEPTANCE_BELOW_REFERENCE = "AcceptanceBelowReference"
    ONE_POD_DIFFERS = "OnePodDiffers"
    LONG_CONTEXT_REJECTED = "LongContextRejected"
    OLDER_REPLICAS_ACCEPT_LESS = "OlderReplicasAcceptLess"
    TOO_GOOD_TO_BE_TRUE = "TooGoodToBeTrue"
    NOTHING_ACCEPTED = "NothingAccepted"
    DEPTH_MISMATCH = "DepthMismatch"
    SPECULATION_SLOWER = "SpeculationSlower"
    CLEARED = "Cleared"
    # The engine
    ENGINE_VERSION_UNKNOWN = "EngineVersionUnknown"
    LIVE_DEPTH_UNSUPPORTED = "LiveDepthUnsupported"
    DRAFTING_DISABLED = "DraftingDisabled"

    @classmethod
    def _missing_(cls, value: object) -> "Reason | None":
        """A name that an earlier release wrote into its state."""
        return _EARLIER_NAMES.get(str(value))

    @property
    def advice(self) -> str:
        """What a person does about it; empty: nothing. NAME in it is the resource's."""
        return _ADVICE.get(self, "")


_EARLIER_NAMES: Final[Mapping[str, Reason]] = MappingProxyType(
    {
        "KeptUnreadable": Reason.STATE_UNREADABLE,
        "Exploiting": Reason.AT_BEST,
        "OtherDepthThanAsked": Reason.DEPTH_MISMATCH,
        "SlowerThanWithout": Reason.SPECULATION_SLOWER,
    }
)
_TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        Reason.ALL_REPLICAS_READY: "All replicas are ready",
        Reason.REPLICAS_NOT_READY: "Fewer replicas are ready than are wanted",
        Reason.SCALED_TO_ZERO: "It is scaled to zero",
        Reason.STARTING: "Engines are starting",
        Reason.ROLLING_OUT: "New pods replace the old ones",
        Reason.SCALING: "Replicas come or go",
        Reason.UP_TO_DATE: "Every replica is as the spec asks",
        Reason.ROLLOUT_PAUSED: "Rollouts are paused",
        Reason.ROLLOUT_BLOCKED: "The rollout cannot continue",
        Reason.PAUSED: "It is paused",
        Reason.FETCHING_WEIGHTS: "Weights are being fetched",
        Reason.WAITING_FOR_HUB: "It waits for the hub to describe its models",
        Reason.SETTLING: "The spec has just changed",
        Reason.CANARY_STARTING: "One replica of the new revision is starting",
        Reason.AWAITING_CAPACITY: "The new replica waits for a node",
        Reason.NO_CAPACITY: "No node has capacity for the new replica",
        Reason.CANARY_BAKING: "One replica of the new revision is on trial",
        Reason.COMPARING: "One replica is compared with the others",
        Reason.CANARY_AS_GOOD: "The new revision was as good",
        Reason.CANARY_SLOWER: "The new revision was slower",
        Reason.CANARY_TAIL_SLOWER: "The new revision's slow requests were slower",
        Reason.CANARY_ERRORS: "The new revision failed more requests",
        Reason.CANARY_PREEMPTS: "The new revision had too little memory for requests",
        Reason.CANARY_IDLE: "The new revision got no requests",
        Reason.CANARY_CRASHED: "The new revision crashed",
        Reason.CANARY_NOT_READY: "The new revision was never ready",
        Reason.METRICS_LOST: "The new revision could not be measured",
        Reason.NOTHING_TO_PROTECT: "No replica served before",
        Reason.REVERTED: "The spec went back",
        Reason.RENDERED_OTHERWISE: "Another build would change the pods",
        Reason.AS_EXPECTED: "Nothing is wrong",
        Reason.INVALID_SPEC: "The spec is refused",
        Reason.API_MISSING: "The cluster lacks what it needs",
        Reason.POD_FAILING: "A pod fails",
        Reason.POD_UNSCHEDULABLE: "No node takes a pod",
        Reason.IMAGE_UNAVAILABLE: "The image cannot be fetched",
        Reason.NAME_TAKEN: "A name that it needs is taken",
        Reason.CHILD_REFUSED: "The cluster refuses an object",
        Reason.ROLLED_BACK: "The newest spec failed its trial",
        Reason.STABLE_SPEC_UNKNOWN: "What serves is not known any more",
        Reason.WEIGHTS_NOT_FETCHED: "Weights cannot be fetched",
        Reason.DEPTH_NOT_OBEYED: "An engine does not follow its depth",
        Reason.ENGINE_DIFFERS: "An engine runs with something else than was asked",
        Reason.STATE_UNREADABLE: "What was kept cannot be read",
        Reason.KNOWN_PAIR: "Target and draft are known to fit",
        Reason.COMPATIBLE: "Nothing speaks against this draft",
        Reason.ENGINE_TOO_OLD: "This vLLM gets the draft wrong",
        Reason.INCOMPATIBLE: "Target and draft do not fit",
        Reason.DOUBTFUL: "The draft may not work",
        Reason.NOT_CHECKED: "The draft could not be checked",
        Reason.NO_DRAFT: "No draft is loaded, as asked",
        Reason.STATIC: "Depth is fixed, as asked",
        Reason.ADVISING: "It advises and changes nothing",
        Reason.MEASURING: "It gathers measurements",
        Reason.PROBING: "One pod tries another depth",
        Reason.AT_BEST: "The best depth known is in force",
        Reason.MOVED: "Depth was changed",
        Reason.RETURNED: "It went back to your own depth",
        Reason.PINNED: "A person holds a pod's depth",
        Reason.HOLDING: "It waits on purpose",
        Reason.NO_METRICS: "No pod's metrics can be read",
        Reason.METRICS_REFUSED: "The Prometheus refuses the operator",
        Reason.NO_TRAFFIC: "There are no requests",
        Reason.STALE_METRICS: "Metrics are too old to act on",
        Reason.PODS_NOT_READY: "Too few pods are ready to measure",
        Reason.GAIN_TOO_SMALL: "A better depth gains too little",
        Reason.GAIN_UNCERTAIN: "Another depth may be better, it is not certain",
        Reason.PROBING_DISABLED: "It may not try other depths",
        Reason.TUNED_APART: "Unlike pods are tuned apart",
        Reason.ATTACHED: "Depth can be changed live",
        Reason.NO_PODS: "The selector finds no pod",
        Reason.OWNED_BY_FATHOM: "The pods belong to a SpeculativeDeployment",
        Reason.NOT_VLLM: "What answers is no vLLM",
        Reason.UNREACHABLE: "The pods' metrics cannot be reached",
        Reason.PLUGIN_MISSING: "The engines run without the plugin",
        Reason.NO_COUNTERS: "The plugin's counters are not shown",
        Reason.DATA_PARALLEL: "Data parallelism drops the depth schedule",
        Reason.MODEL_RUNNER_V1: "Model Runner V1 keeps depth from being live",
        Reason.NO_SCHEDULE: "The engines have no depth schedule",
        Reason.OWN_SCHEDULE: "The engines have a schedule of their host's own",
        Reason.GRAPHS_DO_NOT_FIT: "CUDA graphs do not suit the depths",
        Reason.NO_DOCUMENT_MOUNTED: "The pods do not mount the depth document",
        Reason.MOUNTS_ANOTHER_DOCUMENT: "The pods follow another tuner",
        Reason.ACCEPTANCE_CLIFF: "Far fewer drafts are accepted than before",
        Reason.ACCEPTANCE_BELOW_REFERENCE: "Fewer drafts are accepted than when this one was new",
        Reason.ONE_POD_DIFFERS: "One pod accepts far fewer drafts than the others",
        Reason.LONG_CONTEXT_REJECTED: "At long contexts drafts cost more than they give",
        Reason.OLDER_REPLICAS_ACCEPT_LESS: "Replicas that run for long accept fewer drafts",
        Reason.TOO_GOOD_TO_BE_TRUE: "More drafts are accepted than can be true",
        Reason.NOTHING_ACCEPTED: "No draft is accepted",
        Reason.DEPTH_MISMATCH: "An engine drafts at another depth than asked",
        Reason.SPECULATION_SLOWER: "Without speculation it would be faster",
        Reason.CLEARED: "The alarm is over",
        Reason.ENGINE_VERSION_UNKNOWN: "The image does not say which vLLM it holds",
        Reason.LIVE_DEPTH_UNSUPPORTED: "This engine cannot change depth while it runs",
        Reason.DRAFTING_DISABLED: "Speculation is off, as asked",
    }
)
_WAIT: Final = "Wait: it continues by itself."
_ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys((Reason.FETCHING_WEIGHTS, Reason.CANARY_STARTING, Reason.SCALING), _WAIT),
        **dict.fromkeys((Reason.WAITING_FOR_HUB, Reason.ROLLING_OUT, Reason.CANARY_BAKING), _WAIT),
        Reason.REPLICAS_NOT_READY: "See `kubectl describe pods -l fathom.dev/name=NAME`.",
        Reason.SCALED_TO_ZERO: "Raise spec.replicas to serve.",
        Reason.STARTING: "Wait; `kubectl logs` of a pod shows how far it is.",
        Reason.ROLLOUT_PAUSED: "Set spec.rollout.paused to false to continue.",
        Reason.ROLLOUT_BLOCKED: "Take one of the two ways that the message names.",
        Reason.PAUSED: "`kubectl fathom resume NAME` ends the pause.",
        Reason.AWAITING_CAPACITY: "Wait, or free the GPUs of one replica.",
        Reason.NO_CAPACITY: "Free the GPUs of one replica, or set spec.rollout.whenNoCapacity: "
        "TakeReplica.",
        Reason.INVALID_SPEC: "Correct the named field; `fathom check -f FILE` says the same "
        "without a cluster.",
        Reason.API_MISSING: "Install what the message names, or keep a replica within one node.",
        Reason.POD_FAILING: "Read its last words in the message, then its log; out of memory at "
        "start: lower `--gpu-memory-utilization` or spec.speculation.maxTokens.",
        Reason.POD_UNSCHEDULABLE: "Free GPUs or add nodes; the message says what the nodes lack.",
        Reason.IMAGE_UNAVAILABLE: "Correct spec.engine.image, push the image, or give "
        "imagePullSecrets in spec.podTemplate.",
        Reason.NAME_TAKEN: "Delete or rename the object that the message names.",
        Reason.CHILD_REFUSED: "Raise the quota, or correct the policy or the right that the API "
        "server quotes.",
        Reason.ROLLED_BACK: "Correct the spec; `kubectl fathom retry NAME` tries it once more.",
        Reason.STABLE_SPEC_UNKNOWN: "Put back the spec of what serves for a minute and edit "
        "again, or `kubectl fathom retry NAME`.",
        Reason.WEIGHTS_NOT_FETCHED: "Correct the access, the name or the space that the message "
        "names; `kubectl fathom retry NAME` tries it once more at once.",
        Reason.DEPTH_NOT_OBEYED: "Look for depth rejections and hook errors on their /metrics, "
        "and at their logs.",
        Reason.ENGINE_DIFFERS: "Look for what changes arguments or volumes of the pod (an "
        "admission webhook, the image's entrypoint), at vLLM's log, and, where the version "
        "differs, at spec.engine.version.",
        Reason.STATE_UNREADABLE: "Find out who wrote the ConfigMap; the message says which keys "
        "to delete.",
        Reason.ENGINE_TOO_OLD: "Use the version that the message names.",
        Reason.INCOMPATIBLE: "Choose a draft that was trained for this target.",
        Reason.DOUBTFUL: "Watch the acceptance length: 1.00 under traffic means that it does not.",
        Reason.PINNED: "Remove fathom.dev/pin-depth from the pod to end it.",
        Reason.NO_METRICS: "Check that the operator reaches the pods, or a Prometheus that does.",
        Reason.METRICS_REFUSED: "Correct the login of spec.metrics, as the message says.",
        Reason.STALE_METRICS: "Shorten the scrape interval, or set spec.metrics.source: Pods.",
        Reason.PROBING_DISABLED: "To let it, set probing: Enabled below tuning in its spec.",
        Reason.ACCEPTANCE_CLIFF: "Check that the draft belongs to the target's present weights "
        "and chat template, and whether a new kind of traffic arrived that the draft was not "
        "trained for. Depth follows what is measured meanwhile.",
        Reason.ACCEPTANCE_BELOW_REFERENCE: "First rule out what costs least to correct: another "
        "chat template, other prompts, another commit of the target, other engine arguments. If "
        "acceptance may stay as it is, give annotation fathom.dev/new-reference a new value.",
        Reason.ONE_POD_DIFFERS: "Compare the draft and its revision in that pod's log with "
        "another pod's; delete the pod to load it again.",
        Reason.LONG_CONTEXT_REJECTED: "Check that the draft's max_position_embeddings and rope "
        "scaling reach that far. Or try a draft that holds there, such as EAGLE 3.1.",
        Reason.OLDER_REPLICAS_ACCEPT_LESS: "Restart the older replicas one at a time. A "
        "SpeculativeDeployment does so by itself with rollout.refresh: Auto.",
        Reason.TOO_GOOD_TO_BE_TRUE: "Check that the traffic is real and not one repeated prompt, "
        "and that the draft is not the target itself.",
        Reason.NOTHING_ACCEPTED: "Check that the method is what the draft was trained as, and "
        "that the draft belongs to this target.",
        Reason.DEPTH_MISMATCH: "Look for another part that shortens drafts (a grammar, "
        "max_model_len), and in the pod's log for 'fathom'.",
        Reason.SPECULATION_SLOWER: "With speculation.minTokens: 0 the tuner may stop speculating "
        "by itself; speculation.drafting: Disabled saves the draft's work as well. Or use another "
        "draft, trained on this traffic.",
        Reason.ENGINE_VERSION_UNKNOWN: "Set spec.engine.version.",
    }
)
"""For the page, `fathom status`, the messages of alarms, and runbooks."""


def title_of(reason: str) -> str:
    """What a reason means, for the page and status; itself where this release does not know it."""
    return _TITLES.get(reason, reason)


def advice_of(reason: str, name: str = "NAME") -> str:
    """What a person does about a reason of a status; empty: nothing, or it is not known here."""
    return _ADVICE.get(reason, "").replace("NAME", name)
