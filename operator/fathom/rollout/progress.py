"""How far a rollout is from its plan, and what blocks it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fathom.api.conditions import Reason
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.cluster.snapshot import Objects
from fathom.resource import SpeculativeDeployment
from fathom.rollout.fleets import RevisionFleet, fleets_of
from fathom.rollout.replicas import Fleet, ReplicaBounds, is_stuck
from fathom.rollout.rollout import Rollout, Stage
from fathom.text import counted

_MOVING: Final = frozenset(
    {
        Reason.STARTING,
        Reason.FETCHING_WEIGHTS,
        Reason.WAITING_FOR_HUB,
        Reason.ROLLING_OUT,
        Reason.SCALING,
        Reason.SETTLING,
        Reason.CANARY_STARTING,
        Reason.AWAITING_CAPACITY,
        Reason.CANARY_BAKING,
    }
)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the rollout is, for the Progressing condition."""

    reason: Reason
    message: str

    @property
    def moving(self) -> bool:
        return self.reason in _MOVING


def what_blocks(
    objects: Objects,
    sd: SpeculativeDeployment,
    revision: str,
    *,
    stable: str = "",
    most_new: int | None = None,
    no_room: bool = False,
) -> str:
    """Why no room will be made for a revision, and what to do; empty: it has, or will have some.

    Args:
        objects: what the cluster holds.
        sd: whose spec is carried out.
        revision: its revision.
        stable: the revision that a rollout would go back to; empty: there is none.
        most_new: replicas that the revision may have for now, while it is on trial; None: all.
        no_room: whether no node has room for a replica beside all others.
    """
    found = found_fleets(objects, revision, stable, no_room=no_room)
    return _blocked(revision, found, bounds_of(sd.spec, most_new, no_room=no_room))


def found_fleets(
    objects: Objects, revision: str, stable: str, *, no_room: bool
) -> dict[str, RevisionFleet]:
    found = {each.fleet.revision: each for each in fleets_of(objects, stable)}
    if no_room and revision in found and not _placed(objects, revision):
        # It asks for none until others made room.
        waits = Fleet(revision=revision, stable=revision == stable)
        found[revision] = replace(found[revision], fleet=waits)
    return found


def _placed(objects: Objects, revision: str) -> bool:
    """Whether a pod of it has a node."""
    own = (pod for pod in objects.engines if pod.revision == revision)
    return any(pod.unscheduled is None for pod in own)


def bounds_of(
    spec: SpeculativeDeploymentSpec,
    most_new: int | None,
    *,
    no_room: bool,
    frozen: bool = False,
) -> ReplicaBounds:
    rollout = spec.rollout
    return ReplicaBounds(
        replicas=spec.replicas,
        max_unavailable=rollout.max_unavailable,
        max_surge=0 if no_room else rollout.max_surge,
        paused=rollout.paused or frozen,
        most_new=most_new,
    )


def progress_of(
    revision: str, found: Mapping[str, RevisionFleet], bounds: ReplicaBounds, holder: str
) -> Progress:
    fleets = [each.fleet for each in found.values()]
    new = next((f for f in fleets if f.revision == revision), Fleet(revision=revision))
    others = [fleet for fleet in fleets if fleet is not new and fleet.held > 0]
    ready = f"{new.serving} of {bounds.replicas} replicas"
    if others and bounds.paused:
        serving = ", ".join(f"{fleet.serving} of {fleet.revision}" for fleet in others)
        return Progress(
            Reason.ROLLOUT_PAUSED,
            f"{holder} holds the rollout to revision {revision}: {new.serving} of it and "
            f"{serving} are ready.",
        )
    if others:
        left = sum(fleet.held for fleet in others)
        stands = f"{ready} of revision {revision} are ready; {left} of other revisions are left."
        blocked = _blocked(revision, found, bounds)
        if blocked:
            return Progress(Reason.ROLLOUT_BLOCKED, f"{stands} {blocked}")
        return Progress(Reason.ROLLING_OUT, stands)
    if new.serving < bounds.replicas:
        scaling = new.serving > 0
        return Progress(
            Reason.SCALING if scaling else Reason.STARTING,
            f"{ready} of revision {revision} are ready; "
            + ("more are starting." if scaling else "the engines are starting."),
        )
    if new.held > bounds.replicas:
        surplus = new.held - bounds.replicas
        return Progress(
            Reason.SCALING,
            f"{counted(surplus, 'surplus replica is', 'surplus replicas are')} draining.",
        )
    return Progress(Reason.UP_TO_DATE, f"every replica is of revision {revision}.")


