"""What each vLLM release can do: the table.

Its rules are in `fathom.engine.live_depth` and `fathom.validation.engine_checks`.

Read: the wheels of 0.14.1 to 0.33.0. Run, as far as a CPU goes: what docs/engines.md names.

Options, values and draft fields that each release knows are in `fathom.engine.known_options`. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from fathom.api.methods import METHODS, Method

_EVERY_METHOD: Final = frozenset(Method)
_NONE_YET: Final = SpecifierSet("<0")
_REFUSED: Final = "refused"
_AT_TOKENS: Final = "depth stays at `tokens`"


def has_release(versions: SpecifierSet, version: Version) -> bool:
    """Whether a release is among these; one before a release comes before it."""
    return versions.contains(version, prereleases=True)


@dataclass(frozen=True, slots=True, eq=False)  # one is itself: specifiers are slow to hash
class Capability:
    """One thing that an engine can do in some releases, with some methods."""

    versions: SpecifierSet
    methods: frozenset[Method] = _EVERY_METHOD

    def in_version(self, version: Version) -> bool:
        return has_release(self.versions, version)


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


@dataclass(frozen=True, slots=True, kw_only=True)
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
READ: Final = Capability(SpecifierSet("<0.34"))
"""What is claimed of a release holds up to the newest that was read: of later ones nothing is
known."""

SEVERAL_NODES: Final = Capability(SpecifierSet(">=0.11.1"))
"""Without Ray: --nnodes and what belongs to it."""
SHUTDOWN_TIMEOUT: Final = Capability(SpecifierSet(">=0.18.0"))
DEPTH_SCHEDULE: Final = Capability(SpecifierSet(">=0.24.0"))

TOKENSPEED_MLA: Final = Capability(SpecifierSet(">=0.21.0"))
ATTENTION_BACKENDS: Final[Mapping[str, Capability]] = MappingProxyType(
    {"tokenspeed_mla": TOKENSPEED_MLA}
)
"""Those that came late, in lower case. Others are left to vLLM."""

LIVE_DEPTH: Final = Capability(
    # 0.32: Model Runner V2, the default on GPUs, honours the depth of each step. The upper bound:
    # the scheduler's interface is not public, so a release counts once it has been looked at.
    SpecifierSet(">=0.32.0,<0.34"),
    # 0.33 drops the schedule for other methods of Model Runner V1.
    frozenset(method for method, row in METHODS.items() if row.live),
)
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

EAGLE31: Final = Capability(SpecifierSet(">=0.22.0"), frozenset({Method.EAGLE3}))
"""`fc_norm` and `norm_output`, which make EAGLE 3.1 of EAGLE 3."""
EAGLE31_OF_SPECULATORS: Final = Capability(
    # Before, the two are left behind when the config.json is put into vLLM's own form: weights of
    # `fc_norm` then end the start, and a draft without any runs as EAGLE 3.
    SpecifierSet(">=0.25.0"),
    frozenset({Method.EAGLE3}),
)
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
"""Releases that the names in `fathom.validation.pair_checks` are true of."""

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
releases that can do it anyway."""


TABLE: Final = (
    Row(
        what="`--shutdown-timeout`",
        capability=SHUTDOWN_TIMEOUT,
        without="left out: a pod that goes aborts its requests, whatever `drainSeconds` says",
        shown=Shown.SOURCE,
        source="engine/arg_utils.py",
    ),
    Row(
        what="replicas over several nodes",
        capability=SEVERAL_NODES,
        without=_REFUSED,
        shown=Shown.SOURCE,
        source="engine/arg_utils.py",
    ),
    *(
        Row(
            what=f"method {method}",
            capability=Capability(METHODS[method].since),
            without=_REFUSED,
            shown=Shown.CONFIG if method is Method.DSPARK else Shown.SOURCE,
            source="config/speculative.py",
        )
        for method in (Method.SUFFIX, Method.NGRAM_GPU, Method.DFLASH, Method.DSPARK)
    ),
    Row(
        what="attention backend tokenspeed_mla",
        capability=TOKENSPEED_MLA,
        without=_REFUSED,
        shown=Shown.SOURCE,
        source="v1/attention/backends/registry.py",
    ),
    Row(
        what="methods eagle3, dflash and dspark with pipeline parallelism",
        capability=Capability(METHODS[Method.EAGLE3].draft_stays_whole),
        without=_REFUSED,
        shown=Shown.CONFIG,
        source="config/speculative.py",
    ),
    Row(
        what="EAGLE 3.1 drafts",
        capability=EAGLE31,
        without=_REFUSED,
        shown=Shown.SOURCE,
        source="model_executor/models/llama_eagle3.py",
    ),
    Row(
        what="EAGLE 3.1 drafts in the speculators format",
        capability=EAGLE31_OF_SPECULATORS,
        without=_REFUSED,
        shown=Shown.SOURCE,
        source="transformers_utils/configs/speculators/algos.py",
    ),
    Row(
        what="EAGLE 3.1 drafts with MLA",
        capability=EAGLE31_ON_MLA,
        without=_REFUSED,
        shown=Shown.SOURCE,
        source="model_executor/models/deepseek_eagle3.py",
    ),
    Row(
        what="depth schedule",
        capability=DEPTH_SCHEDULE,
        without=_AT_TOKENS,
        shown=Shown.CONFIG,
        source="config/speculative.py",
    ),
    Row(
        what="live depth",
        capability=LIVE_DEPTH,
        without=_AT_TOKENS,
        shown=Shown.SOURCE,
        source="v1/worker/gpu/model_runner.py",
    ),
    Row(
        what="steps counted by batch where depth is not live",
        capability=COUNTED,
        without="nothing is counted by batch",
        shown=Shown.SOURCE,
        source="v1/core/sched/scheduler.py",
    ),
    Row(
        what="live depth with several data-parallel engines",
        capability=LIVE_DEPTH_DATA_PARALLEL,
        without=_AT_TOKENS,
        shown=Shown.CONFIG,
        source="config/vllm.py",
    ),
    Row(
        what="live depth with adaptive verification",
        capability=LIVE_DEPTH_ADAPTIVE,
        without=_AT_TOKENS,
        shown=Shown.SOURCE,
        source="v1/worker/gpu/spec_decode/adaptive_verification.py",
    ),
    *(
        Row(
            what=f"adaptive verification, method {method}",
            capability=Capability(row.adaptive, frozenset({method})),
            without=_REFUSED,
            shown=Shown.CONFIG,
            source="config/speculative.py",
        )
        for method, row in sorted(
            METHODS.items(), key=lambda each: (str(each[1].adaptive), each[0])
        )
        if row.adaptive is not None
    ),
    Row(
        what="adaptive verification with pipeline parallelism",
        capability=ADAPTIVE_PIPELINE_PARALLEL,
        without=_REFUSED,
        shown=Shown.CONFIG,
        source="config/vllm.py",
    ),
    *(
        Row(
            what=f"adaptive verification, attention backend {backend}",
            capability=capability,
            without=_REFUSED,
            shown=Shown.BACKEND,
            source=f"v1/attention/backends/mla/{backend.replace('flash_attn', 'flashattn')}.py",
        )
        for backend, capability in ADAPTIVE_BACKENDS.items()
    ),
)
