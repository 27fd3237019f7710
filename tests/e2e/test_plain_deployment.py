"""A plain Deployment with a real vLLM that Fathom did not start: watched, advised, tuned, let go.

By the lines of docs/attach.md. After test_on_kind.py, whose fleet is gone; no request is lost.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest
import yaml

from e2e.observation import by_operator, now, operator_leads, operator_process, removed, until
from fathom.adapters.metrics_page import parse
from fathom.api import names
from fathom.engine.depth import DepthDocument, depth_at
from fathom.measurement.counters import PodCounters
from fathom_vllm.bundle import bundle_zip
from fathom_vllm.environment import DEPTH_KEY
from local_cluster.demo.stage import (
    EXAMPLE,
    OPERATOR_NAMESPACE,
    DemoStage,
    condition,
    install_operator,
)
from local_cluster.engine.language import EASY
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.helm import find_helm
from local_cluster.kube import MERGE_PATCH, Object
from support.local_cluster import is_ready
from support.pages import DOCS, plain_blocks
from support.terminal import Terminal

pytestmark = pytest.mark.e2e

NAME: Final = "plain"
TUNERS: Final = f"/apis/{names.API_VERSION}/namespaces/llm/{names.TUNER_PLURAL}"
CONFIG_MAPS: Final = "/api/v1/namespaces/llm/configmaps"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/llm/deployments"
DOCUMENT: Final = names.tuner_depth_config_map("qwen")
OWN: Final = {
    *(("configmaps", each) for each in (DOCUMENT, names.tuner_state_config_map("qwen"))),
    (names.TUNER_PLURAL, "qwen"),
}
"""All that an operator writes for the tuner, by resource and name."""
CONCURRENCY: Final = 2
PLUGIN: Final = "fathom-plugin"
DRAFT: Final = {"model": "/models/draft", "method": "eagle3", "num_speculative_tokens": 3}
SCHEDULE: Final = [[1, 12, 3], [13, 13, 7], [14, 14, 5], [15, 15, 1], [16, 16, 0]]


def lines() -> dict[str, list[Any]]:
    """What the page has its reader add to the container and to the pod."""
    (block,) = [each for each in plain_blocks(DOCS / "attach.md") if each.startswith("env:")]
    found: dict[str, list[Any]] = yaml.safe_load(block.replace("fathom-plugin-HASH", PLUGIN))
    return found


def pod_template(drafting: Object, *more: str, added: dict[str, list[Any]] | None = None) -> Object:
    """A pod as its host starts it, with the lines of the page or without."""
    engine: Object = yaml.safe_load(EXAMPLE.read_text())["spec"]["engine"]
    lines_of = added or {"env": [], "volumeMounts": [], "volumes": []}
    return {
        "metadata": {"labels": {"app": NAME}},
        "spec": {
            "terminationGracePeriodSeconds": 140,
            "containers": [
                {
                    "name": "main",
                    "image": engine["image"],
                    "command": ["vllm", "serve"],
                    "args": [
                        "/models/target",
                        *engine["args"],
                        "--speculative-config",
                        json.dumps(drafting),
                        "--shutdown-timeout",
                        "120",
                        *more,
                    ],
                    "env": [*engine["env"], *lines_of["env"]],
                    "ports": [{"name": "http", "containerPort": 8000}],
                    "resources": {"limits": {"cpu": "1"}},
                    "readinessProbe": {
                        "httpGet": {"path": "/health", "port": 8000},
                        "periodSeconds": 5,
                        "timeoutSeconds": 5,
                    },
                    "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
                    "volumeMounts": lines_of["volumeMounts"],
                }
            ],
            "volumes": lines_of["volumes"],
        },
    }


class Host:
    """Whoever owns the pods."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage
        self.api = stage.api

    async def create(self) -> None:
        meta = {"name": NAME, "namespace": "llm"}
        body: Object = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": NAME}},
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": pod_template(dict(DRAFT)),
            },
        }
        await self.api.request("POST", DEPLOYMENTS, body=body)
        service: Object = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": {"app": NAME}, "ports": [{"port": 8000, "targetPort": 8000}]},
        }
        await self.api.request("POST", "/api/v1/namespaces/llm/services", body=service)

    async def patch(self) -> None:
        """The lines of the page, and one restart."""
        plugin: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PLUGIN, "namespace": "llm"},
            "binaryData": {"fathom.zip": base64.b64encode(bundle_zip()).decode()},
        }
        await self.api.request("POST", CONFIG_MAPS, body=plugin)
        drafting = DRAFT | {
            "num_speculative_tokens": 7,
            "num_speculative_tokens_per_batch_size": SCHEDULE,
        }
        scheduler = "--scheduler-cls=fathom_vllm.scheduler.LiveDepthScheduler"
        template = pod_template(drafting, scheduler, added=lines())
        await self.api.request(
            "PATCH",
            f"{DEPLOYMENTS}/{NAME}",
            body={"spec": {"template": template}},
            content_type=MERGE_PATCH,
        )

    async def pods(self) -> list[Object]:
        listed = await self.api.request(
            "GET", "/api/v1/namespaces/llm/pods", query={"labelSelector": f"app={NAME}"}
        )
        return [each for each in listed["items"] if "deletionTimestamp" not in each["metadata"]]

    async def serves(self) -> bool:
        pods = await self.pods()
        return len(pods) == 1 and all(map(is_ready, pods))

    async def url(self) -> str:
        service = await self.api.request("GET", f"/api/v1/namespaces/llm/services/{NAME}")
        return f"http://{service['spec']['clusterIP']}:8000"

    async def page(self) -> PodCounters:
        """What its one engine shows."""
        (pod,) = await self.pods()
        async with self._stage.fleet.http.get(
            f"http://{pod['status']['podIP']}:8000/metrics"
        ) as answer:
            text = await answer.text()
        return parse(text, pod=pod["metadata"]["name"], at_s=0.0)

    async def restart(self) -> None:
        """As `kubectl rollout restart` does it, until another pod serves alone."""
        before = {each["metadata"]["name"] for each in await self.pods()}
        annotations = {"kubectl.kubernetes.io/restartedAt": now().isoformat()}
        await self.api.request(
            "PATCH",
            f"{DEPLOYMENTS}/{NAME}",
            body={"spec": {"template": {"metadata": {"annotations": annotations}}}},
            content_type=MERGE_PATCH,
        )

        async def serves_by_another() -> bool:
            others = {each["metadata"]["name"] for each in await self.pods()} - before
            return bool(others) and await self.serves()

        await until(serves_by_another)

    async def is_on_its_own(self) -> bool:
        """Whether its engine saw its document go, and obeys none."""
        page = await self.page()
        return page.document_gone and page.depth_generation == 0

    async def remove(self) -> None:
        await self.api.request("DELETE", f"{DEPLOYMENTS}/{NAME}")
        await self.api.request("DELETE", f"/api/v1/namespaces/llm/services/{NAME}")

        async def gone() -> bool:
            return not await self.pods()

        await until(gone)


