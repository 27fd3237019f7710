"""When what the API server refused is tried again."""

from dataclasses import dataclass
from typing import Final

from fathom.core.backoff import Backoff

FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0
"""Each refusal doubles the time to the next try: a policy says the same again."""
_BACKOFF: Final = Backoff(first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S)


@dataclass(frozen=True, slots=True)
class Retry:
    """Of one write, since its first refusal."""

    at_s: float
    """Unix seconds of the last try."""
    failures: int = 1

    @property
    def pause_s(self) -> float:
        """From the last try to the next."""
        return _BACKOFF.after(self.failures)

    def left_s(self, now_s: float) -> float:
        """Until the next try."""
        # A clock that was set back must not make it longer.
        return min(self.pause_s, max(0.0, self.at_s + self.pause_s - now_s))

    def again(self, now_s: float) -> "Retry":
        """After one more refusal."""
        return Retry(now_s, self.failures + 1)

    @property
    def lasting(self) -> bool:
        """Whether it was refused for as long as the longest pause: about a minute."""
        return self.pause_s == LONGEST_RETRY_S
