"""Which depth to write as `tokens`: one for all batches, as a spec has it. Pure.

The tuner has a depth for each batch, and whoever writes a spec has one. This is the one that is
worth most over the load of the last minutes, by what the policy knows; it is not certain as a move
is, for whoever writes it decides.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, expm1, log1p

from fathom.engine.depth import DepthDocument
from fathom.tuning import sentences
from fathom.tuning.assessment import assess, recalled
from fathom.tuning.checks.orders import aims, unwritten
from fathom.tuning.context import Situation
from fathom.tuning.fixed_depth import FixedDepth
from fathom.tuning.interface import Settings
from fathom.tuning.learned_state import TuningState
from fathom.tuning.policy.value import TWO_SIDED_Z, Gain


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthToWrite:
    """One depth for all batches, over the user's own."""

    depth: int
    gain: float
    """Relative, in tokens per second, over all load; 0: it is the user's own."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    measured: bool
    """Whether both depths were measured wherever there is load; else some of it is predicted."""
    by_batch: str
    """What mode Auto would aim at with one for each batch; empty: nothing worth a change."""


def depth_to_write(
    state: TuningState,
    settings: Settings,
    document: DepthDocument | None,
    now_s: float,
    *,
    live: bool,
) -> DepthToWrite | None:
    """The single depth that is worth most; None: nothing was measured under load.

    Args:
        state: what the tuner knows.
        settings: the user's wishes.
        document: the depth document in force; None: none was written.
        now_s: Unix seconds; what was measured long ago is less certain.
        live: whether depth is; if not, only depths count that ran on some pod.
    """
    if document is None or not live:
        document = unwritten(recalled(state, settings, None, now_s))
    given = assess(recalled(state, settings, document, now_s), document)
    shares = given.policy.shares
    if not state.step_times.cells or not shares:
        return None
    tokens = given.policy.clamped(settings.tokens)
    by_batch = sentences.moves(aims(given), settings.max_batch) if live else ""
    own = DepthToWrite(depth=tokens, gain=0.0, low=0.0, high=0.0, measured=True, by_batch=by_batch)
    best, found = log1p(settings.min_gain), own
    for depth in given.policy.bounds.depths:
        gains = dict(_gains(given, depth, tokens, live=live)) if depth != tokens else {}
        if gains.keys() != shares.keys():
            continue
        worth = _weighted(shares, {bucket: each.mean for bucket, (each, _) in gains.items()})
        if worth >= best:
            best, found = worth, _written(depth, shares, gains, by_batch)
    return found


def _gains(
    given: Situation, depth: int, tokens: int, *, live: bool
) -> Iterator[tuple[int, tuple[Gain, Gain]]]:
    """By bucket under load: what the depth is worth under the objective, and in tokens."""
    fixed = None if live else FixedDepth.of(given)
    for bucket in given.policy.shares:
        wished = given.policy.gain(bucket, depth, tokens)
        plain = given.policy.evidence.gain(bucket, depth, tokens)
        if fixed is not None:
            wished = plain = fixed.gain(bucket, depth)
        if wished is not None and plain is not None:
            yield bucket, (wished, plain)


def _written(
    depth: int,
    shares: dict[int, float],
    gains: dict[int, tuple[Gain, Gain]],
    by_batch: str,
) -> DepthToWrite:
    plain = {bucket: each for bucket, (_, each) in gains.items()}
    gain = _weighted(shares, {bucket: expm1(each.mean) for bucket, each in plain.items()})
    # The hardware's slope and the traffic are one for all buckets, and so are their errors.
    error = _weighted(shares, {bucket: exp(each.mean) * each.sd for bucket, each in plain.items()})
    half = TWO_SIDED_Z * error
    measured = all(each.measured for each in plain.values())
    return DepthToWrite(
        depth=depth,
        gain=gain,
        low=gain - half,
        high=gain + half,
        measured=measured,
        by_batch=by_batch,
    )


def _weighted(shares: dict[int, float], values: dict[int, float]) -> float:
    return sum(shares[bucket] * value for bucket, value in values.items()) / sum(shares.values())
