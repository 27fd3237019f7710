from typing import Any

import pytest

from fathom.rollout.revision import changed_restart_fields, revision_of
from manifest_samples import resource

STATIC = {"speculation.tuning.mode": "Static"}
UNKNOWN = {"engine.image": "vllm/vllm-openai:latest"}
OFF = {"speculation.drafting": "Disabled"}
EAGER = {"engine.args": ["--enforce-eager"]}
OWN = {"speculation.depths": [1, 2, 3]}
GROUP = {"engine.tensorParallelSize": 8}
WORKERS = {"workerTemplate": {"metadata": {"labels": {"a": "b"}}}}


def test_a_revision_never_changes_by_itself() -> None:
    """A changed digest here means that an upgrade would replace everybody's pods."""
    assert revision_of(resource()) == "04838848"
    assert revision_of(resource(STATIC)) == "11354330"
    assert revision_of(resource(GROUP)) == "38d2f47a"


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ({}, {"engine.image": "vllm/vllm-openai:v0.33.0"}, ("spec.engine.image",)),
        ({}, {"speculation.maxTokens": 5}, ("spec.speculation.maxTokens",)),
        ({}, {"speculation.tokens": 9}, ("spec.speculation.tokens",)),
        (
            {},
            {"speculation.tokens": 9, "speculation.maxTokens": 9},
            ("spec.speculation.maxTokens",),
        ),
        ({}, STATIC, ("spec.speculation.tuning.mode",)),
        (STATIC, {}, ("spec.speculation.tuning.mode",)),
        (STATIC, STATIC | {"speculation.tokens": 4}, ("spec.speculation.tokens",)),
        (UNKNOWN, UNKNOWN | {"speculation.tokens": 4}, ("spec.speculation.tokens",)),
        (UNKNOWN, UNKNOWN | {"engine.version": "0.32.0"}, ("spec.engine.version",)),
        (
            {},
            {"engine.args": ["--enforce-eager"], "nodePool.nodeSelector": {"rack": "a"}},
            ("spec.engine.args", "spec.nodePool.nodeSelector.rack"),
        ),
        ({}, {"podTemplate": {"spec": {"hostIPC": True}}}, ("spec.podTemplate",)),
        (GROUP, GROUP | WORKERS, ("spec.workerTemplate",)),
        # One node has no workers.
        ({}, WORKERS, ()),
        ({}, {"model.tokenSecretRef": {"name": "a", "key": "b"}}, None),
        ({}, {"engine.user": 2000}, ("spec.engine.user",)),
        ({}, {"engine.sharedMemory": "64Gi"}, ("spec.engine.sharedMemory",)),
        ({}, {"engine.sharedMemory": ""}, ()),
        ({"engine.resources.requests.cpu": 8}, {"engine.resources.requests.cpu": "8"}, ()),
        # Live, so nothing:
        ({}, {"speculation.tokens": 7}, ()),
        ({"speculation.tokens": 2}, {"speculation.tokens": 5}, ()),
        # Where graphs are captured, these are of other sets of depths.
        ({}, {"speculation.tokens": 4}, ("spec.speculation.tokens",)),
        ({"speculation.tokens": 5}, {"speculation.tokens": 7}, ("spec.speculation.tokens",)),
        (EAGER, EAGER | {"speculation.tokens": 4}, ()),
        ({}, {"speculation.drafting": "Disabled"}, ("spec.speculation.drafting",)),
        (STATIC, STATIC | OFF, ("spec.speculation.drafting",)),
        (OFF, OFF | STATIC, ("spec.speculation.tuning.mode",)),
        (OFF, OFF | {"speculation.tuning.mode": "Advise"}, ()),
        (OFF, OFF | {"speculation.tokens": 5, "draft.id": "another/one"}, ()),
        (OFF, OFF | {"speculation.adaptiveVerification": "Enabled"}, ()),
        (
            OFF,
            {"engine.tensorParallelSize": 2},
            ("spec.engine.tensorParallelSize", "spec.speculation.drafting"),
        ),
        ({}, {"speculation.depths": [7, 1, 3]}, ()),
        ({}, {"speculation.depths": [1, 3]}, ("spec.speculation.depths",)),
        (OWN | {"speculation.tokens": 2}, OWN | {"speculation.tokens": 3}, ()),
        (OWN, {"speculation.depths": [1, 2, 3, 5]}, ("spec.speculation.depths",)),
        (OWN, OWN | {"speculation.minTokens": 0}, ()),
        (EAGER, EAGER | OWN, ("spec.speculation.depths",)),
        ({"speculation.tokens": 4}, EAGER | {"speculation.tokens": 4}, ("spec.engine.args",)),
        ({}, {"speculation.maxTokens": 7}, ()),
        ({}, {"speculation.tuning.mode": "Advise"}, ()),
        ({}, {"replicas": 9, "rollout.maxSurge": 1, "metrics.source": "Pods"}, ()),
        ({}, {"engine.version": "0.32.0"}, ()),
        (STATIC, STATIC | {"speculation.maxTokens": 9}, ()),
    ],
    ids=str,
)
def test_it_says_which_fields_need_new_pods(
    before: dict[str, Any], after: dict[str, Any], fields: tuple[str, ...] | None
) -> None:
    old, new = resource(before), resource(after)

    changed = changed_restart_fields(old, new)

    if fields is None:
        assert changed
    else:
        assert changed == fields
    assert (revision_of(old) == revision_of(new)) == (not changed)
