"""A URL that would lead the operator elsewhere is refused, and what runs keeps running."""

import pytest

from fathom.core.cluster.kinds import DEPLOYMENT
from support.bench import Bench


@pytest.mark.parametrize(
    "url", ["http://prometheus:9090/?x=", "http://prometheus:9090/#", "http://a:b@prometheus:9090"]
)
async def test_a_url_that_leads_elsewhere_is_refused_and_the_rest_stays(
    bench: Bench, url: str
) -> None:
    before = bench.kube.all_of(DEPLOYMENT)
    bench.edit({"metrics": {"prometheusURL": url}})
    await bench.tick()
    await bench.run_for(300)

    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "InvalidSpec")
    assert "spec.metrics.prometheusURL: this is not the plain base URL" in degraded["message"]
    assert "x=" not in degraded["message"]
    assert bench.kube.all_of(DEPLOYMENT) == before
    assert bench.status["ready"] == "2/2"
    assert len(bench.metrics.asked) == 2
