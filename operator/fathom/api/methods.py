"""Speculation methods: one row for each. Another method of vLLM is a member and its row.

What a release of vLLM can do, whatever the method, is in `fathom.engine.capability_table`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import Final

from packaging.specifiers import SpecifierSet


class Method(StrEnum):
    """Spelled as vLLM spells them. EAGLE 3 and 3.1 are both `eagle3`."""

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
    def row(self) -> "MethodRow":
        """What is known of it."""
        return METHODS[self]

    @property
    def needs_draft(self) -> bool:
        """Whether a draft model of its own is loaded with the target."""
        return self.row.drafted_by is DraftedBy.ITS_OWN_MODEL

    @property
    def takes_no_draft(self) -> bool:
        """Whether tokens are found in earlier text, by no model at all."""
        return self.row.drafted_by in {DraftedBy.EARLIER_WORDS, DraftedBy.SUFFIXES}

    @property
    def looks_up_ngrams(self) -> bool:
        """Whether tokens are those that followed the same words before."""
        return self.row.drafted_by is DraftedBy.EARLIER_WORDS


class DraftedBy(Enum):
    """What makes the drafts."""

    ITS_OWN_MODEL = auto()
    """A draft model that is loaded with the target: `draft.id` names it."""
    THE_TARGET = auto()
    """What comes with the target; a draft model of its own is possible."""
    EARLIER_WORDS = auto()
    """The words that followed the same ones before. On a GPU they are looked up there
    (vllm/v1/worker/gpu/spec_decode/__init__.py, 0.32). vLLM would ignore a draft model
    (vllm/config/speculative.py, `__post_init__`)."""
    SUFFIXES = auto()
    """A tree of earlier answers, on the CPU; a draft model would be ignored as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRow:
    """What is known of one method. The defaults are those of a method that nobody has looked at."""

    family: str
    """How people call its drafts; of `eagle3` the draft's config says more."""
    drafted_by: DraftedBy
    since: SpecifierSet = SpecifierSet()  # noqa: RUF009 - frozen in all but name
    """Releases that know it."""
    live: bool = False
    """Whether its depth can change while an engine runs, where a release can do that at all."""
    needs_gpu: bool = False
    """Whether its drafts are made by what runs on a GPU alone."""
    one_depth_on_v1: bool = False
    """Whether Model Runner V1 drafts at one depth only: 0.32 keeps the schedule and stops at the
    first step of another depth (`propose` in vllm/v1/spec_decode/ngram_proposer_gpu.py), 0.33 drops
    the schedule."""
    only_on_v1: bool = False
    """Whether Model Runner V2 does not have it."""
    waits_on_v1: bool = False
    """Whether steps wait for their scheduling on Model Runner V1: drafts are made on the CPU."""
    adaptive: SpecifierSet | None = None
    """Releases that can cut its drafts before they are verified; None: none."""
    draft_stays_whole: SpecifierSet = SpecifierSet()  # noqa: RUF009 - frozen in all but name
    """Releases that do not split its draft into stages of pipeline parallelism, or leave that to
    vLLM: some drafts can be split."""
    reads_hidden_states: bool = False
    """Whether its draft reads the target's hidden states, and so is built over its GPUs."""
    graphs_known: bool = False
    """Whether the CUDA graphs of its draft are those of `fathom.engine.cuda_graphs`."""
    parallel_by_nature: bool = False
    """Whether it drafts all tokens at once, on Model Runner V2 too."""
    requirements_known: bool = False
    """Whether all that it asks of both models is checked; else only what is certain is said."""


METHODS: Final[Mapping[Method, MethodRow]] = MappingProxyType(
    {
        Method.EAGLE3: MethodRow(
            family="EAGLE-3",
            drafted_by=DraftedBy.ITS_OWN_MODEL,
            live=True,
            adaptive=SpecifierSet(">=0.30.0"),
            draft_stays_whole=SpecifierSet(">=0.30.0"),
            reads_hidden_states=True,
            graphs_known=True,
            requirements_known=True,
        ),
        Method.EAGLE: MethodRow(
            family="EAGLE",
            drafted_by=DraftedBy.ITS_OWN_MODEL,
            live=True,
            adaptive=SpecifierSet(">=0.30.0"),
            reads_hidden_states=True,
            graphs_known=True,
        ),
        Method.MTP: MethodRow(
            family="MTP",
            drafted_by=DraftedBy.THE_TARGET,
            live=True,
            adaptive=SpecifierSet(">=0.30.0"),
            graphs_known=True,
            requirements_known=True,
        ),
        Method.DRAFT_MODEL: MethodRow(
            family="draft model",
            drafted_by=DraftedBy.ITS_OWN_MODEL,
            live=True,
            # 0.30 runs draft models on Model Runner V1 only, and adaptive verification on V2 only.
            adaptive=SpecifierSet(">=0.31.0"),
            requirements_known=True,
        ),
        Method.NGRAM: MethodRow(
            family="n-gram",
            drafted_by=DraftedBy.EARLIER_WORDS,
            live=True,
            waits_on_v1=True,
            requirements_known=True,
        ),
        Method.NGRAM_GPU: MethodRow(
            family="n-gram",
            drafted_by=DraftedBy.EARLIER_WORDS,
            since=SpecifierSet(">=0.18.0"),
            live=True,
            needs_gpu=True,
            one_depth_on_v1=True,
            requirements_known=True,
        ),
        Method.SUFFIX: MethodRow(
            family="suffix",
            drafted_by=DraftedBy.SUFFIXES,
            since=SpecifierSet(">=0.11.1"),
            only_on_v1=True,
            waits_on_v1=True,
        ),
        Method.DFLASH: MethodRow(
            family="DFlash",
            drafted_by=DraftedBy.ITS_OWN_MODEL,
            since=SpecifierSet(">=0.20.0"),
            live=True,
            adaptive=SpecifierSet(">=0.30.0"),
            draft_stays_whole=SpecifierSet(">=0.30.0"),
            parallel_by_nature=True,
        ),
        Method.DSPARK: MethodRow(
            family="DSpark",
            drafted_by=DraftedBy.THE_TARGET,
            since=SpecifierSet(">=0.25.0"),
            adaptive=SpecifierSet(">=0.28.0"),
            draft_stays_whole=SpecifierSet(">=0.30.0"),
            parallel_by_nature=True,
        ),
    }
)
