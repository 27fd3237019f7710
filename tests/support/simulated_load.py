#!/usr/bin/env -S env -u PYTHONPATH python
"""`vllm bench serve` beside a simulated engine: a program that stands alone, mounted as `vllm`.

It sends the ShareGPT-shaped prompts that it is given, one request after the other, and writes what
vLLM's own client would write, as far as `fathom_measure` reads it, from the engine's own counters.
"""

import itertools
import json
import sys
import time
import urllib.request
from pathlib import Path


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


ENGINE = f"http://{option('--host')}:{option('--port')}"
TOKENS = int(option("--sharegpt-output-len"))
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answer(path: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(ENGINE + path, data, {"Content-Type": "application/json"})
    with DIRECT.open(request) as response:
        content: bytes = response.read()
    return content


def counted(name: str) -> list[float]:
    """Values of each series of a metric, in the engine's order."""
    lines = answer("/metrics").decode().splitlines()
    return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{")]


def drafted() -> tuple[float, list[float]]:
    accepted = counted("vllm:spec_decode_num_accepted_tokens_per_pos_total")
    return sum(counted("vllm:spec_decode_num_drafts_total")), accepted


def complete(model: str, prompt: str) -> int:
    body = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
    used: int = json.loads(answer("/v1/completions", body))["usage"]["completion_tokens"]
    return used


def main() -> None:
    model = json.loads(answer("/v1/models"))["data"][0]["id"]
    turns = json.loads(Path(option("--dataset-path")).read_text(encoding="utf-8"))
    texts = itertools.cycle(each["conversations"][0]["value"] for each in turns)
    for text in itertools.islice(texts, int(option("--num-warmups"))):
        complete(model, text)
    (drafts, accepted), began_s = drafted(), time.monotonic()
    asked = list(itertools.islice(texts, int(option("--num-prompts"))))
    tokens = sum(complete(model, text) for text in asked)
    duration_s = time.monotonic() - began_s
    after, accepted_after = drafted()
    drafts = after - drafts
    gained = [b - a for a, b in itertools.zip_longest(accepted, accepted_after, fillvalue=0.0)]
    result = {
        "completed": len(asked),
        "failed": 0,
        "total_input_tokens": sum(len(text.split()) for text in asked),
        "total_output_tokens": tokens,
        "duration": duration_s,
        "output_throughput": tokens / duration_s,
        "mean_tpot_ms": 1000 * duration_s / tokens,
        "mean_ttft_ms": 1000 * duration_s / tokens,
        "spec_decode_num_drafts": int(drafts),
        "spec_decode_per_position_acceptance_rates": [each / drafts for each in gained if drafts],
    }
    folder = Path(option("--result-dir"))
    (folder / option("--result-filename")).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