def progress_under(
    rollout: Rollout | None,
    objects: Objects,
    *,
    planned: Progress,
    revision: str,
    replicas: int,
) -> Progress:
    """What the rollout is at, or where none is on trial, what the plan's replicas are at.

    Args:
        rollout: as it is; None: there is none.
        objects: what the cluster holds.
        planned: what the plan's replicas are at.
        revision: that the plan carries out.
        replicas: that the spec asks for.
    """
    if rollout is None:
        return planned
    if rollout.stage is Stage.ROLLED_BACK and not rollout.arm:
        return _vetoed(rollout, objects, planned=planned, revision=revision, replicas=replicas)
    if planned.reason is Reason.ROLLOUT_PAUSED:
        return planned
    if rollout.arm:
        return _compared(rollout, objects, replicas) if rollout.on_trial else planned
    if rollout.on_trial:
        message = f"From revision {rollout.stable} to {rollout.revision}: {rollout.message}"
        return Progress(rollout.reason, message)
    return planned


def _vetoed(
    rollout: Rollout, objects: Objects, *, planned: Progress, revision: str, replicas: int
) -> Progress:
    if revision == rollout.revision and objects.has_workload(rollout.stable):
        # Nothing is carried out of the stable one, whose spec is not known any more.
        ready = sum(pod.ready for pod in objects.leaders if pod.revision == rollout.stable)
        return Progress(
            Reason.ROLLED_BACK,
            f"revision {revision} gets no pod, since it was rolled back; {ready} of {replicas} "
            f"replicas of revision {rollout.stable} are ready.",
        )
    if revision == rollout.stable and planned.reason is Reason.UP_TO_DATE:
        return Progress(Reason.ROLLED_BACK, f"every replica is of revision {rollout.stable} again.")
    return planned


def _compared(rollout: Rollout, objects: Objects, replicas: int) -> Progress:
    """Where the one replica is that is compared with the others."""
    if rollout.draft and _is_missed(rollout, objects, replicas):
        return Progress(
            Reason.CANARY_STARTING,
            f"One replica of revision {rollout.stable} is being replaced by one of revision "
            f"{rollout.revision} {rollout.has}, to be compared: {rollout.message}",
        )
    return Progress(
        # Nobody waits for a draft on trial, whatever it waits for itself.
        Reason.COMPARING if rollout.draft else rollout.reason,
        f"Every replica is of revision {rollout.stable}, but for one of {rollout.revision} "
        f"{rollout.has}: {rollout.message}",
    )


def _is_missed(rollout: Rollout, objects: Objects, replicas: int) -> bool:
    """Whether it starts in the place of a replica, and is the only one that is missing.

    One that serves or has been compared, or whose group was restarted, is missing for another
    reason.
    """
    replaced = rollout.watch is not None and rollout.watch.replaced
    if rollout.served or rollout.compared is not None or replaced:
        return False
    asked = sum(each.replicas for each in objects.workloads if each.revision == rollout.stable)
    serving = sum(pod.ready for pod in objects.leaders if pod.revision == rollout.stable)
    starts = rollout.reason is Reason.CANARY_STARTING
    return starts and asked == replicas - 1 and serving >= asked


def _blocked(revision: str, found: Mapping[str, RevisionFleet], bounds: ReplicaBounds) -> str:
    """Which groups keep their places, so that none is left for the wanted revision, in words."""
    fleets = [each.fleet for each in found.values()]
    in_the_way = [each.places[at] for each in found.values() for at in each.fleet.in_the_way]
    if not in_the_way or not is_stuck(revision, fleets, bounds):
        return ""
    (workload, _), leader = in_the_way[0].group, in_the_way[0].group.leader
    more = counted(len(in_the_way) - 1, "more group is", "more groups are")
    others = f" {more} in the way as well." if len(in_the_way) > 1 else ""
    serving = sum(fleet.serving for fleet in fleets)
    return (
        f"Group {leader} does not serve, and cannot be removed alone: LeaderWorkerSet {workload} "
        "has several groups, as an earlier Fathom made it, and gives up the last ones first, which "
        f"serve.{others} Nothing moves until you decide. Make it serve (`kubectl delete pod "
        f"{leader}` has the group made once more), or set rollout.maxUnavailable to "
        f"{bounds.replicas - serving + 1}: then one that serves is removed."
    )
