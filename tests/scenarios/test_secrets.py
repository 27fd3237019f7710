"""No secret in foreign words gets into the status or an event."""

import json

from fathom.cluster.kinds import EVENT, POD
from support.loop_harness import LoopHarness

SHAPED = "hf_abcdefghijklmnopqrstuvwxyz012345678"
LITERAL = "a-plain-word"
WORDS = f"RuntimeError: 401 for https://svc:s3cr3t@mirror.acme/api, {SHAPED}, {LITERAL}: no access"


def said(harness: LoopHarness) -> str:
    return json.dumps(harness.status) + json.dumps(harness.kube.all_of(EVENT))


async def test_an_engine_s_last_words_are_told_without_them() -> None:
    harness = LoopHarness(
        {"replicas": 2, "engine.env": [{"name": "OUR_API_KEY", "value": LITERAL}]}
    )
    await harness.until_ready()
    ended = {"exitCode": 1, "reason": "Error", "message": WORDS}
    crashed = {
        "name": "vllm",
        "image": "x",
        "restartCount": 2,
        "ready": False,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    harness.set_ready(harness.kube.names(POD)[0], ready=False, containerStatuses=[crashed])
    await harness.tick()
    degraded = harness.condition("Degraded")["message"]
    assert "401 for https://(hidden)@mirror.acme/api, (hidden), (hidden): no access" in degraded
    assert [each for each in ("s3cr3t", SHAPED, LITERAL) if each in said(harness)] == []
    assert "exited with code 1" in json.dumps(harness.kube.all_of(EVENT))
    harness.kube.writes.clear()
    await harness.tick()
    assert harness.kube.writes == []
