"""What becomes of each Deployment and ConfigMap, from what is there."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET
from fathom.cluster.manifest import Meta, ObservedCondition
from fathom.cluster.observed import (
    ObservedConfigMap,
    ObservedDeployment,
    ObservedLeaderWorkerSet,
    ObservedWorkload,
)
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects
from fathom.rollout.fleets import fleets_of
from fathom.rollout.plan import Plan, Rendering, Template, first_workload, plan_of
from manifest_samples import resource

OURS = Rendering(pods="0urs", plugin="kimi-plugin-a", depth="kimi-depth")


def deployment(revision: str, replicas: int, **annotations: str) -> ObservedDeployment:
    stamps = {
        names.ANNOTATION_RENDERED_BY: annotations.get("by", "0.1.0 0urs"),
        names.ANNOTATION_PLUGIN: annotations.get("plugin", "kimi-plugin-a"),
    }
    return ObservedDeployment.model_validate(
        {
            "metadata": {
                "name": f"kimi-{revision}",
                "labels": {names.LABEL_REVISION: revision},
                "annotations": stamps,
            },
            "spec": {"replicas": replicas},
        }
    )


def pod(
    name: str, revision: str, *, ready: bool = True, leaving: bool = False, plugin: str = ""
) -> ObservedPod:
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {names.LABEL_REVISION: revision, names.LABEL_ROLE: names.ROLE_LEADER},
    }
    if leaving:
        metadata["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    return ObservedPod.model_validate(
        {
            "metadata": metadata,
            "spec": {"volumes": [{"configMap": {"name": plugin}}] if plugin else []},
            "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
        }
    )


def group(
    revision: str,
    index: int = 0,
    *,
    of: str = "",
    ready: bool = True,
    leader: bool = True,
    leaving: bool = False,
    lost: bool = False,
) -> list[ObservedPod]:
    """The pods of one group; without its leader, a worker that is left of it."""
    roles = [names.ROLE_LEADER] if leader else []
    name = of or f"kimi-{revision}"
    gone = "1970-01-01T00:00:00Z" if lost else "2027-01-15T08:00:00Z"
    return [
        ObservedPod.model_validate(
            {
                "metadata": {
                    "name": f"{name}-{index}-{role}",
                    "labels": {
                        names.LABEL_REVISION: revision,
                        names.LABEL_ROLE: role,
                        "leaderworkerset.sigs.k8s.io/name": name,
                        "leaderworkerset.sigs.k8s.io/group-index": str(index),
                    },
                    **({"deletionTimestamp": gone} if leaving or lost else {}),
                },
                "status": {
                    "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]
                },
            }
        )
        for role in (*roles, names.ROLE_WORKER)
    ]


def leader_worker_set(
    revision: str, replicas: int, name: str = "", **annotations: str
) -> ObservedLeaderWorkerSet:
    stamps = {
        names.ANNOTATION_RENDERED_BY: annotations.get("rendered", "0.1.0 0urs"),
        names.ANNOTATION_PLUGIN: "kimi-plugin-a",
    }
    metadata = {
        "name": name or f"kimi-{revision}",
        "labels": {names.LABEL_REVISION: revision},
        "annotations": stamps,
    }
    return ObservedLeaderWorkerSet.model_validate(
        {"metadata": metadata, "spec": {"replicas": replicas}}
    )


def set_of_one(
    revision: str, number: int, *, asked: int = 1, pods: bool = True, **how: Any
) -> tuple[ObservedWorkload | ObservedPod, ...]:
    """A LeaderWorkerSet of one replica, and its pods."""
    name = names.group_set("kimi", revision, number)
    made = group(revision, of=name, **how) if pods else ()
    return (leader_worker_set(revision, asked, name), *made)


def config_map(name: str, component: str) -> ObservedConfigMap:
    labels = {names.LABEL_COMPONENT: component}
    return ObservedConfigMap.model_validate({"metadata": {"name": name, "labels": labels}})


NOW_S = 1000.0


def objects_of(*found: ObservedWorkload | ObservedPod | ObservedConfigMap) -> Objects:
    return Objects(
        read_at_s=NOW_S,
        resource={},
        metadata=Meta(name="kimi", namespace="llm"),
        status=None,
        workloads=tuple(each for each in found if isinstance(each, ObservedWorkload)),
        pods=tuple(each for each in found if isinstance(each, ObservedPod)),
        config_maps=tuple(each for each in found if isinstance(each, ObservedConfigMap)),
        depth=None,
        tuning={},
        live={},
    )


def plan(
    *found: ObservedWorkload | ObservedPod | ObservedConfigMap,
    revision: str = "new",
    changes: Mapping[str, Any] | None = None,
    **more: Any,
) -> Plan:
    sd = resource({"replicas": 2, "rollout.maxSurge": 0, **(changes or {})})
    return plan_of(objects_of(*found), sd, revision, OURS, **more)


def steps(found: Plan) -> list[tuple[str, int, Template]]:
    return [(step.name, step.replicas, step.template) for step in found.workloads]


def test_a_first_revision_is_rendered() -> None:
    found = plan()
    assert steps(found) == [("kimi-new", 2, Template.RENDER)]
    assert found.progress.reason is Reason.STARTING
    assert found.progress.moving
    assert found.progress.message == (
        "0 of 2 replicas of revision new are ready; the engines are starting."
    )


@pytest.mark.parametrize("revision", ["a-lesser", "new", "z-greater"])
def test_the_first_workload_of_a_revision_is_its_own(revision: str) -> None:
    objects = objects_of(deployment("other", 2), deployment(revision, 1))
    assert first_workload(objects, resource(), revision) == (DEPLOYMENT, f"kimi-{revision}")


def test_a_revision_without_a_workload_is_named_by_the_one_it_will_have() -> None:
    objects = objects_of(deployment("other", 2))
    assert first_workload(objects, resource(), "new") == (DEPLOYMENT, "kimi-new")


def test_scaled_to_zero_nothing_is_missing() -> None:
    found = plan(changes={"replicas": 0})
    assert found.progress.reason is Reason.UP_TO_DATE
    assert not found.progress.moving


@pytest.mark.parametrize("other", ["a-lesser", "z-greater"])
def test_revisions_are_told_apart_whatever_they_are_called(other: str) -> None:
    theirs = (deployment(other, 2), pod("a", other), pod("b", other))
    found = plan(*theirs, deployment("new", 1), pod("c", "new"))
    assert found.progress.message == (
        "1 of 2 replicas of revision new are ready; 2 of other revisions are left."
    )
    assert found.progress.moving


@pytest.mark.parametrize("by", ["0.1.0 0urs", "0.2.0 0urs"])
def test_what_is_rendered_alike_is_rendered_again_to_repair_drift(by: str) -> None:
    assert steps(plan(deployment("new", 2, by=by))) == [("kimi-new", 2, Template.RENDER)]


@pytest.mark.parametrize("by", ["0.1.0 theirs", "0.1.0", "0.1.0 ", "", "0.1.0 0urs more"])
def test_what_another_build_rendered_is_kept(by: str) -> None:
    assert steps(plan(deployment("new", 2, by=by))) == [("kimi-new", 2, Template.KEEP)]


def test_what_is_not_to_be_rendered_is_kept() -> None:
    found = objects_of(deployment("new", 2, by="0.1.0"))
    kept = plan_of(found, resource({"replicas": 2}), "new", replace(OURS, pods=""))
    assert steps(kept) == [("kimi-new", 2, Template.KEEP)]


@pytest.mark.parametrize(("plugin", "mounted"), [("kimi-plugin-a", True), ("kimi-plugin-b", False)])
def test_what_is_kept_may_mount_the_plugin_of_this_build(plugin: str, *, mounted: bool) -> None:
    assert plan(deployment("new", 2, by="0.1.0", plugin=plugin)).mounts_plugin is mounted


@pytest.mark.parametrize("other", ["a-lesser", "z-greater"])
def test_nothing_makes_room_for_what_may_not_start_yet(other: str) -> None:
    theirs = (deployment(other, 2), pod("a", other), pod("b", other))
    assert steps(plan(*theirs, held=True)) == [(f"kimi-{other}", 2, Template.KEEP)]
    # Nor where its workload stands without a pod.
    empty = plan(*theirs, deployment("new", 0), held=True)
    assert {step.name: step.replicas for step in empty.workloads} == {
        f"kimi-{other}": 2,
        "kimi-new": 0,
    }


def test_an_old_revision_is_kept_while_it_shrinks() -> None:
    serving = (pod("a", "old"), pod("b", "old"))
    found = plan(deployment("old", 2), deployment("new", 0), *serving)
    # Nothing of the new one yet: no GPU is free for it.
    assert steps(found) == [("kimi-new", 0, Template.RENDER), ("kimi-old", 1, Template.KEEP)]
    assert found.progress.reason is Reason.ROLLING_OUT


@pytest.mark.parametrize(
    ("replicas", "theirs"), [(2, 2), (1, 1), (5, 2)], ids=["as before", "fewer", "more"]
)
def test_nothing_makes_room_for_a_workload_that_is_not_there(replicas: int, theirs: int) -> None:
    """It may be refused. What a change of replicas takes goes at once; what it adds is the new."""
    serving = (pod("a", "old"), pod("b", "old"))
    found = plan(deployment("old", 2), *serving, changes={"replicas": replicas})
    assert steps(found) == [
        ("kimi-new", max(0, replicas - 2), Template.RENDER),
        ("kimi-old", theirs, Template.KEEP),
    ]


@pytest.mark.parametrize("most_new", [1, None])
def test_nor_does_a_canary_that_is_superseded(most_new: int | None) -> None:
    """It may be all that serves."""
    canary = (deployment("old", 0), deployment("canary", 2), pod("a", "canary"), pod("b", "canary"))
    found = plan(*canary, stable="old", most_new=most_new)
    assert steps(found) == [
        ("kimi-canary", 2, Template.KEEP),
        ("kimi-new", 0, Template.RENDER),
        ("kimi-old", 0, Template.KEEP),
    ]


def unplaced(name: str, revision: str) -> ObservedPod:
    """A pod for which no node has room."""
    return without_node(pod(name, revision, ready=False))


def without_node(found: ObservedPod) -> ObservedPod:
    no_node = ObservedCondition(type="PodScheduled", status="False")
    conditions = (*found.status.conditions, no_node)
    return found.model_copy(
        update={"status": found.status.model_copy(update={"conditions": conditions})}
    )


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_where_no_node_has_room_a_replica_goes_before_the_canary_asks_again(replicas: int) -> None:
    serving = tuple(pod(f"old-{each}", "old") for each in range(replicas))
    surge = {"replicas": replicas, "rollout.maxSurge": 1}

    def asked(*found: ObservedWorkload | ObservedPod, no_room: bool) -> list[int]:
        planned = plan(*found, changes=surge, most_new=1, no_room=no_room)
        return [step.replicas for step in planned.workloads]

    asking = (deployment("new", 1), unplaced("new-0", "new"), deployment("old", replicas))
    assert asked(*asking, *serving, no_room=False) == [1, replicas]
    assert asked(*asking, *serving, no_room=True) == [0, replicas - 1]
    drains = (deployment("new", 0), deployment("old", replicas - 1), *serving[1:])
    leaving = pod("old-0", "old", leaving=True)
    assert asked(*drains, leaving, no_room=True) == [0, replicas - 1]
    assert asked(*drains, no_room=True) == [1, replicas - 1]
    # Its pod finds the node a moment later, or somebody else took it: it goes on asking.
    waits = (deployment("new", 1), deployment("old", replicas - 1), *serving[1:])
    assert asked(*waits, no_room=True) == [1, replicas - 1]
    assert asked(*waits, unplaced("new-0", "new"), no_room=True) == [1, replicas - 1]


def test_without_replicas_a_new_revision_has_no_workload() -> None:
    """It would take the place of the one before, and has shown nothing."""
    found = plan(deployment("old", 0), changes={"replicas": 0})
    assert steps(found) == [("kimi-old", 0, Template.KEEP)]
    assert found.emptied == ()


def test_an_emptied_revision_goes_once_the_new_one_serves() -> None:
    serving = (deployment("new", 2), pod("c", "new"), pod("d", "new"))
    done = plan(deployment("old", 0), *serving)
    assert done.emptied == ((DEPLOYMENT, "kimi-old"),)
    assert done.progress.reason is Reason.UP_TO_DATE
    still_draining = pod("b", "old", leaving=True)
    assert plan(deployment("old", 0), still_draining, *serving).emptied == ()
    not_yet = (deployment("new", 2), pod("c", "new"), pod("d", "new", ready=False))
    assert plan(deployment("old", 0), *not_yet).emptied == ()


@pytest.mark.parametrize("replicas", [0, 1])
def test_while_it_is_on_trial_nothing_is_deleted_for_it(replicas: int) -> None:
    """It is all that is asked for, and has yet to show whether it can be."""
    canary = (deployment("new", replicas), pod("c", "new"))
    found = plan(deployment("old", 0), *canary, changes={"replicas": replicas}, most_new=1)
    assert found.emptied == ()


def test_paused_starts_no_new_revision() -> None:
    found = plan(
        deployment("old", 2), pod("a", "old"), pod("b", "old"), changes={"rollout.paused": True}
    )
    assert steps(found) == [("kimi-old", 2, Template.KEEP)]
    assert found.progress.reason is Reason.ROLLOUT_PAUSED


def test_a_plugin_stays_as_long_as_a_pod_mounts_it() -> None:
    old = config_map("kimi-plugin-old", "plugin")
    assert plan(old).unused_config_maps == ("kimi-plugin-old",)
    leaving = pod("a", "old", leaving=True, plugin="kimi-plugin-old")
    assert plan(old, leaving).unused_config_maps == ()
    assert plan(old, deployment("old", 1, plugin="kimi-plugin-old")).unused_config_maps == ()


def test_what_no_pod_mounts_and_nobody_rendered_is_left_alone() -> None:
    found = plan(
        config_map("kimi-tuning", "tuning"),
        config_map("somebody's", ""),
        config_map("kimi-depth", "depth"),
        config_map("kimi-plugin-a", "plugin"),
    )
    assert found.unused_config_maps == ()


def test_workers_and_finished_pods_do_not_count() -> None:
    finished = ObservedPod.model_validate(
        pod("a", "new").model_dump(by_alias=True)
        | {"status": {"phase": "Failed", "reason": "Evicted"}}
    )
    found = plan(deployment("new", 2), finished, pod("b", "new"))
    assert found.progress.reason is Reason.SCALING
    assert found.progress.message == (
        "1 of 2 replicas of revision new are ready; more are starting."
    )


def test_surplus_pods_that_drain_are_progress() -> None:
    found = plan(
        deployment("new", 2),
        pod("a", "new"),
        pod("b", "new"),
        pod("c", "new", leaving=True),
    )
    assert found.progress.reason is Reason.SCALING
    assert found.progress.message == "1 surplus replica is draining."


def test_surplus_pods_that_still_serve_are_no_replicas_that_start() -> None:
    found = plan(deployment("new", 3), *(pod(name, "new") for name in "abc"))
    assert found.progress.message == "1 surplus replica is draining."


TWO_TRAYS = {"engine.tensorParallelSize": 8}


def asked(found: Plan) -> dict[str, int]:
    return {step.name: step.replicas for step in found.workloads}


def test_over_several_nodes_each_replica_is_a_leader_worker_set() -> None:
    found = plan(changes=TWO_TRAYS)
    assert [step.kind for step in found.workloads] == [LEADER_WORKER_SET] * 2
    assert steps(found) == [
        ("kimi-new00", 1, Template.RENDER),
        ("kimi-new01", 1, Template.RENDER),
    ]


def test_without_replicas_one_set_says_what_they_would_be() -> None:
    assert asked(plan(changes={**TWO_TRAYS, "replicas": 0})) == {"kimi-new00": 0}


def test_a_revision_of_the_other_kind_gives_way_as_any_other() -> None:
    serving = [pod("a", "old"), pod("b", "old")]
    found = plan(deployment("old", 2), *serving, changes=TWO_TRAYS)
    assert [(step.kind, step.replicas) for step in found.workloads] == [
        (LEADER_WORKER_SET, 0),
        (DEPLOYMENT, 2),
    ]
    room = plan(deployment("old", 1), serving[0], changes=TWO_TRAYS)
    assert [(step.kind, step.replicas) for step in room.workloads] == [
        (LEADER_WORKER_SET, 1),
        (DEPLOYMENT, 1),
    ]


def test_the_set_that_does_not_serve_makes_room() -> None:
    fleet = [
        *set_of_one("old", 0, ready=False),
        *set_of_one("old", 1),
        *set_of_one("old", 2),
        *set_of_one("new", 0, asked=0, pods=False),
    ]
    found = plan(*fleet, changes={**TWO_TRAYS, "replicas": 3}, most_new=1)
    assert asked(found) == {"kimi-new00": 0, "kimi-old00": 0, "kimi-old01": 1, "kimi-old02": 1}


def test_the_set_that_does_not_serve_goes_with_fewer_replicas() -> None:
    fleet = [*set_of_one("new", 0, ready=False), *set_of_one("new", 1), *set_of_one("new", 2)]
    found = plan(*fleet, changes=TWO_TRAYS)
    assert asked(found) == {"kimi-new00": 0, "kimi-new01": 1, "kimi-new02": 1}


def test_a_further_set_is_a_copy_of_those_that_run() -> None:
    """Whoever rendered them: to render it might make it another."""
    theirs = leader_worker_set("new", 1, "kimi-new00", rendered="0.2.0 theirs")
    found = plan(theirs, *group("new", of="kimi-new00"), changes=TWO_TRAYS)
    assert steps(found) == [
        ("kimi-new00", 1, Template.KEEP),
        ("kimi-new01", 1, Template.COPY),
    ]
    assert found.workloads[1].copied == "kimi-new00"


def test_a_set_that_is_empty_is_raised_before_another_is_made() -> None:
    fleet = [*set_of_one("new", 0, asked=0, pods=False), *set_of_one("new", 1)]
    assert asked(plan(*fleet, changes=TWO_TRAYS)) == {"kimi-new00": 1, "kimi-new01": 1}


def test_a_set_that_drains_is_not_waited_for() -> None:
    fleet = [*set_of_one("new", 0, asked=0, leaving=True), *set_of_one("new", 1)]
    assert asked(plan(*fleet, changes=TWO_TRAYS)) == {
        "kimi-new00": 0,
        "kimi-new01": 1,
        "kimi-new02": 1,
    }


def test_empty_sets_go_but_for_the_last_of_their_revision() -> None:
    empty = [set_of_one("new", number, asked=0, pods=False) for number in range(3)]
    zero = {**TWO_TRAYS, "replicas": 0}
    found = plan(*chain.from_iterable(empty), changes=zero)
    assert asked(found) == {"kimi-new00": 0}
    assert [name for _, name in found.emptied] == ["kimi-new01", "kimi-new02"]


def test_a_name_that_pods_still_bear_is_not_taken_again() -> None:
    left = group("new", of="kimi-new00", leaving=True)
    assert asked(plan(*left, changes=TWO_TRAYS)) == {"kimi-new01": 1, "kimi-new02": 1}


def test_a_replica_whose_node_died_is_replaced_and_its_set_stays_until_its_pods_are_gone() -> None:
    dead = set_of_one("new", 0, ready=False, lost=True)
    fleet = [*dead, *set_of_one("new", 1)]
    found = plan(*fleet, changes=TWO_TRAYS)
    assert asked(found) == {"kimi-new00": 0, "kimi-new01": 1, "kimi-new02": 1}
    replaced = [*set_of_one("new", 0, asked=0, ready=False, lost=True), *set_of_one("new", 1)]
    replaced += set_of_one("new", 2)
    found = plan(*replaced, changes=TWO_TRAYS)
    assert asked(found) == {"kimi-new00": 0, "kimi-new01": 1, "kimi-new02": 1}
    assert found.emptied == ()
    gone = [*set_of_one("new", 0, asked=0, pods=False), *replaced[len(dead) :]]
    assert plan(*gone, changes=TWO_TRAYS).emptied == ((LEADER_WORKER_SET, "kimi-new00"),)


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_of_a_set_with_several_groups_too_the_dead_one_is_replaced(dead: int) -> None:
    groups = [group("new", each, ready=each != dead, lost=each == dead) for each in range(3)]
    several = leader_worker_set("new", 3)
    found = plan(several, *chain.from_iterable(groups), changes={**TWO_TRAYS, "replicas": 3})
    # What is below the last that counts comes back if its node does.
    assert asked(found) == {"kimi-new": 2 if dead == 2 else 3, "kimi-new00": 1}


def test_a_set_with_several_groups_stays_and_does_not_grow() -> None:
    serving = chain.from_iterable(group("new", each) for each in range(2))
    several = leader_worker_set("new", 2)
    found = plan(several, *serving, changes={**TWO_TRAYS, "replicas": 3})
    assert steps(found) == [("kimi-new", 2, Template.RENDER), ("kimi-new00", 1, Template.COPY)]


def test_what_serves_stays_whatever_kind_of_set_it_is_in() -> None:
    """As a Fathom from before that came back for a while leaves it."""
    several = [leader_worker_set("new", 2), *group("new", 0), *group("new", 1, ready=False)]
    found = plan(*several, *set_of_one("new", 0, ready=False), *set_of_one("new", 1))
    assert asked(found) == {"kimi-new": 1, "kimi-new00": 0, "kimi-new01": 1}


def test_where_no_node_has_room_the_set_that_does_not_serve_gives_its_place() -> None:
    old = [*set_of_one("old", 0, ready=False), *set_of_one("old", 1), *set_of_one("old", 2)]
    canary, *pods = set_of_one("new", 0, ready=False)
    waits = [without_node(each) for each in pods if isinstance(each, ObservedPod)]
    changes = {**TWO_TRAYS, "replicas": 3, "rollout.maxSurge": 1}
    taking = plan(canary, *waits, *old, changes=changes, most_new=1, no_room=True)
    others = {"kimi-old00": 0, "kimi-old01": 1, "kimi-old02": 1}
    assert asked(taking) == {"kimi-new00": 0, **others}
    left = [leader_worker_set("old", 0, "kimi-old00"), *old[3:]]
    taken = plan(*set_of_one("new", 0, asked=0, pods=False), *left, changes=changes, no_room=True)
    assert asked(taken) == {"kimi-new00": 1, "kimi-old01": 1, "kimi-old02": 1}


def blocked(*, broken: Collection[int] = (0,), replicas: int = 3, **more: Any) -> Plan:
    """Some groups of a set that an earlier Fathom made do not serve."""
    groups = (group("old", each, ready=each not in broken) for each in range(3))
    several = leader_worker_set("old", 3)
    canary = set_of_one("new", 0, asked=0, pods=False)
    changes = {**TWO_TRAYS, "replicas": replicas, **more}
    return plan(several, *chain.from_iterable(groups), *canary, changes=changes, most_new=1)


def test_a_group_that_blocks_is_named_with_what_to_do() -> None:
    found = blocked()
    assert asked(found) == {"kimi-new00": 0, "kimi-old": 3}
    assert found.progress.reason is Reason.ROLLOUT_BLOCKED
    assert not found.progress.moving
    assert found.progress.message == (
        "0 of 3 replicas of revision new are ready; 3 of other revisions are left. Group "
        "kimi-old-0 does not serve, and cannot be removed alone: LeaderWorkerSet kimi-old has "
        "several groups, as an earlier Fathom made it, and gives up the last ones first, which "
        "serve. Nothing moves until you decide. Make it serve (`kubectl delete pod kimi-old-0` "
        "has the group made once more), or set rollout.maxUnavailable to 2: then one that serves "
        "is removed."
    )


def test_of_several_groups_that_block_the_first_is_named() -> None:
    found = blocked(broken=(0, 1))
    assert "Group kimi-old-0 does not serve" in found.progress.message
    assert (
        "which serve. 1 more group is in the way as well. Nothing moves" in found.progress.message
    )
    assert "set rollout.maxUnavailable to 3:" in found.progress.message


def test_what_a_blocked_rollout_is_told_to_do_helps() -> None:
    found = blocked(**{"rollout.maxUnavailable": 2})
    assert asked(found) == {"kimi-new00": 0, "kimi-old": 2}
    assert found.progress.reason is Reason.ROLLING_OUT


def test_a_replica_that_starts_may_yet_make_room() -> None:
    several = chain.from_iterable(group("old", each, ready=each != 0) for each in range(3))
    surged = [leader_worker_set("old", 3), *several, *set_of_one("new", 0, ready=False)]
    bounds = {"replicas": 3, "rollout.maxUnavailable": 0, "rollout.maxSurge": 1}
    found = plan(*surged, changes={**TWO_TRAYS, **bounds})
    assert asked(found) == {"kimi-new00": 1, "kimi-old": 3}
    assert found.progress.reason is Reason.ROLLING_OUT


def test_what_drains_makes_room_whatever_else_is_in_the_way() -> None:
    several = [*group("old", 0, ready=False), *group("old", 1), *group("old", 2, leaving=True)]
    canary = set_of_one("new", 0, asked=0, pods=False)
    changes = {**TWO_TRAYS, "replicas": 3}
    found = plan(leader_worker_set("old", 2), *several, *canary, changes=changes, most_new=1)
    assert found.progress.reason is Reason.ROLLING_OUT


def test_a_group_counts_once_and_until_its_last_pod_is_gone() -> None:
    (found,) = fleets_of(
        objects_of(
            leader_worker_set("new", 2),
            *group("new", 0),
            *group("new", 1),
            # What a restart or a smaller set leaves behind holds a tray.
            *group("new", 2, leader=False, leaving=True),
        )
    )
    assert (found.fleet.serves, found.fleet.held) == ((True, True), 3)


def test_a_group_that_comes_back_holds_no_more_than_its_trays() -> None:
    leaving = group("new", 0, leader=False, leaving=True)
    (back, _) = group("new", 0)
    (found,) = fleets_of(objects_of(leader_worker_set("new", 1), back, *leaving))
    assert found.fleet.held == 1


def test_a_group_that_goes_leaves_its_place_to_no_other_set() -> None:
    """One set has a group too many, and one lacks its group: that is two replicas' worth."""
    fleet = [*set_of_one("new", 0, asked=0), *set_of_one("new", 1, pods=False)]
    (found,) = fleets_of(objects_of(*fleet))
    assert (found.fleet.serves, found.fleet.held) == ((False,), 2)


def test_pods_of_a_set_that_somebody_deleted_hold_their_trays() -> None:
    left = group("new", of="kimi-new07")
    (found,) = fleets_of(objects_of(*set_of_one("new", 0), *left))
    assert (found.fleet.serves, found.fleet.held) == ((True,), 2)
