"""How many replicas each revision should ask for right now.

Two revisions stand side by side as two workloads. With `replicas` N, `maxUnavailable` U and
`maxSurge` S, and looking only at what is there:

1. No other revision exists: the wanted one asks for N at once.
2. Otherwise the wanted one grows into the room that N + S leaves, where every pod counts that
   holds GPUs: those that run, those that a workload asks for and does not have yet, and those
   that still drain.
3. The others shrink, by no more than keeps N - U: first pods that are not ready, which serve
   nobody, then ready ones, as far as ready pods exceed N - U.
4. While the wanted revision is on trial (`ReplicaBounds.most_new`), it stays that small, or becomes
   so as the others do in 3. The others make room for no more than that, and what a change of N adds
   or takes is theirs.
5. Where a change of N leaves more than N + S, the last ready pod stays until one of the wanted
   revision serves, though U may allow none; and beside a canary that is there stays one of the
   others, to be compared with.
6. Paused, nothing moves between revisions. What a change of N adds goes to the revision that
   serves most; what it takes, or a surge has added, goes as in 3: pods that are not ready, then
   ready ones as far as they exceed N.

There is no memory: killed at any point, the next look continues. A revert in the middle is no
case of its own, it only changes which revision is the wanted one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fathom.api.choices import AdaptiveVerification, Compares, Drafting
from fathom.api.spec import SpeculativeDeploymentSpec

LEAST_REPLICAS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What one revision has."""

    revision: str
    serves: tuple[bool, ...] = ()
    """Whether each replica that it asks for is ready; the last one goes first."""
    held: int = 0
    """Replicas' worth of GPUs that are taken, or will be without a further decision."""
    stable: bool = False
    """Whether it is the one that a rollout would go back to."""

    @property
    def asked(self) -> int:
        """Replicas that it asks for."""
        return len(self.serves)

    @property
    def serving(self) -> int:
        """Ready replicas that stay: of more than are asked for, the surplus is about to go."""
        return sum(self.serves)

    def serving_at(self, asked: int) -> int:
        """Ready replicas that stay where so many are asked for."""
        return sum(self.serves[:asked])

    def last_serves(self, asked: int) -> bool:
        """Whether the one that goes first of so many replicas is a ready one."""
        return asked <= self.asked and self.serves[asked - 1]

    @property
    def in_the_way(self) -> tuple[int, ...]:
        """Replicas that do not serve, and cannot go before one that does."""
        last = max((at for at, serves in enumerate(self.serves) if serves), default=0)
        return tuple(at for at, serves in enumerate(self.serves[:last]) if not serves)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    replicas: int
    max_unavailable: int
    max_surge: int
    paused: bool = False
    most_new: int | None = None
    """Replicas that the wanted revision may have for now: 1 while it is a canary, 0 before; None:
    all."""

    def beside(self, on_trial: int) -> int:
        """Replicas of the other revisions beside so many that are on trial."""
        # A surge takes no other's place.
        missing = min(self.max_unavailable, max(0, on_trial - self.max_surge))
        return max(0, self.replicas - missing)


def replicas_by_revision(
    wanted: str, fleets: Sequence[Fleet], bounds: ReplicaBounds
) -> dict[str, int]:
    """Replicas that each revision should ask for; the wanted one is always among them.

    `fleets` holds each revision that has a workload, the wanted one included if it has one.
    """
    new = next((f for f in fleets if f.revision == wanted), Fleet(revision=wanted))
    others = [fleet for fleet in fleets if fleet.revision != wanted]
    if not others:
        return {wanted: bounds.replicas}
    if bounds.paused and bounds.most_new is not None:
        on_trial = min(new.asked, bounds.replicas)
        return {wanted: on_trial} | _scaled(others, _kept(on_trial, new, others, bounds))
    if bounds.paused:
        return {wanted: new.asked} | _scaled(fleets, bounds.replicas)
    left = kept = 0
    if bounds.most_new is not None:
        left = _left_on_trial(new, others, bounds)
        kept = _kept(bounds.most_new, new, others, bounds)
    asked = sum(fleet.asked for fleet in others)
    if asked < kept:
        if left > _most(bounds):
            # They grow once it has gone.
            kept = max(asked, min(kept, bounds.replicas + bounds.max_surge - left))
        return {wanted: left} | _scaled(others, kept)
    grown = max(left, _grown(new, others, bounds))
    # What it loses itself to a change of N serves nobody when the others have gone.
    of_new = new.serving_at(min(new.asked, grown))
    return {wanted: grown} | _shrunk(new, others, bounds, of_new=of_new, kept=kept)


def is_stuck(wanted: str, fleets: Sequence[Fleet], bounds: ReplicaBounds) -> bool:
    """Whether the wanted revision lacks replicas and nothing on this side will ever make room.

    Nothing moves, nothing drains, and nothing of the wanted revision is starting.

    Args:
        wanted: the revision.
        fleets: each revision that has a workload.
        bounds: of the rollout.
    """
    asked = replicas_by_revision(wanted, fleets, bounds)
    new = next((f for f in fleets if f.revision == wanted), Fleet(revision=wanted))
    at_rest = all(asked[each.revision] == each.asked == each.held for each in fleets)
    waits = new.serving == new.asked < _most(bounds)
    return waits and at_rest and asked[wanted] == new.asked and not bounds.paused


