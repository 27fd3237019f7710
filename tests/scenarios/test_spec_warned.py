"""What `fathom check` warns of, the operator reports too: a condition, and one event a change."""

from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import EVENT, Kind
from fathom.cluster.manifest import Manifest
from support.loop_harness import LoopHarness

STRANGE = {"engine.image": "acme/vllm:v0.32.0", "engine.args": ["--no-such-option"]}


def warned(harness: LoopHarness) -> dict[str, Any] | None:
    found = [each for each in harness.status["conditions"] if each["type"] == "SpecWarned"]
    return found[0] if found else None


def messages(harness: LoopHarness) -> list[str]:
    events = harness.kube.all_of(EVENT)
    return [each["message"] for each in events if each["reason"] == "Warned"]


async def test_a_spec_without_warnings_has_no_such_condition(harness: LoopHarness) -> None:
    assert warned(harness) is None


async def test_a_warning_is_reported_once_and_ends(harness: LoopHarness) -> None:
    harness.edit(STRANGE)
    await harness.run_for(60)
    found = warned(harness)
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "Warned")
    assert "--no-such-option" in found["message"]
    assert messages(harness) == [found["message"]]
    harness.edit({"engine.args": []})
    await harness.run_for(60)
    after = warned(harness)
    assert after is not None
    assert (after["status"], after["reason"]) == ("False", "Cleared")
    assert len(messages(harness)) == 1


async def test_a_crd_that_does_not_know_the_condition_gets_the_rest_of_the_status(
    harness: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []
    apply = harness.kube.apply

    async def older(kind: Kind, manifest: Manifest, *args: Any, **more: Any) -> Manifest:
        if more.get("subresource") == "status" and "SpecWarned" in str(manifest):
            refused.append("Unsupported value")
            raise KubeError(422, 'status.conditions[5].type: Unsupported value: "SpecWarned"')
        return await apply(kind, manifest, *args, **more)

    monkeypatch.setattr(harness.kube, "apply", older)
    harness.edit(STRANGE)
    await harness.run_for(120)
    assert refused == ["Unsupported value"]
    assert warned(harness) is None
    assert harness.status["observedGeneration"] == harness.resource["metadata"]["generation"]
