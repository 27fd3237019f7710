"""What a loop hands to the page: what it reports, pass by pass, until the resource is gone."""

from fathom.core.cluster.kinds import SPECULATIVE_DEPLOYMENT
from fathom.core.cluster.snapshot import status_in
from support.bench import KEY, Bench


async def test_each_pass_shows_what_the_status_says(bench: Bench) -> None:
    await bench.tick()
    bench.play_controllers()
    await bench.tick()

    ((key, shown),) = bench.world.shown.statuses()
    written = status_in(bench.resource)
    assert written is not None
    assert key == KEY
    assert (shown.ready, shown.depth.summary) == (written.ready, written.depth.summary)
    assert {each.type for each in shown.conditions} == {each.type for each in written.conditions}
    subject = bench.world.shown.subject(KEY)
    assert subject.document is not None
    assert subject.history is not None


async def test_a_refused_spec_is_shown_too(bench: Bench) -> None:
    bench.edit({"engine.args": ["--port", "1"]})
    await bench.tick()
    ((_, shown),) = bench.world.shown.statuses()
    assert shown.reason == "InvalidSpec"


async def test_a_resource_that_is_gone_is_shown_no_longer(bench: Bench) -> None:
    await bench.tick()
    assert KEY in bench.world.shown
    bench.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    bench.loop.wake()
    await bench.tick()
    assert KEY not in bench.world.shown
