"""What the tuner knows, what it does not, and why each bucket has its depth. Pure: no rendering.

It asks the same policy that decides, over the same state, so it cannot tell another story.
"""

from dataclasses import dataclass, replace
from math import exp, expm1, log1p, sqrt
from typing import Final

from fathom.api.choices import TuningMode
from fathom.engine.depth import DepthDocument, Schedule, batches
from fathom.engine.start import PROFILED_BY_DEFAULT, PROFILED_CONTEXT
from fathom.text import counted
from fathom.tuning import sentences
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.assessment import assess, recalled
from fathom.tuning.checks.orders import unwritten
from fathom.tuning.cohort_decision import whom
from fathom.tuning.context import Situation, clamped
from fathom.tuning.estimate.acceptance_by_context import ContextAcceptance
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.fixed_depth import HOW_TO_TRY, HOW_TO_TRY_ELSEWHERE, FixedDepth
from fathom.tuning.interface import Settings
from fathom.tuning.learned_state import Cohort, TuningState
from fathom.tuning.policy.option import DepthOption
from fathom.tuning.policy.value import Gain
from fathom.tuning.tuner import what_comes_next

MOST_DOUBTS: Final = 2
"""Open questions shown per bucket; the rest are smaller."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What one depth is worth in one bucket."""

    depth: int
    gain: Gain | None
    """Over the user's own depth; None: nothing is known of this bucket or any like it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketExplanation:
    """One row of the surface."""

    batches: str
    """Such as `batch 5-8`."""
    share: float
    """Share of the recent busy time, 0 to 1; 0: idle."""
    depth: int
    """In force."""
    worths: tuple[Worth, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionExplanation:
    """One draft position, counted from 1."""

    position: int
    acceptance: float
    """P(accepted | all before it were)."""
    error: float | None
    """One standard error; None: it is not known."""
    survival: float
    """P(this and all before it accepted)."""
    acceptance_length: float
    """Tokens per step at a depth of this position."""
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All there is to say at one moment."""

    tokens: int
    """The user's own depth, clamped as the tuner does."""
    schedule: Schedule = ()
    """In force; empty: there is no document that engines obey."""
    generation: int = 0
    buckets: tuple[BucketExplanation, ...] = ()
    positions: tuple[PositionExplanation, ...] = ()
    contexts: tuple[ContextAcceptance, ...] = ()
    """By the context of requests; empty: not known."""
    doubts: tuple[str, ...] = ()
    """What it is unsure of."""
    next_step: str = ""
    """What it would try next."""
    turning_points: tuple[str, ...] = ()
    """What would change its mind."""
    reference: str = ""
    """What acceptance is held against; empty: that is not known."""
    alarms: tuple[Alarm, ...] = ()
    apart: tuple[tuple[str, "Explanation"], ...] = ()
    """Pods that are tuned apart: who they are, and the same of them."""
    nothing: str = ""
    """Why there is nothing to explain; empty: there is."""


def explain(
    state: TuningState,
    settings: Settings,
    document: DepthDocument | None,
    now_s: float,
    *,
    pods: int | None = None,
    live: bool = True,
    started_elsewhere: bool = False,
) -> Explanation:
    """Explain a state.

    Args:
        state: as persisted, or as the last decision left it.
        settings: the user's wishes.
        document: the depth document in force; None: none was written.
        now_s: Unix seconds; what was measured long ago is less certain.
        pods: how many are ready; None: as many as were measured.
        live: whether depth is.
        started_elsewhere: whether Fathom did not start these pods.
    """
    tokens = clamped(settings.tokens, settings)
    if not live:
        # Nobody reads a document that may be left from another engine.
        document = unwritten(recalled(state, settings, None, now_s))
    if document is None:
        return Explanation(
            tokens=tokens, nothing="No depth document was written yet: the engines run tokens."
        )
    given = assess(recalled(state, settings, document, now_s), document)
    if not state.step_times.cells:
        return Explanation(
            tokens=tokens,
            schedule=document.schedule if live else (),
            generation=document.generation,
            nothing="Nothing was measured yet: that needs traffic and readable metrics.",
        )
    if not live:
        return _of_fixed_depth(given, tokens, started_elsewhere=started_elsewhere)
    rivals = {each.bucket: each for each in given.policy.nearest_rivals()}
    due = {each.bucket for each in given.policy.moves()}
    return Explanation(
        tokens=tokens,
        schedule=document.schedule,
        generation=document.generation,
        buckets=tuple(_bucket(given, bucket, tokens, rivals) for bucket in _shown(given)),
        positions=_positions(given),
        contexts=state.contexts.acceptance(),
        doubts=(*_doubts(given), *_undrafted(given), *_profiled(given)),
        next_step=what_comes_next(given, pods or max(1, len(state.step_times.pods))),
        turning_points=tuple(
            _turning_point(given, each) for bucket, each in rivals.items() if bucket not in due
        ),
        reference=sentences.held_against(state.reference),
        alarms=tuple(each.alarm() for each in given.state.watches if each.raised_at_s),
        apart=tuple(
            (whom(each), _of_cohort(each, settings, document.generation, now_s))
            for each in state.cohorts
            if each.pods
        ),
    )


