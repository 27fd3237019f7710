"""What is said of a change that needs new pods."""

from collections.abc import Mapping
from typing import Any

import pytest

from fathom.api.conditions import Reason
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.next_revision import rollout_announcement
from fathom.reconcile.specs import good_spec_text
from fathom.rollout.rollout import Rollout, Stage
from manifest_samples import manifest, resource

OLD, NEW = "aaaaaaaa", "bbbbbbbb"


def notice(changes: Mapping[str, Any], *, known: bool = True) -> str:
    before = manifest()
    checkpoint = (
        Checkpoint(good_spec=good_spec_text(before), good_revision=OLD) if known else Checkpoint()
    )
    rollout = Rollout(
        revision=NEW, stable=OLD, stage=Stage.SETTLING, began_at_s=0.0, reason=Reason.SETTLING
    )
    return rollout_announcement(resource(changes), before, checkpoint, rollout).message


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"engine.image": "vllm/vllm-openai:v0.32.1"}, "spec.engine.image changed"),
        (
            {
                "engine.image": "vllm/vllm-openai:v0.32.1",
                "engine.tensorParallelSize": 2,
                "model.revision": "v2",
            },
            "spec.engine.image changed (and spec.engine.tensorParallelSize, spec.model.revision)",
        ),
    ],
)
def test_it_names_the_fields_that_changed(changes: Mapping[str, Any], because: str) -> None:
    assert notice(changes).startswith(
        f"{because}, which needs new pods: revision {OLD} is replaced by {NEW}, one canary first, "
        "with at most 1 replica missing and 1 added at a time."
    )


def test_where_the_spec_before_is_not_known_it_names_none() -> None:
    assert notice({}, known=False).startswith("the spec changed, which needs new pods")


def test_it_says_that_a_pause_holds_it() -> None:
    paused = notice({"engine.image": "vllm/vllm-openai:v0.32.1", "rollout": {"paused": True}})
    assert paused.endswith("at a time. It waits while rollout.paused is set.")
