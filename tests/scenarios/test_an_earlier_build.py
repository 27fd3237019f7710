"""An operator takes over what another build has written: that of commit 47133676.

`earlier/build_47133676.json` holds what that build wrote for each example of one node, and what its
tuner had learned of one fleet in three hours of simulated traffic. The plugin's code is left out.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD, SPECULATIVE_DEPLOYMENT
from fathom.engine.depth import DepthDocument, flat
from fathom.engine.plugin import plugin_bundle
from fathom.tuning.learned_state import TuningState
from fathom.tuning.tuner import decide
from support.loop_harness import START_S, LoopHarness

WRITTEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "earlier" / "build_47133676.json").read_text(encoding="utf-8")
)
KINDS = {each.kind: each for each in (CONFIG_MAP, DEPLOYMENT)}


def taken_over(name: str) -> LoopHarness:
    """What that build left of an example, with its pods, under an operator of today."""
    found = WRITTEN[name]
    harness = LoopHarness()
    harness.bundle = plugin_bundle()
    harness.decide = decide
    harness.clock.at_s = found.get("at_s", START_S + 600) + 60
    harness.kube.put(SPECULATIVE_DEPLOYMENT, found["resource"])
    for each in found["written"]:
        harness.kube.put(KINDS[each["kind"]], each)
    harness.metrics.generation = 1000
    harness.play_controllers()
    harness.restart()
    harness.kube.writes.clear()
    return harness


def document(harness: LoopHarness) -> DepthDocument:
    found = DepthDocument.from_json(
        harness.kube.find(CONFIG_MAP, "kimi-depth")["data"]["depth.json"]
    )
    assert found is not None
    return found


def kept(harness: LoopHarness) -> TuningState:
    data: dict[str, str] = harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"]
    return TuningState.from_json(data["state.json"])


@pytest.mark.parametrize("name", sorted(WRITTEN))
async def test_no_pod_rolls(name: str) -> None:
    harness = taken_over(name)
    pods = harness.kube.names(POD)
    assert pods
    for _ in range(30):
        await harness.run_for(60)
        harness.play_controllers()
    assert harness.kube.names(POD) == pods
    assert harness.kube.written("Deployment") == []
    assert harness.condition("Ready")["status"] == "True"


async def test_nothing_learned_is_lost() -> None:
    harness = taken_over("learned")
    before = kept(harness)
    text = harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"]["state.json"]
    assert len(before.step_times.cells) == len(json.loads(text)["step_times"]["cells"]) > 0
    depths = document(harness)
    await harness.run_for(3600)
    after = kept(harness)
    assert after.step_times == before.step_times
    assert after.survival == before.survival
    assert after.visits == before.visits
    # An earlier Fathom did not write what engines go back to. To add it is no new generation.
    assert depths.tokens == ()
    assert document(harness) == replace(depths, tokens=flat(3, 1024))