class Killer:
    """Kills the operator after a write to each object of a tuner, from one moment on."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage
        self._from = now()
        self._died_after: set[tuple[str, str]] = set()

    async def died_after_each(self) -> bool:
        """Whether it died after a write to each object of a tuner; if not, it may now die once."""
        for event in by_operator(self._stage.cluster, self._from):
            target = (event.resource, event.name)
            if event.is_write and target in OWN - self._died_after:
                self._died_after.add(target)
                await self._kill()
                break
        return self._died_after == OWN

    async def _kill(self) -> None:
        killed = operator_process(self._stage.cluster)
        assert killed is not None
        killed.kill()

        async def runs_again() -> bool:
            process = operator_process(self._stage.cluster)
            return process is not None and process.pid != killed.pid

        await until(runs_again)
        # What the first one asked for last may come into the log late.
        began_at = now()
        await until(lambda: operator_leads(self._stage.cluster, began_at))


@pytest.fixture
async def operator(stage: DemoStage) -> AsyncIterator[None]:
    """It is there again after a test that uninstalls it."""
    yield
    if operator_process(stage.cluster) is None:
        await install_operator(stage.cluster)


async def test_an_engine_of_another_s_is_tuned_where_it_is(
    stage: DemoStage,
    terminal: Terminal,
    operator: None,  # noqa: ARG001 - it comes back
) -> None:
    await removed(stage.fleet)  # two processors are this engine's own then
    host, began_at = Host(stage), now()
    await host.create()
    await until(host.serves)
    await stage.api.request("POST", TUNERS, body=_tuner())

    async with LoadGenerator(await host.url(), "/models/target") as load:
        load.set_phase(Phase(EASY, CONCURRENCY))
        await _is_watched(stage)
        await host.patch()
        await _is_advised(stage, host)

        # Let go in the middle of a probe.
        await _tune(stage, "Auto")
        await until(lambda: _probes(stage))
        await terminal.says("fathom detach qwen -n llm", "3. SpeculationTuner qwen")
        assert (await host.page()).runs(_flat_at(3, await _document(stage)))

        # Tuned again, by an operator that dies after each kind of write.
        killer = Killer(stage)
        await _tune(stage, "Auto")

        # A status is written once a minute, a deep document sooner or later than that.
        await until(killer.died_after_each)

        async def is_deep() -> bool:
            document = await _document(stage)
            deep = document is not None and depth_at(document.schedule, CONCURRENCY) > 3
            return deep and document is not None and (await host.page()).runs(document)

        await until(is_deep)

        # The host restarts its pods: the next one has the depth in force.
        await host.restart()
        await until(is_deep)

        # All of it goes. The engine that runs goes back, and so does the next.
        await asyncio.to_thread(_uninstall, stage)
        await stage.api.request("DELETE", f"{TUNERS}/qwen")
        took_s = await until(host.is_on_its_own)
        print(f"back at the user's depth {took_s:.0f} s after the tuner was deleted")
        await host.restart()
        assert (await host.page()).depth_generation == 0
        await load.stop()

    print(f"{len(load.results)} requests")
    assert [each.error for each in load.results if not each.ok] == []
    written = {
        (event.resource, event.name)
        for event in by_operator(stage.cluster, began_at)
        if event.is_write and event.resource not in {"events", "leases"}
    }
    pods = {each for each in written if each[0] == "pods"}
    assert written - pods <= OWN
    await host.remove()


async def _is_watched(stage: DemoStage) -> None:
    """As a stock engine can be."""
    await until(_says(stage, lambda status: status["breakEven"]))
    status = await _status(stage)
    assert (status["level"], status["reason"]) == ("Metrics", "PluginMissing")
    assert [each["depth"] for each in status["breakEven"]] == [2, 1]


async def _is_advised(stage: DemoStage, host: Host) -> None:
    """And nothing is written for the engine."""
    await until(_says(stage, lambda status: "Would move" in _tuning(status)))
    await until(host.serves)
    status = await _status(stage)
    assert status["level"] == "Live"
    assert status["engines"][0]["depths"] == "0,1,3,5,7"
    assert await _document(stage) is None


async def _tune(stage: DemoStage, mode: str) -> None:
    await stage.api.request(
        "PATCH",
        f"{TUNERS}/qwen",
        body={"spec": {"tuning": {"mode": mode}}},
        content_type=MERGE_PATCH,
    )


async def _probes(stage: DemoStage) -> bool:
    document = await _document(stage)
    return document is not None and bool(document.ends)


def _flat_at(depth: int, document: DepthDocument | None) -> DepthDocument:
    """A document that asks every batch for a depth, and no pod for another."""
    assert document is not None
    assert not document.pods
    assert {each.depth for each in document.schedule} == {depth}
    return document


def _uninstall(stage: DemoStage) -> None:
    find_helm().uninstall("fathom", OPERATOR_NAMESPACE, kubeconfig=stage.cluster.kubeconfig)


def _tuner() -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.TUNER_KIND,
        "metadata": {"name": "qwen", "namespace": "llm"},
        "spec": {
            "selector": {"matchLabels": {"app": NAME}},
            "tuning": {"windowSeconds": 5},
        },
    }


async def _status(stage: DemoStage) -> Object:
    resource = await stage.api.request("GET", f"{TUNERS}/qwen")
    status: Object = resource.get("status", {})
    return {"breakEven": [], **status}


def _says(stage: DemoStage, holds: Callable[[Object], object]) -> Callable[[], Awaitable[bool]]:
    async def says() -> bool:
        return bool(holds(await _status(stage)))

    return says


def _tuning(status: Object) -> str:
    found = condition({"status": status}, "Tuning")
    return str(found.get("message", ""))


async def _document(stage: DemoStage) -> DepthDocument | None:
    listed = await stage.api.request("GET", CONFIG_MAPS)
    found = [each for each in listed["items"] if each["metadata"]["name"] == DOCUMENT]
    return DepthDocument.from_json(found[0]["data"][DEPTH_KEY]) if found else None
