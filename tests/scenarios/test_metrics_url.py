"""A URL that would lead the operator elsewhere is refused, and what runs keeps running."""

import pytest

from fathom.cluster.kinds import DEPLOYMENT
from support.loop_harness import LoopHarness


@pytest.mark.parametrize(
    "url", ["http://prometheus:9090/?x=", "http://prometheus:9090/#", "http://a:b@prometheus:9090"]
)
async def test_a_url_that_leads_elsewhere_is_refused_and_the_rest_stays(
    harness: LoopHarness, url: str
) -> None:
    before = harness.kube.all_of(DEPLOYMENT)
    harness.edit({"metrics": {"prometheusURL": url}})
    await harness.tick()
    await harness.run_for(300)

    degraded = harness.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "InvalidSpec")
    assert "spec.metrics.prometheusURL: this is not the plain base URL" in degraded["message"]
    assert "x=" not in degraded["message"]
    assert harness.kube.all_of(DEPLOYMENT) == before
    assert harness.status["ready"] == "2/2"
    assert len(harness.metrics.asked) == 2
