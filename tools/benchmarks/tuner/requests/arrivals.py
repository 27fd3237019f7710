"""The requests that come to one engine: the same ones whatever depth it runs at. Compiled."""

from math import exp, inf, log, sqrt
from typing import Any

import numpy as np

from benchmarks.tuner.requests.compiled import compiled
from benchmarks.tuner.requests.state import EngineState

_HOUR_S = 3600


@compiled
def begin(state: EngineState) -> None:
    """Draw when the first one comes."""
    if state.settings[0].open:
        state.now[0].next_s = _after(state, 0.0)


@compiled
def arrive(state: EngineState) -> bool:
    """Put those that have come by now at the end of the queue; False: it has too little room."""
    now, settings = state.now[0], state.settings[0]
    # One step preempts no more than are running.
    most = len(state.queue) - settings.max_batch
    if settings.open:
        while now.next_s <= now.now_s:
            if now.waiting >= most:
                return False
            _draw(state, now.next_s)
            now.next_s = _after(state, now.next_s)
        return True
    while now.in_flight < np.rint(_load_at(state, now.now_s)):
        if now.waiting >= most:
            return False
        now.in_flight += 1
        _draw(state, now.now_s)
    return True


@compiled
def next_arrival_s(state: EngineState) -> float:
    """When the next one may come; to closed traffic one is added by a change alone."""
    now = state.now[0]
    if state.settings[0].open:
        return float(now.next_s)
    return _next_change_s(state, now.now_s)


@compiled
def _load_at(state: EngineState, at_s: float) -> float:
    load = state.loads[0, 1]
    for change in state.loads:
        if change[0] <= at_s:
            load = change[1]
    return float(load)


@compiled
def _next_change_s(state: EngineState, at_s: float) -> float:
    for change in state.loads:
        if change[0] > at_s:
            return float(change[0])
    return inf


@compiled
def _after(state: EngineState, at_s: float) -> float:
    """When the next one comes, drawn again where the load changes before that."""
    while at_s < inf:
        change_s = _next_change_s(state, at_s)
        next_s = at_s + state.coming.exponential(1 / _load_at(state, at_s))
        if next_s < change_s:
            return float(next_s)
        at_s = change_s
    return inf


@compiled
def _draw(state: EngineState, born_s: float) -> None:
    """Put one at the end of the queue."""
    now = state.now[0]
    kind = _class(state, born_s)
    drawn = state.classes[kind]
    prompt = _length(state, drawn.prompt, drawn.prompt_spread)
    answer = _length(state, drawn.answer, drawn.answer_spread)
    hits = state.hits[int(born_s // _HOUR_S) % len(state.hits)]
    cached = min(int(prompt * hits), prompt - 1)
    request: Any = state.queue[(now.head + now.waiting) % len(state.queue)]
    request.born_s, request.first_s = born_s, -1.0
    request.prompt, request.context = prompt - cached, cached
    request.answer, request.whole = answer, answer
    request.drafts, request.kind = 0, kind
    request.ended, request.preempted = False, False
    now.waiting += 1


@compiled
def _class(state: EngineState, born_s: float) -> int:
    turn_s = state.settings[0].turn_s
    # Drawn in any case: whatever comes later is the same then.
    luck = state.coming.random()
    if turn_s:
        return int(born_s // turn_s) % len(state.classes)
    total = 0.0
    for each in state.classes:
        total += each.share
    left = luck * total
    for kind in range(len(state.classes)):
        left -= state.classes[kind].share
        if left < 0:
            return kind
    return len(state.classes) - 1


@compiled
def _length(state: EngineState, mean: float, spread: float) -> int:
    luck = state.coming.normal(0.0, 1.0)
    if spread <= 0:
        return int(mean)
    sigma = sqrt(log(1 + spread * spread))
    return max(1, int(np.rint(mean * exp(sigma * luck - sigma * sigma / 2))))
