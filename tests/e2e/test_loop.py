"""The whole loop on real parts. The tests run in order, on one fleet.

How little is written, under traffic and after it: tests/cluster/test_operator_traffic.py.
"""

import asyncio
import datetime as dt
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from markupsafe import escape

from e2e import newcomer
from e2e.observation import by_operator, depth_in_force, now, operator_process, until
from fathom.api import names
from fathom.core.depth import depth_at
from fathom_bench.job.main import (
    CLASSES,
    CONFIG_MAP,
    OUTPUT_TOKENS,
    give_prompts,
    kept_result,
    to_one_replica,
    type_bench,
)
from fathom_bench.job.truth import compared
from fathom_local.demo import measure
from fathom_local.demo.page import save_page
from fathom_local.demo.phases import DemoTiming
from fathom_local.demo.stage import DemoStage, condition, wait_ready
from fathom_local.demo.verdict import is_decided, reaches
from fathom_local.engine.traffic import LoadGenerator, Phase
from fathom_local.engine.walk import EASY, HARD, TrafficClass
from fathom_local.kube import MERGE_PATCH
from support.terminal import Terminal

pytestmark = pytest.mark.e2e

CONCURRENCY = 4
BATCH = 2
"""Requests in one of the two engines."""
ANSWER_SECONDS = 60.0
AS_GOOD = 0.92
"""Of the tokens per second of the best depth."""


async def test_the_example_reaches_ready_with_conditions_that_say_so(stage: DemoStage) -> None:
    resource = await stage.fleet.resource()
    assert resource["status"]["ready"] == "2/2"
    assert resource["status"]["engine"] == {
        "version": "0.32.0",
        "actuation": "Live",
        "reason": "",
    }
    assert condition(resource, "Degraded")["status"] == "False"
    assert condition(resource, "Progressing")["reason"] == "UpToDate"
    # Its config.json lies in the pods, where the operator does not look. Unknown, not refused.
    assert condition(resource, "DraftCompatible")["reason"] == "NotChecked"


async def test_get_sd_answers_at_a_glance(stage: DemoStage) -> None:
    columns = await table(stage)
    assert list(columns)[:9] == [
        "Name", "Ready", "Reason", "Depth", "Accept", "Gain", "Tuning", "Age", "Model",
    ]  # fmt: skip
    assert columns["Ready"] == "2/2"
    assert columns["Reason"] == "AllReplicasReady"
    assert columns["Model"] == "/models/target"
    assert columns["Depth"] == "3"
    assert columns["Tuning"].startswith("Auto/")


async def test_a_newcomer_sees_depth_move_and_keeps_the_report(
    stage: DemoStage, terminal: Terminal
) -> None:
    await newcomer.looks_on(terminal)
    page, status = await newcomer.report_beside_status(terminal, stage)

    assert status["engine"]["actuation"] == "Live"
    moves = [each for each in status["tuning"]["history"] if each["action"] == "Move"]
    assert moves
    assert all(float(each["expectedGainPercent"]) > 0 for each in moves)
    facts = newcomer.facts_of(page)
    assert facts["Ready"] == status["ready"] == "2/2"
    assert facts["State"] == status["reason"]
    assert facts["Depth in force"] == status["depth"]["summary"] != "3"
    assert facts["Tokens per second"] == str(status["measured"]["tokensPerSecond"]) != "0"
    assert facts["Tuning"] == status["tuning"]["summary"]
    assert facts["Depth is live"] == "Live"
    for each in status["tuning"]["history"]:
        assert escape(each["message"]) in page
    assert "in force: " in page