def _kept(on_trial: int, new: Fleet, others: Sequence[Fleet], bounds: ReplicaBounds) -> int:
    """Replicas that the others keep beside so many that are on trial."""
    # A canary that took the place of the only replica has nobody left beside it.
    last = min(1, bounds.replicas, sum(fleet.asked for fleet in others)) if new.asked else 0
    return max(bounds.beside(on_trial), last)


def _most(bounds: ReplicaBounds) -> int:
    return bounds.replicas if bounds.most_new is None else min(bounds.replicas, bounds.most_new)


def _left_on_trial(new: Fleet, others: Sequence[Fleet], bounds: ReplicaBounds) -> int:
    """What the wanted revision keeps of its replicas, of which it may have fewer now."""
    serving = new.serving + sum(fleet.serving for fleet in others)
    spare = serving - (bounds.replicas - bounds.max_unavailable)
    return _without([new], new.asked - _most(bounds), spare)[new.revision]


def _grown(new: Fleet, others: Sequence[Fleet], bounds: ReplicaBounds) -> int:
    held = new.held + sum(fleet.held for fleet in others)
    room = max(0, bounds.replicas + bounds.max_surge - held)
    return min(_most(bounds), new.asked + room)


def _shrunk(
    new: Fleet, others: Sequence[Fleet], bounds: ReplicaBounds, *, of_new: int, kept: int
) -> dict[str, int]:
    least = bounds.replicas - bounds.max_unavailable
    asked = sum(fleet.asked for fleet in others)
    # Nobody waits for the place of the last one yet: others go before it.
    surplus = new.asked + asked > bounds.replicas + bounds.max_surge
    last = min(1, bounds.replicas) if surplus else 0
    spare = of_new + sum(fleet.serving for fleet in others) - max(least, last)
    # Pods that are not ready may yet become so: even they go only as far as U allows.
    budget = max(0, min(of_new + asked - least, asked - kept))
    return _without(others, budget, spare)


def _scaled(fleets: Sequence[Fleet], replicas: int) -> dict[str, int]:
    """The same split between revisions, for another number of replicas."""
    result = {fleet.revision: fleet.asked for fleet in fleets}
    missing = replicas - sum(result.values())
    if missing <= 0:
        return _without(fleets, -missing, sum(fleet.serving for fleet in fleets) - replicas)
    result[max(fleets, key=_service).revision] += missing
    return result


def _service(fleet: Fleet) -> tuple[bool, int, int, str]:
    """What serves more is more; before all, what is proven is more than a canary."""
    return fleet.stable, fleet.serving, fleet.asked, fleet.revision


def _without(fleets: Sequence[Fleet], surplus: int, spare: int) -> dict[str, int]:
    """What is left to ask for: first goes what serves nobody, then what can be spared.

    Args:
        fleets: of the revisions that shrink.
        surplus: replicas that may go.
        spare: how many of them may be ready ones.
    """
    result = {fleet.revision: fleet.asked for fleet in fleets}
    # What serves least goes first: the fewest revisions at any time. What a canary was compared
    # with goes last: else an edit that mends a bad canary would leave that one to serve alone.
    by_service = sorted(fleets, key=_service)
    for fleet in by_service:
        while surplus > 0 and (left := result[fleet.revision]) and not fleet.last_serves(left):
            result[fleet.revision] -= 1
            surplus -= 1
    for fleet in by_service:
        while surplus > 0 and (left := result[fleet.revision]):
            serves = fleet.last_serves(left)
            if serves and spare <= 0:
                break
            result[fleet.revision] -= 1
            surplus -= 1
            spare -= serves
    return result


def arm_of(spec: SpeculativeDeploymentSpec) -> SpeculativeDeploymentSpec | None:
    """The spec of the one replica that is compared with the others; None: none is asked for."""
    match spec.compares:
        case None:
            return None
        case Compares.DRAFT:
            return spec.model_copy(update={"draft": spec.draft.with_trial()})
        case Compares.ADAPTIVE_VERIFICATION:
            wished: dict[str, object] = {"adaptive_verification": AdaptiveVerification.ENABLED}
        case Compares.DRAFTING:
            wished = {"drafting": Drafting.DISABLED}
    speculation = spec.speculation.model_copy(update=wished)
    return spec.model_copy(update={"speculation": speculation})


def beside_arm(spec: SpeculativeDeploymentSpec) -> int:
    """How many other replicas there are while the arm is there."""
    rollout = spec.rollout
    return ReplicaBounds(
        replicas=spec.replicas, max_unavailable=rollout.max_unavailable, max_surge=rollout.max_surge
    ).beside(1)


def all_replicas(spec: SpeculativeDeploymentSpec) -> int:
    """How many replicas there are in all, the arm among them where it is there."""
    arm = arm_of(spec) is not None and not why_no_arm(spec)
    return beside_arm(spec) + 1 if arm else spec.replicas


def why_no_arm(spec: SpeculativeDeploymentSpec) -> str:
    """What in the spec keeps the arm from being compared, and what to do; empty: nothing."""
    if spec.replicas < LEAST_REPLICAS and not (spec.replicas and spec.rollout.max_surge):
        return (
            "it is compared with another replica: set spec.replicas to 2 or more, or "
            "spec.rollout.maxSurge to 1 where there are GPUs for one more"
        )
    if not spec.rollout.canary_minutes:
        return "spec.rollout.canaryMinutes is 0, and so long it is compared: set it to 20 or more"
    return ""
