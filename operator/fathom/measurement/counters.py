"""What one engine has counted, what it counted between two looks, and which pods cannot be read.

Counters are cumulative since the engine started, exactly as its /metrics shows them. Everything
that is computed from them is computed from deltas, summed over pods before any division.

Older plugins count by whole doublings of the batch, newer ones by parts of them, and a fleet may
hold both for weeks. A look has its cells as its page names them; a delta has them all by the parts.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from types import MappingProxyType
from typing import Final

from fathom.engine.depth import DepthDocument
from fathom.engine.report import NOTHING_TOLD, EngineReport
from fathom.text import counted

FORGOTTEN_AFTER_S: Final = 180.0
"""Looks are a minute apart at most: a pod that was read for so long is well again."""
_TOLD_AFTER: Final = 2
"""Looks that fail: the first may be an accident, and would write a status twice."""
_MOST_PODS: Final = 3
_MOST_CAUSES: Final = 3


class StepKind(StrEnum):
    """What an engine step held: decodes only, or some prefill as well."""

    DECODE = "decode"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """Steps of one kind at one depth whose batch lies in one bucket.

    `batch_le` is the bucket's largest batch, by which it is named.
    """

    batch_le: int
    depth: int
    step: StepKind


@dataclass(frozen=True, slots=True)
class CellCounts:
    """Sums over the steps of one cell."""

    steps: float = 0.0
    step_seconds: float = 0.0
    """Busy seconds; time without work is not step time."""
    tokens: float = 0.0
    """Tokens that reached requests; older plugins count accepted ones beyond an end, too."""
    scheduled_requests: float = 0.0
    """Sum of the batch over the steps."""
    prefill_tokens: float = 0.0
    """Tokens of prompts that mixed steps computed, where `PodDelta.counts_prompts`."""

    def __add__(self, other: "CellCounts") -> "CellCounts":
        return CellCounts(
            self.steps + other.steps,
            self.step_seconds + other.step_seconds,
            self.tokens + other.tokens,
            self.scheduled_requests + other.scheduled_requests,
            self.prefill_tokens + other.prefill_tokens,
        )

    def __sub__(self, other: "CellCounts") -> "CellCounts":
        return CellCounts(
            self.steps - other.steps,
            self.step_seconds - other.step_seconds,
            self.tokens - other.tokens,
            self.scheduled_requests - other.scheduled_requests,
            self.prefill_tokens - other.prefill_tokens,
        )


@dataclass(frozen=True, slots=True, order=True)
class DraftCell:
    """Drafts of one length made at batches of one bucket."""

    batch_le: int
    depth: int


@dataclass(frozen=True, slots=True)
class DraftCounts:
    drafts: float = 0.0
    accepted: tuple[float, ...] = ()
    """Drafts whose first i + 1 tokens were all accepted, i = 0 .. depth - 1."""

    def __add__(self, other: "DraftCounts") -> "DraftCounts":
        pairs = zip_longest(self.accepted, other.accepted, fillvalue=0.0)
        return DraftCounts(self.drafts + other.drafts, tuple([a + b for a, b in pairs]))

    def __sub__(self, other: "DraftCounts") -> "DraftCounts":
        pairs = zip_longest(self.accepted, other.accepted, fillvalue=0.0)
        return DraftCounts(self.drafts - other.drafts, tuple([a - b for a, b in pairs]))


@dataclass(frozen=True, slots=True, order=True)
class ContextRange:
    """Contexts from so many tokens on, up to the next range."""

    context_ge: int


@dataclass(frozen=True, slots=True)
class ContextCounts:
    """Drafts of requests whose context lies in one range."""

    drafts: float = 0.0
    tokens: float = 0.0
    """Tokens that were drafted."""
    accepted: float = 0.0
    """How many of those were accepted."""
    first_accepted: float = 0.0
    """Drafts whose first token was."""

    def __add__(self, other: "ContextCounts") -> "ContextCounts":
        return ContextCounts(
            self.drafts + other.drafts,
            self.tokens + other.tokens,
            self.accepted + other.accepted,
            self.first_accepted + other.first_accepted,
        )

    def __sub__(self, other: "ContextCounts") -> "ContextCounts":
        return ContextCounts(
            self.drafts - other.drafts,
            self.tokens - other.tokens,
            self.accepted - other.accepted,
            self.first_accepted - other.first_accepted,
        )


def position_at(accepted: tuple[float, ...], position: int) -> float:
    """Accepted drafts at a position; 0 beyond the last one."""
    return accepted[position] if position < len(accepted) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounts:
    """vLLM's own counters and gauges, summed over its engines."""

    generation_tokens: float = 0.0
    prompt_tokens: float = 0.0
    preemptions: float = 0.0
    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0
    tpot_seconds_sum: float = 0.0
    """Sum of vllm:request_time_per_output_token_seconds over finished requests."""
    tpot_count: float = 0.0
    finished_requests: float = 0.0
    """Requests that ended, however they did."""
    failed_requests: float = 0.0
    """Ended requests that the engine or the client gave up: `error`, `abort`."""
    requests_running: float = 0.0
    requests_waiting: float = 0.0
    kv_cache_usage: float = 0.0
    """Share of the KV cache in use, 0 to 1."""


