"""Moves: the schedule of all pods changes, is checked, and is taken back if it loses."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from fathom.api.conditions import Reason
from fathom.engine.depth import Depths, batches, summary
from fathom.tuning import sentences
from fathom.tuning.checks.probing import SOON_S, ProbeChoice, next_probe
from fathom.tuning.context import Situation, Verdict, clamped
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.learned_state import Change, Trial
from fathom.tuning.policy.ledger import HOUR_S, MOST_BEHIND_LOSS, Ledger
from fathom.tuning.policy.option import DepthOption, expected_gain, expected_gain_sd

TRIAL_STEPS: Final = 200.0
"""Steps at the new depth that a verdict needs."""
TRIAL_WINDOWS: Final = 3.0
"""After so many windows without enough steps there is no verdict."""
TAKE_BACK_Z: Final = 1.0
"""A move is taken back sooner than it is made: while it is uncertain, the earlier depth wins."""
REST_S: Final = HOUR_S
"""How long the user's depth is kept after a return: also where the traffic changes. Text that turns
each minute is one of the ways to lose."""


def join(given: Situation) -> TuningDecision | None:
    """Give buckets one depth between which batches go to and fro; they keep it for a while."""
    options = given.policy.joined()
    if not options:
        return None
    mixing = 1 - given.policy.evidence.prompts.told_share
    depths = given.policy.after(options)
    after = given.noted([(each.bucket, each.start) for each in options], failed=True)
    after = after.with_state(replace(after.state, probe=None, trial=None))
    return after.act(
        Action.MOVE,
        Reason.MOVED,
        f"Gives all batches under load one depth, {options[0].to}: they change so fast that "
        f"{mixing:.0%} of the busy time is in steps that mix two depths.",
        after.next_document(depths, None),
        notable=True,
    )


def move(given: Situation) -> TuningDecision | None:
    """Go where it is better beyond doubt, all buckets at once."""
    options = given.policy.moves()
    if not options:
        return None
    gain = expected_gain(options)
    moved, depths = {each.bucket for each in options}, given.policy.after(options)
    after = given.with_state(
        replace(
            given.state,
            probe=None,
            trial=Trial(
                changes=tuple(Change(each.bucket, each.start, each.to) for each in options),
                expected_gain=gain,
                at_s=given.now_s,
            ),
        )
    )
    return replace(
        after.act(
            Action.MOVE,
            Reason.MOVED,
            f"Moves {sentences.moves(options, given.settings.max_batch)}.{_slo(given, options)}",
            after.next_document(depths, None),
            wake_after_s=SOON_S if _more_to_try(after, depths, moved) else None,
            notable=True,
        ),
        expected_gain=gain,
        expected_gain_sd=expected_gain_sd(options),
    )


def _more_to_try(after: Situation, depths: Depths, moved: set[int]) -> bool:
    """Whether a probe is due in buckets that do not move: it need not wait for a window."""
    after = replace(after, policy=replace(after.policy, depths=depths))
    choice = next_probe(after, after.ready_pods)
    return isinstance(choice, ProbeChoice) and any(
        each.bucket not in moved for each in choice.options
    )


def judge_move(given: Situation) -> TuningDecision | Situation | None:
    """Compare what the last move gained with what was expected; take it back if it lost.

    What did not lose is passed on with the verdict, which the next answer says first.

    Both depths are compared as they would do now, under the present traffic and at the pods'
    present speed: tokens per second before and after would compare two hours of the day. With
    Goodput, a depth with faster slow requests has not lost, however many tokens it makes.
    """
    trial = given.state.trial
    if trial is None:
        return None
    age_s = given.now_s - trial.at_s
    enough = trial.steps >= TRIAL_STEPS
    if age_s < given.window_seconds * (1.0 if enough else TRIAL_WINDOWS):
        return None
    after = given.with_state(replace(given.state, trial=None))
    shares = given.policy.shares
    judged = [
        DepthOption(
            bucket=each.bucket,
            start=each.start,
            to=each.to,
            gain=gain,
            share=shares.get(each.bucket, 0.0),
        )
        for each in trial.changes
        if (gain := given.policy.evidence.gain(each.bucket, each.to, each.start)) is not None
    ]
    if not enough or not judged:
        return after
    measured = expected_gain(judged)
    worse = [
        each
        for each in judged
        if each.gain.upper(TAKE_BACK_Z) < 0
        and not given.policy.steadier(each.bucket, each.to, each.start)
    ]
    if not worse:
        return replace(after, verdict=Verdict(trial.expected_gain, measured))
    taken_back = _take_back(after, worse)
    return replace(taken_back, expected_gain=trial.expected_gain, measured_gain=measured)


def _take_back(given: Situation, worse: list[DepthOption]) -> TuningDecision:
    depths = dict(given.policy.depths)
    depths.update({each.bucket: clamped(each.start, given.settings) for each in worse})
    after = given.noted([(each.bucket, each.to) for each in worse], failed=True)
    return after.act(
        Action.MOVE,
        Reason.MOVED,
        f"Takes back what was slower: {sentences.moves(worse, given.settings.max_batch)}.",
        after.next_document(depths, None),
        notable=True,
    )


def _slo(given: Situation, options: Iterable[DepthOption]) -> str:
    """With Goodput: where even the fastest depth misses the SLO."""
    slo_s = given.settings.tpot_slo_seconds
    if not given.settings.objective.keeps_slo or slo_s is None:
        return ""
    missed = [
        f"{batches(each.bucket, given.settings.max_batch)} ({seconds * 1000:.1f} ms)"
        for each in options
        if (seconds := given.policy.evidence.tpot_seconds(each.bucket, each.to)) is not None
        and seconds > slo_s
    ]
    if not missed:
        return ""
    return (
        f" Even so the time per output token exceeds {slo_s * 1000:g} ms at {', '.join(missed)}: "
        "fewer requests at once would help, depth cannot."
    )


def return_to_tokens(given: Situation) -> TuningDecision | None:
    """Give the user's own depth back, everywhere, if an hour with the tuner lost by it."""
    ledger = given.state.ledger
    if not ledger.is_behind:
        return None
    tokens = clamped(given.settings.tokens, given.settings)
    after = given.with_state(
        replace(
            given.state,
            ledger=Ledger(),
            probe=None,
            trial=None,
            returned_at_s=given.now_s,
        )
    )
    document = after.next_document(dict.fromkeys(given.policy.depths, tokens), None)
    return after.act(
        Action.RETURN,
        Reason.RETURNED,
        f"Returns to your own depth, {tokens}, from {summary(given.document.schedule)}: over the "
        f"last hour the tuner was {-(ledger.gain or 0.0):.1%} behind it, more than the "
        f"{MOST_BEHIND_LOSS:.1%} allowed. It tunes again in {REST_S / 60:.0f} minutes.",
        document,
        notable=True,
    )


def rest_after_return(given: Situation) -> TuningDecision | None:
    """After a return nothing is tried for a while."""
    returned_at_s = given.state.returned_at_s
    if not returned_at_s or given.now_s - returned_at_s >= REST_S:
        return None
    return given.hold(
        Reason.RETURNED,
        f"Keeps your own depth, {given.settings.tokens}, since the tuner was behind it.",
    )
