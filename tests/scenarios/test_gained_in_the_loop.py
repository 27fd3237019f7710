"""What was gained: in the status, as metrics, and after a restart of the operator."""

import json
from dataclasses import replace
from typing import Any

from fathom.cluster.kinds import CONFIG_MAP
from fathom.runtime.ports import Decide
from fathom.tuning.gains import Gained
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from support.loop_harness import START_S, LoopHarness, holding

HOUR_S = 3600.0
GAINED = Gained(
    since_s=START_S,
    gained_gpu_s=2 * HOUR_S,
    error_gpu_s=0.1 * HOUR_S,
    measured_gpu_s=40 * HOUR_S,
    unmeasured_gpu_s=1.5 * HOUR_S,
)


def gaining(gained: Gained) -> Decide:
    """A tuner that has gained so much by now."""

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        found = holding(snapshot)
        return replace(found, state=replace(found.state, gained=gained))

    return decide


def shown(harness: LoopHarness) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in harness.world.telemetry.registry.collect()
        for sample in family.samples
        if sample.name.endswith(("gpu_hours", "gpu_hours_error"))
    }


def kept(harness: LoopHarness) -> dict[str, str]:
    found: dict[str, str] = harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"]
    return found


def kept_anew(harness: LoopHarness, **data: str) -> None:
    """As somebody else, or another release, writes it."""
    found: dict[str, Any] = harness.kube.find(CONFIG_MAP, "kimi-tuning")
    harness.kube.put(CONFIG_MAP, found | {"data": kept(harness) | data})


async def gained(harness: LoopHarness) -> None:
    harness.decide = gaining(GAINED)
    await harness.run_for(130)


async def test_it_stands_in_the_status_and_on_the_metrics(harness: LoopHarness) -> None:
    await gained(harness)

    assert harness.status["gained"] == {
        "since": "2027-01-15T08:00:00Z",
        "percent": "5.0",
        "errorPercent": "0.5",
        "gpuHours": "2.00",
        "errorGpuHours": "0.20",
        "measuredGpuHours": "40.00",
        "unmeasuredGpuHours": "1.50",
    }
    assert shown(harness) == {
        "fathom_gained_gpu_hours": 2.0,
        "fathom_gained_gpu_hours_error": 0.2,
        "fathom_measured_gpu_hours": 40.0,
        "fathom_unmeasured_gpu_hours": 1.5,
    }


async def test_where_nothing_was_measured_there_is_no_gain_but_hours(harness: LoopHarness) -> None:
    harness.decide = gaining(Gained(since_s=START_S, unmeasured_gpu_s=HOUR_S))
    await harness.run_for(130)

    assert shown(harness) == {"fathom_measured_gpu_hours": 0.0, "fathom_unmeasured_gpu_hours": 1.0}
    assert "percent" not in harness.status["gained"]
    assert "gpuHours" not in harness.status["gained"]


async def test_before_any_traffic_nothing_is_told(harness: LoopHarness) -> None:
    await harness.run_for(130)

    assert "gained" not in harness.status
    assert shown(harness) == {}


async def test_the_next_operator_goes_on_from_it(harness: LoopHarness) -> None:
    await gained(harness)
    harness.decide = holding
    harness.restart()
    await harness.run_for(130)

    assert harness.status["gained"]["gpuHours"] == "2.00"
    assert shown(harness)["fathom_gained_gpu_hours"] == 2.0


async def test_at_rest_it_is_no_reason_to_write(harness: LoopHarness) -> None:
    await gained(harness)
    harness.kube.writes.clear()
    await harness.run_for(600)

    assert harness.kube.news == []


async def test_what_an_earlier_release_kept_is_taken_over(harness: LoopHarness) -> None:
    """And without what was gained, which begins then."""
    await gained(harness)
    state = kept(harness)["state.json"]
    found: dict[str, Any] = harness.kube.find(CONFIG_MAP, "kimi-tuning")
    older = {key: text for key, text in kept(harness).items() if key != "gained.json"}
    harness.kube.put(CONFIG_MAP, found | {"data": older})
    harness.decide = holding
    harness.restart()
    await harness.run_for(130)

    assert kept(harness)["state.json"] == state
    assert Gained.read(kept(harness)["gained.json"]) == Gained()


async def test_a_newer_release_s_field_is_passed_over(harness: LoopHarness) -> None:
    await gained(harness)
    newer = json.loads(kept(harness)["gained.json"]) | {"later": [1]}
    kept_anew(harness, **{"gained.json": json.dumps(newer)})
    harness.decide = holding
    harness.restart()
    await harness.run_for(130)

    assert harness.status["gained"]["gpuHours"] == "2.00"


async def test_what_cannot_be_read_begins_anew_and_the_rest_is_kept(harness: LoopHarness) -> None:
    await gained(harness)
    kept_anew(harness, **{"gained.json": "junk"})
    harness.decide = holding
    harness.restart()
    await harness.run_for(130)

    assert "gained" not in harness.status
    assert Gained.read(kept(harness)["gained.json"]) == Gained()
    told = [each for each in harness.kube.writes if "StateReset" in str(each.body)]
    assert len(told) == 1


async def test_an_hour_counts_once_for_each_gpu_of_an_engine() -> None:
    """And data-parallel engines count their own seconds."""
    harness = LoopHarness({"engine.tensorParallelSize": 2, "engine.dataParallelSize": 2})
    seen: list[int] = []

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        seen.append(snapshot.gpus)
        return holding(snapshot)

    harness.decide = decide
    await harness.tick()
    assert {*seen} == {2}
