"""Our rules about vLLM's flags against vLLM's own parser."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from fathom.api.choices import TuningMode
from fathom.api.suggestions import OPTIONS
from fathom.engine.argument_parser import EngineArguments
from fathom.engine.flags import FLAGS, engine_args
from fathom.validation.argument_checks import lone_argument_problems, owned_flag_problems
from golden.rendering import EXAMPLES, read
from local_cluster.engine.environment import DEFAULT_ENGINE_VERSION
from local_cluster.engine.releases import asked_releases
from manifest_samples import resource
from support.asked_vllm import AskVllm

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]


PROBE = Path(__file__).with_name("parser_probe.py")

OWNED = tuple(name for flag in FLAGS if flag.refusal for name in flag.names)
NO_VALUES_OF_THEIR_OWN = {"no_trust_remote_code", "no_enable_ssl_refresh"}
OWNED_DESTINATIONS = {
    name.removeprefix("--").replace("-", "_")
    for name in OWNED
    if name.startswith("--") and not name.endswith("*")
} - NO_VALUES_OF_THEIR_OWN


def owned(destination: str) -> bool:
    """Whether the table has what the parser keeps under this name, by itself or in a family."""
    flag = f"--{destination.replace('_', '-')}"
    families = tuple(name.removesuffix("*") for name in OWNED if name.endswith("*"))
    return destination in OWNED_DESTINATIONS or flag.startswith(families)


@pytest.fixture(scope="module", params=asked_releases(os.environ)[-1:])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def said(release: str, ask_vllm: AskVllm) -> Mapping[str, Any]:
    """What one release says of all."""
    examples = [list(engine_args(read(path).engine))[1:] for path in EXAMPLE_FILES]
    found: Mapping[str, Any] = ask_vllm(PROBE, [*LINES, *examples], release=release)
    return found


def underscored(option: str) -> str:
    """vLLM takes underscores in long options only."""
    return f"--{option[2:].replace('-', '_')}" if option.startswith("--") else option


def test_every_spelling_of_every_option_is_told_right(
    release: str, said: Mapping[str, Any]
) -> None:
    means: dict[str, str] = said["means"]

    wrong = {
        spelling: destination
        for start, destination in means.items()
        for spelling in (start, underscored(start), f"{start}=x")
        # Turning asynchronous scheduling on changes nothing; turning it off does. What is off
        # may be turned off again: 0.33 has --disable-ssl-refresh for it.
        if destination != "async_scheduling" and not start.startswith("--disable-ss")
        if bool(owned_flag_problems(EngineArguments.of([spelling]))) != owned(destination)
    }

    assert wrong == {}
    # Those before have not got all of them yet.
    if Version(release) >= Version(DEFAULT_ENGINE_VERSION):
        assert OWNED_DESTINATIONS - set(means.values()) == set()


def test_options_that_names_of_fields_are_sent_to_are_vllm_s(said: Mapping[str, Any]) -> None:
    assert [name for name in OPTIONS.names if name not in said["means"]] == []


def test_options_that_are_told_by_their_beginning_take_no_value(said: Mapping[str, Any]) -> None:
    valued: list[str] = said["valued"]

    assert "--max-num-seqs" in valued
    assert [
        name for name in valued if lone_argument_problems(EngineArguments.of([name, "x"])) != ()
    ] == []


SPELLINGS: dict[str, tuple[str, Any]] = {
    "--tensor_parallel_size 8": ("tensor_parallel_size", 8),
    "--tensor-par 8": ("tensor_parallel_size", 8),
    "-tp=8": ("tensor_parallel_size", 8),
    "-t 8": ("tensor_parallel_size", 8),
    "-n2": ("nnodes", 2),
    "-sc.method ngram": ("speculative_config", {"method": "ngram"}),
    "--specul.num_speculative_tokens=9": ("speculative_config", {"num_speculative_tokens": 9}),
    "--spec-tok 4": ("spec_tokens", 4),
    "--attention-config.backend FLASHINFER": ("attention_config", "FLASHINFER"),
    "--por 8001": ("port", 8001),
    "--shutdown_timeout=0": ("shutdown_timeout", 0),
}
BATCHES = ["--max_num_seqs 16", "--max-num-se=32", "--max-num-seqs 8 --max_num_seqs=64"]
TRANSFER = "--kv-transfer-config"
TRANSFERS = [
    """TRANSFER '{"kv_connector": "A", "kv_role": "kv_both"}'""",
    "TRANSFER.kv_connector=A --kv_transfer_config.kv_role kv_consumer",
    """TRANSFER.kv_role=kv_producer --kv-t '{"kv_connector": "A", "kv_role": "kv_both"}'""",
    """TRANSFER.kv_connector_extra_config '{"a": {"b": 1}}' TRANSFER.kv_connector_extra_config.a.c=2
    TRANSFER.kv_connector=A TRANSFER.kv_role=kv_both""",
    """TRANSFER.kv_connector_extra_config.a [1] TRANSFER.kv_connector_extra_config.a=[2]""",
    """TRANSFER.kv_connector_extra_config.a+ 1,b TRANSFER.kv_connector_extra_config.a+=c""",
    """TRANSFER.kv_connector=A TRANSFER.kv_role=kv_both --kv-t.kv_connector=B
    TRANSFER.kv_connector=C --kv-t.kv_role=kv_producer""",
]
LINES = [
    shlex.split(line.replace("TRANSFER", TRANSFER)) for line in (*SPELLINGS, *BATCHES, *TRANSFERS)
]
EXAMPLE_FILES = sorted(EXAMPLES.glob("*.yaml"))


def test_vllm_takes_what_is_refused_and_reads_batches_alike(said: Mapping[str, Any]) -> None:
    parsed = said["parsed"][: len(LINES)]

    for line, found, (name, value) in zip(LINES, parsed, SPELLINGS.values(), strict=False):
        # The attention config comes back as vLLM prints it.
        assert found[name] == value or f"AttentionBackendEnum.{value}" in str(found[name]), line
        assert owned_flag_problems(EngineArguments.of(line)) != (), line
    for line, found in zip(BATCHES, parsed[len(SPELLINGS) : -len(TRANSFERS)], strict=True):
        assert resource({"engine.args": line.split()}).engine.max_num_seqs == found["max_num_seqs"]


def test_vllm_reads_objects_alike(said: Mapping[str, Any]) -> None:
    keys = ("kv_connector", "kv_role", "kv_connector_extra_config")
    asked = zip(LINES, said["parsed"], strict=False)
    for line, found in list(asked)[-len(TRANSFERS) :]:
        config = found["kv_transfer_config"]
        stated = {key: config[key] for key in keys if config[key]}
        assert EngineArguments.of(line).object(TRANSFER) == stated, line


@pytest.mark.parametrize("path", EXAMPLE_FILES, ids=lambda path: path.name)
def test_vllm_reads_the_examples_as_they_are_meant(path: Path, said: Mapping[str, Any]) -> None:
    spec, found = read(path).spec, said["parsed"][len(LINES) + EXAMPLE_FILES.index(path)]

    assert found["tensor_parallel_size"] == spec.engine.tensor_parallel_size
    assert found["speculative_config"]["method"] == spec.draft.method
    assert found["speculative_config"].get("model", "") == spec.draft.id
    assert found["trust_remote_code"] == spec.model.trust_remote_code
    assert found["shutdown_timeout"] == spec.engine.drain_seconds
    assert (found["scheduler_cls"] is None) == (spec.speculation.tuning.mode is TuningMode.STATIC)
