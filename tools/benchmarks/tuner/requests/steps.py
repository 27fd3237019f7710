"""What an engine does in each step. Compiled.

All that decode come first, each with its drafts, as far as the token budget goes; then prompts, in
chunks or whole; then those that wait. What was drafted in one step is verified in the next, so a
change of depth makes a step that mixes depths. An answer may end before the last of its accepted
drafts. Under asynchronous scheduling a request is in one more step after its end. Where the KV
cache is full, the request that came last is preempted, and starts again.
"""

from collections.abc import Callable
from math import exp, log
from typing import Any, Final

from benchmarks.tuner.requests.arrivals import arrive, next_arrival_s
from benchmarks.tuner.requests.compiled import compiled
from benchmarks.tuner.requests.state import DECODE, MIXED, EngineState
from fathom_vllm.steps import Stalls

_NO_DECODE: Final = -1
_LEAST_S: Final = 1e-6
"""So far the clock goes on where nothing is to be done."""
_excess_s: Final[Callable[[Any, float], float]] = compiled(Stalls.excess_s)


@compiled
def advance(state: EngineState, until_s: float) -> bool:
    """Serve until then, or until the step that is running then has ended.

    Returns:
        False: there is too little room to go on; give it more, and call again.
    """
    now = state.now[0]
    while now.now_s < until_s:
        has_room = now.first_tokens + len(state.requests) <= len(state.first_token_s)
        if not has_room or not arrive(state):
            return False
        if now.running or now.waiting:
            _step(state)
        else:
            now.now_s = min(until_s, max(next_arrival_s(state), now.now_s + _LEAST_S))
    return True


@compiled
def _step(state: EngineState) -> None:
    now, hardware = state.now[0], state.hardware[0]
    lone = _schedule(state)
    decodes = prompts = whole = verified = prefill = context = 0
    for at in range(now.running):
        request = state.requests[at]
        if state.verifies[at] != _NO_DECODE:
            decodes += 1
            verified += state.verifies[at]
        elif state.chunks[at]:
            prompts += 1
            prefill += state.chunks[at]
            whole += state.chunks[at] == request.prompt
        else:
            continue
        context += request.context
    batch = decodes + prompts
    depth = state.table[min(batch, len(state.table) - 1)]
    uniform = _is_uniform(state, depth, lone)
    seconds = _step_s(
        state,
        tokens=verified + decodes + prefill,
        context=context,
        depth=depth,
        drafting=decodes + whole,
    )
    if hardware.noise:
        seconds *= exp(state.luck.normal(0.0, hardware.noise))
    if uniform and decodes and not prefill:
        seconds += state.stalls_s[depth]
        state.stalls_s[depth] = 0
    now.now_s += seconds
    now.busy_s += seconds
    now.waiting_s += seconds * now.waiting
    before = now.tokens
    _verify(state, batch, depth, uniform)
    _prefill(state)
    for at in range(now.running):
        if state.verifies[at] != _NO_DECODE or state.chunks[at]:
            state.requests[at].drafts = 0 if state.requests[at].prompt else depth
    counts: Any = state.transitions[0]
    if uniform:
        if prefill > lone:
            counts = state.cells[MIXED, state.buckets[batch], depth]
        else:
            counts = state.cells[DECODE, state.buckets[batch], depth]
            seconds -= _excess_s(state.stall_watch[0], seconds)
    counts.steps += 1
    counts.seconds += seconds
    counts.tokens += now.tokens - before
    counts.requests += batch
    counts.prefill += prefill - lone
    _end(state)


@compiled
def _schedule(state: EngineState) -> int:
    """Fill `verifies` and `chunks` for the requests of this step, and let waiting ones in.

    Returns:
        Chunks of one token, of requests that a step has had before: each looks like a decode
        without drafts, and the plugin takes it for one.
    """
    now, settings = state.now[0], state.settings[0]
    left, has_chunks, lone, cached = settings.token_budget, False, 0, 0
    fits = True
    for at in range(now.running):
        request = state.requests[at]
        state.verifies[at], state.chunks[at] = _NO_DECODE, 0
        cached += request.context
        if request.prompt or not fits:
            continue
        fits = request.drafts + 1 <= left
        if fits or left:  # the first that does not fit is cut
            state.verifies[at] = min(request.drafts, left - 1)
            left -= state.verifies[at] + 1
    for at in range(now.running):
        if state.requests[at].prompt == 0:
            continue
        chunk = _chunk(state, state.requests[at].prompt, left, not has_chunks)
        if not chunk:
            break
        state.chunks[at] = chunk
        has_chunks = True
        left -= chunk
        lone += chunk == 1
    while left and now.waiting and now.running < settings.max_batch:
        first = state.queue[now.head]
        alone = now.running == 0
        chunk = _chunk(state, first.prompt, left, alone)
        if not chunk or (not alone and cached + first.prompt + first.context > settings.kv_tokens):
            break
        # What was preempted is not new to the engine.
        lone += chunk == 1 and first.preempted
        cached += first.context
        state.requests[now.running] = first
        state.verifies[now.running], state.chunks[now.running] = _NO_DECODE, chunk
        now.running += 1
        now.head = (now.head + 1) % len(state.queue)
        now.waiting -= 1
        left -= chunk
    return int(lone)


