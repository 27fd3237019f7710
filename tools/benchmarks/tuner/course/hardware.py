"""Step time in a world: seconds of one decode step at every exact batch and depth."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.tuner.course.graphs import Steps
from benchmarks.tuner.worlds.parts import DEEPEST, ExpertsPart, StepTimePart

Floats = NDArray[np.float64]
_US = 1e-6
_MS = 1e-3


@dataclass(frozen=True, slots=True)
class Hardware:
    """True step times of one seed. Shape (max_batch + 1, DEEPEST + 1) each; row 0 is unused."""

    seconds: Floats
    """A decode step without attention."""
    attention_s: Floats
    """Its attention, for each token of the mean context."""
    drafting_s: Floats
    """What drafting takes of `seconds`; 0 where only the whole is known."""


def hardware(
    part: StepTimePart, max_batch: int, draw: np.random.Generator, steps: Steps | None = None
) -> Hardware:
    """The step times of one seed: every parameter off by a lognormal error of its own.

    Args:
        part: of the world.
        max_batch: the engine's.
        draw: of this purpose.
        steps: what each computes, where graphs are captured by vLLM's rule.
    """

    def off() -> float:
        return float(np.exp(part.spread * draw.standard_normal()))

    batch = np.arange(max_batch + 1, dtype=float)[:, None]
    depth = np.arange(DEEPEST + 1, dtype=float)[None, :]
    if steps is None:
        tokens = _padded(batch * (1 + depth), part.graph_sizes)
        steps = Steps(tokens, slower=np.ones_like(tokens))
    attention_s = part.attention_per_request_us_per_1k * _US / 1000 * off() * batch * steps.slower
    if part.table_ms is not None:
        requests = steps.tokens / (1 + depth)
        seconds = _from_table(part.table_ms, requests, off(), off())
        return Hardware(seconds * steps.slower, attention_s, np.zeros_like(seconds))
    memory = part.weights_ms * _MS * off() + _experts_s(part.moe, batch, depth, off())
    compute = part.compute_per_token_us * _US * off() * steps.tokens
    body = (memory**part.knee + compute**part.knee) ** (1 / part.knee)
    fixed, token, request = off(), off(), off()
    drafting = (depth > 0) * (
        part.draft_fixed_ms * _MS * fixed
        + depth
        * (part.draft_token_ms * _MS * token + part.draft_token_request_us * _US * request * batch)
    )
    seconds = part.overhead_ms * _MS * off() + body + drafting
    return Hardware(seconds * steps.slower, attention_s, drafting * steps.slower)


def _padded(tokens: Floats, graph_sizes: tuple[int, ...]) -> Floats:
    """Tokens after padding to the next captured graph; beyond the largest, as they are."""
    if not graph_sizes:
        return tokens
    sizes = np.array(sorted(graph_sizes), dtype=float)
    index = np.searchsorted(sizes, tokens)
    return np.where(tokens > sizes[-1], tokens, sizes[np.minimum(index, len(sizes) - 1)])


def _experts_s(part: ExpertsPart | None, batch: Floats, depth: Floats, off: float) -> Floats:
    """Seconds to read the experts that a step touches, if tokens choose independently."""
    if part is None:
        return np.zeros((batch.shape[0], depth.shape[1]))
    choices = batch * (1 + part.own_experts * depth)
    touched = part.experts * (1 - (1 - part.top / part.experts) ** choices)
    return off * part.expert_us * _US * touched


def _from_table(
    rows: dict[str, tuple[float, ...]], requests: Floats, level: float, slope: float
) -> Floats:
    """Rows per batch, linear between them; depths beyond a row go on as its last two do.

    Args:
        rows: milliseconds.
        requests: that each step computes, by batch and depth.
        level: factor on all times.
        slope: factor on what depth adds.
    """
    batches = sorted(rows, key=int)
    table = np.array([rows[each] for each in batches]) * _MS
    while table.shape[1] <= DEEPEST:
        last = table[:, -1:]
        before = table[:, -2:-1] if table.shape[1] > 1 else last
        table = np.hstack([table, 2 * last - before])
    known = np.array([int(each) for each in batches], dtype=float)
    table = level * (table[:, :1] + slope * (table - table[:, :1]))
    columns = zip(requests.T, table.T[: DEEPEST + 1], strict=True)
    return np.stack([np.interp(wanted, known, column) for wanted, column in columns], axis=1)
