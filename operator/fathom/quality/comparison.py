"""Engines' answers, token for token: where they differ, at which replicas, what that says. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, zip_longest
from typing import Final

from fathom.api.status import QualityResult, QualityStatus
from fathom.engine.depth import DepthDocument
from fathom.text import counted
from fathom.times import rfc3339

TIE_NATS: Final = 0.25
"""Candidates whose log probabilities lie this close together are a near-tie.

Engines compute logits in bfloat16, which has 8 significant bits: from 16 to 32, where the largest
logits of language models tend to lie, neighbouring numbers are 0.125 apart. This is the gap that
opens when each of the two is off by one such step. Between two logits of one softmax the gap in log
probability is the gap in logits.
"""
LIKELIEST: Final = 5
"""Candidates that are told of a position: three or four may be close together."""
_SHOWN_CHARACTERS: Final = 40
_OTHER_CAUSES: Final = (
    "Other requests in the batch change what vLLM computes, too: ask again when there are none, "
    "before you call it speculation."
)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A greedy completion to ask for."""

    prompt: str | tuple[int, ...]
    """Text, or the ids of its tokens."""
    most_tokens: int
    likeliest: int = 0
    """How many candidates for the first token to tell, with their log probabilities; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an engine went on with."""

    token_ids: tuple[int, ...]
    text: str
    prompt_token_ids: tuple[int, ...] = ()
    """Empty: the engine did not tell."""
    logprobs: Mapping[int, float] = field(default_factory=dict)
    """Natural logarithm of the probability, by token id, of the first token's candidates."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Why there is no completion."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two answers to one prompt part, both numbers from 0."""

    prompt: int
    position: int
    """Position of the first token that differs; after it nothing can be compared."""
    gap_nats: float | None = None
    """By how much the candidate of depth 0 is the likelier one, as depth 0 has it when asked again;
    None: not known, or one of them is not among the likeliest."""

    @property
    def is_tie(self) -> bool:
        return self.gap_nats is not None and abs(self.gap_nats) <= TIE_NATS

    @property
    def is_taken_back(self) -> bool:
        """Whether depth 0, asked again, prefers what came with drafts."""
        return self.gap_nats is not None and self.gap_nats < -TIE_NATS


def differences(
    reference: Sequence[Completion], speculating: Sequence[Completion]
) -> tuple[Difference, ...]:
    """The first difference of each prompt that has one, gaps not known yet."""
    found = []
    for prompt, (one, other) in enumerate(zip(reference, speculating, strict=True)):
        position = _first_difference(one.token_ids, other.token_ids)
        if position is not None:
            found.append(Difference(prompt, position))
    return tuple(found)


def tokens_compared(reference: Sequence[Completion], speculating: Sequence[Completion]) -> int:
    """Tokens up to and including each prompt's first difference."""
    total = 0
    for one, other in zip(reference, speculating, strict=True):
        position = _first_difference(one.token_ids, other.token_ids)
        total += len(one.token_ids) if position is None else position + 1
    return total


def gap_request(reference: Completion, difference: Difference) -> CompletionRequest:
    """What to ask the engine at depth 0, to learn how likely the two candidates are.

    It is given the tokens that both had in common, so that it stands where they parted, whatever
    it would say today.
    """
    return CompletionRequest(
        prompt=(*reference.prompt_token_ids, *reference.token_ids[: difference.position]),
        most_tokens=1,
        likeliest=LIKELIEST,
    )


def gap_nats(
    difference: Difference,
    reference: Completion,
    speculating: Completion,
    asked_again: Completion,
) -> float | None:
    """What `Difference.gap_nats` has; None: one is not among the likeliest, or is an end."""
    position, logprobs = difference.position, asked_again.logprobs
    candidates = [each.token_ids[position : position + 1] for each in (reference, speculating)]
    known = [logprobs[ids[0]] for ids in candidates if ids and ids[0] in logprobs]
    return known[0] - known[1] if len(known) == len(candidates) else None


def continuations(reference: Completion, speculating: Completion) -> tuple[str, str]:
    """What each goes on with from the first character that differs, cut short."""
    start = _first_difference(reference.text, speculating.text)
    if start is None:
        start = len(reference.text)
    one, other = (each.text[start : start + _SHOWN_CHARACTERS] for each in (reference, speculating))
    return one, other


