"""What a step of the simulated engine costs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plant:
    """Step time as a function of batch and depth, in seconds.

    The defaults are a fit by eye to the constructed pair on two cores (0.32.0, 16 requests at
    most), within a fifth of what was measured for depths 0 to 7 and batches 1 to 8.
    """

    step_s: float = 0.0038
    token_s: float = 0.0001
    draft_s: float = 0.0004
    draft_request_s: float = 0.00003
    prefill_token_s: float = 0.00002

    def step_seconds(self, *, requests: int, tokens: int, prefill: int, drafting: int) -> float:
        """Time of one step.

        Args:
            requests: requests in it.
            tokens: tokens verified, one plus the drafts per decoding request.
            prefill: prompt tokens.
            drafting: depth of the drafts it makes for the next step.
        """
        return (
            self.step_s
            + self.token_s * tokens
            + self.prefill_token_s * prefill
            + drafting * (self.draft_s + self.draft_request_s * requests)
        )

    def worth_verifying(self, drafted: Sequence[tuple[int, float]], *, drafting: int) -> int:
        """Number of drafts of each request from which the most tokens per second are expected.

        It is what adaptive verification decides in each step; vLLM's also distinguishes requests.

        Args:
            drafted: of each request its drafts, and how likely the drafter thinks each to be right.
            drafting: depth of the drafts that the step makes for the next one.
        """

        def rate(most: int) -> float:
            verified = [(min(drafts, most), right) for drafts, right in drafted]
            tokens = sum(_expected(drafts, right) for drafts, right in verified)
            return tokens / self.step_seconds(
                requests=len(drafted),
                tokens=sum(drafts + 1 for drafts, _ in verified),
                prefill=0,
                drafting=drafting,
            )

        return max(range(max((drafts for drafts, _ in drafted), default=0) + 1), key=rate)


def _expected(drafts: int, right: float) -> float:
    """Tokens that come of so many drafts, and the one that the target adds."""
    expected = 1.0
    for _ in range(drafts):
        expected = 1 + right * expected
    return expected
