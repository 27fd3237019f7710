"""A revision is what its pods are made from: live fields change neither, restart fields both."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from fathom.engine.plugin import PluginBundle
from fathom.manifests.pod_template import pod_template, worker_template
from fathom.rollout.revision import changed_restart_fields, revision_of
from manifest_samples import resource

BUNDLE = PluginBundle({"fathom_vllm/__init__.py": ""}, "0123")


def edits(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


LIVE = edits(
    {
        "replicas": st.integers(0, 9),
        # Of one set of depths, whatever the rest says.
        "speculation.tokens": st.sampled_from([1, 3]),
        "speculation.minTokens": st.integers(0, 1),
        "speculation.tuning.mode": st.sampled_from(["Auto", "Advise"]),
        "speculation.tuning.objective": st.sampled_from(["Latency", "Throughput"]),
        "speculation.tuning.tpotMilliseconds": st.integers(1, 99),
        "speculation.tuning.windowSeconds": st.integers(5, 600),
        "speculation.tuning.minGainPercent": st.integers(0, 9),
        "speculation.tuning.probing": st.sampled_from(["Enabled", "Disabled"]),
        "engine.version": st.sampled_from(["", "0.32.0", "0.33.0"]),
        "metrics.source": st.sampled_from(["Auto", "Pods"]),
        "metrics.podMonitor": st.sampled_from(["Auto", "Never"]),
        "rollout.maxUnavailable": st.integers(1, 3),
        "rollout.maxSurge": st.integers(0, 3),
        "rollout.canaryMinutes": st.integers(0, 60),
        "rollout.paused": st.booleans(),
    }
)
RESTART = edits(
    {
        "model.id": st.sampled_from(["a/b", "c/d"]),
        "model.revision": st.sampled_from(["", "main"]),
        "model.servedName": st.sampled_from(["", "kimi"]),
        "model.trustRemoteCode": st.booleans(),
        "model.tokenSecretRef": st.sampled_from([None, {"name": "hf", "key": "token"}]),
        "draft.id": st.sampled_from(["e/f", "g/h"]),
        "draft.revision": st.sampled_from(["", "main"]),
        "draft.method": st.sampled_from(["eagle3", "eagle", "dspark"]),
        "draft.tensorParallelSize": st.sampled_from([None, 1]),
        "speculation.maxTokens": st.sampled_from([None, 6, 7, 9]),
        "speculation.drafting": st.sampled_from(["Enabled", "Disabled"]),
        "speculation.depths": st.sampled_from([None, [1, 3], [5, 3, 1], [0, 1, 2, 3, 4, 5, 6]]),
        "engine.image": st.sampled_from(
            [f"vllm/vllm-openai:{tag}" for tag in ("v0.31.0", "v0.32.0", "v0.33.0", "latest")]
        ),
        "engine.tensorParallelSize": st.sampled_from([1, 2, 4, 8]),
        "engine.attentionBackend": st.sampled_from(["", "triton_mla"]),
        "engine.args": st.sampled_from([[], ["--max-num-seqs", "16"], ["--enforce-eager"]]),
        "engine.env": st.sampled_from([[], [{"name": "PYTHONPATH", "value": "/x"}]]),
        "engine.resources.requests": st.sampled_from([{}, {"cpu": 4}]),
        "engine.sharedMemory": st.sampled_from(["", "64Gi"]),
        "engine.user": st.sampled_from([None, 2000]),
        "engine.startupMinutes": st.sampled_from([90, 60]),
        "engine.drainSeconds": st.sampled_from([120, 60]),
        "nodePool.accelerator": st.sampled_from(["GB200", "GB300", "H100"]),
        "nodePool.nodeSelector": st.sampled_from([{}, {"rack": "a"}]),
        "nodePool.tolerations": st.sampled_from([[], [{"key": "x", "operator": "Exists"}]]),
        "cache": st.sampled_from(
            [
                {},
                {"claimName": "weights"},
                {"size": "1Ti"},
                {"size": "2Ti", "storageClassName": "fast", "accessModes": ["ReadWriteOnce"]},
            ]
        ),
        "podTemplate": st.sampled_from([{}, {"spec": {"hostIPC": True}}]),
        "workerTemplate": st.sampled_from([{}, {"spec": {"hostPID": True}}]),
    }
)


def templates(changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Templates of the pods that serve and, in groups, of workers."""
    sd = resource(changes)
    builders = [pod_template, *([worker_template] if sd.engine.layout.spans_nodes else [])]
    return [build(sd, revision="same", bundle=BUNDLE) for build in builders]


@given(RESTART, LIVE)
def test_live_fields_change_neither_the_revision_nor_the_pods(
    restart: dict[str, Any], live: dict[str, Any]
) -> None:
    image = restart.get("engine.image", "v0.32.0")
    if not image.endswith(("v0.32.0", "v0.33.0")) or restart.get("draft.method") == "dspark":
        # Depth is not live there, so these two are restart fields; the next test has them.
        live = {k: v for k, v in live.items() if k not in ("speculation.tokens", "engine.version")}
    before, after = resource(restart), resource(restart | live)

    assert revision_of(before) == revision_of(after)
    assert changed_restart_fields(before, after) == ()
    assert templates(restart) == templates(restart | live)


COUNTED = {"engine.image": "vllm/vllm-openai:v0.31.0"}
"""Depth is not live there, and steps are counted."""


@given(RESTART, RESTART, LIVE, st.sampled_from(["Auto", "Static"]))
@example(COUNTED, COUNTED, {}, "Static")
def test_a_revision_is_the_pod_template(
    one: dict[str, Any], other: dict[str, Any], live: dict[str, Any], mode: str
) -> None:
    other = live | other | {"speculation.tuning.mode": mode}
    before, after = resource(one), resource(other)

    same = revision_of(before) == revision_of(after)

    assert same == (changed_restart_fields(before, after) == ())
    assert same == (templates(one) == templates(other))