def _first_difference(one: Sequence[object], other: Sequence[object]) -> int | None:
    for position, (mine, its) in enumerate(zip_longest(one, other)):
        if mine != its:
            return position
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityComparison:
    """Both sides' answers, prompt by prompt, and where they part."""

    reference_pod: str
    speculating_pod: str
    depth: int
    reference: tuple[Completion, ...]
    speculating: tuple[Completion, ...]
    differences: tuple[Difference, ...]

    def status(self, request_id: str, now_s: float) -> QualityStatus:
        """The result. Without any token there is none: NotChecked."""
        tokens = tokens_compared(self.reference, self.speculating)
        if not tokens:
            why = f"{self.reference_pod} and {self.speculating_pod} answered with nothing."
            return not_checked(request_id, why, now_s)
        ties = [each for each in self.differences if each.is_tie]
        taken_back = [each for each in self.differences if each.is_taken_back]
        others = [each for each in self.differences if not (each.is_tie or each.is_taken_back)]
        if taken_back and not others:
            why = (
                f"{len(taken_back)} of {len(self.reference)} prompts differ. There "
                f"{self.reference_pod}, asked again at depth 0, prefers the answer of "
                f"{self.speculating_pod}: its own changes with what else it serves. So depth "
                f"{self.depth} is not known to differ. Ask again when there is less to do. "
                f"{self._told(taken_back[0])}"
            )
            return not_checked(request_id, why, now_s)
        message = (
            f"{len(others)} of {len(self.reference)} prompts differ by more than a near-tie "
            f"({TIE_NATS} nats). {self._told(others[0])} {_OTHER_CAUSES}"
            if others
            else f"At depth {self.depth} {self.speculating_pod} says what {self.reference_pod} "
            f"says at depth 0: {counted(tokens, 'token')} of {len(self.reference)} prompts."
        )
        if ties:
            message += f" Near-ties: {len(ties)}. {self._told(ties[0])}"
        return QualityStatus(
            request_id=request_id,
            at=rfc3339(now_s),
            result=QualityResult.DIFFERS if others else QualityResult.LOSSLESS,
            prompts=len(self.reference),
            tokens=tokens,
            ties=len(ties),
            message=message,
        )

    @property
    def untold(self) -> str:
        """The sentence of differences whose gap could not be learned."""
        return (
            f"{len(self.differences)} of {len(self.reference)} prompts differ, and it is not known "
            f"whether by more than a near-tie. {self._told(self.differences[0])}"
        )

    def _told(self, difference: Difference) -> str:
        at, gap = difference.prompt, difference.gap_nats
        one, other = continuations(self.reference[at], self.speculating[at])
        apart = "not known to be close" if gap is None else f"{abs(gap):.2f} nats apart"
        return (
            f"Prompt {at + 1} from token {difference.position + 1} on: {one!r} at depth 0, "
            f"{other!r} at depth {self.depth}; {apart}."
        )


def not_checked(request_id: str, why: str, now_s: float) -> QualityStatus:
    """No result, and why."""
    return QualityStatus(
        request_id=request_id, at=rfc3339(now_s), result=QualityResult.NOT_CHECKED, message=why
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A ready replica, as a check sees it."""

    name: str
    revision: str = ""
    pinned: bool = False
    """A person holds it at a depth."""
    live: bool = True
    """Its metrics were read, and show that its depth can be changed live."""
    generation: int = 0
    """Generation of the operator's document, if its engine has that in force; else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityFleet:
    """What a check may know of the replicas at one moment."""

    now_s: float
    replicas: tuple[Replica, ...]
    """The ready ones."""
    document: DepthDocument | None
    """As the cluster has it; None: none yet."""
    refusal: str = ""
    """Why depth cannot be changed live; empty: it can."""

    def replica(self, name: str) -> Replica | None:
        return next((each for each in self.replicas if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Who plays which part."""

    reference: str
    """The pod at depth 0."""
    speculating: str
    """The pod at `depth`; may be the same one."""
    depth: int


def chosen(fleet: QualityFleet) -> Chosen | str:
    """Two replicas of one revision, or one for both parts; or the sentence why there are none."""
    document = fleet.document
    if fleet.refusal:
        return fleet.refusal
    if document is None:
        return "No depth document was written yet. Ask again in a minute."
    if not (depth := max((part.depth for part in document.schedule), default=0)):
        return "Depth is 0 at every batch: nothing is speculated, so there is nothing to compare."
    if not fleet.replicas:
        return "No replica is ready: see the condition Ready."
    free = [each for each in fleet.replicas if each.live and not each.pinned]
    if not free:
        return (
            f"Of {counted(len(fleet.replicas), 'ready replica')} none can be held at a depth: "
            "pinned by a person, metrics that cannot be read or show no live depth, or an engine "
            "that does not know its pod's name."
        )
    # A replica with depths of its own is in the middle of a probe, which need not be cut short.
    free.sort(key=lambda each: (each.name in document.pods, each.name))
    alike = (pair for pair in combinations(free, 2) if pair[0].revision == pair[1].revision)
    reference, speculating = next(alike, (free[0], free[0]))
    return Chosen(reference.name, speculating.name, depth)
