"""Step time in a world: seconds of one decode step at every exact batch and depth."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fathom_local.tuner_bench.world import DEEPEST, ExpertsPart, StepTimePart

Floats = NDArray[np.float64]
_US = 1e-6
_MS = 1e-3


@dataclass(frozen=True, slots=True)
class Hardware:
    """True step times of one seed."""

    seconds: Floats
    """Shape (max_batch + 1, DEEPEST + 1): a decode step without attention; row 0 is unused."""
    attention_s: float
    """Seconds per request and token of context."""


def hardware(part: StepTimePart, max_batch: int, draw: np.random.Generator) -> Hardware:
    """The step times of one seed: every parameter off by a lognormal error of its own."""

    def off() -> float:
        return float(np.exp(part.spread * draw.standard_normal()))

    batch = np.arange(max_batch + 1, dtype=float)[:, None]
    depth = np.arange(DEEPEST + 1, dtype=float)[None, :]
    attention_s = part.attention_per_request_us_per_1k * _US / 1000 * off()
    if part.table_ms is not None:
        return Hardware(_from_table(part.table_ms, max_batch, off(), off()), attention_s)
    verified = _padded(batch * (1 + depth), part.graph_sizes)
    memory = part.weights_ms * _MS * off() + _experts_s(part.moe, batch, depth, off())
    compute = part.compute_per_token_us * _US * off() * verified
    body = (memory**part.knee + compute**part.knee) ** (1 / part.knee)
    fixed, token, request = off(), off(), off()
    drafting = (depth > 0) * (
        part.draft_fixed_ms * _MS * fixed
        + depth
        * (part.draft_token_ms * _MS * token + part.draft_token_request_us * _US * request * batch)
    )
    return Hardware(part.overhead_ms * _MS * off() + body + drafting, attention_s)


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
    rows: dict[str, tuple[float, ...]], max_batch: int, level: float, slope: float
) -> Floats:
    """Rows per batch, linear between them; depths beyond a row go on as its last two do."""
    batches = sorted(rows, key=int)
    table = np.array([rows[each] for each in batches]) * _MS
    while table.shape[1] <= DEEPEST:
        last = table[:, -1:]
        before = table[:, -2:-1] if table.shape[1] > 1 else last
        table = np.hstack([table, 2 * last - before])
    known = np.array([int(each) for each in batches], dtype=float)
    table = level * (table[:, :1] + slope * (table - table[:, :1]))
    wanted = np.arange(max_batch + 1, dtype=float)
    return np.stack([np.interp(wanted, known, column) for column in table.T], axis=1)[
        :, : DEEPEST + 1
    ]
