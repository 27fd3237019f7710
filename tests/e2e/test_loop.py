"""The whole loop on real parts. The tests run in order, on one fleet.

How little is written, under traffic and after it: tests/cluster/test_operator_traffic.py.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from markupsafe import escape

from e2e import newcomer
from e2e.observation import by_operator, now, operator_leads, operator_process, until
from fathom.api import names
from fathom.api.status import Compared
from local_cluster.demo.page import save_page
from local_cluster.demo.stage import DemoStage, condition
from local_cluster.engine.language import EASY, HARD, TrafficClass
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.kube import MERGE_PATCH
from support.terminal import Terminal

pytestmark = pytest.mark.e2e

CONCURRENCY = 4
BATCH = 2
"""Requests in one of the two engines."""
GUESS = 3
"""The example's `tokens`."""
DEEP, SHALLOW = 5, 3
"""What follows from how the pair is constructed. Of easy traffic nearly every draft is accepted: 6
or 7 is best, and 5 is far better than 3. Of hard traffic one in ten is: 0 or 1 is best, and 3 far
better than 5; what is best below 3 no busy machine can tell within minutes. `make demo` and
`make bench-engine` sweep every depth."""


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
    assert list(columns)[:10] == [
        "Name", "Ready", "Reason", "Depth", "Accept", "Gain", "Tuning", "Watched", "Age", "Model",
    ]  # fmt: skip
    assert columns["Ready"] == "2/2"
    assert columns["Reason"] == "AllReplicasReady"
    assert columns["Model"] == "/models/target"
    assert columns["Depth"] == "3"
    assert columns["Tuning"].startswith("Auto/")
    # An age, of ten minutes at most.
    assert re.fullmatch(r"\d+s|\d+m(\d+s)?", columns["Watched"])


async def test_a_newcomer_sees_depth_move(stage: DemoStage, terminal: Terminal) -> None:
    await newcomer.looks_on(terminal)

    status = (await stage.fleet.resource())["status"]
    assert status["engine"]["actuation"] == "Live"
    moves = [each for each in status["tuning"]["history"] if each["action"] == "Move"]
    assert moves
    assert all(float(each["expectedGainPercent"]) > 0 for each in moves)


async def test_a_newcomer_tries_another_draft_and_adopts_it_by_the_edit_that_is_named(
    stage: DemoStage, terminal: Terminal
) -> None:
    trial = await newcomer.tries_another_draft(terminal, stage)
    await until(lambda: rolled_out(stage))

    print(trial.message)
    assert trial.result is Compared.FASTER
    pods = await stage.fleet.pods()
    assert trial.pod in {pod.name for pod in pods}
    assert [pod.restarts for pod in pods] == [0, 0]
    resource = await stage.fleet.resource()
    draft = resource["spec"]["draft"]
    assert (draft["id"], "trial" in draft) == ("/models/draft", False)
    assert "draftTrial" not in resource["status"]
    assert resource["status"]["rollout"]["revision"] == trial.revision


async def test_a_newcomer_keeps_the_report(stage: DemoStage, terminal: Terminal) -> None:
    await newcomer.reads_on(terminal)
    page, status = await newcomer.report_beside_status(terminal, stage)

    facts = newcomer.facts_of(page)
    assert facts["Replicas ready"] == status["ready"] == "2/2"
    assert facts["Depth"] == status["depth"]["summary"] != "3"
    assert facts["Tokens per second"] == f"{status['measured']['tokensPerSecond']:,}" != "0"
    assert facts["Tuning"] == status["tuning"]["summary"].partition("/")[0]
    assert facts["Depth changes"] == "while engines run"
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
        await follows(stage, load, EASY, lambda depth: depth >= DEEP)
        await follows(stage, load, HARD, lambda depth: depth <= SHALLOW)

        killed = operator_process(stage.cluster)
        assert killed is not None
        killed_at = now()
        killed.kill()
        # What it wrote last still reaches the engines; nothing comes after it.
        await until(lambda: obeyed(stage))
        depth = await fleet.depth_in_force(BATCH)
        served_before = len(load.results)
        await until(lambda: served(load, served_before + 10))
        assert await fleet.depth_in_force(BATCH) == depth
        await until(lambda: operator_leads(stage.cluster, killed_at))

        await follows(stage, load, EASY, lambda depth: depth >= DEEP)
        await until(lambda: served(load, 300))
        # The status says what moves with every measurement once a minute.
        await until(lambda: accepts_more_than(stage, 2))
        # It is blank for a moment whose batches were not compared yet.
        await until(lambda: shows_gain(stage))
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


async def rolled_out(stage: DemoStage) -> bool:
    rollout = (await stage.fleet.resource())["status"]["rollout"]
    assert rollout["stage"] != "RolledBack", rollout["message"]
    return bool(rollout["stage"] == "Complete")


async def accepts_more_than(stage: DemoStage, tokens: float) -> bool:
    return float((await table(stage))["Accept"]) > tokens


async def shows_gain(stage: DemoStage) -> bool:
    return bool((await table(stage))["Gain"])


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
    assert any(depth is not None for row in data["depths"] for depth in row["depths"])
    assert ">Decision<" in page


async def test_auto_to_advise_is_a_stop_button_without_a_restart(stage: DemoStage) -> None:
    fleet = stage.fleet
    before = await fleet.pods()
    model = (await fleet.resource())["spec"]["model"]["id"]
    async with LoadGenerator(await fleet.service_url(), model, seed=2) as load:
        load.set_phase(Phase(EASY, CONCURRENCY))
        await patch_spec(stage, {"speculation": {"tuning": {"mode": "Advise"}}})
        await until(lambda: in_force(stage, GUESS))
        await patch_spec(stage, {"speculation": {"tuning": {"mode": "Auto"}}})
    assert await fleet.pods() == before


async def test_deletion_leaves_nothing_behind(stage: DemoStage) -> None:
    fleet = stage.fleet
    await fleet.api.request("DELETE", fleet.path)
    await until(lambda: nothing_left(stage))


async def follows(
    stage: DemoStage, load: LoadGenerator, traffic: TrafficClass, right: Callable[[int], bool]
) -> None:
    """Send traffic of a class, and wait until the depth in force is right for it."""

    async def follows() -> bool:
        depth = await stage.fleet.depth_in_force(BATCH)
        return depth is not None and right(depth)

    load.set_phase(Phase(traffic, CONCURRENCY))
    try:
        took = await until(follows)
    except TimeoutError:
        shown = [(await stage.fleet.document()).to_json(), await stage.fleet.counters()]
        tuning = (await stage.fleet.resource())["status"]["tuning"]
        raise AssertionError(f"depth did not follow {traffic.name}: {tuning} {shown}") from None
    print(f"depth followed {traffic.name} in {took:.0f} s")


async def served(load: LoadGenerator, requests: int) -> bool:
    """Enough for "none failed" to say something, however slow the machine."""
    return len(load.results) >= requests


async def obeyed(stage: DemoStage) -> bool:
    return await stage.fleet.depth_in_force(BATCH) is not None


async def in_force(stage: DemoStage, depth: int) -> bool:
    return await stage.fleet.depth_in_force(BATCH) == depth


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