@compiled
def _chunk(state: EngineState, prompt: int, left: int, alone: bool) -> int:  # noqa: FBT001
    """How much of a prompt is prefilled now."""
    settings = state.settings[0]
    if settings.chunked_prefill:
        return min(prompt, left)
    return prompt if prompt <= left or (alone and left == settings.token_budget) else 0


@compiled
def _is_uniform(state: EngineState, depth: int, lone: int) -> bool:
    """Whether every decode has the step's own depth, as far as the plugin can tell."""
    for at in range(state.now[0].running):
        if state.verifies[at] != _NO_DECODE and state.verifies[at] != depth:
            return False
    return not (depth and lone)


@compiled
def _step_s(state: EngineState, tokens: int, context: int, depth: int, drafting: int) -> float:
    """Seconds of one step, without noise.

    Args:
        state: of the engine.
        tokens: verified or prefilled.
        context: tokens of all its requests together.
        depth: of the drafts that it makes.
        drafting: requests that it makes them for.
    """
    of = state.hardware[0]
    compute_ms = of.token_us * tokens / 1000
    body_ms = (of.weights_ms**of.knee + compute_ms**of.knee) ** (1 / of.knee)
    draft_ms = 0.0
    if depth:
        draft_ms = of.draft_ms + depth * (of.draft_token_ms + of.draft_request_us * drafting / 1000)
    return float((of.overhead_ms + body_ms + draft_ms) / 1000 + of.attention_ns * context * 1e-9)


@compiled
def _verify(state: EngineState, batch: int, depth: int, uniform: bool) -> None:  # noqa: FBT001
    """Emit what is accepted, and count the drafts of a step that the plugin counts."""
    now, drafts = state.now[0], state.drafts[state.buckets[batch], depth]
    for at in range(now.running):
        drafted = state.verifies[at]
        if drafted == _NO_DECODE:
            continue
        request = state.requests[at]
        luck = log(1 - state.luck.random())
        if request.ended:
            continue
        survival = state.classes[request.kind].log_survival
        run = 0
        while run < drafted and survival[run] > luck:
            run += 1
        emitted = min(run + 1, request.answer)
        request.answer -= emitted
        request.context += emitted
        now.tokens += emitted
        now.drafted_tokens += drafted
        now.accepted += run
        if drafted:
            now.verified += 1
        if uniform and drafted:
            drafts[0] += 1
            for position in range(1, run + 1):
                drafts[position] += 1


@compiled
def _prefill(state: EngineState) -> None:
    """A prompt that is whole gives its first token in the same step."""
    now = state.now[0]
    for at in range(now.running):
        chunk = state.chunks[at]
        if not chunk:
            continue
        request = state.requests[at]
        request.prompt -= chunk
        request.context += chunk
        now.prefilled += chunk
        if request.prompt:
            continue
        request.answer -= 1
        request.context += 1
        now.tokens += 1
        if request.first_s < 0:
            request.first_s = now.now_s
            state.first_token_s[now.first_tokens] = now.now_s - request.born_s
            now.first_tokens += 1


@compiled
def _end(state: EngineState) -> None:
    """Let go of those that are done, and of the last one while the KV cache is too small."""
    now, settings = state.now[0], state.settings[0]
    kept = cached = 0
    for at in range(now.running):
        request = state.requests[at]
        gone = request.ended
        if not request.ended and request.prompt == 0 and request.answer <= 0:
            request.ended = True
            now.finished += 1
            now.finished_tokens += request.whole
            now.in_flight -= 1
            gone = not settings.asynchronous
        if gone:
            continue
        cached += request.context
        if kept < at:
            state.requests[kept] = request
        kept += 1
    now.running = kept
    while now.running > 1 and cached > settings.kv_tokens:
        now.running -= 1
        last = state.requests[now.running]
        cached -= last.context
        if not last.ended:
            _preempt(state, last)


@compiled
def _preempt(state: EngineState, request: Any) -> None:
    """Put it in front of those that wait: all that it had is read again."""
    now = state.now[0]
    now.preemptions += 1
    now.head = (now.head - 1) % len(state.queue)
    now.waiting += 1
    state.queue[now.head] = request
    first: Any = state.queue[now.head]
    first.prompt, first.context, first.drafts = request.prompt + request.context, 0, 0
    first.preempted = True
