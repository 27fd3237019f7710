"""What a step of the simulated engine costs. Pure."""

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
