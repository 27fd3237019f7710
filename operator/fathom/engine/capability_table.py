"""What each vLLM release can do: the table.

Its rules are in `fathom.engine.live_depth` and `fathom.validation.engine_checks`.

Read: the wheels of 0.14.1 to 0.33.0. Run, as far as a CPU goes: what docs/engines.md names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from fathom.api.choices import Method

_EVERY_METHOD: Final = frozenset(Method)


@dataclass(frozen=True, slots=True, eq=False)  # one is itself: specifiers are slow to hash
class Capability:
    """One thing that an engine can do in some releases, with some methods."""

    versions: SpecifierSet
    methods: frozenset[Method] = _EVERY_METHOD

    def in_version(self, version: Version) -> bool:
        return self.versions.contains(version, prereleases=True)


class Shown(StrEnum):
    """What shows, without a GPU, that a release lacks something."""

    PARSER = "parser"
    """vLLM's argument parser refuses it."""
    CONFIG = "configuration"
    """vLLM refuses it, or drops it, while it puts its configuration together."""
    BACKEND = "attention backend"
    """What the backend's class says of its CUDA graphs, read in the installed release."""
    SOURCE = "source"
    """Read in vLLM's source: only a running engine on GPUs would show it, or the releases that lack
    it are older than those that were run."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table, for docs/engines.md and for the test that runs vLLM's own parsers."""

    what: str
    capability: Capability
    without: str
    """What Fathom does where a release lacks it."""
    shown: Shown
    source: str
    """The file below `vllm/` that decides."""


EVERY_RELEASE: Final = Capability(SpecifierSet())
"""Found in the oldest and in the newest release that was read."""
_NONE_YET: Final = SpecifierSet("<0")

SHUTDOWN_TIMEOUT: Final = Capability(SpecifierSet(">=0.18.0"))
DEPTH_SCHEDULE: Final = Capability(SpecifierSet(">=0.24.0"))
ADAPTIVE_VERIFICATION: Final = (
    Capability(SpecifierSet(">=0.28.0"), frozenset({Method.DSPARK})),
    Capability(
        SpecifierSet(">=0.30.0"),
        frozenset({Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DFLASH}),
    ),
    # 0.30 runs draft models on Model Runner V1 only, and adaptive verification on V2 only.
    Capability(SpecifierSet(">=0.31.0"), frozenset({Method.DRAFT_MODEL})),
)
DFLASH: Final = Capability(SpecifierSet(">=0.20.0"))
DSPARK: Final = Capability(SpecifierSet(">=0.25.0"))
METHODS: Final[Mapping[Method, Capability]] = MappingProxyType(
    {
        **dict.fromkeys(Method, EVERY_RELEASE),
        Method.DFLASH: DFLASH,
        Method.DSPARK: DSPARK,
    }
)

TOKENSPEED_MLA: Final = Capability(SpecifierSet(">=0.21.0"))
ATTENTION_BACKENDS: Final[Mapping[str, Capability]] = MappingProxyType(
    {"tokenspeed_mla": TOKENSPEED_MLA}
)
"""Those that came late, in lower case. Others are left to vLLM."""

DRAFT_PIPELINE_PARALLEL: Final = Capability(
    # Before, the draft is split into stages as well, and no draft of these methods can be. MTP and
    # EAGLE are left to vLLM: some of their drafts can.
    SpecifierSet(">=0.30.0"),
    frozenset({Method.EAGLE3, Method.DFLASH, Method.DSPARK}),
)

LIVE_DEPTH: Final = Capability(
    # 0.32: Model Runner V2, the default on GPUs, honours the depth of each step. The upper bound:
    # the scheduler's interface is not public, so a release counts once it has been looked at.
    SpecifierSet(">=0.32.0,<0.34"),
    # 0.33 drops the schedule for other methods of Model Runner V1.
    frozenset(
        {
            Method.NGRAM,
            Method.NGRAM_GPU,
            Method.EAGLE,
            Method.EAGLE3,
            Method.MTP,
            Method.DRAFT_MODEL,
            Method.DFLASH,
        }
    ),
)
ONE_DEPTH_ON_V1: Final = frozenset({Method.NGRAM_GPU})
"""Methods of live depth that Model Runner V1 drafts at one depth only: 0.32 keeps the schedule and
stops at the first step of another depth (`propose` in vllm/v1/spec_decode/ngram_proposer_gpu.py),
0.33 drops the schedule."""
ASYNCHRONOUS_ON_V2: Final = Capability(SpecifierSet(">=0.33.0"))
"""On Model Runner V2 no method, and no option of a draft, makes steps wait for their scheduling."""
COUNTED: Final = Capability(
    # The plugin's scheduler, in an engine whose depth it leaves alone: 0.28 and 0.32 were run.
    SpecifierSet(">=0.28.0,<0.34"),
    # With n-grams on Model Runner V1, which they all run on before 0.32, requests verify drafts of
    # different lengths in one step: it belongs to no depth. On V2 they have one length
    # (vllm/v1/worker/gpu/spec_decode/ngram/speculator.py), and counting was not tried.
    frozenset(each for each in LIVE_DEPTH.methods if not each.looks_up_ngrams),
)
LIVE_DEPTH_DATA_PARALLEL: Final = Capability(_NONE_YET)
# The draft tokens of a request are cut on the GPU, after the scheduler has counted them. Neither it
# nor vLLM's metrics learn how many were verified, so the tuner judges by tokens per step instead of
# acceptance (`fathom.tuning.estimate.yields`). The cut never exceeds what was scheduled, whatever
# its depth.
LIVE_DEPTH_ADAPTIVE: Final = Capability(SpecifierSet(">=0.32.0,<0.34"))

