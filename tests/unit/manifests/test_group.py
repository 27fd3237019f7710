"""What the pods of one replica over several nodes have, and how their domain is owned."""

import json
from typing import Any, cast

import pytest

from fathom.cluster.kinds import ALL
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.plugin import PluginBundle
from fathom.manifests.workloads import compute_domain, leader_worker_set, pod_disruption_budget
from manifest_samples import resource
from support.validated import warnings

BUNDLE = PluginBundle({"fathom_vllm/__init__.py": ""}, "aaaa")
TWO_TRAYS = {"engine.tensorParallelSize": 8}


def templates(changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pod specs of leader and worker."""
    sd = resource({**TWO_TRAYS, **changes})
    built = leader_worker_set(sd, name="kimi-abc00", revision="abc", replicas=1, bundle=BUNDLE)
    group = cast("dict[str, Any]", built["spec"])["leaderWorkerTemplate"]
    return group["leaderTemplate"], group["workerTemplate"]


def vllm(template: dict[str, Any]) -> dict[str, Any]:
    (found,) = template["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize(
    ("changes", "size", "gpus"),
    [
        ({}, 2, "4"),
        ({"engine.tensorParallelSize": 16}, 4, "4"),
        ({"engine.tensorParallelSize": 4, "engine.pipelineParallelSize": 2}, 2, "4"),
        ({"engine.tensorParallelSize": 16, "nodePool.accelerator": "H100"}, 2, "8"),
    ],
)
def test_a_group_has_a_pod_for_each_node(changes: dict[str, Any], size: int, gpus: str) -> None:
    sd = resource({**TWO_TRAYS, **changes})
    made = leader_worker_set(sd, name="kimi-a00", revision="a", replicas=1, bundle=BUNDLE)
    built = cast("dict[str, Any]", made)
    assert built["spec"]["leaderWorkerTemplate"]["size"] == size
    leader, worker = templates(changes)
    for template in (leader, worker):
        assert vllm(template)["resources"]["limits"]["nvidia.com/gpu"] == gpus
        assert ["--nnodes", str(size)] == _after(template, "--nnodes")


def test_ranks_meet_at_the_leader_and_read_the_same_arguments() -> None:
    leader, worker = templates({})
    assert _after(leader, "--node-rank") == ["--node-rank", "0"]
    assert _after(worker, "--node-rank") == ["--node-rank", "$(LWS_WORKER_INDEX)"]
    assert _after(worker, "--master-addr") == ["--master-addr", "$(LWS_LEADER_ADDRESS)"]
    assert set(vllm(worker)["args"]) - set(vllm(leader)["args"]) == {
        "--headless",
        "$(LWS_WORKER_INDEX)",
    }
    assert _after(worker, "--scheduler-cls") == _after(leader, "--scheduler-cls")


def test_only_the_leader_serves_and_reads_the_depth() -> None:
    leader, worker = templates({})
    assert leader["metadata"]["labels"]["fathom.dev/role"] == "leader"
    assert worker["metadata"]["labels"]["fathom.dev/role"] == "worker"
    assert "readinessProbe" not in vllm(worker)
    assert "ports" not in vllm(worker)
    assert "httpGet" not in json.dumps(worker)
    mounted = [volume["name"] for volume in worker["spec"]["volumes"]]
    assert mounted == ["shm", "fathom-plugin"]
    variables = {each["name"] for each in vllm(worker)["env"]}
    assert "PYTHONPATH" in variables
    assert not {name for name in variables if name.startswith("FATHOM_")}


def test_what_a_pod_template_says_of_serving_is_for_the_leader() -> None:
    probe = {"httpGet": {"path": "/ping"}}
    bye = {"preStop": {"exec": {"command": ["sleep", "9"]}}, "postStart": probe}
    own = {"name": "vllm", "livenessProbe": probe, "lifecycle": bye}
    own["securityContext"] = {"runAsUser": 0}
    leader, worker = templates({"podTemplate": {"spec": {"containers": [own]}}})
    assert vllm(leader)["livenessProbe"]["httpGet"]["path"] == "/ping"
    assert "httpGet" not in vllm(worker)["livenessProbe"]
    assert vllm(leader)["lifecycle"] == bye
    assert vllm(worker)["lifecycle"]["postStart"] == probe
    assert vllm(worker)["lifecycle"]["preStop"]["exec"]["command"][0] == "python3"
    assert vllm(worker)["securityContext"]["runAsUser"] == 0


def test_a_container_beside_the_engine_is_the_same_in_workers() -> None:
    side = {"name": "side", "image": "side:1", "ports": [{"containerPort": 9000}]}
    leader, worker = templates({"podTemplate": {"spec": {"containers": [side]}}})

    for template in (leader, worker):
        assert side in template["spec"]["containers"]


ROUTERS = {"llm-d.ai/role": "decode", "team": "search"}


@pytest.mark.parametrize(
    ("labels", "left"),
    [
        ({"llm-d.ai/role": "worker"}, {"llm-d.ai/role": "worker", "team": "search"}),
        ({"llm-d.ai/role": None}, {"team": "search"}),
        ({"$patch": "delete"}, {}),
        ({"$patch": "replace", "a": "b"}, {"a": "b"}),
    ],
    ids=str,
)
def test_labels_of_leaders_alone(labels: dict[str, Any], left: dict[str, str]) -> None:
    pods = {"metadata": {"labels": ROUTERS}}
    leader, worker = templates(
        {"podTemplate": pods, "workerTemplate": {"metadata": {"labels": labels}}}
    )
    ours = {"fathom.dev/name": "kimi", "fathom.dev/revision": "abc"}

    assert leader["metadata"]["labels"] == {**ours, **ROUTERS, "fathom.dev/role": "leader"}
    assert worker["metadata"]["labels"] == {**ours, **left, "fathom.dev/role": "worker"}


def test_what_is_merged_over_workers_leaves_the_leader_as_it_is() -> None:
    over = {"spec": {"priorityClassName": "low", "containers": [{"name": "vllm", "tty": True}]}}
    leader, worker = templates({"workerTemplate": over})

    assert leader == templates({})[0]
    assert worker["spec"]["priorityClassName"] == "low"
    assert vllm(worker)["tty"] is True


def test_a_path_for_python_of_workers_has_ours_before_it() -> None:
    mine = {"name": "PYTHONPATH", "value": "/mine"}
    _, worker = templates(
        {"workerTemplate": {"spec": {"containers": [{"name": "vllm", "env": [mine]}]}}}
    )
    (found,) = (each for each in vllm(worker)["env"] if each["name"] == "PYTHONPATH")

    assert found["value"] == "/etc/fathom/plugin:/mine"


@pytest.mark.parametrize(
    ("all_pods", "workers", "named"),
    [(True, None, (False, False)), (None, True, (True, False)), (True, False, (False, True))],
)
def test_the_interface_is_named_in_pods_that_have_their_own_network(
    *, all_pods: bool | None, workers: bool | None, named: tuple[bool, bool]
) -> None:
    found = templates(
        {
            "podTemplate": {"spec": {"hostNetwork": all_pods}} if all_pods is not None else {},
            "workerTemplate": {"spec": {"hostNetwork": workers}} if workers is not None else {},
        }
    )
    variables = [{each["name"] for each in vllm(template)["env"]} for template in found]

    assert tuple("NCCL_SOCKET_IFNAME" in each for each in variables) == named


def test_what_pod_template_leaves_to_the_user_is_said_once() -> None:
    host = {"podTemplate": {"spec": {"hostIPC": True}}}
    workers = {"workerTemplate": {"spec": {"hostPID": True}}}
    doubts = [each.field for each in warnings(resource({**TWO_TRAYS, **host, **workers}))]

    assert doubts == ["spec.podTemplate.spec.hostIPC", "spec.workerTemplate.spec.hostPID"]


def test_where_there_are_no_workers_that_is_said() -> None:
    (doubt,) = warnings(resource({"workerTemplate": {"spec": {"priorityClassName": "low"}}}))

    assert str(doubt) == (
        "spec.workerTemplate: a replica of this spec is one pod, which has no workers: leave it "
        "out."
    )


def test_both_halves_of_the_claim_or_none() -> None:
    for template in templates({}):
        (claim,) = template["spec"]["resourceClaims"]
        assert claim["resourceClaimTemplateName"] == "kimi-channel"
        assert vllm(template)["resources"]["claims"] == [{"name": claim["name"]}]
    for policy in ("External", "Never"):
        for template in templates({"nodePool.computeDomain": policy}):
            assert "resourceClaims" not in template["spec"]
            assert "claims" not in vllm(template)["resources"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, "nvidia.com/gpu.clique"),
        (
            {"nodePool.topologyKey": "cloud.google.com/gce-topology-subblock"},
            "cloud.google.com/gce-topology-subblock",
        ),
        ({"nodePool.accelerator": "H100", "engine.tensorParallelSize": 16}, None),
    ],
)
def test_a_group_stays_in_one_domain(changes: dict[str, Any], key: str | None) -> None:
    for template in templates(changes):
        affinity = template["spec"].get("affinity")
        if key is None:
            assert affinity is None
            continue
        (term,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == key
        assert term["matchLabelKeys"] == ["leaderworkerset.sigs.k8s.io/group-key"]
        # Not by that key as well: no pod would be admitted.
        assert "group-key" not in json.dumps(term["labelSelector"])


def test_the_pods_own_the_domain_beside_its_resource() -> None:
    pod = ObservedPod.model_validate({"metadata": {"name": "kimi-abc-0", "uid": "p"}})
    built = cast("dict[str, Any]", compute_domain(resource(TWO_TRAYS, uid="u"), [pod]))
    owners = built["metadata"]["ownerReferences"]
    assert [(each["kind"], each["uid"]) for each in owners] == [
        ("SpeculativeDeployment", "u"),
        ("Pod", "p"),
    ]
    assert [each.get("controller", False) for each in owners] == [True, False]


def test_a_budget_counts_workers_too() -> None:
    built = cast("dict[str, Any]", pod_disruption_budget(resource(TWO_TRAYS), ALL))
    assert built["spec"]["selector"] == {
        "matchLabels": {"fathom.dev/name": "kimi"},
        # Not what fetches weights: with a Job's pod among them no pod could be evicted.
        "matchExpressions": [
            {"key": "fathom.dev/role", "operator": "In", "values": ["leader", "worker"]}
        ],
    }


def _after(template: dict[str, Any], flag: str) -> list[str]:
    arguments = vllm(template)["args"]
    at = arguments.index(flag)
    return list(arguments[at : at + 2])
