"""What `fathom render` makes of an example, for tests of what an engine gets."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from fathom.api.resource import SpeculativeDeployment, parse
from fathom.cli import app

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = sorted(
    [
        *(Path(__file__).parent / "cases").glob("*.yaml"),
        *EXAMPLES.glob("*.yaml"),
        *(EXAMPLES / "recipes").glob("*.yaml"),
    ]
)
"""All that is rendered, recorded, and asked of vLLM."""
SERVING = "--host 0.0.0.0 --port 8000 --shutdown-timeout 120"


def read(source: Path) -> SpeculativeDeployment:
    parsed = parse(yaml.safe_load(source.read_text(encoding="utf-8")))
    assert isinstance(parsed, SpeculativeDeployment), "\n".join(map(str, parsed))
    return parsed


def pod_spec(example: str) -> dict[str, Any]:
    """Of the Deployment that an example renders to.

    Args:
        example: a file, relative to the examples.
    """
    result = CliRunner().invoke(app, ["render", "-f", str(EXAMPLES / example)])
    assert result.exit_code == 0, result.stderr
    (deployment,) = (
        document
        for document in yaml.safe_load_all(result.stdout)
        if document["kind"] == "Deployment"
    )
    return dict(deployment["spec"]["template"]["spec"])


def container(example: str) -> dict[str, Any]:
    (only,) = pod_spec(example)["containers"]
    return dict(only)


def command(example: str) -> list[str]:
    found = container(example)
    return [*found["command"], *found["args"]]


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
