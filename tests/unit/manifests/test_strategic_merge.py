from typing import Any

import pytest

from fathom.manifests.strategic_merge import MergeError, merged


@pytest.mark.parametrize(
    ("base", "patch", "result"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": None}}, {"a": {"y": 2}}),
        ({}, {"a": {"x": None}}, {"a": {}}),
        ({"a": {"x": 1}}, {"a": {"$patch": "merge", "y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 2}}, {"a": {"y": 2}}),
        ({"a": {"x": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        ({"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}),
        (
            {"containers": [{"name": "vllm", "image": "x"}]},
            {"containers": [{"name": "side"}, {"name": "vllm", "tty": True}]},
            {"containers": [{"name": "vllm", "image": "x", "tty": True}, {"name": "side"}]},
        ),
        (
            {"containers": [{"name": "vllm", "env": [{"name": "A", "value": "1"}]}]},
            {"containers": [{"name": "vllm", "env": [{"name": "A", "value": "2"}]}]},
            {"containers": [{"name": "vllm", "env": [{"name": "A", "value": "2"}]}]},
        ),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": None, "valueFrom": {"fieldRef": {}}}]},
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]},
        ),
        (
            {"volumes": [{"name": "shm"}, {"name": "x"}]},
            {"volumes": [{"name": "shm", "$patch": "delete"}]},
            {"volumes": [{"name": "x"}]},
        ),
        (
            {"volumes": [{"name": "shm"}]},
            {"volumes": [{"$patch": "replace"}, {"name": "x"}]},
            {"volumes": [{"name": "x"}]},
        ),
        (
            {"volumeMounts": [{"mountPath": "/a", "name": "a"}]},
            {"volumeMounts": [{"mountPath": "/b", "name": "a"}, {"mountPath": "/a", "name": "c"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "c"}, {"mountPath": "/b", "name": "a"}]},
        ),
        (
            {"ports": [{"containerPort": 8000, "name": "http"}]},
            {"ports": [{"containerPort": 9000}]},
            {"ports": [{"containerPort": 8000, "name": "http"}, {"containerPort": 9000}]},
        ),
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}, {"key": "a"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
        ),
        ({}, {"imagePullSecrets": [{"name": "a"}]}, {"imagePullSecrets": [{"name": "a"}]}),
        (
            {"claims": [{"name": "a"}]},
            {"claims": [{"name": "b"}]},
            {"claims": [{"name": "a"}, {"name": "b"}]},
        ),
        (
            {"volumes": [{"name": "a", "emptyDir": {"medium": "Memory"}}]},
            {"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}]},
            {"volumes": [{"name": "a", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]},
        ),
        (
            {"volumes": [{"name": "a", "emptyDir": {}}]},
            {"volumes": [{"name": "a", "hostPath": {"path": "/x"}}]},
            {"volumes": [{"name": "a", "hostPath": {"path": "/x"}}]},
        ),
        (
            {"readinessProbe": {"httpGet": {"port": 1}, "periodSeconds": 5}},
            {"readinessProbe": {"tcpSocket": {"port": 1}}},
            {"readinessProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 5}},
        ),
    ],
    ids=str,
)
def test_merges_as_kubectl_does(
    base: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    assert merged(base, patch) == result


@pytest.mark.parametrize(
    ("patch", "sentence"),
    [
        (
            {"containers": [{"image": "x"}]},
            "podTemplate.containers[0]: needs `name`, the key that such items are merged by.",
        ),
        ({"containers": "x"}, "podTemplate.containers: must be a list."),
        ({"containers": [7]}, "podTemplate.containers[0]: must be an object."),
        ({"securityContext": 7}, "podTemplate.securityContext: must be an object."),
        (
            {"securityContext": {"$patch": "remove"}},
            "podTemplate.securityContext: 'remove' is not a $patch directive.",
        ),
        (
            {"$setElementOrder/containers": [{"name": "a"}]},
            (
                "podTemplate.$setElementOrder/containers: this directive is not supported; write "
                "the result instead."
            ),
        ),
    ],
    ids=str,
)
def test_says_where_a_patch_does_not_fit(patch: dict[str, Any], sentence: str) -> None:
    base: dict[str, Any] = {"containers": [{"name": "vllm"}], "securityContext": {}}

    with pytest.raises(MergeError) as caught:
        merged(base, patch, "podTemplate")

    assert str(caught.value) == sentence


def test_changes_neither_side() -> None:
    base: dict[str, Any] = {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}
    patch: dict[str, Any] = {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}
    copies = repr(base), repr(patch)

    merged(base, patch)

    assert (repr(base), repr(patch)) == copies
