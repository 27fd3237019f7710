"""What was gained: in the status, as metrics, and after a restart of the operator."""

import json
from dataclasses import replace
from typing import Any

from fathom.core.cluster.kinds import CONFIG_MAP
from fathom.runtime.ports import Decide
from fathom.tuning.gained import Gained
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from support.bench import START_S, Bench, holding

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


def shown(bench: Bench) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in bench.world.telemetry.registry.collect()
        for sample in family.samples
        if sample.name.endswith(("gpu_hours", "gpu_hours_error"))
    }


def kept(bench: Bench) -> dict[str, str]:
    found: dict[str, str] = bench.kube.find(CONFIG_MAP, "kimi-tuning")["data"]
    return found


def kept_anew(bench: Bench, **data: str) -> None:
    """As somebody else, or another release, writes it."""
    found: dict[str, Any] = bench.kube.find(CONFIG_MAP, "kimi-tuning")
    bench.kube.put(CONFIG_MAP, found | {"data": kept(bench) | data})


async def gained(bench: Bench) -> None:
    bench.decide = gaining(GAINED)
    await bench.run_for(130)


async def test_it_stands_in_the_status_and_on_the_metrics(bench: Bench) -> None:
    await gained(bench)

    assert bench.status["gained"] == {
        "since": "2027-01-15T08:00:00Z",
        "percent": "5.0",
        "errorPercent": "0.5",
        "gpuHours": "2.00",
        "errorGpuHours": "0.20",
        "measuredGpuHours": "40.00",
        "unmeasuredGpuHours": "1.50",
    }
    assert shown(bench) == {
        "fathom_gained_gpu_hours": 2.0,
        "fathom_gained_gpu_hours_error": 0.2,
        "fathom_measured_gpu_hours": 40.0,
        "fathom_unmeasured_gpu_hours": 1.5,
    }


async def test_where_nothing_was_measured_there_is_no_gain_but_hours(bench: Bench) -> None:
    bench.decide = gaining(Gained(since_s=START_S, unmeasured_gpu_s=HOUR_S))
    await bench.run_for(130)

    assert shown(bench) == {"fathom_measured_gpu_hours": 0.0, "fathom_unmeasured_gpu_hours": 1.0}
    assert "percent" not in bench.status["gained"]
    assert "gpuHours" not in bench.status["gained"]


async def test_before_any_traffic_nothing_is_told(bench: Bench) -> None:
    await bench.run_for(130)

    assert "gained" not in bench.status
    assert shown(bench) == {}


async def test_the_next_operator_goes_on_from_it(bench: Bench) -> None:
    await gained(bench)
    bench.decide = holding
    bench.restart()
    await bench.run_for(130)

    assert bench.status["gained"]["gpuHours"] == "2.00"
    assert shown(bench)["fathom_gained_gpu_hours"] == 2.0


async def test_at_rest_it_is_no_reason_to_write(bench: Bench) -> None:
    await gained(bench)
    bench.kube.writes.clear()
    await bench.run_for(600)

    assert bench.kube.writes == []


async def test_what_an_earlier_release_kept_is_taken_over(bench: Bench) -> None:
    """And without what was gained, which begins then."""
    await gained(bench)
    state = kept(bench)["state.json"]
    found: dict[str, Any] = bench.kube.find(CONFIG_MAP, "kimi-tuning")
    older = {key: text for key, text in kept(bench).items() if key != "gained.json"}
    bench.kube.put(CONFIG_MAP, found | {"data": older})
    bench.decide = holding
    bench.restart()
    await bench.run_for(130)

    assert kept(bench)["state.json"] == state
    assert Gained.read(kept(bench)["gained.json"]) == Gained()


async def test_a_newer_release_s_field_is_passed_over(bench: Bench) -> None:
    await gained(bench)
    newer = json.loads(kept(bench)["gained.json"]) | {"later": [1]}
    kept_anew(bench, **{"gained.json": json.dumps(newer)})
    bench.decide = holding
    bench.restart()
    await bench.run_for(130)

    assert bench.status["gained"]["gpuHours"] == "2.00"


async def test_what_cannot_be_read_begins_anew_and_the_rest_is_kept(bench: Bench) -> None:
    await gained(bench)
    kept_anew(bench, **{"gained.json": "junk"})
    bench.decide = holding
    bench.restart()
    await bench.run_for(130)

    assert "gained" not in bench.status
    assert Gained.read(kept(bench)["gained.json"]) == Gained()
    told = [each for each in bench.kube.writes if "StateReset" in str(each.body)]
    assert len(told) == 1


async def test_an_hour_counts_once_for_each_gpu_of_an_engine() -> None:
    """And data-parallel engines count their own seconds."""
    bench = Bench({"engine.tensorParallelSize": 2, "engine.dataParallelSize": 2})
    seen: list[int] = []

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        seen.append(snapshot.gpus)
        return holding(snapshot)

    bench.decide = decide
    await bench.tick()
    assert {*seen} == {2}
