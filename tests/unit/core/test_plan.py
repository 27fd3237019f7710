"""What becomes of each Deployment and ConfigMap, from what is there."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.core.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET
from fathom.core.cluster.metadata import Meta, ObservedCondition
from fathom.core.cluster.observed import (
    ObservedConfigMap,
    ObservedDeployment,
    ObservedLeaderWorkerSet,
    ObservedWorkload,
)
from fathom.core.cluster.observed_pods import ObservedPod
from fathom.core.cluster.snapshot import Objects
from fathom.core.plan import Plan, Rendering, Template, fleets_of, plan_of
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
    revision: str, index: int, *, leader: bool = True, leaving: bool = False
) -> list[ObservedPod]:
    """The pods of one group; without its leader, a worker that is left of it."""
    roles = [names.ROLE_LEADER] if leader else []
    return [
        ObservedPod.model_validate(
            {
                "metadata": {
                    "name": f"kimi-{revision}-{index}-{role}",
                    "labels": {
                        names.LABEL_REVISION: revision,
                        names.LABEL_ROLE: role,
                        "leaderworkerset.sigs.k8s.io/group-index": str(index),
                    },
                    **({"deletionTimestamp": "2027-01-15T08:00:00Z"} if leaving else {}),
                },
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
        )
        for role in (*roles, names.ROLE_WORKER)
    ]


def leader_worker_set(revision: str, replicas: int) -> ObservedLeaderWorkerSet:
    stamps = {names.ANNOTATION_RENDERED_BY: "0.1.0 0urs", names.ANNOTATION_PLUGIN: "kimi-plugin-a"}
    labels = {names.LABEL_REVISION: revision}
    return ObservedLeaderWorkerSet.model_validate(
        {
            "metadata": {"name": f"kimi-{revision}", "labels": labels, "annotations": stamps},
            "spec": {"replicas": replicas},
        }
    )


def config_map(name: str, component: str) -> ObservedConfigMap:
    labels = {names.LABEL_COMPONENT: component}
    return ObservedConfigMap.model_validate({"metadata": {"name": name, "labels": labels}})


def objects_of(*found: ObservedWorkload | ObservedPod | ObservedConfigMap) -> Objects:
    return Objects(
        read_at_s=0,
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
    spec = resource({"replicas": 2, "rollout.maxSurge": 0, **(changes or {})}).spec
    return plan_of(objects_of(*found), spec, revision, OURS, **more)


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
    spec, found = resource({"replicas": 2}).spec, objects_of(deployment("new", 2, by="0.1.0"))
    kept = plan_of(found, spec, "new", replace(OURS, pods=""))
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
    found = pod(name, revision, ready=False)
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


TWO_TRAYS = {"engine.tensorParallelSize": 8}


def test_over_several_nodes_a_revision_is_a_leader_worker_set() -> None:
    found = plan(changes=TWO_TRAYS)
    assert [step.kind for step in found.workloads] == [LEADER_WORKER_SET]


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


def test_a_group_counts_once_and_until_its_last_pod_is_gone() -> None:
    (fleet,) = fleets_of(
        objects_of(
            leader_worker_set("new", 2),
            *group("new", 0),
            *group("new", 1),
            # What a restart or a smaller set leaves behind holds a tray.
            *group("new", 2, leader=False, leaving=True),
        )
    )
    assert (fleet.pods, fleet.ready, fleet.terminating) == (2, 2, 1)
    assert fleet.ready_indices == {0, 1}


def test_a_group_that_comes_back_holds_no_more_than_its_trays() -> None:
    leaving = group("new", 0, leader=False, leaving=True)
    (back, _) = group("new", 0)
    (fleet,) = fleets_of(objects_of(leader_worker_set("new", 1), back, *leaving))
    assert (fleet.pods, fleet.terminating, fleet.held) == (1, 0, 1)
