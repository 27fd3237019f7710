"""The command that the examples give vLLM: the seeds' own, and what live depth adds to it."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fathom.engine.depth_set import capture_sizes
from golden.rendering import EXAMPLES, SERVING, command, container, multiset

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
    assert {depth for _, _, depth in schedule} == {0, 1, 3, 7}
    assert (schedule[0][0], schedule[-1][1]) == (1, 1024)
    sizes = capture_sizes((0, 1, 3, 7), 1024, 1024)
    assert multiset(tuned_rest) - multiset(static_rest) == Counter(
        [
            *("--scheduler-cls", "fathom_vllm.scheduler.LiveDepthScheduler"),
            *("--max-num-seqs", "1024"),
            "--compilation-config",
            json.dumps({"cudagraph_capture_sizes": sizes}),
        ]
    )
    assert multiset(static_rest) - multiset(tuned_rest) == Counter()


def test_the_static_pod_carries_nothing_of_the_plugin() -> None:
    static = container("kimi-k2.6-gb200-static.yaml")

    assert "fathom" not in json.dumps([static["args"], static["env"], static["volumeMounts"]])


def test_the_tuned_example_is_short() -> None:
    lines = (EXAMPLES / "kimi-k2.6-gb200.yaml").read_text(encoding="utf-8").splitlines()

    assert len(lines) <= 20
