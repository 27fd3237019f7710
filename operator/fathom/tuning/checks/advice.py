from dataclasses import replace
from math import log1p

from fathom.api.choices import TuningMode
from fathom.api.conditions import Reason
from fathom.tuning import sentences
from fathom.tuning.interface import TuningDecision
from fathom.tuning.policy.option import DepthOption, expected_gain, expected_gain_sd
from fathom.tuning.situation import Situation


def advise(given: Situation) -> TuningDecision | None:
    """Mode Advise: say what Auto would aim at. Nothing is tried, so most of it is predicted."""
    if given.settings.mode is not TuningMode.ADVISE:
        return None
    better = aims(given)
    target = " ".join(f"{each.bucket}:{each.to}" for each in better)
    if better:
        message = f"Would move {sentences.moves(better, given.settings.max_batch)}."
    else:
        message = f"Would change nothing. {given.why_stay()[1]}"
    after = given.with_state(replace(given.state, advised=target))
    return replace(
        after.hold(Reason.ADVISING, message),
        expected_gain=expected_gain(better) if better else None,
        expected_gain_sd=expected_gain_sd(better) if better else None,
        notable=target != given.state.advised,
    )


def aims(given: Situation) -> tuple[DepthOption, ...]:
    """The depth that Auto would aim at in each bucket under load, where that is worth a change."""
    least = log1p(given.settings.min_gain)
    return tuple(each for each in given.policy.nearest_rivals() if each.gain.mean >= least)
