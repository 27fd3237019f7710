"""What users choose from: the values that a field of a spec can have."""

from enum import StrEnum


class TuningMode(StrEnum):
    AUTO = "Auto"
    ADVISE = "Advise"
    STATIC = "Static"


class Actuation(StrEnum):
    """Nobody reads which it is; both stay for manifests that name one (docs/design/0027)."""

    AUTO = "Auto"
    LIVE = "Live"


class Objective(StrEnum):
    """What a depth is chosen for. Another one is a member, and what is asked of it below."""

    LATENCY = "Latency"
    THROUGHPUT = "Throughput"
    GOODPUT = "Goodput"

    @property
    def keeps_slo(self) -> bool:
        """Whether the SLO on time per output token decides which depths are allowed."""
        return self is Objective.GOODPUT


class Switch(StrEnum):
    """Never On/Off or Yes/No: YAML 1.1 reads those as booleans."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class AdaptiveVerification(StrEnum):
    """Which replicas verify adaptively."""

    DISABLED = "Disabled"
    ENABLED = "Enabled"
    CANARY = "Canary"


class Drafting(StrEnum):
    """Which replicas draft."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"
    CANARY = "Canary"


class Compares(StrEnum):
    """What one replica has otherwise than the others, to be compared: its field in the status."""

    ADAPTIVE_VERIFICATION = "adaptiveVerification"
    DRAFTING = "drafting"
    DRAFT = "draftTrial"


class Proposals(StrEnum):
    """When the training of another draft is proposed."""

    ON_ALARM = "OnAlarm"
    MANUAL = "Manual"


class Accelerator(StrEnum):
    GB200 = "GB200"
    GB300 = "GB300"
    B200 = "B200"
    H200 = "H200"
    H100 = "H100"
    A100 = "A100"
    L40S = "L40S"
    RTXPRO6000 = "RTXPRO6000"
    MI300X = "MI300X"
    MI325X = "MI325X"
    MI355X = "MI355X"
    CPU = "CPU"
    CUSTOM = "Custom"


class ComputeDomainPolicy(StrEnum):
    AUTO = "Auto"
    EXTERNAL = "External"
    NEVER = "Never"


class MetricsSource(StrEnum):
    AUTO = "Auto"
    PROMETHEUS = "Prometheus"
    PODS = "Pods"


class WhenNoCapacity(StrEnum):
    WAIT = "Wait"
    TAKE_REPLICA = "TakeReplica"


class AutoOrNever(StrEnum):
    AUTO = "Auto"
    NEVER = "Never"
