"""Manifests for tests: one good one, and changes to it."""

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from fathom.resource import SpeculativeDeployment, parse

GOOD: Mapping[str, Any] = {
    "apiVersion": "fathom.dev/v1alpha1",
    "kind": "SpeculativeDeployment",
    "metadata": {"name": "kimi", "namespace": "llm"},
    "spec": {
        "model": {"id": "nvidia/Kimi-K2.6-NVFP4"},
        "draft": {"id": "lightseekorg/kimi-k2.6-eagle3.1-mla"},
        "engine": {"image": "vllm/vllm-openai:v0.32.0", "tensorParallelSize": 4},
    },
}


def manifest(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The good manifest with values set at dotted paths below `spec`; None removes one."""
    return changed(GOOD, changes or {})


def changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with values set like that."""
    result: dict[str, Any] = copy.deepcopy(dict(document))
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = result["spec"]
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return result


def resource(changes: Mapping[str, Any] | None = None, *, uid: str = "") -> SpeculativeDeployment:
    """The same, parsed.

    Raises:
        AssertionError: the manifest is not valid.
    """
    document = manifest(changes)
    document["metadata"]["uid"] = uid
    parsed = parse(document)
    assert isinstance(parsed, SpeculativeDeployment), "\n".join(map(str, parsed))
    return parsed


def started_with(depths: Iterable[int]) -> list[str]:
    """Arguments of an engine whose startup schedule names these depths; none: it has none."""
    schedule = [[2 * at - 1, 2 * at, depth] for at, depth in enumerate(depths, start=1)]
    config = {"num_speculative_tokens_per_batch_size": schedule} if schedule else {}
    return ["--speculative-config", json.dumps(config)]
