"""Probes: one pod at another depth for some seconds, by an override in the depth document."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, log1p
from typing import Final

from fathom.api.conditions import Reason
from fathom.text import counted
from fathom.tuning import sentences
from fathom.tuning.context import Situation
from fathom.tuning.convergence import DEADLINE_S
from fathom.tuning.interface import Action, Settings, TuningDecision
from fathom.tuning.learned_state import Probe
from fathom.tuning.learning import SENTINEL_LOOK_S, settling_s
from fathom.tuning.policy.experiments import control, ends, experiments, sentinel
from fathom.tuning.policy.option import DepthOption, ProbePlan, expected_gain
from fathom.tuning.policy.value import CERTAIN_Z

ENOUGH_STEPS: Final = 200.0
"""Steps after which a probe may end early, if it has decided the matter."""
SENTINEL_STEPS: Final = 40.0
"""Steps after which a sentinel has seen whether drafts are accepted."""
EARLY_Z: Final = 2.5
"""Certainty that ends a probe after fewer steps."""
PLANNED_WINDOWS: Final = 0.5
"""How long a probe is meant to take …"""
LEAST_PLANNED_S: Final = 9.0
"""… and in seconds at least."""
PROMISING_FACTOR: Final = 3.0
"""How much longer a probe may take while it seems to gain."""
GIVE_UP_S: Final = 60.0
"""A probe that is not in force, or cannot be read, for so long is ended."""
OPEN_SHARE: Final = 0.5
"""A probe ends when what it could still show is worth less than this share of what it has shown."""
HOPELESS_GAIN: Final = -0.1
"""A depth that is surely slower by so much is not worth another second …"""
HOPELESS_STEPS: Final = 50.0
"""… after so many steps."""
PROBED_SHARE: Final = 0.02
"""Share of the traffic, over time, that probes take at most."""
PROBED_FOR_MUCH_SHARE: Final = 0.2
"""The same while much is at stake: a new engine, or new traffic."""
MUCH_GAIN: Final = 0.02
"""Expected improvement that is much."""
RECENT_WINDOWS: Final = 5.0
"""A pod that has not stepped for so long has no traffic to probe with."""
SOON_S: Final = 3.0
"""When to recheck what changes within seconds."""


@dataclass(frozen=True, slots=True)
class ProbeChoice:
    """What one pod should try now."""

    options: tuple[DepthOption, ...]
    """One depth in each of some buckets."""
    sentinel: bool = False


@dataclass(frozen=True, slots=True)
class NoProbe:
    """Why nothing is tried now."""

    why: str
    """Such as `until the last move is judged`."""
    later: tuple[DepthOption, ...] = ()
    """What would be tried but for that."""


def planned_s(settings: Settings) -> float:
    """How long a probe is meant to take (seconds)."""
    return max(LEAST_PLANNED_S, PLANNED_WINDOWS * settings.window_seconds)


def ends_after_s(settings: Settings) -> int:
    """After how many seconds in force a pod ends its probe by itself (seconds).

    Later than any operator that works: it gives up on a probe that is not seen in force, and then
    on one that is, as late as in `continue_probe`; it looks once in a window; and the document that
    ends the probe has its time to arrive.
    """
    longest_s = 2 * GIVE_UP_S + PROMISING_FACTOR * planned_s(settings)
    return ceil(longest_s + settings.window_seconds + DEADLINE_S)


def _settled_after_s(given: Situation) -> float:
    """When a probe has shown what its depth makes with a mix of requests of its own (seconds).

    One look finds the depth in force, and another one, after the mix has settled, is counted.
    """
    return settling_s(given.state) + 2 * SOON_S


def next_probe(given: Situation, pods: int) -> ProbeChoice | NoProbe:
    """What may be better; or, now and then, the user's own depth, to know the gain.

    Args:
        given: what is known.
        pods: how many are ready; one of them would try it.
    """
    policy, state = given.policy, given.state
    if policy.slo is not None and policy.slo.is_near and policy.has_compared:
        # What else could be told gains less than it would cost to miss the SLO.
        return NoProbe("while the SLO is kept by little")
    plan = ProbePlan(planned_s(given.settings), pods)
    options = experiments(policy, plan)
    if given.snapshot.compared:
        # A pod that tries a depth of its own is no measure for the canary, and it is the only one.
        return NoProbe("while a canary is compared with the only other pod", options)
    stake = sum(each.share * each.gain.expected_improvement for each in options)
    rest_s = _rest_s(given, pods, stake) - (given.now_s - state.probe_ended_at_s)
    undisturbed, rests = state.trial is None, rest_s > 0
    due = options or control(policy, plan)
    # The budget is for what may be slower: to try what is faster beyond doubt costs nothing.
    now = experiments(policy, plan, sure=True) if rests else due
    if now and (undisturbed or stake >= MUCH_GAIN):
        return ProbeChoice(now)
    # Once in a fleet's life for each bucket, so they need no budget.
    if given.settings.probing and undisturbed and (unseen := ends(policy, plan)):
        return ProbeChoice(unseen)
    if blind := sentinel(policy, _sentinel_plan(given, pods)):
        return ProbeChoice(blind, sentinel=True)
    had_theirs = "for now, as probes have had their share of the traffic"
    why = had_theirs if rests else "until the last move is judged"
    return NoProbe(why, due) if due else NoProbe("is expected to be worth more than it costs")


def continue_probe(given: Situation, probe: Probe) -> tuple[TuningDecision | None, Situation]:
    """Wait for the probe that runs.

    Returns:
        A decision to wait; or, when there is nothing left to wait for, the situation after it. Then
        the pod must get another depth by the next decision.
    """
    present = given.policy.evidence.traffic.present()
    asked = _tried(given, probe)
    tried = tuple(each for each in asked if each.bucket in present)
    elapsed_s = given.now_s - (probe.in_force_at_s or probe.started_at_s)
    least = log1p(given.settings.min_gain)
    deadline_s = planned_s(given.settings)
    promising = sum(each.share * (each.gain.mean - least) for each in tried) > 0
    if promising:
        deadline_s *= PROMISING_FACTOR  # it seems faster, so looking on costs nothing
    settling = promising and elapsed_s < _settled_after_s(given) <= deadline_s
    decided = not settling and _decided(tried, least, probe.steps)
    decided = decided or (probe.sentinel and probe.steps >= SENTINEL_STEPS)
    hopeless = probe.steps >= HOPELESS_STEPS and all(
        each.gain.step_time_measured and each.gain.upper() < HOPELESS_GAIN for each in tried
    )
    seen = probe.in_force_at_s > 0 and probe.looks > 0 and elapsed_s >= deadline_s
    lost = elapsed_s > GIVE_UP_S + (deadline_s if probe.in_force_at_s else 0.0)
    if not tried or decided or hopeless or seen or lost:
        return None, _over(given, probe)
    return (
        given.hold(
            Reason.PROBING,
            f"{probe.pod} tries {_what(given, asked)}: {counted(probe.steps, 'step')} so far.",
            wake_after_s=_look_again_s(probe),
        ),
        given,
    )


def wait_for_probe(given: Situation) -> TuningDecision | Situation | None:
    """Wait for the probe that runs; once it is over, go on with what it taught."""
    probe = given.state.probe
    if probe is None:
        return None
    waits, after = continue_probe(given, probe)
    return waits or replace(after, probed=probe)


def end_probe(given: Situation, reason: Reason, message: str) -> TuningDecision:
    """Give the pod its depth back."""
    probe = given.state.probe
    after = _over(given, probe) if probe is not None else given
    return after.act(
        Action.END_PROBE, reason, message, after.next_document(after.policy.depths, None)
    )


def clear_override(given: Situation) -> TuningDecision | None:
    """Once nothing follows a probe, the pod gets its depth back."""
    document = given.next_document(given.policy.depths, None)
    if document is given.document or given.probed is None:
        return None
    tried = _what(given, _tried(given, given.probed))
    return given.act(
        Action.END_PROBE,
        Reason.MEASURING,
        f"{given.probed.pod} tried {tried}; depth stays.",
        document,
    )


def start_probe(given: Situation) -> TuningDecision | None:
    """Let one pod try what is chosen."""
    choice = next_probe(given, given.ready_pods)
    if isinstance(choice, NoProbe):
        return clear_override(given) or _waits(given, choice)
    options = choice.options
    if not given.settings.probing:
        return given.hold(
            Reason.PROBING_DISABLED,
            f"May be better, but probing is disabled: {_what(given, options)}.",
        )
    longest_s = max(RECENT_WINDOWS * given.window_seconds, GIVE_UP_S)
    pod = given.carrier({each.bucket for each in options}, idle_for_s=longest_s)
    if pod is None:
        return clear_override(given) or _unnamed(given, options)
    probe = Probe(
        pod=pod,
        depths=tuple((each.bucket, each.to) for each in options),
        started_at_s=given.now_s,
        sentinel=choice.sentinel,
        ends_after_s=ends_after_s(given.settings),
    )
    after = given.with_state(replace(given.state, probe=probe))
    return replace(
        after.act(
            Action.PROBE,
            Reason.PROBING,
            f"{pod} tries {_what(given, options)} for some seconds.",
            after.next_document(after.policy.depths, probe),
            wake_after_s=_look_again_s(probe),
        ),
        expected_gain=expected_gain(options),
    )


def _unnamed(given: Situation, options: tuple[DepthOption, ...]) -> TuningDecision | None:
    """Where no engine would find its own entry in the document: why nothing is tried."""
    live = [pod for pod in given.snapshot.pods if pod.ready and given.snapshot.present(pod)]
    if not live or any(pod.named for pod in live):
        return None
    names = ", ".join(pod.name for pod in live)
    return given.hold(
        Reason.GAIN_UNCERTAIN,
        f"May be better, but cannot be tried: {_what(given, options)}. Of {names} the engine "
        f"{sentences.UNNAMED}.",
    )


def _waits(given: Situation, for_now: NoProbe) -> TuningDecision | None:
    """Where a gain is possible: why it is not tried yet."""
    reason, message = given.why_stay()
    if reason is not Reason.GAIN_UNCERTAIN or not for_now.later:
        return None
    return given.hold(reason, f"{message} No probe {for_now.why}.")


def _sentinel_plan(given: Situation, pods: int) -> ProbePlan:
    ended_at_s = given.state.sentinel_ended_at_s
    rested_s = given.now_s - ended_at_s if ended_at_s else None
    return ProbePlan(given.state.sentinel_lasted_s, pods, rested_s)


def _look_again_s(probe: Probe) -> float:
    return SENTINEL_LOOK_S if probe.sentinel else SOON_S


def _rest_s(given: Situation, pods: int, stake: float) -> float:
    """Rest after a probe, such that probes take no more than their share of the traffic."""
    share = PROBED_FOR_MUCH_SHARE if stake >= MUCH_GAIN else PROBED_SHARE
    return given.state.probe_lasted_s * max(0.0, 1 / (share * max(1, pods)) - 1)


def _decided(tried: tuple[DepthOption, ...], least: float, steps: float) -> bool:
    """Whether most of what the probe could tell is told.

    A bucket with little traffic must not keep the others waiting for what they already know.
    """
    z = CERTAIN_Z if steps >= ENOUGH_STEPS else EARLY_Z
    better = [each for each in tried if each.gain.step_time_measured and each.gain.lower(z) > 0]
    open_ = [
        each
        for each in tried
        if each not in better and (steps < ENOUGH_STEPS or each.gain.upper() > least)
    ]
    known = sum(each.share * each.gain.mean for each in better)
    return sum(each.share * each.gain.expected_improvement for each in open_) <= OPEN_SHARE * known


def _over(given: Situation, probe: Probe) -> Situation:
    lasted_s = given.now_s - probe.started_at_s
    if probe.sentinel:
        # It is no experiment: its depth may be tried at once, and it has a budget of its own.
        return given.with_state(
            replace(
                given.state,
                probe=None,
                sentinel_ended_at_s=given.now_s,
                # One that saw too little has waited for traffic, which costs nothing.
                sentinel_lasted_s=lasted_s
                if probe.steps >= SENTINEL_STEPS
                else given.state.sentinel_lasted_s,
            )
        )
    after = given.noted(_measured(given, probe))
    return after.with_state(
        replace(after.state, probe=None, probe_ended_at_s=given.now_s, probe_lasted_s=lasted_s)
    )


def _measured(given: Situation, probe: Probe) -> tuple[tuple[int, int], ...]:
    """What was seen of it: where its pod was not, the same may be tried again at once.

    Where it was nowhere, all of it counts as tried: else it would be tried again and again.
    """
    table, traffic = given.policy.evidence.table, given.policy.evidence.traffic
    measured = tuple(
        (bucket, depth)
        for bucket, depth in probe.depths
        if (cell := table.at(bucket, depth, traffic.kind(bucket))) is not None
        and cell.at_s > probe.started_at_s
    )
    return measured or probe.depths


def _tried(given: Situation, probe: Probe) -> tuple[DepthOption, ...]:
    shares = given.policy.shares
    options: list[DepthOption] = []
    for bucket, depth in probe.depths:
        start = given.policy.depths.get(bucket, depth)
        gain = given.policy.evidence.gain(bucket, depth, start)
        if gain is not None:
            options.append(
                DepthOption(
                    bucket=bucket, start=start, to=depth, gain=gain, share=shares.get(bucket, 0.0)
                )
            )
    return tuple(options)


def _what(given: Situation, options: Iterable[DepthOption]) -> str:
    return sentences.tries(options, given.settings.max_batch)
