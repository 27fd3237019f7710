"""The command that the examples give vLLM: the seeds' own, and what live depth adds to it."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from fathom.cli import app

EXAMPLES = Path(__file__).parents[2] / "examples"
SEEDS = """
vllm serve nvidia/Kimi-K2.6-NVFP4
  --trust-remote-code
  --tensor-parallel-size 4
  --tool-call-parser kimi_k2
  --enable-auto-tool-choice
  --reasoning-parser kimi_k2
  --attention-backend tokenspeed_mla
  --speculative-config '{"model":"lightseekorg/kimi-k2.6-eagle3.1-mla","method":"eagle3",
                         "num_speculative_tokens":3}'
  --language-model-only
"""
SERVING = "--host 0.0.0.0 --port 8000 --shutdown-timeout 120"


def container(example: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["render", "-f", str(EXAMPLES / example)])
    assert result.exit_code == 0, result.stderr
    (deployment,) = (
        document
        for document in yaml.safe_load_all(result.stdout)
        if document["kind"] == "Deployment"
    )
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
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


def without_speculation(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The speculative config, and the other arguments."""
    at = arguments.index("--speculative-config")
    return json.loads(arguments[at + 1]), [*arguments[:at], *arguments[at + 2 :]]


def test_the_static_example_is_the_seeds_command_and_what_serving_needs() -> None:
    found = multiset(command("kimi-k2.6-gb200-static.yaml"))

    assert found == multiset(shlex.split(SEEDS)) + multiset(SERVING.split())


def test_the_tuned_example_differs_by_what_live_depth_needs() -> None:
    tuned, tuned_rest = without_speculation(command("kimi-k2.6-gb200.yaml"))
    static, static_rest = without_speculation(command("kimi-k2.6-gb200-static.yaml"))

    schedule = tuned.pop("num_speculative_tokens_per_batch_size")
    assert tuned == static | {"num_speculative_tokens": 7}
    assert {depth for _, _, depth in schedule} == set(range(8))
    assert (schedule[0][0], schedule[-1][1]) == (1, 256)
    assert multiset(tuned_rest) - multiset(static_rest) == Counter(
        ["--scheduler-cls", "fathom_vllm.scheduler.LiveDepthScheduler", "--max-num-seqs", "256"]
    )
    assert multiset(static_rest) - multiset(tuned_rest) == Counter()


def test_the_static_pod_carries_nothing_of_the_plugin() -> None:
    static = container("kimi-k2.6-gb200-static.yaml")

    assert "fathom" not in json.dumps([static["args"], static["env"], static["volumeMounts"]])


def test_the_tuned_example_is_short() -> None:
    lines = (EXAMPLES / "kimi-k2.6-gb200.yaml").read_text(encoding="utf-8").splitlines()

    assert len(lines) <= 20
