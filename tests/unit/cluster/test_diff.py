from collections.abc import Callable
from typing import Any

import pytest
from pydantic import JsonValue

from fathom.cluster.diff import first_difference, selector_patch

RENDERED: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "replicas": 2,
        "containers": [
            {
                "name": "vllm",
                "args": ["--port", "8000"],
                "env": [{"name": "X", "value": "1"}],
                "resources": {"limits": {"memory": "1Gi", "nvidia.com/gpu": "4"}},
            }
        ],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    import copy

    result = copy.deepcopy(RENDERED)
    place: Any = result
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in parents:
        place = place[part]
    place[last] = value
    return result


def test_the_same_is_the_same() -> None:
    assert first_difference(RENDERED, RENDERED) is None


def test_what_the_server_and_webhooks_add_is_no_difference() -> None:
    live = changed("status", {"ready": True})
    live["metadata"]["annotations"] = {"x": "y"}
    live["spec"]["containers"].insert(0, {"name": "sidecar", "image": "mesh"})
    live["spec"]["containers"][1]["imagePullPolicy"] = "IfNotPresent"
    assert first_difference(RENDERED, live) is None


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("spec/replicas", 3, "spec.replicas is 3 and should be 2"),
        ("metadata/labels", {}, "metadata.labels.a is missing"),
        ("spec/containers", [], "spec.containers has 0 entries and should have 1"),
        (
            "spec/containers/0/args",
            ["--port", "8000", "--evil"],
            "spec.containers[vllm].args has 3 entries and should have 2",
        ),
        (
            "spec/containers/0/env/0/value",
            "2",
            "spec.containers[vllm].env[X].value is '2' and should be '1'",
        ),
        ("spec/replicas", True, "spec.replicas is True and should be 2"),
        ("spec/tolerations", None, "spec.tolerations is None"),
    ],
)
def test_the_first_discrepancy_is_named(path: str, value: Any, sentence: str) -> None:
    assert first_difference(RENDERED, changed(path, value)) == sentence


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("1Gi", "1024Mi"),
        ("8", "8000m"),
        ("2k", 2000),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1e3", "1k"),
        ("12E2", "1200"),
        ("+1", "1"),
        ("100u", "0.1m"),
        ("1500u", "2m"),
    ],
)
def test_quantities_are_equal_by_value(ours: Any, theirs: Any) -> None:
    rendered = {"spec": {"resources": {"limits": {"x": ours}}}}
    live = {"spec": {"resources": {"limits": {"x": theirs}}}}
    assert first_difference(rendered, live) is None


@pytest.mark.parametrize("theirs", ["2", "1Ki", True, "NaN", "sNaN", "one", "", None, {}])
def test_what_is_no_quantity_of_the_same_value_is_a_difference(theirs: Any) -> None:
    for ours in ("1", "NaN", "sNaN", "1e999999999E"):
        if ours != theirs:
            rendered = {"resources": {"limits": {"x": ours}}}
            assert first_difference(rendered, {"resources": {"limits": {"x": theirs}}}) is not None


@pytest.mark.parametrize(
    "holding",
    [
        lambda quantity: {"volumes": [{"name": "s", "emptyDir": {"sizeLimit": quantity}}]},
        lambda quantity: {"overhead": {"cpu": quantity}},
        lambda quantity: {
            "env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"divisor": quantity}}}]
        },
    ],
    ids=["sizeLimit", "overhead", "divisor"],
)
def test_quantities_of_a_pod_stand_in_more_places(holding: Callable[[str], Any]) -> None:
    assert first_difference(holding("1e3"), holding("1k")) is None
    assert first_difference(holding("1e3"), holding("1Ki")) is not None


def test_elsewhere_a_string_is_a_string() -> None:
    assert first_difference({"args": ["8"]}, {"args": ["8000m"]}) is not None


