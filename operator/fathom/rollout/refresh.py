"""Whether to restart one replica because acceptance decays with uptime, and which. Pure.

One replica at a time, the oldest first, and only while all of these hold:

1. `rollout.refresh` is Auto, the alarm AcceptanceDecay stands, nothing is paused, and no rollout,
   canary or quality check is under way.
2. All replicas are ready, so that one may be missing: `replicas` - `maxUnavailable` still serve,
   and that is at least one.
3. The one that came last has served for `SETTLE_S`.
4. Some replica is older than the alarm. If none is, restarts did not help: no more of them.
5. Fewer than `most_a_day` replicas were started within a day.
6. The oldest has run for a day, or for as long as decay takes to show, and nobody pinned its depth.
7. The load is low at this time of day. However long that takes: no decay is worth a peak.

What is there decides, and not what is remembered: a restarted replica shows as one that is not
ready, then as one that is young. The log only adds replicas that were started and are gone again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fathom.api import names
from fathom.cluster.observed_pods import ObservedPod
from fathom.text import counted

SETTLE_S: Final = 1800.0
"""The alarm must see decay for half an hour, so that long a new replica must be seen as well: until
then nobody knows whether its restart helped."""
DAY_S: Final = 24 * 3600.0
SHARE_A_DAY: Final = 3
"""One replica in so many is started within a day, so that at most times most are warm."""
MOST_A_DAY: Final = 8
"""And so many at most. Large models load for about an hour: then one replica of a large fleet is
missing for a third of the day, and never all the time."""
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class PastRefresh:
    pod: str
    at_s: float
    """When it was decided (Unix seconds)."""


@dataclass(frozen=True, slots=True)
class RefreshLog:
    """The refreshes of the last day. To be stored before the pod is deleted."""

    # Others' fields are passed over: with the log lost, more would be restarted within the day.
    __pydantic_config__ = ConfigDict(extra="ignore", allow_inf_nan=False)

    refreshes: tuple[PastRefresh, ...] = ()

    def with_one(self, pod: str, now_s: float) -> "RefreshLog":
        """With one more; what is older than a day is forgotten, so it stays small."""
        recent = [each for each in self.refreshes if now_s - each.at_s < DAY_S and each.pod != pod]
        return RefreshLog((*recent[1 - MOST_A_DAY :], PastRefresh(pod, now_s)))

    def to_json(self) -> str:
        """Equal logs are equal strings."""
        return _LOG.dump_json(self).decode()

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read a log; None: it is not one. Pods' ages still bound what is done."""
        try:
            return _LOG.validate_json(text)  # type: ignore[return-value]
        except ValidationError:
            return None


_LOG: Final = TypeAdapter(RefreshLog)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshInput:
    """One pass's view."""

    now_s: float
    auto: bool
    """Whether `rollout.refresh` is Auto."""
    paused: str
    """The sentence that says what holds it; empty: nothing does."""
    decay_since_s: float | None
    """Since when the alarm AcceptanceDecay stands (Unix seconds); None: it does not."""
    decay_after_s: float | None
    """Age from which replicas are seen to accept less; None: unknown."""
    busy: bool
    """Whether a rollout, a canary or a quality check is under way."""
    trough: bool
    """Whether the load is low at this time of day."""
    replicas: int
    max_unavailable: int
    pods: tuple[ObservedPod, ...]
    """All that serve or hold GPUs, but for those whose node died."""
    log: RefreshLog = RefreshLog()


@dataclass(frozen=True, slots=True)
class Refresh:
    pod: str | None
    """The pod to delete, for its Deployment to replace it; None: none now."""
    why: str
    """A sentence, also where nothing is to be done."""
    log: RefreshLog
    """To be stored before the pod is deleted."""


