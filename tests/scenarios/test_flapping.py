"""Pods whose readiness comes and goes: few events and few writes, and what stays is told."""

from fathom.core.cluster.kinds import POD
from support.bench import Bench


async def test_readiness_that_comes_and_goes_is_told_rarely_and_what_stays_in_the_end(
    bench: Bench,
) -> None:
    pod, other = bench.kube.names(POD)
    for step in range(180):
        bench.set_ready(pod, ready=bool(step % 2))
        await bench.tick()
        if step < 10:
            assert bench.status["ready"] == f"{1 + step % 2}/2"
        bench.clock.at_s += 20
    statuses = [each for each in bench.kube.writes if each.verb == "status"]
    assert 10 <= len(statuses) <= 24
    assert 10 <= len(bench.kube.written("Event")) <= 24

    for ready in (False, True):
        bench.set_ready(pod, ready=ready)
        await bench.tick()
        await bench.run_for(300)
        assert bench.status["ready"] == f"{1 + ready}/2"
        assert bench.condition("Ready")["status"] == str(ready)
    bench.kube.writes.clear()
    await bench.run_for(900)
    assert bench.kube.writes == []

    for name in (pod, other):
        bench.set_ready(name, ready=False)
    await bench.tick()
    assert bench.status["ready"] == "0/2"
    assert bench.condition("Ready")["status"] == "False"
