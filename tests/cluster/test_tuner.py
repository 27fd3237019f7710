"""A SpeculationTuner beside pods of somebody else, on a real API server: attach, watch, detach."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import jsonschema
import pytest
import yaml
from kubernetes.aio.client.exceptions import ApiException

from fathom.api import names
from local_cluster.kube import Object
from support.hosts import CONFIG
from support.local_cluster import TestNamespace, own_binaries
from support.operated import SIMULATED
from support.operator_process import TUNER_CRD, Operator, install_crd, operator_in
from support.waiting import guarded, until

pytestmark = pytest.mark.cluster

SCHEMAS: Final = Path(__file__).parents[2] / "docs" / "schemas"
FATHOM: Final = str(Path(sys.executable).with_name("fathom"))
CEL_SINCE: Final = (1, 25)
STRATEGIC: Final = "application/strategic-merge-patch+json"
HOST: Final[Object] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "qwen", "labels": {"app.kubernetes.io/managed-by": "Helm"}},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "qwen"}},
        "template": {
            "metadata": {"labels": {"app": "qwen"}},
            "spec": {
                "terminationGracePeriodSeconds": 2,
                "containers": [
                    {
                        "name": "vllm-openai",
                        "image": "fathom.local/shell:v0.32.0",
                        "command": SIMULATED,
                        "args": [
                            *("pair", "--speculative-config", CONFIG),
                            *("--max-num-seqs=16", "--enforce-eager"),
                        ],
                        "ports": [{"containerPort": 8000}],
                        "readinessProbe": {
                            "httpGet": {"path": "/health", "port": 8000},
                            "periodSeconds": 1,
                        },
                    }
                ],
            },
        },
    },
}


TUNER: Final[Object] = {
    "apiVersion": names.API_VERSION,
    "kind": names.TUNER_KIND,
    "metadata": {"name": "qwen"},
    "spec": {"selector": {"matchLabels": {"app": "qwen"}}},
}


class Tuner:
    """One SpeculationTuner, as its user has it."""

    def __init__(self, namespace: TestNamespace) -> None:
        self.namespace = namespace

    async def apply(self, manifest: Object) -> None:
        await self.namespace.create(manifest)

    async def get(self, name: str = "qwen") -> Object:
        found = await self.namespace.get(names.TUNER_KIND, name)
        assert found is not None
        return found

    async def edit(self, spec: Object) -> None:
        await self.namespace.patch(names.TUNER_KIND, "qwen", {"spec": spec})

    async def attached(self, reason: str, name: str = "qwen") -> Object:
        """Its status, as soon as its condition Attached has this reason."""
        seen: list[Object] = [{}]

        async def look() -> Object | None:
            seen[0] = (await self.get(name)).get("status") or {}
            conditions = {each["type"]: each for each in seen[0].get("conditions", [])}
            return seen[0] if conditions.get("Attached", {}).get("reason") == reason else None

        try:
            return await until(look, f"Attached says {reason}")
        except pytest.fail.Exception as failure:
            pytest.fail(f"{failure.msg} {seen[0]}")


@pytest.fixture
async def tuner(namespace: TestNamespace) -> Tuner:
    await install_crd(namespace, yaml.safe_load(TUNER_CRD.read_text(encoding="utf-8")))
    return Tuner(namespace)


@pytest.fixture
async def operator(
    namespace: TestNamespace,
    tuner: Tuner,  # noqa: ARG001 - its CRD is there first
    tmp_path: Path,
) -> AsyncIterator[Operator]:
    # With the few rights that tuners need.
    async with operator_in(namespace, tmp_path, tuners_only=True) as operator:
        yield operator
        assert not [event for event in operator.requests() if event.code == 403]


async def fathom(namespace: TestNamespace, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(FATHOM, *words, "-n", namespace.name, f"--kubeconfig={namespace.cluster.kubeconfig}"),
        env={**os.environ, "COLUMNS": "160"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with guarded(f"fathom {words[0]} ends"):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def kubectl(namespace: TestNamespace, home: Path, *words: str) -> str:
    binaries = await asyncio.to_thread(own_binaries)
    process = await asyncio.create_subprocess_exec(
        *(str(binaries.directory / "kubectl"), *words, "-n", namespace.name),
        # Where kubectl keeps what it discovers.
        env={"KUBECONFIG": str(namespace.cluster.kubeconfig), "HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
    )
    async with guarded("kubectl ends"):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def printed(namespace: TestNamespace, what: str) -> Object:
    code, out, err = await fathom(namespace, "attach", "deployment/qwen", "--print", what)
    assert (code, err) == (0, "")
    found: Object = yaml.safe_load(out)
    return found


async def seen_by_commands(namespace: TestNamespace, *, level: str) -> None:
    """What people see of a well tuner that gets no requests, and that documents hold the same."""
    code, out, err = await fathom(namespace, "top")
    assert (code, err) == (0, "")
    header, row = (line.split() for line in out.splitlines())
    assert header[:4] == ["NAME", "ALARMS", "READY", "LEVEL"]
    assert row[:4] == ["tuner/qwen", "–", "1/1", level]

    code, listed, err = await fathom(namespace, "status")
    assert (code, err) == (0, "")
    assert listed.startswith(f"✔ SpeculationTuner {namespace.name}/qwen is well.")
    # No SpeculativeDeployment has that name.
    for typed in ("tuner/qwen", "qwen"):
        code, out, err = await fathom(namespace, "status", typed)
        assert (code, err) == (0, "")
        assert out.startswith(f"SpeculationTuner {namespace.name}/qwen is well.")
        assert f"1/1 readable, level {level}" in out
        assert "· traffic" in out

    code, out, err = await fathom(namespace, "explain", "tuner/qwen")
    assert (code, err) == (0, "")
    assert out.startswith("SpeculationTuner qwen: mode Advise, objective Throughput, tokens ")
    code, out, err = await fathom(namespace, "history", "tuner/qwen")
    assert (code, err) == (0, "")
    assert out  # without requests nothing may have been decided yet

    for words in (("top",), *((each, "tuner/qwen") for each in ("status", "explain", "history"))):
        code, out, err = await fathom(namespace, *words, "-o", "json")
        assert (code, err) == (0, ""), words
        document = json.loads(out)
        schema = json.loads((SCHEMAS / f"{document['kind']}.json").read_text(encoding="utf-8"))
        jsonschema.validate(document, schema, jsonschema.Draft202012Validator)
        of_one = document if "resourceKind" in document else document["items"][0]
        assert (of_one["resourceKind"], of_one["name"]) == ("SpeculationTuner", "qwen")


async def test_from_a_stock_deployment_to_live_depth_and_back(
    namespace: TestNamespace, tuner: Tuner, operator: Operator, tmp_path: Path
) -> None:
    await namespace.create(HOST)
    await namespace.wait_available("qwen", 1)

    code, out, err = await fathom(namespace, "attach", "deployment/qwen", "--seconds", "0")
    assert (code, err) == (0, "")
    assert "1 pod of Deployment qwen (container vllm-openai, port 8000), managed by Helm" in out
    assert "Live, by one restart of these pods." in out
    code, out, _ = await fathom(namespace, "attach", "deployment/qwen", "--check")
    assert code == 1
    assert "Metrics. PluginMissing" in out

    # Without any change to the host.
    await tuner.apply(await printed(namespace, "tuner"))
    status = await tuner.attached("PluginMissing")
    assert (status["readable"], status["level"]) == ("1/1", "Metrics")
    columns = await kubectl(namespace, tmp_path, "get", "spectuner")
    assert columns.splitlines()[0].split()[:3] == ["NAME", "PODS", "LEVEL"]
    assert columns.splitlines()[1].split()[:3] == ["qwen", "1/1", "Metrics"]
    await seen_by_commands(namespace, level="Metrics")

    # One restart.
    await namespace.create(await printed(namespace, "plugin"))
    await namespace.api.request(
        "PATCH",
        namespace.path("Deployment", "qwen"),
        body=await printed(namespace, "deployment"),
        content_type=STRATEGIC,
    )
    status = await tuner.attached("Attached")
    assert status["level"] == "Live"
    code, out, _ = await fathom(namespace, "attach", "deployment/qwen", "--check")
    assert (code, out.count(": Live")) == (0, 1)
    assert await namespace.get("ConfigMap", "qwen-tuner-depth") is None
    await seen_by_commands(namespace, level="Live")

    before = [pod["metadata"]["uid"] for pod in await namespace.all_of("Pod")]
    await tuner.edit({"tuning": {"mode": "Auto"}})
    await namespace.wait("ConfigMap", "qwen-tuner-depth", lambda _: True)
    assert before == [pod["metadata"]["uid"] for pod in await namespace.all_of("Pod")]

    code, out, err = await fathom(namespace, "detach", "qwen")
    assert (code, out.splitlines()[3]) == (0, "3. SpeculationTuner qwen"), err
    assert "Every pod is at your depth, 3." in err
    assert (await tuner.get())["spec"]["tuning"]["mode"] == "Advise"

    written = {(event.resource, event.name) for event in operator.writes()}
    own = {("configmaps", f"qwen-tuner-{each}") for each in ("depth", "state")}
    nudged = {("pods", pod["metadata"]["name"]) for pod in await namespace.all_of("Pod")}
    reported = {("speculationtuners", "qwen")}
    assert {each for each in written if each[0] != "events"} <= own | nudged | reported
    assert reported <= written
    statuses = [each for each in operator.writes() if each.resource == "speculationtuners"]
    assert {each.subresource for each in statuses} == {"status"}


async def test_what_cannot_be_is_refused_and_nothing_is_written(
    namespace: TestNamespace, tuner: Tuner, operator: Operator
) -> None:
    """By the server where it knows CEL, and else by the operator."""
    empty = {**TUNER, "metadata": {"name": "all"}, "spec": {"selector": {}}}
    if namespace.release >= CEL_SINCE:
        with pytest.raises(ApiException, match="an empty selector"):
            await tuner.apply(empty)
        await tuner.apply(TUNER)
        with pytest.raises(ApiException, match="a selector cannot be changed"):
            await tuner.edit({"selector": {"matchLabels": {"app": "other"}}})
    else:
        await tuner.apply(empty)
        status = await tuner.attached("InvalidSpec", "all")
        (attached,) = [each for each in status["conditions"] if each["type"] == "Attached"]
        assert "spec.selector: an empty selector" in attached["message"]
    assert not [event for event in operator.writes() if event.resource == "configmaps"]
