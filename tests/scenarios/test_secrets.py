"""No secret in foreign words gets into the status or an event."""

import json

from fathom.core.cluster.kinds import EVENT, POD
from support.bench import Bench

SHAPED = "hf_abcdefghijklmnopqrstuvwxyz012345678"
LITERAL = "a-plain-word"
WORDS = f"RuntimeError: 401 for https://svc:s3cr3t@mirror.acme/api, {SHAPED}, {LITERAL}: no access"


def said(bench: Bench) -> str:
    return json.dumps(bench.status) + json.dumps(bench.kube.all_of(EVENT))


async def test_an_engine_s_last_words_are_told_without_them() -> None:
    bench = Bench({"replicas": 2, "engine.env": [{"name": "OUR_API_KEY", "value": LITERAL}]})
    await bench.until_ready()
    ended = {"exitCode": 1, "reason": "Error", "message": WORDS}
    crashed = {
        "name": "vllm",
        "image": "x",
        "restartCount": 2,
        "ready": False,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    bench.set_ready(bench.kube.names(POD)[0], ready=False, containerStatuses=[crashed])
    await bench.tick()
    degraded = bench.condition("Degraded")["message"]
    assert "401 for https://(hidden)@mirror.acme/api, (hidden), (hidden): no access" in degraded
    assert [each for each in ("s3cr3t", SHAPED, LITERAL) if each in said(bench)] == []
    assert "exited with code 1" in json.dumps(bench.kube.all_of(EVENT))
    bench.kube.writes.clear()
    await bench.tick()
    assert bench.kube.writes == []
