"""When errors switch the hook off, and when it may try again."""

from collections import deque

MOST_ERRORS = 10
WITHIN_STEPS = 1000
"""So many errors in so many steps: this is not the vLLM the hook was written for, or not now."""
FIRST_REST_SECONDS = 60.0
LONGEST_REST_SECONDS = 3600.0


class Fuse:
    """Counts errors against steps. Blown, it rests, and twice as long each time it blows again.

    A few errors in a long life are no reason to stop counting for good; an error in every step
    costs time in every step, and says so in the log each time it is tried again.
    """

    def __init__(self) -> None:
        self.blown = False
        self.rest_s = FIRST_REST_SECONDS
        """How long the last rest was or is."""
        self.steps = 0
        """Steps so far; whoever makes one adds it, without a call for it."""
        self._errors: deque[int] = deque(maxlen=MOST_ERRORS)
        """The steps of the last errors."""
        self._mended_at_step = -WITHIN_STEPS
        self._rests_until_s = 0.0

    @property
    def has_news(self) -> bool:
        """Whether the last error was the first one in a while."""
        return len(self._errors) == 1 or self._errors[-1] - self._errors[-2] >= WITHIN_STEPS

    def error(self, now_s: float) -> bool:
        """Count an error; True when this one blows the fuse."""
        self._errors.append(self.steps)
        many = len(self._errors) == MOST_ERRORS and self.steps - self._errors[0] < WITHIN_STEPS
        if self.blown or not many:
            return False
        again = self.steps - self._mended_at_step < WITHIN_STEPS
        self.rest_s = min(2 * self.rest_s, LONGEST_REST_SECONDS) if again else FIRST_REST_SECONDS
        self._rests_until_s = now_s + self.rest_s
        self.blown = True
        return True

    def mend(self, now_s: float) -> bool:
        """Whether the rest is over; then it is whole again."""
        if now_s < self._rests_until_s:
            return False
        self.blown = False
        self._errors.clear()
        self._mended_at_step = self.steps
        return True
