"""What a loop hands to the page: what it reports, pass by pass, until the resource is gone."""

from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT
from fathom.cluster.snapshot import status_in
from support.loop_harness import KEY, LoopHarness


async def test_each_pass_shows_what_the_status_says(harness: LoopHarness) -> None:
    await harness.tick()
    harness.play_controllers()
    await harness.tick()

    ((key, shown),) = harness.world.shown.statuses()
    written = status_in(harness.resource, SpeculativeDeploymentStatus)
    assert written is not None
    assert key == KEY
    assert (shown.ready, shown.depth.summary) == (written.ready, written.depth.summary)
    assert {each.type for each in shown.conditions} == {each.type for each in written.conditions}
    subject = harness.world.shown.subject(KEY)
    assert subject.document is not None
    assert subject.history is not None


async def test_a_refused_spec_is_shown_too(harness: LoopHarness) -> None:
    harness.edit({"engine.args": ["--port", "1"]})
    await harness.tick()
    ((_, shown),) = harness.world.shown.statuses()
    assert shown.reason == "InvalidSpec"


async def test_a_resource_that_is_gone_is_shown_no_longer(harness: LoopHarness) -> None:
    await harness.tick()
    assert KEY in harness.world.shown
    harness.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    harness.loop.wake()
    await harness.tick()
    assert KEY not in harness.world.shown
