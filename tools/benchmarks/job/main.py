"""A cluster, a fleet, prompts in a ConfigMap, `fathom bench` as a user types it, and the truth."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.job.prompts import share_gpt, speed_bench
from fathom.api import names
from fathom.measurement.bench_result import RESULT_KEY, DepthBench
from local_cluster.cluster import LocalCluster
from local_cluster.demo.stage import DemoStage, set_stage, wait_ready
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.setup import ensure_engine
from local_cluster.errors import LocalClusterError
from local_cluster.kube import MERGE_PATCH, Object

CONFIG_MAP: Final = "prompts"
PROMPTS: Final = 40
OUTPUT_TOKENS: Final = 96
CLASSES: Final = {"easy": "easy", "hard": "hard", "qualitative/easy": "easy"}
"""The traffic class of each series whose acceptance is known."""
COMMAND_SECONDS: Final = 3600.0
LONG_TOKENS: Final = 800
"""Length of long random prompts; the engine's context has 1024."""


async def run_bench_job(arguments: Sequence[str]) -> DepthBench:
    """Start everything, bench it, and take it down again.

    Args:
        arguments: more of `fathom bench`.

    Raises:
        LocalClusterError: a part did not start, the bench refused, or it touched the fleet.
    """
    ensure_engine()
    async with (
        LocalCluster.start("bench-job") as cluster,
        set_stage(cluster, lambda line: print(line, file=sys.stderr)) as stage,  # noqa: T201 - progress
    ):
        await to_one_replica(stage)
        await give_prompts(stage)
        before = await stage.fleet.pods()
        code = await asyncio.to_thread(type_bench, cluster.kubeconfig, stage, arguments)
        if code not in {0, 1}:
            raise LocalClusterError(f"`fathom bench` ended with {code}.")
        if (after := await stage.fleet.pods()) != before:
            raise LocalClusterError(f"The fleet's pods were {before}, and are {after}.")
        return await kept_result(stage)


async def to_one_replica(stage: DemoStage) -> None:
    """Engines spin while they wait: on two processors the bench needs one for itself."""
    fleet = stage.fleet
    await fleet.api.request(
        "PATCH", fleet.path, body={"spec": {"replicas": 1}}, content_type=MERGE_PATCH
    )
    async with asyncio.timeout(120):
        while len(await fleet.pods()) > 1:
            await asyncio.sleep(1)
    await wait_ready(fleet, lambda line: print(line, file=sys.stderr))  # noqa: T201 - progress


async def give_prompts(stage: DemoStage) -> None:
    """Prompts whose acceptance is known, in a ConfigMap."""
    body: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP},
        "data": {
            "easy.json": share_gpt(EASY, PROMPTS),
            "hard.json": share_gpt(HARD, PROMPTS),
            "qualitative.jsonl": speed_bench(EASY, PROMPTS),
        },
    }
    path = f"/api/v1/namespaces/{stage.fleet.namespace}/configmaps"
    await stage.api.request("POST", path, body=body)


def type_bench(kubeconfig: Path, stage: DemoStage, arguments: Sequence[str]) -> int:
    """`fathom bench` as a user types it; its exit code."""
    command = [str(Path(sys.executable).with_name("fathom")), "bench", stage.fleet.name]
    command += ["--namespace", stage.fleet.namespace, "--kubeconfig", str(kubeconfig)]
    return subprocess.run([*command, *arguments], timeout=COMMAND_SECONDS, check=False).returncode


async def kept_result(stage: DemoStage) -> DepthBench:
    """As the bench has left it in the cluster.

    Raises:
        LocalClusterError: there is none.
    """
    name = names.bench(stage.fleet.name)
    path = f"/api/v1/namespaces/{stage.fleet.namespace}/configmaps/{name}"
    kept = await stage.api.request("GET", path)
    bench = DepthBench.from_json(kept["data"][RESULT_KEY])
    if bench is None:
        raise LocalClusterError(f"ConfigMap {name} holds no result.")
    return bench
