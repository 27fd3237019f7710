"""Options of the engine that need a right which its container has only where its user gives it."""

from typing import Any

import pytest

from manifest_samples import resource
from support.validated import warnings


def with_security(**context: Any) -> dict[str, Any]:
    engine = {"name": "vllm", "securityContext": context}
    return {"podTemplate": {"spec": {"containers": [engine]}}}


def doubts(*args: str, **changes: Any) -> list[str]:
    return [str(each) for each in warnings(resource({"engine.args": list(args), **changes}))]


@pytest.mark.parametrize(
    "changes",
    [{}, with_security(readOnlyRootFilesystem=True), with_security(capabilities={"add": ["X"]})],
    ids=str,
)
def test_to_bind_to_numa_nodes_without_the_right_is_a_doubt(changes: dict[str, Any]) -> None:
    (doubt,) = doubts("--seed=1", "--numa_bind", **changes)
    assert doubt.startswith("spec.engine.args[1]: --numa_bind needs a right, or the container's ")
    assert doubt.endswith(
        " add SYS_NICE to spec.podTemplate.spec.containers[name: vllm].securityContext."
        "capabilities.add."
    )


def test_with_the_right_or_without_the_option_nothing_is_to_be_seen_to() -> None:
    assert doubts("--numa-bind", **with_security(capabilities={"add": ["SYS_NICE"]})) == []
    assert doubts("--no-numa-bind", "--numa-bind-nodes", "0") == []
