"""Is there anything to go by? If not, depth stays as it is: no data is never a reason to act."""

from dataclasses import replace
from typing import Final

from fathom.api.conditions import Reason
from fathom.text import counted
from fathom.tuning.checks.probing import GIVE_UP_S, SOON_S, end_probe
from fathom.tuning.context import Situation
from fathom.tuning.interface import Action, TuningDecision

TRAFFIC_WINDOWS: Final = 2.5
"""Without a step for so many windows there is no traffic."""
IDLE_WINDOWS: Final = 2.0
"""Between two reads without traffic: of a thousand models most are idle, and each read takes a
page of each of their pods."""


def no_pods(given: Situation) -> TuningDecision | None:
    pods = given.snapshot.pods
    if any(pod.ready for pod in pods):
        return None
    return given.hold(
        Reason.PODS_NOT_READY,
        f"Of {counted(len(pods), 'pod')} none is ready; depth stays as it is.",
    )


def no_metrics(given: Situation) -> TuningDecision | None:
    ready = [pod for pod in given.snapshot.pods if pod.ready]
    readable = [pod.counters for pod in ready if pod.counters is not None]
    if any(not given.snapshot.is_stale(counters) for counters in readable):
        return None
    if readable:
        reason = Reason.STALE_METRICS
        # Without their age: it would make every message a new one, and every new message a write.
        message = (
            f"The newest metrics are more than {given.settings.stale_after_s:.0f} s old; depth "
            "stays as it is. Check what scrapes the pods."
        )
    else:
        reason = Reason.NO_METRICS
        message = (
            f"Of {counted(len(ready), 'ready pod')} no metrics can be read; depth stays as it is."
        )
    return _or_end_probe(given, reason, message)


def not_obeyed(given: Situation) -> TuningDecision | None:
    """Engines that do not run what the document says: tell them again; hold if they are many."""
    found, before = given.convergence, given.snapshot.state.disobeying
    if found.is_lost:
        return given.hold(Reason.DEPTH_NOT_OBEYED, f"{found.sentence} Depth is held.")
    if set(found.disobeying) - set(before):
        return given.hold(
            Reason.DEPTH_NOT_OBEYED, f"{found.sentence} The other pods are tuned meanwhile."
        )
    generation = given.document.generation
    if found.late and given.state.poked_generation != generation:
        poked = given.with_state(replace(given.state, poked_generation=generation))
        return poked.act(
            Action.POKE,
            Reason.MEASURING,
            f"{', '.join(found.late)} do not run generation {generation} yet; they are notified "
            "again.",
            given.document,
            wake_after_s=SOON_S,
        )
    # Those that are gone, such as stock engines that their host replaced, are no news.
    present = {pod.name for pod in given.snapshot.pods}
    if not found.disobeying and not present.isdisjoint(before):
        return replace(
            given.hold(Reason.MEASURING, f"{', '.join(before)} obey again, or serve no more."),
            notable=True,
        )
    return None


def no_traffic(given: Situation) -> TuningDecision | None:
    state, window_s, ready = given.state, given.window_seconds, given.ready_pods
    # After a restart of the operator, and of a pod that is new, there is nothing yet to compare
    # with: unknown is not idle.
    known = given.known_pods & given.snapshot.state.looks.keys()
    # Up to the last look at each and not up to now: a Prometheus may scrape seldom.
    seen_s = min((state.looks[pod].at_s for pod in known), default=0.0)
    pause_s = window_s
    if len(known) == ready and state.probe is None:
        pause_s = IDLE_WINDOWS * window_s
        if not given.deltas:
            # Too soon after the last look: what wakes it in between does not put off the next one.
            pause_s = max(window_s, pause_s - (given.now_s - seen_s))
    if not state.traffic.loads:
        return given.hold(
            Reason.MEASURING, "Waits for the first window with traffic.", wake_after_s=pause_s
        )
    if not known or seen_s - state.traffic.at_s <= TRAFFIC_WINDOWS * window_s:
        return None
    reason, why = Reason.NO_TRAFFIC, "No engine step lately"
    stepped_s = max((at_s for _, at_s in state.stepped), default=0.0)
    if seen_s - stepped_s <= TRAFFIC_WINDOWS * window_s:
        reason, why = Reason.MEASURING, "All steps mix two depths lately, so nothing is measured"
    elif unknown := ready - len(known):
        reason, whose = Reason.MEASURING, f"{unknown} of {counted(ready, 'ready pod')}"
        why = f"Whether {whose} serves is not known, and the others have made no step lately"
    # Without the age, as above.
    message = f"{why}; depth stays as it is."
    return replace(_or_end_probe(given, reason, message), wake_after_s=pause_s)


def not_in_force_yet(given: Situation) -> TuningDecision | None:
    """One change at a time: the last one has yet to reach the engines."""
    if not given.convergence.waiting:
        return None
    return given.hold(
        Reason.MEASURING,
        f"Generation {given.document.generation} is not in force yet on "
        f"{', '.join(given.convergence.waiting)}.",
        wake_after_s=SOON_S,
    )


def _or_end_probe(given: Situation, reason: Reason, message: str) -> TuningDecision:
    """Hold; but a probe that nobody can see is not left running."""
    probe = given.state.probe
    if probe is not None and given.now_s - probe.started_at_s > GIVE_UP_S:
        return end_probe(given, reason, f"The probe is ended. {message}")
    return given.hold(reason, message)
