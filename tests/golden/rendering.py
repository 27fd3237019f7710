"""What `fathom render` makes of an example, for tests of what an engine gets."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from fathom.api.names import ENGINE_CONTAINER
from fathom.cli.main import app
from fathom.resource import SpeculativeDeployment, parse

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = sorted(
    [
        *(Path(__file__).parent / "cases").glob("*.yaml"),
        *EXAMPLES.glob("*.yaml"),
        *(EXAMPLES / "recipes").glob("*.yaml"),
    ]
)
"""All that is rendered, recorded, and asked of vLLM."""
WORKLOADS = ("Deployment", "LeaderWorkerSet")
SERVING = "--host 0.0.0.0 --port 8000 --shutdown-timeout 120"


def read(source: Path) -> SpeculativeDeployment:
    parsed = parse(yaml.safe_load(source.read_text(encoding="utf-8")))
    assert isinstance(parsed, SpeculativeDeployment), "\n".join(map(str, parsed))
    return parsed


def documents(example: str) -> list[dict[str, Any]]:
    """All that an example renders to.

    Args:
        example: a file, relative to the examples.
    """
    return documents_of((EXAMPLES / example).read_text(encoding="utf-8"))


def documents_of(text: str) -> list[dict[str, Any]]:
    """All that the text of a manifest renders to."""
    result = CliRunner().invoke(app, ["render", "-f", "-"], input=text)
    assert result.exit_code == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


def pod_templates(workload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Templates of the pods: a Deployment's one; a LeaderWorkerSet's leader's and workers'."""
    spec = workload["spec"]
    if workload["kind"] == "Deployment":
        return [spec["template"]]
    group = spec["leaderWorkerTemplate"]
    return [group["leaderTemplate"], group["workerTemplate"]]


def pods(workload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A pod of each template, with the label by which its controller tells it from others."""
    own = {
        "Deployment": {"pod-template-hash": "5d8f7c9b6"},
        "LeaderWorkerSet": {"leaderworkerset.sigs.k8s.io/group-key": "0" * 40},
    }[workload["kind"]]
    made = []
    for template in pod_templates(workload):
        labels = {**template["metadata"]["labels"], **own}
        metadata = {**template["metadata"], "labels": labels, "name": "pod"}
        made.append({**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    return made


def workload_of(rendered: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The one that serves."""
    (workload,) = (each for each in rendered if each["kind"] in WORKLOADS)
    return workload


def pod_spec(example: str) -> dict[str, Any]:
    """Spec of the pods that serve."""
    return dict(pod_templates(workload_of(documents(example)))[0]["spec"])


def container(example: str) -> dict[str, Any]:
    """The engine's."""
    return engine(pod_spec(example))


def engine(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The container of a pod that vLLM runs in."""
    (vllm,) = (each for each in pod["containers"] if each["name"] == ENGINE_CONTAINER)
    return dict(vllm)


def command(example: str) -> list[str]:
    found = container(example)
    return [*found["command"], *found["args"]]


def environment(example: str) -> dict[str, Any]:
    """Variables with what they hold, but for the one that serving in a pod needs."""
    given = Counter(each["name"] for each in container(example)["env"])
    assert set(given.values()) == {1}
    values = {
        each["name"]: each["value"] if "value" in each else each["valueFrom"]
        for each in container(example)["env"]
    }
    del values["VLLM_ENGINE_READY_TIMEOUT_S"]
    return values


def multiset(arguments: Iterable[str]) -> Counter[str]:
    """Arguments without their order: `--a=b` is `--a b`, and JSON is what it says."""
    counts: Counter[str] = Counter()
    for argument in arguments:
        name, equals, value = argument.partition("=")
        parts = [name, value] if equals and name.startswith("--") else [argument]
        counts.update(map(_canonical, parts))
    return counts


def _canonical(argument: str) -> str:
    return json.dumps(json.loads(argument), sort_keys=True) if argument[:1] == "{" else argument
