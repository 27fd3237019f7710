"""Pods whose readiness comes and goes: few events and few writes, and what stays is told."""

from fathom.cluster.kinds import POD
from support.loop_harness import LoopHarness


async def test_readiness_that_comes_and_goes_is_told_rarely_and_what_stays_in_the_end(
    harness: LoopHarness,
) -> None:
    pod, other = harness.kube.names(POD)
    for step in range(180):
        harness.set_ready(pod, ready=bool(step % 2))
        await harness.tick()
        if step < 10:
            assert harness.status["ready"] == f"{1 + step % 2}/2"
        harness.clock.at_s += 20
    statuses = [each for each in harness.kube.writes if each.verb == "status"]
    assert 10 <= len(statuses) <= 24
    assert 10 <= len(harness.kube.written("Event")) <= 24

    for ready in (False, True):
        harness.set_ready(pod, ready=ready)
        await harness.tick()
        await harness.run_for(300)
        assert harness.status["ready"] == f"{1 + ready}/2"
        assert harness.condition("Ready")["status"] == str(ready)
    harness.kube.writes.clear()
    await harness.run_for(900)
    assert harness.kube.news == []

    for name in (pod, other):
        harness.set_ready(name, ready=False)
    await harness.tick()
    assert harness.status["ready"] == "0/2"
    assert harness.condition("Ready")["status"] == "False"