EAGLE31_ON_MLA: Final = Capability(
    # 0.22 builds `fc_norm` for MLA drafts and never applies it: the engine runs, and acceptance
    # is far below what the draft is worth.
    SpecifierSet(">=0.23.0"),
    frozenset({Method.EAGLE3}),
)

ARCHITECTURES: Final = Capability(
    # 0.24.0, 0.28.0 and 0.32.0 agree in all that is listed there.
    SpecifierSet(">=0.24.0,<0.33"),
    frozenset({Method.EAGLE3, Method.MTP}),
)
"""Releases that the names in `fathom.validation.models.draft_architectures` are true of."""

ADAPTIVE_PIPELINE_PARALLEL: Final = Capability(_NONE_YET)
FLASHINFER_MLA_ADAPTIVE: Final = Capability(SpecifierSet(">=0.31.0"))
NO_MLA_ADAPTIVE: Final = Capability(_NONE_YET)
ADAPTIVE_BACKENDS: Final[Mapping[str, Capability]] = MappingProxyType(
    {
        "flashinfer_mla": FLASHINFER_MLA_ADAPTIVE,
        "tokenspeed_mla": NO_MLA_ADAPTIVE,
        "cutlass_mla": NO_MLA_ADAPTIVE,
        "flashmla": NO_MLA_ADAPTIVE,
        "flash_attn_mla": NO_MLA_ADAPTIVE,
        "triton_mla": NO_MLA_ADAPTIVE,
    }
)
"""Whether a backend's CUDA graphs take requests of different lengths, as trimmed drafts need.
Backends that are not listed are left to vLLM, which says at start whether they do."""
ADAPTIVE_FLAGS: Final[Mapping[str, Capability]] = MappingProxyType(
    {
        "--enable-lora": Capability(_NONE_YET),
        "--enable-batch-sharded-sampling": Capability(SpecifierSet(">=0.33.0")),
        "--enable-return-routed-experts": Capability(_NONE_YET),
        "--return-sampling-mask": Capability(_NONE_YET),
    }
)
"""Flags whose work needs to know on the CPU how many drafts of each request are left, and the
releases that can do it all the same."""

_REFUSED: Final = "refused"
_AT_TOKENS: Final = "depth stays at `tokens`"

TABLE: Final = (
    Row(
        "`--shutdown-timeout`",
        SHUTDOWN_TIMEOUT,
        "left out: a pod that goes aborts its requests, whatever `drainSeconds` says",
        Shown.SOURCE,
        "engine/arg_utils.py",
    ),
    Row("method dflash", DFLASH, _REFUSED, Shown.SOURCE, "config/speculative.py"),
    Row("method dspark", DSPARK, _REFUSED, Shown.CONFIG, "config/speculative.py"),
    Row(
        "attention backend tokenspeed_mla",
        TOKENSPEED_MLA,
        _REFUSED,
        Shown.SOURCE,
        "v1/attention/backends/registry.py",
    ),
    Row(
        "methods eagle3, dflash and dspark with pipeline parallelism",
        DRAFT_PIPELINE_PARALLEL,
        _REFUSED,
        Shown.CONFIG,
        "config/speculative.py",
    ),
    Row(
        "EAGLE 3.1 drafts with MLA",
        EAGLE31_ON_MLA,
        _REFUSED,
        Shown.SOURCE,
        "model_executor/models/deepseek_eagle3.py",
    ),
    Row(
        "depth schedule",
        DEPTH_SCHEDULE,
        _AT_TOKENS,
        Shown.CONFIG,
        "config/speculative.py",
    ),
    Row(
        "live depth",
        LIVE_DEPTH,
        _AT_TOKENS,
        Shown.SOURCE,
        "v1/worker/gpu/model_runner.py",
    ),
    Row(
        "steps counted by batch where depth is not live",
        COUNTED,
        "nothing is counted by batch",
        Shown.SOURCE,
        "v1/core/sched/scheduler.py",
    ),
    Row(
        "live depth with several data-parallel engines",
        LIVE_DEPTH_DATA_PARALLEL,
        _AT_TOKENS,
        Shown.CONFIG,
        "config/vllm.py",
    ),
    Row(
        "live depth with adaptive verification",
        LIVE_DEPTH_ADAPTIVE,
        _AT_TOKENS,
        Shown.SOURCE,
        "v1/worker/gpu/spec_decode/adaptive_verification.py",
    ),
    *(
        Row(
            f"adaptive verification, method {method}",
            capability,
            _REFUSED,
            Shown.CONFIG,
            "config/speculative.py",
        )
        for capability in ADAPTIVE_VERIFICATION
        for method in sorted(capability.methods)
    ),
    Row(
        "adaptive verification with pipeline parallelism",
        ADAPTIVE_PIPELINE_PARALLEL,
        _REFUSED,
        Shown.CONFIG,
        "config/vllm.py",
    ),
    *(
        Row(
            f"adaptive verification, attention backend {backend}",
            capability,
            _REFUSED,
            Shown.BACKEND,
            f"v1/attention/backends/mla/{backend.replace('flash_attn', 'flashattn')}.py",
        )
        for backend, capability in ADAPTIVE_BACKENDS.items()
    ),
)
