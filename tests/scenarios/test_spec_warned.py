"""What `fathom check` warns of, the operator reports too: in the status, and by one event."""

from fathom.cluster.kinds import EVENT
from support.loop_harness import LoopHarness

STRANGE = {"engine.image": "acme/vllm:v0.32.0", "engine.args": ["--no-such-option"]}


def warned(harness: LoopHarness) -> list[str]:
    found: list[str] = harness.status.get("warnings", [])
    return found


def messages(harness: LoopHarness) -> list[str]:
    events = harness.kube.all_of(EVENT)
    return [each["message"] for each in events if each["reason"] == "SpecWarned"]


async def test_a_spec_without_warnings_has_none(harness: LoopHarness) -> None:
    assert warned(harness) == []
    assert messages(harness) == []


async def test_a_warning_is_reported_once_and_ends(harness: LoopHarness) -> None:
    harness.edit(STRANGE)
    await harness.run_for(120)
    (found,) = warned(harness)
    assert found.startswith("spec.engine.args[0]: ")
    assert "--no-such-option" in found
    assert messages(harness) == [found]
    harness.restart()
    await harness.run_for(120)
    assert messages(harness) == [found]
    harness.edit({"engine.args": []})
    await harness.run_for(60)
    assert warned(harness) == []
    assert len(messages(harness)) == 1


async def test_all_conditions_are_ones_that_an_older_crd_knows(harness: LoopHarness) -> None:
    """Its API server would refuse every edit of the spec while the status has another one."""
    harness.edit(STRANGE)
    await harness.run_for(60)
    assert {each["type"] for each in harness.status["conditions"]} == {
        "Ready",
        "Progressing",
        "Degraded",
        "DraftCompatible",
        "Tuning",
    }