TOLERATED = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
SPREAD = {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"}


@pytest.mark.parametrize(
    ("field", "ours", "more"),
    [
        ("tolerations", TOLERATED, {"operator": "Exists"}),
        ("tolerations", TOLERATED, {**TOLERATED, "effect": "NoExecute"}),
        ("topologySpreadConstraints", SPREAD, {**SPREAD, "topologyKey": "b"}),
        ("hostAliases", {"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}),
        ("envFrom", {"secretRef": {"name": "a"}}, {"configMapRef": {"name": "b"}}),
    ],
    ids=["a toleration of all", "of another effect", "a spread", "an alias", "a source"],
)
def test_what_a_webhook_adds_to_a_list_without_keys_is_no_difference(
    field: str, ours: dict[str, Any], more: dict[str, Any]
) -> None:
    rendered = {field: [ours]}
    for live in ([ours, more], [more, ours], [more, {**ours, "default": 1}, more]):
        assert first_difference(rendered, {field: live}) is None
    assert first_difference({field: []}, {field: [more]}) is None


@pytest.mark.parametrize(
    ("live", "sentence"),
    [
        (["a", "c", "d"], "envFrom[1] is missing"),
        (["c", "b", "a"], "envFrom[1] is missing"),
        (["b", "a"], "envFrom[0].secretRef.name is 'b' and should be 'a'"),
        (["a"], "envFrom has 1 entry and should have 2"),
    ],
)
def test_of_a_list_without_keys_all_of_ours_is_there_in_our_order(
    live: list[str], sentence: str
) -> None:
    def sources(names: list[str]) -> dict[str, Any]:
        return {"envFrom": [{"secretRef": {"name": name}} for name in names]}

    assert first_difference(sources(["a", "b"]), sources(live)) == sentence


def test_a_list_of_plain_values_is_ours_alone() -> None:
    assert first_difference({"args": []}, {"args": ["--evil"]}) is not None
    assert first_difference({"drop": ["ALL"]}, {"drop": ["ALL", "KILL"]}) is not None


def test_nothing_may_be_written_in_many_ways() -> None:
    assert first_difference({"a": {}, "b": [], "c": None, "d": ""}, {}) is None


@pytest.mark.parametrize(
    "field", ["hostNetwork", "initialDelaySeconds", "partition", "chapAuthSession", "sslEnabled"]
)
def test_a_zero_that_the_server_drops_is_no_difference(field: str) -> None:
    for zero in (False, 0):
        assert first_difference({field: zero}, {}) is None
        assert first_difference({field: zero}, {field: True}) is not None


@pytest.mark.parametrize(
    ("field", "zero", "default", "other"),
    [
        ("timeoutSeconds", 0, 1, 5),
        ("failureThreshold", 0, 3, 5),
        ("schedulerName", "", "default-scheduler", "volcano"),
        ("protocol", "", "TCP", "UDP"),
    ],
)
def test_a_zero_that_the_server_replaces_is_no_difference(
    field: str, zero: Any, default: Any, other: Any
) -> None:
    assert first_difference({field: zero}, {field: default}) is None
    assert first_difference({field: zero}, {field: other}) is not None
    assert first_difference({field: other}, {field: default}) is not None


@pytest.mark.parametrize(
    ("of", "taken", "other"),
    [
        ({"image": "a:1", "imagePullPolicy": ""}, {"imagePullPolicy": "IfNotPresent"}, "Always"),
        ({"reference": "a", "pullPolicy": ""}, {"pullPolicy": "Always"}, "IfNotPresent"),
        ({"gateway": "a", "fsType": ""}, {"fsType": "xfs"}, "ext4"),
        ({"image": "a", "user": ""}, {"user": "admin"}, "root"),
        ({"hostPort": 0, "containerPort": 80}, {"hostPort": 80}, 8080),
    ],
    ids=str,
)
def test_some_follow_from_what_stands_beside_them(
    of: dict[str, Any], taken: dict[str, Any], other: Any
) -> None:
    assert first_difference(of, {**of, **taken}) is None
    assert first_difference(of, {**of, **dict.fromkeys(taken, other)}) is not None


@pytest.mark.parametrize(
    ("field", "default"),
    [("terminationGracePeriodSeconds", 30), ("defaultMode", 0o644), ("enableServiceLinks", True)],
)
def test_a_zero_that_the_server_keeps_is_ours(field: str, default: Any) -> None:
    for zero in (False, 0):
        assert first_difference({field: zero}, {field: default}) is not None


@pytest.mark.parametrize(
    "field", ["automountServiceAccountToken", "allowPrivilegeEscalation", "runAsUser", "replicas"]
)
def test_a_zero_that_somebody_took_out_is_a_difference(field: str) -> None:
    """The server keeps these: their absence means something else."""
    for zero in (False, 0):
        assert first_difference({field: zero}, {}) == f"{field} is missing"


def test_data_of_a_config_map_is_ours_alone() -> None:
    found = first_difference({"data": {"a": "1"}}, {"data": {"a": "1", "b": "2"}})
    assert found == "data.b should not be there"


@pytest.mark.parametrize("inside", [None, "matchLabels"])
def test_a_selector_is_ours_alone_and_a_patch_takes_out_what_was_added(inside: str | None) -> None:
    def manifest(**selector: str) -> dict[str, JsonValue]:
        return spec({**selector})

    def spec(labels: dict[str, JsonValue]) -> dict[str, JsonValue]:
        return {"spec": {"selector": {inside: labels} if inside else labels}}

    rendered, live = manifest(name="kimi"), manifest(name="kimi", hash="6f9cd")
    path = "spec.selector.matchLabels" if inside else "spec.selector"
    assert first_difference(rendered, live) == f"{path}.hash should not be there"
    assert first_difference(rendered, rendered) is None
    assert selector_patch(rendered, live) == spec({"name": "kimi", "hash": None})
    assert selector_patch(rendered, manifest(name="other")) == {}
    assert selector_patch({"spec": {}}, live) == {}


def test_what_selects_within_a_pod_template_may_hold_more() -> None:
    """A webhook adds to it, and to take that out would roll pods."""

    def template(**labels: str) -> dict[str, JsonValue]:
        spread: list[JsonValue] = [{"topologyKey": "zone", "selector": {"matchLabels": {**labels}}}]
        return {"spec": {"template": {"spec": {"nodeSelector": {**labels}, "spread": spread}}}}

    rendered, live = template(a="1"), template(a="1", b="2")
    assert first_difference(rendered, live) is None
    assert selector_patch(rendered, live) == {}


def test_a_long_value_is_cut() -> None:
    assert len(first_difference({"a": "x" * 500}, {"a": "y" * 500}) or "") < 200
