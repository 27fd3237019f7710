"""What users choose from: the values that a field of a spec can have."""

from enum import StrEnum


class Method(StrEnum):
    """Speculation methods, spelled as vLLM spells them. EAGLE 3 and 3.1 are both `eagle3`."""

    EAGLE3 = "eagle3"
    EAGLE = "eagle"
    MTP = "mtp"
    DRAFT_MODEL = "draft_model"
    NGRAM = "ngram"
    NGRAM_GPU = "ngram_gpu"
    SUFFIX = "suffix"
    DFLASH = "dflash"
    DSPARK = "dspark"

    @property
    def needs_draft(self) -> bool:
        """Whether a draft model of its own is loaded beside the target."""
        return self in {Method.EAGLE3, Method.EAGLE, Method.DRAFT_MODEL, Method.DFLASH}

    @property
    def takes_no_draft(self) -> bool:
        """Whether tokens are found in the text itself, by no model at all.

        vLLM would silently ignore one (vllm/config/speculative.py, `__post_init__`). The others
        may have a draft of their own or, as mtp and dspark, come with the target.
        """
        return self.looks_up_ngrams or self is Method.SUFFIX

    @property
    def looks_up_ngrams(self) -> bool:
        """Whether tokens are those that followed the same words before.

        On a GPU both are looked up there (vllm/v1/worker/gpu/spec_decode/__init__.py, 0.32), and
        with `ngram_gpu` no step waits for its scheduling.
        """
        return self in {Method.NGRAM, Method.NGRAM_GPU}


class TuningMode(StrEnum):
    AUTO = "Auto"
    ADVISE = "Advise"
    STATIC = "Static"


class Actuation(StrEnum):
    """Nobody reads which it is; both stay for manifests that name one (docs/design/0027)."""

    AUTO = "Auto"
    LIVE = "Live"


class Objective(StrEnum):
    LATENCY = "Latency"
    THROUGHPUT = "Throughput"
    GOODPUT = "Goodput"


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
    """What one replica has otherwise than the others, to be compared: the field that says Canary.

    Below `spec.speculation`, and below `status`.
    """

    ADAPTIVE_VERIFICATION = "adaptiveVerification"
    DRAFTING = "drafting"


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
