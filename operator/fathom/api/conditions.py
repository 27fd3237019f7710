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
    ATTACHED = "Attached"
    """A SpeculationTuner has this one, and none of the four before `Tuning`."""


class AlarmKind(StrEnum):
    """What a person should look at: conditions that are absent until they were raised once.

    Also the label `alarm` of the metric. What raises each stands in `fathom.tuning.alarms.table`.
    """

    DRAFT_MISMATCH = "DraftMismatch"
    """Acceptance fell off a cliff: traffic the draft was not made for, or the wrong draft."""
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
    ONE_POD_DIFFERS = "OnePodDiffers"
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


_EARLIER_NAMES: Final[Mapping[str, Reason]] = MappingProxyType(
    {
        "KeptUnreadable": Reason.STATE_UNREADABLE,
        "Exploiting": Reason.AT_BEST,
        "OtherDepthThanAsked": Reason.DEPTH_MISMATCH,
        "SlowerThanWithout": Reason.SPECULATION_SLOWER,
    }
)