def most_a_day(replicas: int) -> int:
    """Replicas that may be started within a day."""
    return min(-(-replicas // SHARE_A_DAY), MOST_A_DAY)


def next_refresh(given: RefreshInput) -> Refresh:
    """Which pod to restart now. Asked again before the cluster shows the restart, the same one.

    Every obstacle is a sentence; the first one is the answer.
    """
    for obstacle in _OBSTACLES:
        if (why := obstacle(given)) is not None:
            return Refresh(None, why, given.log)
    pod = _oldest(given)
    if pod is None:
        return Refresh(
            None,
            f"no replica has run for {_hours(_least_age_s(given))} yet, except those that "
            "are pinned: younger ones are not restarted.",
            given.log,
        )
    if not given.trough:
        return Refresh(None, _waiting(given, pod), given.log)
    return Refresh(
        pod.name,
        f"{pod.name} has run for {_hours(_age_s(pod, given.now_s))}, and replicas that run for "
        f"long accept less: it is restarted while the load is low, one of at most "
        f"{most_a_day(given.replicas)} in 24 h.",
        given.log.with_one(pod.name, given.now_s),
    )


def _not_asked_for(given: RefreshInput) -> str | None:
    if not given.auto:
        return "rollout.refresh is Never: replicas are not restarted for their age."
    if given.decay_since_s is None:
        return "no replica is known to accept less because it runs for long."
    return None


def _held(given: RefreshInput) -> str | None:
    if given.paused:
        return given.paused
    if given.busy:
        return "a rollout, a canary or a quality check is under way, and goes first."
    return None


def _no_room(given: RefreshInput) -> str | None:
    if given.max_unavailable < 1:
        return "rollout.maxUnavailable is 0: no replica may be missing, not even for its restart."
    if given.replicas - given.max_unavailable < 1:
        return (
            f"of replicas: {given.replicas} with rollout.maxUnavailable: {given.max_unavailable} "
            "none might be left to serve during a restart."
        )
    return None


def _incomplete(given: RefreshInput) -> str | None:
    missing = [pod.name for pod in given.pods if not pod.ready]
    if missing:
        return f"{missing[0]} is not ready: one replica is missing at a time."
    if len(given.pods) != given.replicas:
        standing = counted(len(given.pods), "replica exists", "replicas exist")
        asked = counted(given.replicas, "is asked for", "are asked for")
        return f"{standing} and {asked}: scaling first."
    return None


def _unsettled(given: RefreshInput) -> str | None:
    for pod in given.pods:
        since_s = pod.ready_since_s
        if since_s is None or given.now_s - since_s < SETTLE_S:
            return (
                f"{pod.name} has just become ready: it serves for {SETTLE_S / 60:.0f} minutes "
                "before the next one goes, to be compared."
            )
    return None


def _in_vain(given: RefreshInput) -> str | None:
    since_s = given.decay_since_s or 0.0
    started = [_started_at_s(pod) for pod in given.pods]
    if any(at_s is None or at_s <= since_s for at_s in started):
        return None
    return (
        f"every replica was started after the alarm was raised {_hours(given.now_s - since_s)} "
        "ago, and it is still active: restarts do not help, so there are no more of them. Look for "
        "what else differs between replicas: node, GPU, or the requests that reach them."
    )


def _spent(given: RefreshInput) -> str | None:
    started, most = _started_in_a_day(given), most_a_day(given.replicas)
    if started < most:
        return None
    return (
        f"{started} of {given.replicas} replicas started within 24 h, and at most {most} are "
        "started for their age."
    )


_OBSTACLES: Final[tuple[Callable[[RefreshInput], str | None], ...]] = (
    _not_asked_for,
    _held,
    _no_room,
    _incomplete,
    _unsettled,
    _in_vain,
    _spent,
)


def _started_in_a_day(given: RefreshInput) -> int:
    """Starts of the last day that count against the bound.

    A refresh counts if its pod is gone: one that still is there was logged and never deleted. A
    young pod that no refresh explains counts once: its refresh may have been lost with the log.
    Not more often, or an autoscaler that adds replicas every morning would end all refreshes.
    """
    present = {pod.name for pod in given.pods}
    logged = sum(
        given.now_s - each.at_s < DAY_S and each.pod not in present for each in given.log.refreshes
    )
    created = [pod.metadata.creation_timestamp for pod in given.pods]
    young = sum(at is None or given.now_s - at.timestamp() < DAY_S for at in created)
    return max(logged, min(young, logged + 1))


def _oldest(given: RefreshInput) -> ObservedPod | None:
    ages = [
        (_age_s(pod, given.now_s), pod)
        for pod in given.pods
        # A person holds it at a depth, and would lose what is being looked at.
        if names.ANNOTATION_PIN_DEPTH not in pod.metadata.annotations
    ]
    old = [(age_s, pod) for age_s, pod in ages if age_s >= _least_age_s(given)]
    return max(old, key=lambda each: (each[0], each[1].name), default=(0.0, None))[1]


def _least_age_s(given: RefreshInput) -> float:
    return max(DAY_S, given.decay_after_s or 0.0)


def _age_s(pod: ObservedPod, now_s: float) -> float:
    """Uptime of its engine; 0: unknown, and so never old enough."""
    started_at_s = _started_at_s(pod)
    return 0.0 if started_at_s is None else now_s - started_at_s


def _started_at_s(pod: ObservedPod) -> float | None:
    """When its engine started, or rather too late than too early; None: unknown."""
    if pod.engine_restarts:
        return pod.ready_since_s
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created else None


def _waiting(given: RefreshInput, pod: ObservedPod) -> str:
    stood_s = given.now_s - (given.decay_since_s or given.now_s)
    why = f"{pod.name} waits for an hour of low load to be restarted"
    if stood_s < DAY_S:
        return f"{why}."
    return f"{why}, and the alarm has lasted {_hours(stood_s)}: delete it if that is too long."


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR_S:.0f} h"