async def test_depth_follows_the_traffic_through_a_killed_operator(stage: DemoStage) -> None:
    """The heart: class changes twice, the operator dies in between, no request notices."""
    fleet = stage.fleet
    spec = (await fleet.resource())["spec"]
    pods_before = await fleet.pods()
    generation_before = (await fleet.resource())["metadata"]["generation"]
    async with LoadGenerator(await fleet.service_url(), spec["model"]["id"]) as load:
        swept = {traffic.name: await sweep(stage, load, traffic) for traffic in (HARD, EASY)}
        # Of depths that a sweep cannot tell apart, hard traffic's shallowest and easy's deepest.
        hard = min(as_good_as_the_best(swept["hard"].rates))
        easy = max(as_good_as_the_best(swept["easy"].rates))
        assert easy - hard >= 3
        await fleet.pin(None)

        await settle(stage, load, EASY, swept["easy"])
        took = await answer(stage, load, HARD, hard)
        print(f"easy → hard: depth moved toward {hard} in {took:.0f} s")

        killed = operator_process(stage.cluster)
        assert killed is not None
        killed_at = now()
        killed.kill()
        # What it wrote last still reaches the engines; nothing comes after it.
        await until(lambda: obeyed(stage), within_seconds=60)
        depth = await depth_in_force(fleet, BATCH)
        served_before = len(load.results)
        await asyncio.sleep(10)
        assert len(load.results) > served_before, "serving stopped with the operator"
        assert await depth_in_force(fleet, BATCH) == depth
        await until(lambda: operator_leads(stage, killed_at), within_seconds=90)

        took = await answer(stage, load, EASY, easy)
        print(f"hard → easy: depth moved toward {easy} in {took:.0f} s")
        await until(lambda: served(load, 300), within_seconds=180)
        # The status says what moves with every measurement once a minute.
        await until(lambda: accepts_more_than(stage, 2), within_seconds=120)
        assert (await table(stage))["Gain"]
        await load.stop()
        results = load.results

    print(f"{len(results)} requests")
    assert [result.error for result in results if not result.ok] == []
    pods_after = await fleet.pods()
    assert pods_after == pods_before, "a pod restarted or was replaced"
    assert (await fleet.resource())["metadata"]["generation"] == generation_before
    spec_writes = [
        event
        for event in by_operator(stage.cluster)
        if event.resource == names.PLURAL and event.is_write and event.subresource != "status"
    ]
    assert spec_writes == []


async def accepts_more_than(stage: DemoStage, tokens: float) -> bool:
    return float((await table(stage))["Accept"]) > tokens


async def test_the_page_shows_it_all_and_is_kept_as_a_file(
    stage: DemoStage, tmp_path: Path
) -> None:
    file = tmp_path / "demo.html"
    said = await save_page(stage.fleet, file)

    assert said.startswith(f"Written: {file}"), said
    page = file.read_text(encoding="utf-8")
    status = (await stage.fleet.resource())["status"]
    assert status["tuning"]["history"][0]["reason"] in page
    data = json.loads(page.partition('id="history">')[2].partition("</script>")[0])
    assert any(each for each in data["tokens_per_second"])
    assert data["decisions"]


async def test_auto_to_advise_is_a_stop_button_without_a_restart(stage: DemoStage) -> None:
    fleet = stage.fleet
    before = await fleet.pods()
    model = (await fleet.resource())["spec"]["model"]["id"]
    async with LoadGenerator(await fleet.service_url(), model, seed=2) as load:
        load.set_phase(Phase(EASY, CONCURRENCY))
        await patch_spec(stage, {"speculation": {"tuning": {"mode": "Advise"}}})
        await until(lambda: in_force(stage, 3), within_seconds=60)
        await patch_spec(stage, {"speculation": {"tuning": {"mode": "Auto"}}})
    assert await fleet.pods() == before


async def test_a_bad_spec_is_refused_in_words_and_replicas_still_follow(stage: DemoStage) -> None:
    fleet = stage.fleet
    # What a current server refuses by itself never gets here.
    bad = {"num_speculative_tokens": "9"}
    await patch_spec(stage, {"draft": {"options": bad}, "replicas": 1})
    await until(lambda: is_invalid(stage), within_seconds=30)
    degraded = condition(await fleet.resource(), "Degraded")
    assert degraded["reason"] == "InvalidSpec"
    assert "spec.draft.options.num_speculative_tokens: " in degraded["message"]
    await until(lambda: serving(stage, 1), within_seconds=60)
    await patch_spec(stage, {"draft": {"options": None}, "replicas": 2})
    await wait_ready(fleet, print)
    assert condition(await fleet.resource(), "Degraded")["status"] == "False"