Histogram = tuple[tuple[float, float], ...]
"""Prometheus's: pairs of upper bound, ascending, the last infinite, and count up to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCounters:
    """One look at one pod's /metrics."""

    pod: str
    at_s: float
    """When the values were true (Unix seconds): the scrape's own time, not the query's."""
    started_at_s: float
    """When the engine's counters began (Unix seconds); a change means a restart. 0: unknown."""
    engine: EngineCounts
    live_depth: bool
    """Whether the plugin is loaded and can change depth."""
    depth_generation: int
    """Generation of the depth document in force; 0: none yet."""
    schedule_hash: int = 0
    """Hash of the schedule in force; 0: it is not told."""
    document_seen: bool = True
    """Whether the engine ever obeyed a depth document. Older plugins do not tell."""
    document_gone: bool = False
    """Whether that document is gone since, so that the engine went back to the user's depth."""
    named: bool = True
    """Whether it knows its pod's name, and so finds an entry of its own. Older ones do not tell."""
    depth_rejections: float = 0.0
    hook_errors: float = 0.0
    counters_shown: bool = True
    """False: the plugin says that its counters do not reach the page. Older ones do not tell."""
    counts_prompts: bool = True
    """Whether mixed steps tell how many tokens of prompts they computed. Older plugins do not."""
    token_budget: int = 0
    """Tokens that a step may hold, as the engine says; 0: it does not."""
    device: str = ""
    """Name of its accelerator, such as `NVIDIA GB200`; empty: it does not tell."""
    report: EngineReport = NOTHING_TOLD
    """What it says that it runs with."""
    transition_steps: float = 0.0
    """Steps that mixed depths, which no cell holds."""
    transition_seconds: float = 0.0
    """Their busy seconds."""
    transition_tokens: float = 0.0
    """Tokens that reached requests in them."""
    transition_prefill: float = 0.0
    """Tokens of prompts that they computed."""
    cells: Mapping[Cell, CellCounts] = field(default_factory=lambda: MappingProxyType({}))
    """By the buckets of this engine's own plugin."""
    drafts: Mapping[DraftCell, DraftCounts] = field(default_factory=lambda: MappingProxyType({}))
    contexts: Mapping[ContextRange, ContextCounts] = field(default_factory=dict)
    """Empty where the plugin is older."""
    tpot: Histogram = ()
    """Time per output token of finished requests, seconds."""
    ttft: Histogram = ()
    """Time to first token, seconds."""
    positions: Histogram = ()
    """Accepted drafts by position, from 0, as vLLM itself counts them: pairs of both."""
    has_plugin: bool = True
    """Whether the page shows anything of the plugin."""

    def runs(self, document: DepthDocument) -> bool:
        """Whether what this document has for the pod is in force.

        By its hash: a file from elsewhere may bear the same number. By the number alone where an
        older plugin tells no hash.
        """
        asked = document.hash_for_pod(self.pod)
        return self._bears_number(document) and self.schedule_hash in {0, asked}

    def follows(self, document: DepthDocument) -> bool:
        """Whether it does as this document says: its own entry may also have ended by itself."""
        asked = document.hashes_for_pod(self.pod)
        return self._bears_number(document) and self.schedule_hash in {0, *asked}

    def _bears_number(self, document: DepthDocument) -> bool:
        return self.depth_generation == document.generation


NO_STEPS: Final = CellCounts()
NO_DRAFTS: Final = DraftCounts()
NO_CONTEXT: Final = ContextCounts()


class UnreadKind(StrEnum):
    """Why counters cannot be read, as far as something follows from it."""

    NO_ANSWER = "no answer"
    REFUSED = "refused"
    """The Prometheus is there, and refuses the operator."""
    NOT_VLLM = "not vLLM"
    """There is a page, and it is no vLLM's."""


@dataclass(frozen=True, slots=True, order=True)
class Unread:
    """A pod whose counters could not be read once."""

    pod: str
    cause: str
    """A sentence's second half, and nothing that a server said."""
    kind: UnreadKind = UnreadKind.NO_ANSWER

    @property
    def refused(self) -> bool:
        """Whether the Prometheus is there and refuses the operator."""
        return self.kind is UnreadKind.REFUSED


@dataclass(frozen=True, slots=True)
class _Seen:
    looks: int
    last_s: float


@dataclass(frozen=True, slots=True)
class UnreadPods:
    """What could not be read lately."""

    _seen: Mapping[Unread, _Seen] = field(default_factory=dict)

    def after(
        self, failures: Iterable[Unread], pods: Collection[str], now_s: float
    ) -> "UnreadPods":
        """After one more look.

        A pod that fails at every other look stays told, so that the words stand still.

        Args:
            failures: of this look.
            pods: that there are; of others nothing is told any more.
            now_s: Unix seconds.
        """
        fresh = {each: _Seen(1, now_s) for each in failures}
        kept = {
            each: seen
            for each, seen in self._seen.items()
            if now_s - seen.last_s < FORGOTTEN_AFTER_S
        }
        for each in fresh.keys() & kept.keys():
            fresh[each] = _Seen(kept[each].looks + 1, now_s)
        merged = {**kept, **fresh}
        return UnreadPods({each: seen for each, seen in merged.items() if each.pod in pods})

    @property
    def refused(self) -> bool:
        """Whether a Prometheus refuses the operator."""
        return any(each.refused for each in self._told())

    @property
    def sentence(self) -> str:
        """Pods and causes, the first of each and a count of the rest; empty: all can be read."""
        pods: defaultdict[str, list[str]] = defaultdict(list)
        for each in self._told():
            pods[each.cause].append(each.pod)
        if not pods:
            return ""
        told = [f"{_listed(names)} ({cause})" for cause, names in sorted(pods.items())]
        rest = len(told) - _MOST_CAUSES
        more = f"; others for {counted(rest, 'more reason')}" if rest > 0 else ""
        return f"Metrics not read: {'; '.join(told[:_MOST_CAUSES])}{more}."

    def _told(self) -> list[Unread]:
        return sorted(each for each, seen in self._seen.items() if seen.looks >= _TOLD_AFTER)


ALL_READ: Final = UnreadPods()


def _listed(names: list[str]) -> str:
    if len(names) <= _MOST_PODS:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_PODS])} and {len(names) - _MOST_PODS} more"
