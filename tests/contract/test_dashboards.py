"""The chart's dashboards against a real Prometheus, which scrapes the operator and an engine."""

import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import generate_latest
from pydantic import JsonValue

from fathom.adapters.series import FAMILIES
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType, Reason
from fathom.api.status import Condition, GainedStatus, MeasuredStatus, SpeculativeDeploymentStatus
from fathom.cluster.kinds import ObjectKey
from fathom.engine.depth import DepthDocument, flat
from fathom.runtime.telemetry import Telemetry
from local_cluster.engine.language import EASY
from local_cluster.engine.process import EngineProcess, simulated_setup
from local_cluster.engine.traffic import LoadGenerator, Phase
from support.monitoring import DASHBOARDS, alerts, dashboard, metrics_of, queries
from support.prometheus import running_prometheus
from support.waiting import until

GOOD, BAD = ObjectKey("llm", "kimi"), ObjectKey("llm", "glm")
POD = "a-pod-of-others-0"
"""Whose name says nothing of who tunes it."""
VARIABLES = {"$__rate_interval": "3s", "$namespace": GOOD.namespace, "$name": GOOD.name}
"""As Grafana puts them into a query."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    with EngineProcess(simulated_setup(), tmp_path_factory.mktemp("engine")) as process:
        yield process


def condition(kind: ConditionType, *, holds: bool, reason: Reason) -> Condition:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(
        type=kind, status=status, reason=reason, last_transition_time="2026-01-01T00:00:00Z"
    )


def busy(telemetry: Telemetry) -> None:
    """A moment in the life of an operator with one resource that is well, and one that is not."""
    for key, well in ((GOOD, True), (BAD, False)):
        with telemetry.timed():
            telemetry.decided(key, "Hold", Reason.AT_BEST)
            telemetry.wrote(key, "ConfigMap", "patch")
            telemetry.failed(key)
        ready = Reason.ALL_REPLICAS_READY if well else Reason.REPLICAS_NOT_READY
        degraded = Reason.AS_EXPECTED if well else Reason.POD_UNSCHEDULABLE
        conditions = (
            condition(ConditionType.READY, holds=well, reason=ready),
            condition(ConditionType.DEGRADED, holds=not well, reason=degraded),
        )
        status = SpeculativeDeploymentStatus(
            conditions=conditions,
            measured=MeasuredStatus(gain_percent="4.2", headroom_tokens_per_second=900),
            gained=GainedStatus(
                since="2026-01-01T00:00:00Z",
                gpu_hours="41.2",
                error_gpu_hours="5.4",
                measured_gpu_hours="675.00",
                unmeasured_gpu_hours="0.20",
            ),
        )
        telemetry.reported(key, status, 0.0)
        telemetry.pods(key, [POD] if well else [])
        telemetry.depth(key, DepthDocument(generation=1, schedule=flat(3, 16)))
        telemetry.alarms(key, () if well else (AlarmKind.DRAFT_MISMATCH,))
        telemetry.looked_after(key, lambda: 0.5)
    telemetry.leads(lambda: True)


@asynccontextmanager
async def operator_page(telemetry: Telemetry) -> AsyncIterator[str]:
    """Where the operator's metrics are served, host and port."""

    async def page(_: web.Request) -> web.Response:
        busy(telemetry)
        return web.Response(body=generate_latest(telemetry.registry))

    app = web.Application()
    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def shown_by(address: str) -> set[str]:
    """The names of the metrics on a page."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}/metrics") as response,
    ):
        lines = (await response.text()).splitlines()
    return {line.partition("{")[0].partition(" ")[0] for line in lines if line[:1] != "#"}


def address_of(engine: EngineProcess) -> str:
    return engine.base_url.removeprefix("http://")


def jobs(operator: str, engine: str) -> list[Mapping[str, JsonValue]]:
    """How a Prometheus scrapes both, as the PodMonitors have it."""
    of_operator: JsonValue = {
        "targets": [operator],
        "labels": {"namespace": "fathom-system", "pod": "fathom-5f6g7-x8z9q"},
    }
    of_engine: JsonValue = {
        "targets": [engine],
        "labels": {"namespace": "llm", "pod": POD},
    }
    return [
        {"job_name": "operator", "honor_labels": True, "static_configs": [of_operator]},
        {"job_name": "vllm", "static_configs": [of_engine]},
    ]


def filled_in(query: str) -> str:
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return query


async def test_alerts_and_dashboards_name_only_metrics_that_exist(engine: EngineProcess) -> None:
    async with operator_page(Telemetry()) as operator:
        exist = FAMILIES | await shown_by(operator) | await shown_by(address_of(engine))
    asked = [*queries(), *((name, rule["expr"]) for name, rule in alerts().items())]
    for where, query in asked:
        assert metrics_of(query), where
        assert metrics_of(query) - exist == set(), where
    for path in DASHBOARDS:
        for variable in dashboard(path)["templating"]["list"]:
            asks = variable["query"]
            assert asks == "prometheus" or "label_values(fathom_condition" in asks["query"]


async def test_every_panel_shows_something(engine: EngineProcess, tmp_path: Path) -> None:
    async with (
        operator_page(Telemetry()) as operator,
        LoadGenerator(engine.base_url, engine.model) as load,
        running_prometheus(jobs(operator, address_of(engine)), tmp_path) as url,
        aiohttp.ClientSession() as session,
    ):
        load.set_phase(Phase(EASY, concurrency=2, max_tokens=8))

        async def trouble(query: str) -> str:
            """What is wrong with the answer; empty: nothing."""
            parameters = {"query": filled_in(query)}
            async with session.get(f"{url}/api/v1/query", params=parameters) as response:
                told = await response.json()
            if told["status"] != "success":
                return f"{told['error']}: {query}"
            values = [float(each["value"][1]) for each in told["data"]["result"]]
            return "" if any(map(math.isfinite, values)) else f"no data, but {values}: {query}"

        found: dict[str, str] = {}

        async def all_show() -> bool:
            found.clear()
            for where, query in queries():
                if why := await trouble(query):
                    found[where] = why
            return not found

        try:
            await until(all_show, "every panel shows something", every_s=0.5)
        except pytest.fail.Exception as failure:
            pytest.fail(f"{failure.msg} {found}")
