"""For every field: an edit ends where a fresh resource ends, and taken back, where it was.

What is compared is all that the operator wrote, but for what tells one run from another. And each
field has an effect on it, or the table says why not.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from fathom.api import names
from fathom.api.crd import custom_resource_definition
from fathom.cluster.kinds import (
    CHILD_KINDS,
    CONFIG_MAP,
    OPTIONAL_KINDS,
    POD,
    POD_DISRUPTION_BUDGET,
    POD_MONITOR,
    ServedApis,
)
from fathom.tuning.tuner import decide
from support.loop_harness import LoopHarness

SERVED: Final = ServedApis(
    kinds=frozenset((kind.api_version, kind.kind) for kind in (POD_DISRUPTION_BUDGET, POD_MONITOR))
)
FIRST: Final[Mapping[str, Any]] = {
    "replicas": 2,
    "rollout.canaryMinutes": 0,
    "speculation.maxTokens": 7,
}


@dataclass(frozen=True)
class Case:
    """What a field is set to."""

    value: Any
    beside: Mapping[str, Any] = field(default_factory=dict)
    """What else stands in both specs, for the field to be allowed or to matter."""
    stays: str = ""
    """Why it is not taken back; empty: it is."""
    unseen: str = ""
    """Why the change shows in nothing that is written; empty: it does show."""


TUNER: Final = "it is the tuner's, and shows in what it decides"
ROLLOUTS: Final = "it matters while a rollout is under way"
CLAIM: Final = "Kubernetes refuses it of a claim that exists"
READ: Final = "the operator reads by it, and writes nothing"
TOKEN: Final = {"url": "http://a", "bearerTokenSecretRef": {"name": "a", "key": "a"}}
LOGIN: Final = {
    "url": "http://a",
    "basicAuthSecretRef": {"name": "a"},
    "caConfigMapRef": {"name": "a", "key": "a"},
}
ELSEWHERE: Final = {
    "draft.trial.id": "one replica has it: tests/scenarios/test_draft_trial.py",
    "draft.trial.revision": "one replica has it: tests/scenarios/test_draft_trial.py",
    **dict.fromkeys(
        (
            *("draft.training.proposals", "draft.training.gpus", "draft.training.deadlineMinutes"),
            *("draft.training.gpuHoursPerWeek", "draft.training.dataClaim"),
            *("draft.training.maxDraftSize", "draft.training.template"),
        ),
        "a person begins it: tests/scenarios/test_training.py",
    ),
    "cache.prefetch": "its Job has to run: tests/unit/runtime/test_weights.py",
    "workerTemplate": "only groups have workers: tests/unit/runtime/test_groups.py",
}
CASES: Final[Mapping[str, Case]] = {
    "replicas": Case(3),
    "model.id": Case("nvidia/another"),
    "model.revision": Case("abc123"),
    "model.servedName": Case("kimi"),
    "model.trustRemoteCode": Case(value=True),
    "model.tokenSecretRef.name": Case(
        "other", {"model.tokenSecretRef": {"name": "one", "key": "one"}}
    ),
    "model.tokenSecretRef.key": Case(
        "other", {"model.tokenSecretRef": {"name": "one", "key": "one"}}
    ),
    "draft.id": Case("someone/another"),
    "draft.revision": Case("abc123"),
    "draft.method": Case("eagle"),
    "draft.tensorParallelSize": Case(1),
    "draft.options": Case({"draft_sample_method": "probabilistic"}),
    "speculation.tokens": Case(5),
    "speculation.maxTokens": Case(6),
    "speculation.minTokens": Case(2, unseen=TUNER),
    "speculation.depths": Case([1, 3, 5]),
    "speculation.drafting": Case("Disabled"),
    "speculation.tuning.mode": Case("Static"),
    "speculation.tuning.actuation": Case("Live", unseen="it means the same as Auto"),
    "speculation.tuning.objective": Case("Latency", unseen=TUNER),
    "speculation.tuning.tpotMilliseconds": Case(
        30,
        {"speculation.tuning.objective": "Goodput", "speculation.tuning.tpotMilliseconds": 50},
        unseen=TUNER,
    ),
    "speculation.tuning.windowSeconds": Case(20),
    "speculation.tuning.minGainPercent": Case(3, unseen=TUNER),
    "speculation.tuning.probing": Case("Disabled", unseen=TUNER),
    "speculation.adaptiveVerification": Case("Enabled", {"draft.method": "dspark"}),
    "engine.image": Case("vllm/vllm-openai:v0.32.1"),
    "engine.version": Case("0.31.0"),
    "engine.tensorParallelSize": Case(2),
    "engine.pipelineParallelSize": Case(2, {"engine.tensorParallelSize": 2}),
    "engine.dataParallelSize": Case(2, {"engine.tensorParallelSize": 2}),
    "engine.attentionBackend": Case("FLASH_ATTN"),
    "engine.args": Case(["--max-num-seqs", "64"]),
    "engine.env": Case([{"name": "A", "value": "b"}]),
    "engine.resources.requests": Case({"cpu": "3"}),
    "engine.resources.limits": Case({"memory": "64Gi"}),
    "engine.sharedMemory": Case("3Gi"),
    "engine.user": Case(1000),
    "engine.startupMinutes": Case(30),
    "engine.drainSeconds": Case(60),
    "nodePool.accelerator": Case("B200"),
    "nodePool.gpusPerNode": Case(8, {"nodePool.accelerator": "Custom", "nodePool.gpusPerNode": 4}),
    "nodePool.products": Case(["NVIDIA-GB200", "NVIDIA-GB300"]),
    "nodePool.nodeSelector": Case({"pool": "one"}),
    "nodePool.tolerations": Case([{"key": "one", "operator": "Exists"}]),
    "nodePool.topologyKey": Case("rack"),
    "nodePool.computeDomain": Case("Never"),
    "cache.claimName": Case("two", {"cache.claimName": "one", "cache.prefetch": False}),
    "cache.size": Case("2Ti", {"cache.size": "1Ti", "cache.prefetch": False}),
    "cache.storageClassName": Case(
        "fast", {"cache.size": "1Ti", "cache.prefetch": False}, stays=CLAIM
    ),
    "cache.accessModes": Case(
        ["ReadWriteOncePod"], {"cache.size": "1Ti", "cache.prefetch": False, "replicas": 1}
    ),
    "metrics.source": Case("Pods", unseen="Auto is Pods where no URL is given"),
    "metrics.prometheusURL": Case("http://prometheus:9090", unseen=READ),
    "metrics.prometheusLabels": Case({"cluster": "eu"}, unseen=READ),
    "metrics.prometheus.source": Case("b", {"metrics.prometheus": {"source": "a"}}, unseen=READ),
    "metrics.prometheus.tenant": Case("b", {"metrics.prometheus": {"source": "a"}}, unseen=READ),
    "metrics.prometheus.labels": Case(
        {"cluster": "eu"}, {"metrics.prometheus": {"source": "a"}}, unseen=READ
    ),
    "metrics.prometheus.url": Case("http://b", {"metrics.prometheus": LOGIN}, unseen=READ),
    "metrics.prometheus.bearerTokenSecretRef.name": Case(
        "b", {"metrics.prometheus": TOKEN}, unseen=READ
    ),
    "metrics.prometheus.bearerTokenSecretRef.key": Case(
        "b", {"metrics.prometheus": TOKEN}, unseen=READ
    ),
    "metrics.prometheus.basicAuthSecretRef.name": Case(
        "b", {"metrics.prometheus": LOGIN}, unseen=READ
    ),
    "metrics.prometheus.caConfigMapRef.name": Case("b", {"metrics.prometheus": LOGIN}, unseen=READ),
    "metrics.prometheus.caConfigMapRef.key": Case("b", {"metrics.prometheus": LOGIN}, unseen=READ),
    "metrics.podMonitor": Case("Never"),
    "metrics.podMonitorLabels": Case({"release": "one"}),
    "rollout.maxUnavailable": Case(2),
    "rollout.maxSurge": Case(2, {"rollout.maxUnavailable": 0, "rollout.maxSurge": 1}),
    "rollout.whenNoCapacity": Case("Wait", unseen=ROLLOUTS),
    "rollout.capacityMinutes": Case(5, unseen=ROLLOUTS),
    "rollout.canaryMinutes": Case(5, unseen=ROLLOUTS),
    "rollout.paused": Case(value=True, unseen=ROLLOUTS),
    "rollout.podDisruptionBudget": Case("Never"),
    "rollout.refresh": Case("Auto", unseen="it matters once acceptance decays"),
    "podTemplate": Case({"spec": {"priorityClassName": "high"}}),
}


def _paths(node: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, child in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        if child.get("properties"):
            yield from _paths(child, here)
        else:
            yield here


def _schema() -> Mapping[str, Any]:
    (version,) = custom_resource_definition()["spec"]["versions"]  # type: ignore[call-overload,index]
    found: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def test_no_field_is_left_out() -> None:
    assert set(CASES) | set(ELSEWHERE) == set(_paths(_schema()))


@pytest.mark.parametrize("path", CASES)
async def test_an_edit_ends_where_a_fresh_resource_ends_and_back(path: str) -> None:
    case = CASES[path]
    before = {**FIRST, **case.beside}
    one, two = await _fresh(before), await _fresh({**before, path: case.value})

    harness = _bench(before)
    await _settled(harness)
    harness.edit({path: case.value})
    await _settled(harness)
    assert _written(harness) == two
    harness.resource["spec"] = _bench(before).resource["spec"]
    harness.edit({})
    await _settled(harness)
    assert bool(case.stays) == (_written(harness) != one), case.stays or "it is not taken back"

    seen = _without_kept(one) != _without_kept(two)
    assert seen != bool(case.unseen), case.unseen or "it has no effect"


async def _fresh(changes: Mapping[str, Any]) -> dict[str, Any]:
    harness = _bench(changes)
    await _settled(harness)
    return _written(harness)


def _bench(changes: Mapping[str, Any]) -> LoopHarness:
    return LoopHarness(copy.deepcopy(dict(changes)), served=SERVED, decide=decide)


async def _settled(harness: LoopHarness) -> None:
    for _ in range(3):
        await harness.until_rolled()


def _written(harness: LoopHarness) -> dict[str, Any]:
    """Every child, less what tells one run from another."""
    found: dict[str, Any] = {}
    for kind in (*CHILD_KINDS, *OPTIONAL_KINDS):
        if kind == POD:
            continue
        for body in copy.deepcopy(harness.kube.all_of(kind)):
            metadata = body["metadata"]
            for each in ("uid", "resourceVersion", "generation", "creationTimestamp"):
                metadata.pop(each, None)
            metadata.get("annotations", {}).pop(names.ANNOTATION_GENERATION, None)
            if kind == CONFIG_MAP:
                body["data"] = _data(body["data"])
            found[f"{kind.kind} {metadata['name']}"] = body
    return found


def _data(data: Mapping[str, str]) -> dict[str, Any]:
    """Parsed, without what was learnt: that follows from what happened, not from the spec."""
    parsed = {
        key: json.loads(text) if key.endswith(".json") else text
        for key, text in data.items()
        if key != "state.json"
    }
    for each in parsed.values():
        if isinstance(each, dict):
            each.pop("generation", None)
    return parsed


def _without_kept(written: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body for name, body in written.items() if not name.endswith("-tuning")}
