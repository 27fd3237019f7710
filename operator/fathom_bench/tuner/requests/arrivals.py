"""The requests that come to one engine. The same ones whatever depth it runs at."""

from collections import deque
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from fathom_bench.tuner.requests.world import ClassPart, RequestWorld


@dataclass(slots=True)
class Request:
    """One request, waiting."""

    born_s: float
    prompt: int
    """Tokens that are left to prefill."""
    answer: int
    """Tokens that are left to emit."""
    log_survival: NDArray[np.float64]
    """Logarithm of P(all drafts up to a position are accepted), by position."""
    context: int = 0
    """Tokens that are cached."""
    first_s: float = -1.0
    """When its first token came; negative: it has none yet."""
    whole: int = 0
    """Tokens of its whole answer."""
    preempted: bool = False


class Arrivals:
    """Requests in the order in which they come."""

    def __init__(self, world: RequestWorld, seed: int, text: str | None) -> None:
        """Begin.

        Args:
            world: the traffic.
            seed: of what is drawn.
            text: the only class of requests; None: all.
        """
        self._world = world
        self._random = np.random.default_rng(seed)
        self._classes = [each for each in world.classes if text in {None, each.name}]
        self._open = world.traffic.mode == "open"
        self._next_s = self._after(0.0) if self._open else 0.0
        self._in_flight = 0
        self.waiting: deque[Request] = deque()

    def arrive(self, now_s: float) -> None:
        """Put those that have come by now at the end of the queue."""
        if not self._open:
            while self._in_flight < round(self._world.traffic.load_at(now_s)):
                self._in_flight += 1
                self.waiting.append(self._drawn(now_s))
            return
        while self._next_s <= now_s:
            self.waiting.append(self._drawn(self._next_s))
            self._next_s = self._after(self._next_s)

    def ended(self) -> None:
        """One request is done: where traffic is closed, the next one comes."""
        self._in_flight -= 1

    def next_s(self, now_s: float) -> float:
        """When the next one may come; to closed traffic one is added by a change alone."""
        return self._next_s if self._open else self._world.traffic.next_change_s(now_s)

    def _after(self, now_s: float) -> float:
        """When the next one comes, drawn again where the load changes before that."""
        while now_s < inf:
            change_s = self._world.traffic.next_change_s(now_s)
            at_s = now_s + self._random.exponential(1 / self._world.traffic.load_at(now_s))
            if at_s < change_s:
                return float(at_s)
            now_s = change_s
        return inf

    def _drawn(self, now_s: float) -> Request:
        chosen = self._class(now_s)
        prompt = self._length(chosen.prompt, chosen.prompt_spread)
        answer = self._length(chosen.answer, chosen.answer_spread)
        hits = self._world.engine.prefix_hits
        cached = int(prompt * hits[int(now_s // 3600) % len(hits)])
        cached = min(cached, prompt - 1)
        return Request(
            now_s,
            prompt - cached,
            answer,
            np.log(chosen.survival),
            cached,
            whole=answer,
        )

    def _class(self, now_s: float) -> ClassPart:
        turn_s = self._world.traffic.turn_seconds
        luck = float(self._random.random())
        if turn_s is not None:
            return self._classes[int(now_s // turn_s) % len(self._classes)]
        left = luck * sum(each.share for each in self._classes)
        for each in self._classes:
            left -= each.share
            if left < 0:
                return each
        return self._classes[-1]

    def _length(self, mean: int, spread: float) -> int:
        luck = float(self._random.normal())
        if spread <= 0:
            return mean
        sigma = sqrt(log(1 + spread * spread))
        return max(1, round(mean * exp(sigma * luck - sigma * sigma / 2)))