async def test_a_bench_beside_the_fleet_finds_the_acceptance_that_is_known(
    stage: DemoStage,
) -> None:
    fleet = stage.fleet
    await to_one_replica(stage)
    await give_prompts(stage)
    before = await fleet.pods()
    arguments = [
        *("--prompts", f"configmap:{CONFIG_MAP}/easy.json", "--num-prompts", "20"),
        *("--output-tokens", str(OUTPUT_TOKENS), "--depths", "0,3", "--concurrency", "1"),
    ]
    code = await asyncio.to_thread(type_bench, stage.cluster.kubeconfig, stage, arguments)
    assert code == 0
    assert await fleet.pods() == before
    found = await kept_result(stage)
    assert found.not_measured == ()
    assert {row.depth for row in found.rows} == {None, 0, 3}
    (drafting,) = compared(found, CLASSES, OUTPUT_TOKENS)
    assert drafting.holds, drafting
    assert drafting.row.over_depth_0
    assert drafting.row.over_true_off
    await patch_spec(stage, {"replicas": 2})
    await wait_ready(fleet, print)


async def test_what_needs_new_pods_rolls_them_without_losing_a_request(stage: DemoStage) -> None:
    """Without drafting, and with it again in mode Static; the price is told before it is paid."""
    fleet = stage.fleet
    model = (await fleet.resource())["spec"]["model"]["id"]
    async with LoadGenerator(await fleet.service_url(), model, seed=3) as load:
        load.set_phase(Phase(EASY, 2))
        for drafting, mode, depth in (("Disabled", "Auto", "off"), ("Enabled", "Static", "3")):
            before = {pod.name for pod in await fleet.pods()}
            speculation = {"drafting": drafting, "tuning": {"mode": mode}}
            await patch_spec(stage, {"speculation": speculation, "rollout": {"canaryMinutes": 0}})
            await until(partial(only_new_pods, stage, before, 2), within_seconds=240)
            await wait_ready(fleet, print)
            assert (await table(stage))["Depth"] == depth
    assert [result.error for result in load.results if not result.ok] == []
    assert len(load.results) > 20
    told = await stage.api.request("GET", f"/api/v1/namespaces/{fleet.namespace}/events")
    rolling = [event["message"] for event in told["items"] if event["reason"] == "Rolling"]
    assert sum("spec.speculation.drafting" in message for message in rolling) == 2, rolling


async def test_the_operator_is_refused_nothing(stage: DemoStage) -> None:
    """That it uses all that it may do: tests/cluster/test_rights.py."""
    assert [event for event in by_operator(stage.cluster) if event.code == 403] == []


async def test_deletion_leaves_nothing_behind(stage: DemoStage) -> None:
    fleet = stage.fleet
    await fleet.api.request("DELETE", fleet.path)
    await until(lambda: nothing_left(stage), within_seconds=60)


async def sweep(
    stage: DemoStage, load: LoadGenerator, traffic: TrafficClass
) -> measure.SweepResult:
    """Every other static depth, for a few seconds each."""
    phase = Phase(traffic, CONCURRENCY)
    load.set_phase(phase)
    timing = DemoTiming(sweep_seconds=3.0, sweep_rounds=2)
    swept = await measure.sweep(stage.fleet, phase, range(1, 8, 2), timing, lambda _: None)
    print(f"sweep {traffic.name}: {swept.rates}")
    return swept


async def settle(
    stage: DemoStage, load: LoadGenerator, traffic: TrafficClass, swept: measure.SweepResult
) -> None:
    """Let the tuner come to a depth that is as good as the best of a class.

    A slice of a busy machine is off by a fifth or so, and the sweep's best is chosen for being
    extreme. So where the tuner stays elsewhere, the two are compared in turn, and that decides.
    """
    load.set_phase(Phase(traffic, CONCURRENCY))
    good = as_good_as_the_best(swept.rates)

    async def settled() -> bool:
        return await depth_in_force(stage.fleet, BATCH) in good

    with suppress(TimeoutError):
        await until(settled, within_seconds=60, every=2.0)
        return
    pairs = await measure.compare(
        measure.slices(stage.fleet, seconds=2.5),
        None,
        swept.best,
        enough=lambda ratio: is_decided(ratio, [AS_GOOD]),
        limit_seconds=120,
    )
    await stage.fleet.pin(None)
    found = f"the tuner's depth over static {swept.best}: {pairs.ratio}, {pairs.ratio.pairs} pairs"
    print(found)
    assert reaches(pairs.ratio, AS_GOOD) is not False, found


