"""What a quality check found, as people read it. Pure."""

from dataclasses import dataclass

from fathom.api.status import QualityResult, QualityStatus
from fathom.core.counted import counted
from fathom.core.times import rfc3339
from fathom.quality.comparison import TIE_NATS, Difference, continuations, tokens_compared
from fathom.quality.completion import Completion


@dataclass(frozen=True, slots=True)
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
        others = [each for each in self.differences if not each.is_tie]
        message = (
            f"{len(others)} of {len(self.reference)} prompts differ by more than a near-tie "
            f"({TIE_NATS} nats). {self._told(others[0])}"
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
        """The sentence of differences whose gap could not be learnt."""
        return (
            f"{len(self.differences)} of {len(self.reference)} prompts differ, and whether by more "
            f"than a near-tie could not be told. {self._told(self.differences[0])}"
        )

    def _told(self, difference: Difference) -> str:
        at, gap = difference.prompt, difference.gap_nats
        one, other = continuations(self.reference[at], self.speculating[at])
        apart = "not known to be close" if gap is None else f"{gap:.2f} nats apart"
        return (
            f"Prompt {at + 1} from token {difference.position + 1} on: {one!r} at depth 0, "
            f"{other!r} at depth {self.depth}; {apart}."
        )


def not_checked(request_id: str, why: str, now_s: float) -> QualityStatus:
    """No result, and why."""
    return QualityStatus(
        request_id=request_id, at=rfc3339(now_s), result=QualityResult.NOT_CHECKED, message=why
    )
