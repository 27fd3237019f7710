"""What `fathom.engine.known_options` lists, and what is refused by it, against vLLM's own parser.

The parser says of each line whether it takes it; its configuration says the rest, as far as
`command_probe` can tell without a GPU.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from packaging.version import Version

from fathom.api.problem import Severity
from fathom.engine.flags import engine_args
from fathom.engine.known_options import ReleaseNames, names_in
from fathom.validation.release_checks import (
    argument_values,
    option_pairs,
    registered_values,
    unknown_names,
)
from local_cluster.engine.releases import asked_releases
from manifest_samples import resource
from support.asked_vllm import AskVllm
from support.tiny_models import with_tiny_models, write_models
from support.validated import candidate

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE = Path(__file__).with_name("command_probe.py")
NAMES = Path(__file__).parents[2] / "tools" / "local_cluster" / "engine" / "names_probe.py"
CHECKS = (unknown_names, argument_values, registered_values, option_pairs)
REFUSED: tuple[tuple[str, ...], ...] = (
    ("--hf-overrides", """'{"rope_theta": 1}'"""),
    ("--hf-overrides=text",),
    ("--hf-overrides=",),
    ("--additional-config", "text"),
    ("--kv-transfer-config", "{kv_connector: NixlConnector}"),
    ('--limit-mm-per-prompt={"image":5',),
    ("--compilation-config", """'{"mode":3}'"""),
    ("-cc", "3"),
    ("-cc.cudagraph_mod=NONE",),
    ("--compilation-config", '{"cudagraph_capture_size": [1]}'),
    ("--enforce-eager=true",),
    ("--enforce-eager", "true"),
    ("--enforce-eager.x=1",),
    ("--block-size", "16k"),
    ("--block-size.x=1",),
    ("--max-num-batched-tokens", "8x"),
    ("--max-model-len", "long"),
    ("--max-model-len", "-5"),
    ("--gpu-memory-utilization", "90%"),
    ("--gpu-memory-utilization", "90"),
    ("--cudagraph-capture-sizes", "1", "2,4"),
    ("--kv-cache-dtype", "fp8_e4m3fn"),
    ("--moe-backend", "trtllm"),
    ("--max-lora-rank", "48"),
    ("--seed",),
    ("--seed", "--enforce-eager"),
    ("--seed", "1", "2"),
    ("--max-modellen", "8"),
    ("--max-num-s", "8"),
    ("--enable-auto-tool-choice",),
    ("--enable-log-outputs",),
    ("--enable-per-request-metrics", "--disable-log-stats"),
    ("--max-num-batched-tokens=64", "--max-num-seqs=128"),
    ("--max-num-batched-tokens=2k", "--max-model-len=4096", "--no-enable-chunked-prefill"),
    ("-dcp", "3"),
    ("--enable-eplb",),
    ('--kv-transfer-config={"kv_connector": "NixlConnector"}',),
)
TAKEN: tuple[tuple[str, ...], ...] = (
    ("--hf-overrides", '{"rope_theta": 1}'),
    ("--model-loader-extra-config", "text"),
    ("--compilation-config.mode=0", "-cc.cudagraph_mode=NONE"),
    ("--compilation-config", '{"max_cudagraph_capture_size": 1k}'),
    ("--limit-mm-per-prompt", '{"image": 5}'),
    ("--pt-load-map-location", "cuda:0"),
    ("--enforce-eager", "--no-enable-prefix-caching"),
    ("--max-model-len", "auto", "--max-num-batched-tokens=8k", "--seed", "-1"),
    ("--max-log-len", "None"),
    ("--cudagraph-capture-sizes", "1", "2", "4"),
    ("--kv-cache-dtype", "fp8"),
    ("--moe-backend", "FlashInfer-TRTLLM"),
    ("--load-format", "DUMMY"),
    ("-O0", "-O", "1"),
    ("--enable-auto-tool-choice", "--tool-call-parser=hermes"),
    ("--enable-log-outputs", "--enable-log-requests"),
    ("--max-num-batched-tokens=128", "--max-num-seqs=128"),
    ("--gpu-memory-utilization", "1"),
)
BACKENDS: Mapping[str, bool] = MappingProxyType({"flash": True, "flash_attn": False, "auto": False})
"""Values of `engine.attentionBackend`, and whether they are refused."""


@pytest.fixture(scope="module", params=asked_releases(os.environ))
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def samples() -> list[dict[str, Any]]:
    lines = [{"engine.args": [*args]} for args in (*REFUSED, *TAKEN)]
    return [*lines, *({"engine.attentionBackend": backend} for backend in BACKENDS)]


@pytest.fixture(scope="module")
def answers(
    release: str, ask_vllm: AskVllm, tmp_path_factory: pytest.TempPathFactory
) -> Sequence[Mapping[str, Any]]:
    models = tmp_path_factory.mktemp("models")
    write_models(models)
    asked = [
        with_tiny_models([*engine_args(resource(_static(release, each)).engine)], models)
        for each in samples()
    ]
    found: Sequence[Mapping[str, Any]] = ask_vllm(PROBE, asked, release=release)
    return found


def _static(release: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """So that it is about the arguments alone."""
    return {"engine.version": release, "speculation.tuning.mode": "Static", **changes}


def test_what_a_release_takes_is_listed(release: str, ask_vllm: AskVllm) -> None:
    names = names_in(Version(release))
    assert names is not None, "run make known-names, with this release in NEWEST_KNOWN"

    told = ask_vllm(NAMES, None, release=release)

    assert _options(names) == told["options"]
    assert names.draft == set(told["draft"])
    for listed, kind in ((names.values, "values"), (names.keys, "keys")):
        assert listed == {name: set(values) for name, values in told[kind].items()}
    assert names.first == {each: of for of, more in told["aliases"].items() for each in more}


def _options(names: ReleaseNames) -> dict[str, dict[str, Any]]:
    listed = ("takes", "many", "bare", "none")
    return {
        name: {each: getattr(row, each) for each in listed if getattr(row, each)}
        for name, row in names.options.items()
    }


@pytest.mark.parametrize("index", range(len(REFUSED) + len(TAKEN) + len(BACKENDS)))
def test_what_vllm_refuses_is_refused(
    release: str, index: int, answers: Sequence[Mapping[str, Any]]
) -> None:
    changes, answer = samples()[index], answers[index]
    sd = resource(_static(release, changes))

    found = [each for check in CHECKS for each in check(candidate(sd))]

    refused = any(each.severity is Severity.ERROR for each in found)
    assert refused == (answer["refused_by"] is not None), (changes, answer["error"], found)