def _of_cohort(cohort: Cohort, settings: Settings, generation: int, now_s: float) -> Explanation:
    document = DepthDocument(generation=generation, schedule=cohort.schedule)
    return explain(cohort.state, settings, document, now_s, pods=len(cohort.pods))


def _of_fixed_depth(given: Situation, tokens: int, *, started_elsewhere: bool) -> Explanation:
    """Only what was measured, and nothing that anybody would do about it."""
    known = FixedDepth.of(given)
    buckets = []
    for bucket in _shown(given):
        seconds = known.step_seconds(bucket)
        told = "not measured" if seconds is None else f"a step takes {seconds * 1000:.1f} ms"
        row = _bucket(given, bucket, tokens, {})
        worths = tuple(
            each if each.depth == tokens else Worth(each.depth, known.gain(bucket, each.depth))
            for each in row.worths
        )
        buckets.append(replace(row, depth=tokens, worths=worths, why=f"it is not live; {told}."))
    return Explanation(
        tokens=tokens,
        buckets=tuple(buckets),
        positions=tuple(each for each in _positions(given)[:tokens] if each.measured),
        contexts=given.state.contexts.acceptance(),
        next_step=f"Nothing by itself. {HOW_TO_TRY_ELSEWHERE if started_elsewhere else HOW_TO_TRY}",
        reference=sentences.held_against(given.state.reference),
        alarms=tuple(each.alarm() for each in given.state.watches if each.raised_at_s),
    )


def _shown(given: Situation) -> tuple[int, ...]:
    """Buckets of which anything was measured."""
    measured = {cell.batch_le for cell in given.state.step_times.cells}
    loaded = {load.batch_le for load in given.state.traffic.loads}
    return tuple(bucket for bucket in sorted(measured | loaded) if bucket in given.policy.depths)


def _bucket(
    given: Situation, bucket: int, tokens: int, rivals: dict[int, DepthOption]
) -> BucketExplanation:
    settings = given.settings
    busy = {load.batch_le: load.busy_seconds for load in given.state.traffic.loads}
    total = sum(busy.values())
    return BucketExplanation(
        batches=batches(bucket, settings.max_batch),
        share=busy.get(bucket, 0.0) / total if total > 0 else 0.0,
        depth=given.policy.depths[bucket],
        worths=tuple(
            Worth(depth, _over(given, bucket, depth, tokens)) for depth in settings.depths
        ),
        why=_why(given, bucket, rivals.get(bucket)),
    )


def _over(given: Situation, bucket: int, depth: int, tokens: int) -> Gain | None:
    gain = given.policy.evidence.gain(bucket, depth, tokens)
    # A depth against itself: whatever its error, it cancels.
    return replace(gain, mean=0.0, sd=0.0) if gain is not None and depth == tokens else gain


def _why(given: Situation, bucket: int, rival: DepthOption | None) -> str:
    """One sentence."""
    settings = given.settings
    move = next((each for each in given.policy.moves() if each.bucket == bucket), None)
    if bucket not in given.policy.shares:
        why = "little or no load at present, so it decides nothing"
    elif move is not None:
        would = "would move" if settings.mode is TuningMode.ADVISE else "moves next"
        why = f"{would} to depth {move.to} ({move.gain})"
    elif len(settings.depths) == 1:
        why = "the only depth that may be chosen"
    elif rival is None:
        left = sentences.left_out(given.policy.left_out(bucket))
        why = left or "nothing is known of any other depth yet"
    else:
        why = _against(rival, settings.min_gain)
    return f"{why}."