def as_good_as_the_best(rates: Mapping[int, float]) -> set[int]:
    """Depths whose tokens per second the sweep cannot tell from the best's.

    The sweep tries every other depth for a few seconds; between two of them it goes on in a line.
    """
    swept = sorted(rates)
    between = {(a + b) // 2: (rates[a] + rates[b]) / 2 for a, b in pairwise(swept)}
    known = {**dict(rates), **between}
    return {depth for depth, rate in known.items() if rate >= AS_GOOD * max(rates.values())}


async def answer(
    stage: DemoStage,
    load: LoadGenerator,
    traffic: TrafficClass,
    best: int,
) -> float:
    """Seconds from a change of traffic until the depth in force is nearer to its best."""
    await until(lambda: obeyed(stage), within_seconds=60)  # a probe may have just begun or ended
    before = depth_at((await stage.fleet.document()).schedule, BATCH)
    assert abs(before - best) > 1, "the change of class asks for no change of depth"
    load.set_phase(Phase(traffic, CONCURRENCY))
    try:
        return await until(lambda: near(stage, best, abs(before - best) - 1), ANSWER_SECONDS)
    except TimeoutError:
        shown = [(await stage.fleet.document()).to_json(), await stage.fleet.counters()]
        tuning = (await stage.fleet.resource())["status"]["tuning"]
        raise AssertionError(f"{before} stayed, {best} is best: {tuning} {shown}") from None


async def served(load: LoadGenerator, requests: int) -> bool:
    """Enough for "none failed" to say something, however slow the machine."""
    return len(load.results) >= requests


async def obeyed(stage: DemoStage) -> bool:
    return await depth_in_force(stage.fleet, BATCH) is not None


async def near(stage: DemoStage, best: int, distance: int) -> bool:
    depth = await depth_in_force(stage.fleet, BATCH)
    return depth is not None and abs(depth - best) <= distance


async def in_force(stage: DemoStage, depth: int) -> bool:
    return await near(stage, depth, 0)


async def operator_leads(stage: DemoStage, since: dt.datetime) -> bool:
    """Whether an operator does more than wait for the lease."""
    return any(event.resource != "leases" for event in by_operator(stage.cluster, since))


async def is_invalid(stage: DemoStage) -> bool:
    return condition(await stage.fleet.resource(), "Degraded").get("status") == "True"


async def serving(stage: DemoStage, pods: int) -> bool:
    return len(await stage.fleet.pods()) == pods


async def only_new_pods(stage: DemoStage, before: set[str], ready: int) -> bool:
    pods = await stage.fleet.pods()
    return not before & {pod.name for pod in pods} and sum(pod.ready for pod in pods) == ready


async def nothing_left(stage: DemoStage) -> bool:
    """Whether no object carries the resource's label, or names it as its owner, any more."""
    namespace, name = stage.fleet.namespace, stage.fleet.name
    kinds = {
        "/api/v1": ("pods", "services", "configmaps", "serviceaccounts"),
        "/apis/apps/v1": ("deployments", "replicasets"),
    }
    for prefix, plurals in kinds.items():
        for plural in plurals:
            listed = await stage.api.request("GET", f"{prefix}/namespaces/{namespace}/{plural}")
            for item in listed["items"]:
                if name in json.dumps(item["metadata"].get("ownerReferences", [])):
                    return False
                if item["metadata"].get("labels", {}).get(names.LABEL_NAME) == name:
                    return False
    return True


async def patch_spec(stage: DemoStage, spec: dict[str, object]) -> None:
    await stage.api.request(
        "PATCH", stage.fleet.path, body={"spec": spec}, content_type=MERGE_PATCH
    )


async def table(stage: DemoStage) -> dict[str, str]:
    """The columns that kubectl prints, made by the API server."""
    serialized = await stage.api.client.param_serialize(
        "GET",
        stage.fleet.path,
        header_params={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"},
        auth_settings=["BearerToken"],
    )
    answer = await stage.api.client.call_api(*serialized)
    document = json.loads(await answer.response.read())
    names_ = [column["name"] for column in document["columnDefinitions"]]
    return dict(zip(names_, map(str, document["rows"][0]["cells"]), strict=True))
