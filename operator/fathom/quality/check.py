"""A quality check: does speculation change what the engine says? Step by step, and pure.

1. Choose two ready replicas of one revision. With only one it plays both parts, one after the
   other.
2. Hold one at depth 0 (the reference) and the other at the deepest depth of the schedule in force.
3. Once both report that this is in force, ask both the same greedy prompts.
4. Compare the answers token for token. Where they part, ask the reference how likely the two
   candidates are: a near-tie is counted and is no failure.
5. Let go of the replicas, with a result.

Each step is a value that survives a restart of the operator as JSON. A restart costs at most the
prompts that were under way, which are sent again. Whatever goes wrong ends the check as NotChecked
with a sentence, and so does any step that takes too long under somebody's eyes: no replica is held
for longer.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fathom.api.status import QualityStatus
from fathom.quality.comparison import (
    Completion,
    CompletionRequest,
    Difference,
    QualityComparison,
    QualityFleet,
    Unanswered,
    chosen,
    differences,
    gap_nats,
    gap_request,
    not_checked,
)

PROMPTS: Final = (
    # Prose, where many continuations are nearly as good.
    "The harbour was quiet that morning. A single boat",
    # Code, where drafts are accepted most.
    'def running_mean(values, width):\n    """The mean of each stretch of `width` values."""\n',
    # A list.
    "What to pack for a week in the mountains:\n1.",
    # Numbers.
    "The first prime numbers are 2, 3, 5, 7, 11, 13, 17,",
    # Structured text.
    '{"city": "Oslo", "country": "Norway"}\n{"city": "Lima", "country":',
    # A question.
    "Question: Why does ice float on water?\nAnswer:",
    # Two other languages, one of another script.
    "Der Zug nach Hamburg hält heute nicht in",
    "春天来了 院子里的花",
)
MOST_TOKENS: Final = 64
"""Asked of each prompt."""


HOLD_DEADLINE_S: Final = 180.0
"""For a depth to come into force: a kubelet may take a minute and more to bring the document."""
ASK_DEADLINE_S: Final = 300.0
"""For all answers of one step, be the engine ever so busy."""
MOST_BEGUN_ANEW: Final = 10
"""How often the steps of one check may be."""
LONGEST_ID: Final = 64
QUALITY_KEY: Final = "quality.json"
"""Key in the tuning ConfigMap of a check that is not over."""


class Side(StrEnum):
    """One part in the comparison."""

    REFERENCE = "Reference"
    """At depth 0: nothing is speculated."""
    SPECULATING = "Speculating"


@dataclass(frozen=True, slots=True)
class Question:
    """Something to ask one replica."""

    pod: str
    request: CompletionRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCheck:
    """One check, at one of its steps. Frozen: each step makes another."""

    # Pydantic reads it: what another version of Fathom kept is not half understood. A verdict
    # rests on all of it, and a check that begins again costs a minute or two.
    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    request_id: str
    since_s: float
    """When the present step began (Unix seconds)."""
    reference: str = ""
    """The pod at depth 0."""
    speculating: str = ""
    """The pod at `depth`; may be the same one."""
    depth: int = 0
    asking: bool = False
    """The depths of this step are in force, and its questions are under way."""
    answers: Mapping[Side, tuple[Completion, ...]] = field(default_factory=dict)
    """Those that came, prompt by prompt."""
    parted: tuple[Difference, ...] = ()
    """Differences whose gap is being asked for."""
    result: QualityStatus | None = None
    """None: not over yet."""
    begun_anew: Annotated[int, Field(exclude_if=operator.not_)] = 0
    """How often a step was, since nobody had looked. Left out as long as it is 0: an earlier
    Fathom, such as a standby beside this one, does not know the field and would refuse the rest."""

    @property
    def holds(self) -> dict[str, int]:
        """The depth that each replica has to be held at now; empty once the check is over."""
        if self.result is not None:
            return {}
        return {self._pod(side): self._depth(side) for side in self._sides}

    @property
    def questions(self) -> tuple[Question, ...]:
        """What is to be asked now; the same ones until `answered` or the end."""
        if not self.asking or self.result is not None:
            return ()
        if self.parted:
            answers = self.answers[Side.REFERENCE]
            return tuple(
                Question(self.reference, gap_request(answers[each.prompt], each))
                for each in self.parted
            )
        return tuple(
            Question(self._pod(side), CompletionRequest(prompt, MOST_TOKENS))
            for side in self._sides
            for prompt in PROMPTS
        )

    @property
    def progress(self) -> str:
        """What it is doing, for a person who waits; empty once it is over."""
        held = " and ".join(f"{pod} at depth {depth}" for pod, depth in self.holds.items())
        if self.result is not None:
            return ""
        if not self.asking:
            return f"Waits for {held}."
        if self.parted:
            return (
                f"Asks {self.reference} about the places where answers differ: {len(self.parted)}."
            )
        return f"Asks {len(PROMPTS)} prompts of {held}."

    def anew(self, now_s: float) -> Self:
        """Its present step begins now: nobody has looked for a while, and that says nothing.

        Not for ever: a replica is held, and operators that end again and again would hold it.
        """
        if self.result is not None or self.begun_anew == MOST_BEGUN_ANEW:
            return self
        return replace(self, since_s=now_s, begun_anew=self.begun_anew + 1)

    def advanced(self, fleet: QualityFleet) -> Self:
        """The check after a look at the replicas; itself if nothing has come of it."""
        if self.result is not None:
            return self
        missing = self._missing(fleet)
        why = self._lost(fleet) or self._stuck(missing, fleet.now_s - self.since_s)
        if why:
            return self._not_checked(why, fleet.now_s)
        if self.asking or missing:
            return self
        return replace(self, asking=True, since_s=fleet.now_s)

    def answered(self, replies: Sequence[Completion] | Unanswered, now_s: float) -> Self:
        """The check after what came of its questions.

        Args:
            replies: one for each of `questions`, in their order; or why there are none.
            now_s: Unix seconds.
        """
        if isinstance(replies, Unanswered):
            return self._not_checked(replies.sentence, now_s)
        if self.parted:
            return self._judged(replies, now_s)
        count = len(PROMPTS)
        came = {
            side: tuple(replies[at * count : (at + 1) * count])
            for at, side in enumerate(self._sides)
        }
        answers = {**self.answers, **came}
        if len(answers) < len(Side):
            return replace(self, answers=answers, asking=False, since_s=now_s)
        parted = differences(answers[Side.REFERENCE], answers[Side.SPECULATING])
        told = all(answers[Side.REFERENCE][each.prompt].prompt_token_ids for each in parted)
        if parted and told:
            return replace(self, answers=answers, parted=parted, since_s=now_s)
        return self._over(self._comparison(answers, parted).status(self.request_id, now_s))

    def to_json(self) -> str:
        """Canonical text; a few kilobytes."""
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """Read a check; None: it is not one of this version's, and has to begin again."""
        try:
            return _ADAPTER.validate_json(text)  # type: ignore[return-value]
        except ValidationError:
            return None

    @property
    def _sides(self) -> tuple[Side, ...]:
        """Who has something to say in this step."""
        if self.parted:
            return (Side.REFERENCE,)
        if self.reference != self.speculating:
            return (Side.REFERENCE, Side.SPECULATING)
        return (Side.REFERENCE if Side.SPECULATING in self.answers else Side.SPECULATING,)

    def _pod(self, side: Side) -> str:
        return self.reference if side is Side.REFERENCE else self.speculating

    def _depth(self, side: Side) -> int:
        return 0 if side is Side.REFERENCE else self.depth

    def _lost(self, fleet: QualityFleet) -> str:
        """Why these replicas can no longer serve for this; empty: they can."""
        if fleet.refusal:
            return fleet.refusal
        for pod in self.holds:
            replica = fleet.replica(pod)
            if replica is None:
                return f"{pod} is gone or no longer ready. Ask again."
            if replica.pinned:
                return f"{pod} was pinned by a person meanwhile. Ask again."
        return ""

    def _missing(self, fleet: QualityFleet) -> str:
        """What is not (yet) so of what this step needs; empty: all is."""
        document = fleet.document
        for pod, depth in self.holds.items():
            own = document.pods.get(pod, ()) if document else ()
            if document is None or not own or any(part.depth != depth for part in own):
                return f"the depth document does not hold {pod} at depth {depth}"
            replica = fleet.replica(pod)
            # What comes into force while prompts are under way concerns other replicas.
            if not self.asking and (not replica or replica.generation != document.generation):
                return f"{pod} does not report generation {document.generation} of the depths"
        return ""

    def _stuck(self, missing: str, waited_s: float) -> str:
        """Why this step goes on no longer; empty: it does."""
        if self.asking and missing:
            return f"While the prompts were asked, {missing}. Ask again."
        if self.asking and waited_s > ASK_DEADLINE_S:
            return (
                f"{' and '.join(self.holds)} did not answer all prompts within "
                f"{ASK_DEADLINE_S:.0f} s. Ask again when there is less to do."
            )
        if missing and waited_s > HOLD_DEADLINE_S:
            return f"After {HOLD_DEADLINE_S:.0f} s {missing}: see the conditions Tuning, Degraded."
        return ""

    def _judged(self, replies: Sequence[Completion], now_s: float) -> Self:
        """With the gaps that were asked for."""
        one, other = self.answers[Side.REFERENCE], self.answers[Side.SPECULATING]
        parted = tuple(
            replace(each, gap_nats=gap_nats(each, one[each.prompt], other[each.prompt], reply))
            for each, reply in zip(self.parted, replies, strict=True)
        )
        return self._over(self._comparison(self.answers, parted).status(self.request_id, now_s))

    def _not_checked(self, why: str, now_s: float) -> Self:
        if self.parted:
            why = f"{self._comparison(self.answers, self.parted).untold} {why}"
        return self._over(not_checked(self.request_id, why, now_s))

    def _over(self, result: QualityStatus) -> Self:
        # The answers have served.
        return replace(self, asking=False, answers={}, parted=(), result=result)

    def _comparison(
        self, answers: Mapping[Side, tuple[Completion, ...]], parted: Sequence[Difference]
    ) -> QualityComparison:
        return QualityComparison(
            reference_pod=self.reference,
            speculating_pod=self.speculating,
            depth=self.depth,
            reference=answers[Side.REFERENCE],
            speculating=answers[Side.SPECULATING],
            differences=tuple(parted),
        )


def begun(request_id: str, fleet: QualityFleet) -> QualityCheck:
    """The first step of a check; over at once, with the reason, where none can be made."""
    found = chosen(fleet)
    check = QualityCheck(request_id=request_id, since_s=fleet.now_s)
    if isinstance(found, str):
        return replace(check, result=not_checked(request_id, found, fleet.now_s))
    return replace(
        check, reference=found.reference, speculating=found.speculating, depth=found.depth
    )


_ADAPTER: Final = TypeAdapter(QualityCheck)