def _against(rival: DepthOption, min_gain: float) -> str:
    """Why the best other depth is not taken."""
    gain = f"depth {rival.to} ({rival.gain})"
    if rival.gain.mean <= 0:
        return f"the fastest known; next best is {gain}"
    if rival.gain.mean < log1p(min_gain):
        return f"{gain} gains less than the {min_gain:.1%} that a change needs"
    if not rival.gain.step_time_measured:
        return f"{gain} may be faster, but was not tried lately"
    return f"{gain} seems faster, within the error"


def _positions(given: Situation) -> tuple[PositionExplanation, ...]:
    evidence, most = given.policy.evidence, given.settings.depths[-1]
    any_bucket = next(iter(given.policy.depths))
    lengths = evidence.lengths(any_bucket)  # where positions are known, they are the same in all
    found: list[PositionExplanation] = []
    survival = 1.0
    for i, each in enumerate(lengths.positions[:most], start=1):
        survival *= each.mean
        found.append(
            PositionExplanation(
                position=i,
                acceptance=each.mean,
                error=sqrt(each.variance),
                survival=survival,
                acceptance_length=lengths.at(i),
                measured=evidence.text.is_drafted(any_bucket, i),
            )
        )
    return tuple(found)


def _doubts(given: Situation) -> tuple[str, ...]:
    """Depths that may still turn out to be worth a change, the largest chances first."""
    least = log1p(given.settings.min_gain)
    found: list[str] = []
    for bucket, share in given.policy.shares.items():
        start = given.policy.depths[bucket]
        options = [
            DepthOption(bucket=bucket, start=start, to=depth, gain=gain, share=share)
            for depth in given.policy.bounds.depths
            if depth != start
            and (gain := given.policy.evidence.gain(bucket, depth, start)) is not None
            and gain.upper() > least
            and (gain.lower() < least or not gain.step_time_measured)
        ]
        options.sort(key=lambda each: -each.gain.expected_improvement)
        if options:
            what = sentences.tries(options[:MOST_DOUBTS], given.settings.max_batch)
            found.append(f"Whether this is worth it: {what}.")
    return tuple(found)


def _undrafted(given: Situation) -> tuple[str, ...]:
    most, text = given.settings.depths[-1], given.policy.evidence.text
    deepest = min(most, text.drafted()) if isinstance(text, Survival) else most
    if deepest == most:
        return ()
    return (
        f"Acceptance beyond position {deepest} is extrapolated: no such drafts were made lately.",
    )


def _profiled(given: Situation) -> tuple[str, ...]:
    context = given.state.prompts.mean_context
    if not given.settings.drafts_are_cut or context is None:
        return ()
    sentence = (
        "Whether drafts are cut by what verifying them costs here: requests have "
        f"{counted(context, 'token')} of context on average, and the engine measured that at start "
        f"with {PROFILED_CONTEXT} ({PROFILED_BY_DEFAULT} by default): set it to the like in "
        "spec.engine.env."
    )
    return (sentence,)


def _turning_point(given: Situation, rival: DepthOption) -> str:
    """The acceptance length at which a bucket's next best depth becomes worth a change.

    The gain is log(E[L | to] / t) - log(E[L | start] / t'), so at today's step times it reaches the
    least gain when E[L | to] grows, or E[L | start] shrinks, by the difference. What decides is the
    deeper one of the two: its last positions are what the other has not.
    """
    lengths = given.policy.evidence.lengths(rival.bucket)
    missing = log1p(given.settings.min_gain) - rival.gain.mean
    deeper = max(rival.to, rival.start)
    now = lengths.at(deeper)
    needed = now * exp(missing if rival.to == deeper else -missing)
    where = batches(rival.bucket, given.settings.max_batch)
    if missing <= 0:
        return f"{where}: more certainty is all that {rival.to} needs ({rival.gain})."
    if rival.to == deeper:
        change, other_step = "above", f"{-expm1(-missing):.1%} less"
    else:
        change, other_step = "below", f"{expm1(missing):.1%} more"
    by_steps = f"if a step at depth {deeper} took {other_step}"
    if not 1 <= needed <= deeper + 1:
        return f"{where}: from {rival.start} to {rival.to} {by_steps}; no acceptance would do."
    return (
        f"{where}: from {rival.start} to {rival.to} if the acceptance length at depth {deeper} "
        f"were {change} {needed:.2f} (now {now:.2f}), or {by_steps}."
    )
