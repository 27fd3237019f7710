"""The Job of a bench, kept as files: a review sees what a change does to its pod.

After a change that is meant: `pytest tests/golden --update-golden`, and read the diff.
"""

from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio.client import models

from fathom.adapters.yaml_documents import to_yaml
from fathom.bench.job import BenchProgram, bench_code, bench_job
from fathom.bench.planning import planned
from fathom.bench.request import BenchRequest
from fathom.cluster.manifest import Manifest, owned_by
from fathom.engine.plugin import PluginBundle
from golden.rendering import EXAMPLES, read
from support.newer_server import refusals

HERE = Path(__file__).parent
BUNDLE = PluginBundle({"fathom_vllm/__init__.py": '"""The plugin."""\n'}, "0123456789ab")
PROGRAM = BenchProgram(
    {"__main__.py": '"""Starts."""\n', "fathom_measure/plan.py": '"""The plan."""\n'}, ""
)
CASES = {
    "kimi-k2.6-gb200": BenchRequest(
        prompts=("pvc:speed-bench/data", "random"),
        categories=("coding",),
        input_tokens=(1024, 32768),
    ),
    "kimi-k2.6-gb200-static": BenchRequest(concurrency=(1,), true_off=False),
    "local-eagle3.1": BenchRequest(concurrency=(1, 4), prompts=("configmap:prompts/easy.json",)),
    "everything-set": BenchRequest(concurrency=(1,)),
}


def source(case: str) -> Path:
    example = EXAMPLES / f"{case}.yaml"
    return example if example.exists() else HERE / "cases" / f"{case}.yaml"


def made(case: str) -> tuple[Manifest, Manifest]:
    sd = read(source(case))
    bench = planned(sd, CASES[case], BUNDLE)
    job = bench_job(sd, bench, run="r1", deadline_minutes=240, program=PROGRAM)
    owner = owned_by("batch/v1", "Job", f"{sd.metadata.name}-bench", "uid-of-the-job")
    return job, bench_code(sd, bench, run="r1", program=PROGRAM, owner=owner)


@pytest.mark.parametrize("case", CASES)
def test_a_bench_is_as_recorded(case: str, *, update_golden: bool) -> None:
    recorded = HERE / "benches" / f"{case}.yaml"
    found = to_yaml(made(case))
    if update_golden:
        recorded.write_text(found, encoding="utf-8")

    assert recorded.read_text(encoding="utf-8") == found


@pytest.mark.parametrize("case", CASES)
def test_a_bench_is_what_kubernetes_knows(case: str) -> None:
    job, code = made(case)

    models.V1Job.model_validate(job)
    models.V1ConfigMap.model_validate(code)
    template: dict[str, Any] = dict(job)["spec"]["template"]  # type: ignore[index,call-overload,assignment]
    assert refusals({**template, "kind": "Pod"}) == []
