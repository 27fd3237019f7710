"""Moves: the schedule of all pods changes, and then it is checked that it was worth it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from fathom.api.choices import Objective
from fathom.api.conditions import Reason
from fathom.tuning import sentences
from fathom.tuning.buckets import Depths, batches
from fathom.tuning.checks.probing import SOON_S, ProbeChoice, next_probe
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.policy.option import DepthOption, expected_gain, expected_gain_sd
from fathom.tuning.situation import Situation, Verdict, clamped
from fathom.tuning.state import Change, Trial

TRIAL_STEPS: Final = 200.0
"""Steps at the new depth that a verdict needs."""
TRIAL_WINDOWS: Final = 3.0
"""After so many windows without enough steps there is no verdict."""
TAKE_BACK_Z: Final = 1.0
"""A move is taken back sooner than it is made: the benefit of doubt is with what was there."""


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
        DepthOption(each.bucket, each.start, each.to, gain, shares.get(each.bucket, 0.0))
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
    if given.settings.objective is not Objective.GOODPUT or slo_s is None:
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
