"""Why pods roll: real templates, the spec edited between them, and the whole sentence."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fathom.engine.plugin import PluginBundle
from fathom.manifests.workloads import deployment
from fathom.resource import SpeculativeDeployment, parse
from fathom.rollout.revision import revision_of
from fathom.rollout.template_changes import NOTHING_CHANGED, first_change

EXAMPLES = Path(__file__).parents[3] / "examples"
TUNED, STATIC, LOCAL = "kimi-k2.6-gb200", "kimi-k2.6-gb200-static", "local-eagle3.1"
BUNDLE = PluginBundle({"fathom_vllm/__init__.py": ""}, "0123456789ab")
SECRET = {"name": "hf", "key": "token"}
SIDE = {"name": "side", "image": "busybox:1", "args": ["--port", "80"]}

Edit = Callable[[dict[str, Any]], None]


def document(example: str) -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def template(manifest: dict[str, Any], bundle: PluginBundle = BUNDLE) -> dict[str, Any]:
    sd = parse(manifest)
    assert isinstance(sd, SpeculativeDeployment), "\n".join(map(str, sd))
    revision = revision_of(sd)
    rendered: Any = deployment(sd, name="kimi-a", revision=revision, replicas=1, bundle=bundle)
    return rendered["spec"]["template"]  # type: ignore[no-any-return]


def edited(manifest: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """With values at dotted paths below `spec` set; None removes one."""
    result = copy.deepcopy(manifest)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = result["spec"]
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(last)
        else:
            place[last] = value
    return result


def live(rendered: Mapping[str, Any]) -> dict[str, Any]:
    """As an API server gives it back: every default filled in."""
    result = copy.deepcopy(dict(rendered))
    result["metadata"]["creationTimestamp"] = None
    pod = result["spec"]
    pod |= {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "serviceAccount": pod["serviceAccountName"],
        "securityContext": pod.get("securityContext", {}),
    }
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        newest = ":" not in container["image"]
        container.setdefault("imagePullPolicy", "Always" if newest else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("resources", {})
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container:
                container[probe] = {"successThreshold": 1, **container[probe]}
                container[probe]["httpGet"] = {"scheme": "HTTP", **container[probe]["httpGet"]}
        for variable in container.get("env", ()):
            if (field := variable.get("valueFrom", {}).get("fieldRef")) is not None:
                field["apiVersion"] = "v1"
        limits = container["resources"].get("limits", {})
        if limits.get("memory") == "1024Mi":
            limits["memory"] = "1Gi"
    for volume in pod["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["defaultMode"] = 420
    return result


def args(*more: str) -> list[str]:
    return ["--dtype", "float32", "--enforce-eager", "--max-model-len", "1024", *more]


EDITS: list[tuple[str, Mapping[str, Any], Mapping[str, Any], str]] = [
    # The example, what it is before, what becomes of that, the sentence.
    (
        TUNED,
        {},
        {"engine.image": "vllm/vllm-openai:v0.33.0"},
        "image: vllm/vllm-openai:v0.32.0 became vllm/vllm-openai:v0.33.0",
    ),
    (
        TUNED,
        {},
        {"engine.image": "mirror/vllm:v0.32.0", "nodePool.nodeSelector": {"pool": "a"}},
        "image: vllm/vllm-openai:v0.32.0 became mirror/vllm:v0.32.0",
    ),
    (TUNED, {}, {"model.id": "nvidia/Other"}, "args: nvidia/Kimi-K2.6-NVFP4 became nvidia/Other"),
    (TUNED, {}, {"model.trustRemoteCode": False}, "args: --trust-remote-code was removed"),
    (TUNED, {}, {"model.revision": "abc"}, "args: --revision abc was added"),
    (LOCAL, {}, {"engine.args": args("--max-num-seqs", "32")}, "args: --max-num-seqs 16 became 32"),
    (LOCAL, {}, {"engine.args": args("--max_num_seqs=32")}, "args: --max-num-seqs 16 became 32"),
    (LOCAL, {}, {"engine.args": args()}, "args: --max-num-seqs 16 became 1024"),
    (
        LOCAL,
        {"engine.args": args("--kv-cache-dtype", "fp8", "--max-num-seqs", "16")},
        {"engine.args": args("--max-num-seqs", "16")},
        "args: --kv-cache-dtype fp8 was removed",
    ),
    (
        LOCAL,
        {},
        {"engine.args": args("--enable-foo", "--max-num-seqs", "16")},
        "args: --enable-foo was added",
    ),
    (
        LOCAL,
        {"engine.args": args("--api-key", "one")},
        {"engine.args": args("--api-key", "two")},
        "args: --api-key (hidden) changed",
    ),
    (
        STATIC,
        {},
        {"speculation.tokens": 7},
        "args: --speculative-config: num_speculative_tokens 3 became 7",
    ),
    (
        STATIC,
        {},
        {"draft.method": "mtp", "draft.id": None},
        "args: --speculative-config: method eagle3 became mtp",
    ),
    (
        TUNED,
        {},
        {"speculation.maxTokens": 5},
        "args: --speculative-config: num_speculative_tokens 7 became 5",
    ),
    (
        TUNED,
        {},
        {"speculation.tuning.mode": "Static"},
        "args: --speculative-config: num_speculative_tokens 7 became 3",
    ),
    (TUNED, {}, {"engine.drainSeconds": 300}, "args: --shutdown-timeout 120 became 300"),
    (
        STATIC,
        {"engine.args": ["--enable-foo", "--max-num-seqs=8"]},
        {"engine.args": ["--max_num_seqs", "8", "--enable-foo"]},
        "args: only order or spelling changed",
    ),
    (
        TUNED,
        {"podTemplate": {"spec": {"containers": [{"name": "vllm", "command": ["python3"]}]}}},
        {"podTemplate": None},
        "command: python3 became vllm serve",
    ),
    (
        TUNED,
        {},
        {"engine.env": [{"name": "A", "value": "1"}], "cache.claimName": "weights"},
        "env: HF_HOME /cache/huggingface was added",
    ),
    (
        TUNED,
        {"engine.env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
        {"engine.env": [{"name": "A", "value": "2"}]},
        "env: A 1 became 2",
    ),
    (
        TUNED,
        {"engine.env": [{"name": "A", "value": "1"}]},
        {"engine.env": [{"name": "A", "value": ""}]},
        "env: A 1 became (none)",
    ),
    (
        TUNED,
        {"engine.env": [{"name": "A", "value": "1"}]},
        {"engine.env": []},
        "env: A 1 was removed",
    ),
    (
        TUNED,
        {"engine.env": [{"name": "MY_API_KEY", "value": "one"}]},
        {"engine.env": [{"name": "MY_API_KEY", "value": "two"}]},
        "env: MY_API_KEY (hidden) changed",
    ),
    (
        TUNED,
        {"engine.env": [{"name": "HF_TOKEN", "value": "one"}]},
        {"engine.env": [], "model.tokenSecretRef": SECRET},
        "env: HF_TOKEN (hidden) became from secretKeyRef hf/token",
    ),
    (
        TUNED,
        {"model.tokenSecretRef": SECRET},
        {"model.tokenSecretRef": {"name": "hf", "key": "other"}},
        "env: HF_TOKEN from secretKeyRef hf/token became from secretKeyRef hf/other",
    ),
    (
        TUNED,
        {"engine.env": [{"name": "HTTP_PROXY", "value": "http://me:it@proxy"}]},
        {"engine.env": [{"name": "HTTP_PROXY", "value": "http://me:other@proxy:1"}]},
        "env: HTTP_PROXY http://(hidden)@proxy became http://(hidden)@proxy:1",
    ),
    (
        TUNED,
        {"engine.resources": {"limits": {"memory": "1024Mi"}}},
        {"engine.resources": {"limits": {"memory": "2Gi"}}},
        "resources: limits.memory 1Gi became 2Gi",
    ),
    (
        TUNED,
        {},
        {"engine.resources": {"requests": {"cpu": 8}}, "nodePool.nodeSelector": {"pool": "a"}},
        "resources: requests.cpu 8 was added",
    ),
    (
        TUNED,
        {"nodePool.nodeSelector": {"pool": "a"}},
        {"nodePool.nodeSelector": {"pool": "b"}, "cache.claimName": None},
        "nodeSelector: pool a became b",
    ),
    (
        TUNED,
        {"nodePool.nodeSelector": {"pool": "a"}},
        {"nodePool.nodeSelector": {}},
        "nodeSelector: pool a was removed",
    ),
    (
        TUNED,
        {},
        {"nodePool.tolerations": [{"key": "team", "operator": "Exists"}]},
        "tolerations: team was added",
    ),
    (
        TUNED,
        {},
        {"nodePool.tolerations": [{"operator": "Exists"}]},
        'tolerations: {"operator":"Exists"} was added',
    ),
    (
        TUNED,
        {"nodePool.tolerations": [{"operator": "Exists"}]},
        {"nodePool.tolerations": []},
        'tolerations: {"operator":"Exists"} was removed',
    ),
    (
        TUNED,
        {},
        {"podTemplate": {"spec": {"affinity": {"podAntiAffinity": {"x": [{"weight": 1}]}}}}},
        "affinity was added",
    ),
    (
        TUNED,
        {"podTemplate": {"spec": {"volumes": [{"name": "data", "emptyDir": {}}]}}},
        {
            "podTemplate": {
                "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}
            }
        },
        "volumes: data.persistentVolumeClaim.claimName c was added",
    ),
    (
        TUNED,
        {},
        {"podTemplate": {"spec": {"volumes": [{"name": "data", "hostPath": {"path": "/d"}}]}}},
        "volumes: data was added",
    ),
    (
        TUNED,
        {},
        {"podTemplate": {"spec": {"priorityClassName": "high"}}},
        "priorityClassName: high was added",
    ),
    (
        TUNED,
        {"podTemplate": {"spec": {"priorityClassName": "low"}}},
        {"podTemplate": None},
        "priorityClassName: low was removed",
    ),
    (
        TUNED,
        {},
        {
            "podTemplate": {
                "spec": {"containers": [{"name": "vllm", "livenessProbe": {"periodSeconds": 60}}]}
            }
        },
        "livenessProbe: periodSeconds 30 became 60",
    ),
    (
        TUNED,
        {"podTemplate": {"spec": {"containers": [SIDE]}}},
        {"podTemplate": {"spec": {"containers": [SIDE | {"image": "busybox"}]}}},
        "container side, image: busybox:1 became busybox",
    ),
    (
        TUNED,
        {"podTemplate": {"spec": {"initContainers": [SIDE]}}},
        {"podTemplate": {"spec": {"initContainers": [SIDE | {"args": ["--port", "81"]}]}}},
        "init container side, args: --port 80 became 81",
    ),
    (
        TUNED,
        {"podTemplate": {"spec": {"containers": [SIDE]}}},
        {"podTemplate": None},
        "containers: side was removed",
    ),
    (
        TUNED,
        {"podTemplate": {"metadata": {"labels": {"team": "a"}}}},
        {"podTemplate": {"metadata": {"labels": {"team": "b"}}}},
        "labels: team a became b",
    ),
    (
        TUNED,
        {},
        {"podTemplate": {"metadata": {"annotations": {"a": "b"}}}},
        "annotations: a b was added",
    ),
]


@pytest.mark.parametrize(
    ("example", "start", "changes", "sentence"), EDITS, ids=[edit[-1] for edit in EDITS]
)
def test_the_first_difference_is_said(
    example: str, start: Mapping[str, Any], changes: Mapping[str, Any], sentence: str
) -> None:
    old = edited(document(example), {"cache.claimName": ""} | start)
    new = edited(old, changes)

    assert first_change(live(template(old)), template(new)) == sentence


@pytest.mark.parametrize("example", [TUNED, STATIC, LOCAL])
def test_what_a_server_adds_is_no_difference(example: str) -> None:
    rendered = template(document(example))

    assert first_change(rendered, rendered) == NOTHING_CHANGED
    assert first_change(live(rendered), rendered) == NOTHING_CHANGED


FILLED_IN = {
    "livenessProbe": {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    },
    "ports": [{"containerPort": 80, "protocol": "TCP"}],
}
STATED = {"livenessProbe": {"httpGet": {"port": 80}}, "ports": [{"containerPort": 80}]}


def with_side_container(more: Mapping[str, Any]) -> dict[str, Any]:
    containers = [SIDE | more]
    return template(edited(document(STATIC), {"podTemplate": {"spec": {"containers": containers}}}))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({}, NOTHING_CHANGED),
        # Were they the server's, they would be 10 and 3.
        (
            {"livenessProbe": FILLED_IN["livenessProbe"] | {"periodSeconds": 5}},
            "container side, livenessProbe: periodSeconds 5 was removed",
        ),
        (
            {"livenessProbe": FILLED_IN["livenessProbe"] | {"failureThreshold": 2}},
            "container side, livenessProbe: failureThreshold 2 was removed",
        ),
    ],
)
def test_what_a_server_fills_into_a_container_is_told_from_what_someone_stated(
    more: Mapping[str, Any], sentence: str
) -> None:
    rendered = with_side_container(STATED)
    before = copy.deepcopy(rendered)
    (side,) = (each for each in before["spec"]["containers"] if each["name"] == "side")
    side |= FILLED_IN | more

    assert first_change(before, rendered) == sentence


def test_a_list_that_is_gone_was_no_default() -> None:
    rendered = template(document(STATIC))
    before = live(rendered)
    before["spec"]["dnsConfig"] = {"nameservers": ["10.0.0.10"]}

    assert first_change(before, rendered) == "dnsConfig was removed"


def test_lists_without_names_are_compared_place_by_place() -> None:
    before, after = (
        with_side_container({"securityContext": {"capabilities": {"drop": [name]}}})
        for name in ("ALL", "NET_RAW")
    )
    sentence = "container side, securityContext: capabilities.drop ALL became NET_RAW"
    assert first_change(before, after) == sentence


def test_what_is_added_with_parts_of_its_own_is_named_as_a_whole() -> None:
    def with_affinity(affinity: Mapping[str, Any]) -> dict[str, Any]:
        pods = {"podTemplate": {"spec": {"affinity": affinity}}}
        return template(edited(document(STATIC), pods))

    nodes = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    pods = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
    sentence = first_change(with_affinity(nodes), with_affinity(nodes | pods))
    assert sentence == "affinity: podAntiAffinity was added"


def test_lists_of_the_same_things_in_another_order_differ() -> None:
    names = ["A", "B", "A"], ["A", "B", "B", "A"]
    before, after = (
        with_side_container({"securityContext": {"capabilities": {"drop": dropped}}})
        for dropped in names
    )
    place = "container side, securityContext: capabilities.drop"
    assert first_change(before, after) == f'{place} ["A","B","A"] became ["A","B","B","A"]'


def test_what_a_webhook_added_counts_only_if_nothing_else_differs() -> None:
    rendered = template(document(TUNED))
    before = live(rendered)
    engine = before["spec"]["containers"][0]
    before["spec"]["containers"].append({"name": "mesh", "image": "mesh:1"})
    engine["env"].insert(0, {"name": "INJECTED", "value": "1"})
    labelled = edited(document(TUNED), {"podTemplate": {"metadata": {"labels": {"a": "b"}}}})

    assert first_change(before, template(labelled)) == "labels: a b was added"
    assert first_change(before, rendered) == "env: INJECTED 1 was removed"


def test_what_differs_between_any_two_revisions_is_said_last() -> None:
    rendered = template(document(TUNED))
    before = live(rendered)
    before["metadata"]["labels"]["fathom.dev/revision"] = "00000000"
    before["metadata"]["annotations"] = {"fathom.dev/depth-generation": "12"}
    newer = template(document(TUNED), PluginBundle({"other.py": ""}, "ba9876543210"))
    sentence = "volumes: fathom-plugin.configMap.name kimi-k2-plugin-0123456789ab became"

    assert first_change(live(rendered), newer).startswith(sentence)
    before["spec"]["priorityClassName"] = "mine"
    assert first_change(before, newer) == "priorityClassName: mine was removed"


def test_a_long_value_is_cut_where_the_two_begin_to_differ() -> None:
    def of(letter: str) -> dict[str, Any]:
        variable = {"name": "A", "value": "x" * 200 + letter * 200}
        return template(edited(document(TUNED), {"engine.env": [variable]}))

    sentence = first_change(of("y"), of("z"))

    assert sentence == f"env: A …{'x' * 20}{'y' * 80}… became …{'x' * 20}{'z' * 80}…"


def test_a_long_value_that_differs_from_the_start_is_cut_at_its_end_only() -> None:
    before, after = (
        template(edited(document(TUNED), {"engine.env": [{"name": "A", "value": letter * 200}]}))
        for letter in "yz"
    )

    assert first_change(before, after) == f"env: A {'y' * 100}… became {'z' * 100}…"


def test_an_image_by_digest_is_shown_whole() -> None:
    images = [f"vllm/vllm-openai@sha256:{digit * 64}" for digit in "01"]
    before, after = (template(edited(document(STATIC), {"engine.image": i})) for i in images)

    assert first_change(before, after) == f"image: {images[0]} became {images[1]}"


@pytest.mark.parametrize(
    ("image", "policy", "sentence"),
    [
        ("vllm/vllm-openai:latest", "Always", NOTHING_CHANGED),
        ("vllm/vllm-openai:v0.32.0", "IfNotPresent", NOTHING_CHANGED),
        ("vllm/vllm-openai:v0.32.0", "Always", "imagePullPolicy: Always was removed"),
    ],
)
def test_the_default_pull_policy_follows_the_image(image: str, policy: str, sentence: str) -> None:
    changes = {"engine.image": image, "engine.version": "0.32.0"}
    rendered = template(edited(document(TUNED), changes))
    before = live(rendered)
    before["spec"]["containers"][0]["imagePullPolicy"] = policy

    assert first_change(before, rendered) == sentence


def test_what_differs_in_workers_alone_is_said_of_them() -> None:
    before, after = template(document(TUNED)), template(document(STATIC))
    newer = copy.deepcopy(before)
    newer["metadata"]["labels"]["fathom.dev/revision"] = "00000000"
    workers = copy.deepcopy(newer)
    workers["spec"]["priorityClassName"] = "low"

    said = "workers' priorityClassName: low was added"
    assert first_change(before, newer, (before, workers)) == said
    assert first_change(before, newer, (before, newer)).startswith("labels: ")
    assert not first_change(before, after, (before, workers)).startswith("workers")
