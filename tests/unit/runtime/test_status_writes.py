"""The status: written once, also where the API server keeps other fields than it was sent."""

from fathom.core.cluster.kinds import DEPLOYMENT
from support.bench import Bench

LONGEST_MESSAGE = 32_768
"""Of a condition of Kubernetes' own."""


async def test_a_message_is_bounded_and_says_by_how_much() -> None:
    variables = [{"name": f"FATHOM_{i}", "valu": "1"} for i in range(9000)]
    bench = Bench({"podTemplate": {"spec": {"containers": [{"name": "vllm", "env": variables}]}}})
    await bench.tick()
    message = bench.condition("Degraded")["message"]
    assert len(message) <= LONGEST_MESSAGE
    assert "env[0].valu" in message
    assert "more characters" in message
    assert message.endswith("nothing is started.")
    assert bench.kube.names(DEPLOYMENT) == []
