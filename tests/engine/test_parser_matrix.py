"""The table of engine capabilities against vLLM itself: what is generated is accepted, what is
refused would have failed.

`command_probe` says how far a machine without a GPU can see. A release that the table does not know
yet is held against the newest that it does. What came of each command is a property of its test:
`make try-engine` counts them for docs/engines.md.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from packaging.version import Version

from fathom.engine.added_graph_sizes import sets_graphs
from fathom.engine.capability_table import LIVE_DEPTH, SHUTDOWN_TIMEOUT, TABLE, Row, Shown
from fathom.engine.depth_set import startup_schedule
from fathom.engine.flags import engine_args
from fathom.engine.profile import EngineProfile
from fathom.resource import SpeculativeDeployment, parse
from fathom.rollout.replicas import arm_of
from fathom.validation.argument_checks import asynchronous_method, lora_budget
from fathom.validation.candidate import candidate_of
from fathom.validation.engine_checks import capabilities
from fathom_vllm.bundle import SCHEDULER_CLASS
from golden.rendering import SOURCES, read
from local_cluster.engine.releases import NEWEST_KNOWN, asked_releases, known_as
from manifest_samples import changed, resource
from support.asked_vllm import AskVllm
from support.tiny_models import with_tiny_models, write_models

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE = Path(__file__).with_name("command_probe.py")
GOLDEN = {path.stem: path for path in SOURCES}
COMPARED = {f"{name}, compared": name for name in GOLDEN if arm_of(read(GOLDEN[name]).spec)}
"""Commands of the one replica that has adaptive verification, and whose case it is of."""

Recorder = Callable[[str, object], None]


@dataclass(frozen=True, slots=True)
class OnlyParsed:
    """A command whose configuration vLLM makes only where there is a GPU."""

    says: str
    """What vLLM says where there is none, as a pattern."""
    since: str = "0.28.0"
    """A release that has all its options."""
    lacks: str = ""
    """An option that the one asked before it has not."""


NEEDS_CUDA: Mapping[str, OnlyParsed] = MappingProxyType(
    {
        "dynamo-kimi-k2.6-b200": OnlyParsed(
            # The second one: by 0.33.
            r"'_C' object has no attribute '(rms_norm_static_fp8_quant|rotary_embedding)'"
        ),
        "dynamo-deepseek-v4.1-flash-b200": OnlyParsed(
            "Expert parallelism load balancing is only supported on CUDA devices",
            since="0.30.0",
            lacks="--prefix-cache-retention-interval",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A spec that needs one row of the table."""

    changes: Mapping[str, Any]
    error: str
    """Part of what vLLM says where it lacks it, in lower case."""


def adaptive(method: str, **more: Any) -> Sample:
    return Sample(
        {
            "draft.method": method,
            "draft.id": None if method == "mtp" else "org/draft",
            "speculation.adaptiveVerification": "Enabled",
            "engine.tensorParallelSize": 2,
            **more,
        },
        error="adaptive",
    )


SCHEDULE = [[1, 1, 0], [2, 2, 1], [3, 3, 3]]
STATIC = {"speculation.tuning.mode": "Static"}
SAMPLES: Mapping[str, Sample] = MappingProxyType(
    {
        "method dspark": Sample({"draft.method": "dspark", **STATIC}, error="dspark"),
        "depth schedule": Sample({}, error="num_speculative_tokens_per_batch_size"),
        **{
            f"adaptive verification, method {method}": adaptive(method)
            for method in ("dspark", "dflash", "draft_model", "eagle", "eagle3", "mtp")
        },
        "methods eagle3, dflash and dspark with pipeline parallelism": Sample(
            {"engine.tensorParallelSize": 2, "engine.pipelineParallelSize": 2, **STATIC},
            error="pipeline",
        ),
        # Of a method whose draft could be split before.
        "adaptive verification with pipeline parallelism": adaptive(
            "draft_model", **{"engine.pipelineParallelSize": 2}
        ),
        **{
            f"adaptive verification, attention backend {backend}": adaptive(
                "dspark", **{"engine.attentionBackend": backend}
            )
            for backend in (
                "cutlass_mla",
                "flash_attn_mla",
                "flashinfer_mla",
                "flashmla",
                "tokenspeed_mla",
                "triton_mla",
            )
        },
    }
)
BESIDE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "LoRA": {"engine.args": ["--enable-lora"]},
        "eager": {"engine.args": ["--enforce-eager"]},
        "O0": {"engine.args": ["-O0"]},
        "O1": {"engine.args": ["--optimization-level", "1"]},
        "no graphs": {"engine.args": ["-cc.cudagraph_mode=NONE"]},
        "piecewise": {"engine.args": ["-cc", '{"cudagraph_mode":"PIECEWISE"}']},
        "full decodes": {"engine.args": ["-cc.cudagraph_mode=FULL_DECODE_ONLY"]},
        "no graphs, by number": {"engine.args": ["-cc.cudagraph_mode=0"]},
        "no graphs, then JSON": {
            "engine.args": ["-cc.cudagraph_mode=NONE", "-cc", '{"cudagraph_mode":"FULL"}']
        },
        "no graphs in JSON, then a key": {
            "engine.args": ["-cc", '{"cudagraph_mode":"NONE"}', "-cc.cudagraph_num_of_warmups=1"]
        },
        "no graphs, then another spelling": {
            "engine.args": [
                *("-cc.cudagraph_mode=NONE", "--compilation-config.cudagraph_num_of_warmups=1"),
                "-cc.cudagraph_num_of_warmups=1",
            ]
        },
        "O0 with full": {"engine.args": ["-O0", "-cc.cudagraph_mode=FULL"]},
        "two batches at once": {"engine.args": ["--ubatch-size", "4"]},
        "sharded sampling": {"engine.args": ["--enable-batch-sharded-sampling"]},
        "sampling mask": {"engine.args": ["--return-sampling-mask"]},
        "no logits": {"draft.options": {"use_local_argmax_reduction": "true"}},
        "parallel drafting": {"draft.options": {"parallel_drafting": "true"}},
        "no async scheduling": {"engine.args": ["--no-async-scheduling"]},
        # It stays with whatever is asked of the same process afterwards.
        "experts": {"engine.args": ["--enable-return-routed-experts"]},
    }
)
"""What a user may ask for beside adaptive verification."""
ADAPTIVE_AND_LIVE = "adaptive verification with a depth schedule"
DATA_PARALLEL = "live depth with several data-parallel engines"
AT_START: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "LoRA without tokens for all drafts": {
            "engine.args": ["--enable-lora", "--max-num-seqs=64", "--max-num-batched-tokens=511"]
        },
        "LoRA with them": {
            "engine.args": ["--enable-lora", "--max-num-seqs=64", "--max-num-batched-tokens=512"]
        },
        "LoRA at a static depth": {
            "engine.args": ["--enable-lora", "--max-num-seqs=64", "--max-num-batched-tokens=511"],
            **STATIC,
        },
        "asynchronous n-grams": {
            "draft.method": "ngram",
            "draft.id": None,
            "engine.args": ["--async-scheduling"],
            **STATIC,
        },
        "asynchronous, unpadded": {
            "draft.options": {"disable_padded_drafter_batch": "true"},
            "engine.args": ["--async-scheduling"],
            **STATIC,
        },
        "asynchronous EAGLE": {"engine.args": ["--async-scheduling"], **STATIC},
    }
)
"""Arguments that vLLM takes one by one, and refuses together."""
PREFILL, DECODE = "llama-3.3-70b-prefill-h100", "llama-3.3-70b-decode-h100"
TRANSFER = '--kv-transfer-config={"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'
LIKE_PREFILL: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "prefill at another depth": {"speculation.tokens": 7},
        "prefill with another revision of the target": {"model.revision": "a" * 40},
        "prefill over fewer GPUs": {"engine.tensorParallelSize": 2},
        "prefill that names its KV cache's type": {"draft.options": {"kv_cache_dtype": "auto"}},
    }
)
UNLIKE_PREFILL: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "prefill without its draft": {"speculation.drafting": "Disabled"},
        "prefill by another method": {"draft.method": "eagle"},
        "prefill with another revision of the draft": {"draft.revision": "b" * 40},
        "prefill that drafts all at once": {"draft.options": {"parallel_drafting": "true"}},
        "prefill with a draft in FP8": {"draft.options": {"kv_cache_dtype": "fp8"}},
        "prefill by another backend": {"engine.attentionBackend": "FLASHINFER"},
        "prefill in other numbers": {"engine.args": [TRANSFER, "--dtype=float16"]},
        "prefill with a KV cache in FP8": {"engine.args": [TRANSFER, "--kv-cache-dtype=fp8"]},
    }
)
OF_DRAFT_MODEL: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "prefill by a draft model": {"draft.method": "draft_model"},
        "prefill by another draft model": {
            "draft.method": "draft_model",
            "draft.revision": "b" * 40,
        },
    }
)
PREFILLS = LIKE_PREFILL | UNLIKE_PREFILL | OF_DRAFT_MODEL
"""Engines that differ from the example in one thing."""
ROWS: Mapping[str, Row] = MappingProxyType({row.what: row for row in TABLE})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a real vLLM made of one command."""

    refused_by: str | None
    error: str
    config: Mapping[str, Any] | None


def golden(
    name: str, release: str, changes: Mapping[str, Any] = MappingProxyType({})
) -> SpeculativeDeployment:
    """What all replicas of a case are made from, or the one that is compared with them."""
    document = changed(
        yaml.safe_load(GOLDEN[COMPARED.get(name, name)].read_text(encoding="utf-8")), changes
    )
    spec = document["spec"]
    spec["engine"]["version"] = str(known_as(release))
    if spec.get("speculation", {}).get("adaptiveVerification") == "Canary":
        one = name in COMPARED
        spec["speculation"]["adaptiveVerification"] = "Enabled" if one else "Disabled"
    parsed = parse(document)
    assert isinstance(parsed, SpeculativeDeployment), parsed
    return parsed


def beside(name: str, release: str = NEWEST_KNOWN) -> SpeculativeDeployment:
    sample = adaptive("eagle3", **BESIDE[name])
    return resource({"engine.version": str(known_as(release)), **sample.changes})


def at_start(name: str, release: str) -> SpeculativeDeployment:
    return resource({"engine.version": str(known_as(release)), **AT_START[name]})


def with_schedule(args: Sequence[str]) -> list[str]:
    """The same engine with a depth for each batch."""
    at = args.index("--speculative-config") + 1
    config = {**json.loads(args[at]), "num_speculative_tokens_per_batch_size": SCHEDULE}
    return [*args[:at], json.dumps(config), *args[at + 1 :]]


def commands(release: str) -> dict[str, list[str]]:
    """Every command that is asked about, by name; a sample's as an engine that has all gets it."""
    able = {
        name: list(engine_args(resource({"engine.version": NEWEST_KNOWN, **sample.changes}).engine))
        for name, sample in SAMPLES.items()
    }
    return {
        **{name: list(engine_args(golden(name, release).engine)) for name in (*GOLDEN, *COMPARED)},
        **able,
        ADAPTIVE_AND_LIVE: with_schedule(able["adaptive verification, method dspark"]),
        DATA_PARALLEL: [*able["depth schedule"], "--data-parallel-size", "2"],
        **{
            name: list(engine_args(golden(PREFILL, release, changes).engine))
            for name, changes in PREFILLS.items()
        },
        **{name: list(engine_args(at_start(name, release).engine)) for name in AT_START},
        # Last: see the last of them.
        **{name: list(engine_args(beside(name).engine)) for name in BESIDE},
    }


@pytest.fixture(scope="module", params=asked_releases(os.environ))
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def answers(
    release: str, ask_vllm: AskVllm, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Answer]:
    """By the name of the command."""
    models = tmp_path_factory.mktemp("models")
    write_models(models)
    asked = {name: with_tiny_models(args, models) for name, args in commands(release).items()}
    found = [Answer(**each) for each in ask_vllm(PROBE, list(asked.values()), release=release)]
    return dict(zip(asked, found, strict=True))


@pytest.mark.parametrize("name", sorted({*GOLDEN, *COMPARED} - NEEDS_CUDA.keys()))
def test_a_golden_command_is_accepted_or_would_have_failed(
    release: str, name: str, answers: Mapping[str, Answer], record_property: Recorder
) -> None:
    sd = golden(name, release)

    answer = answers[name]

    problems = list(capabilities(candidate_of(sd, {})))
    assert (answer.refused_by is not None) == bool(problems), (problems, answer.error)
    record_property("command", "refused by both" if problems else "accepted")
    if answer.config is not None:
        assert answer.config.items() >= meant(sd.engine).items()


@pytest.mark.parametrize("name", sorted(NEEDS_CUDA))
def test_a_command_for_cuda_is_parsed_and_lacks_but_a_gpu(
    release: str, name: str, answers: Mapping[str, Answer], record_property: Recorder
) -> None:
    command, answer = NEEDS_CUDA[name], answers[name]

    if Version(release) < Version(command.since):
        assert answer.refused_by == "parser"
        assert f"unrecognized arguments: {command.lacks}=" in answer.error
        record_property("command", "newer than the release")
    else:
        assert answer.refused_by == "configuration"
        assert re.search(command.says, answer.error), answer.error
        record_property("command", "parsed")


def meant(engine: EngineProfile) -> dict[str, Any]:
    """What vLLM's configuration has to hold."""
    spec, asked, live = engine.spec, engine.spec.engine, engine.live
    draft = spec.draft
    schedule = startup_schedule(engine.depths, engine.max_num_seqs) if live else None
    depth = spec.speculation.effective_max_tokens if live else spec.speculation.tokens
    return {
        "method": draft.method if spec.drafts else None,
        "depth": depth if spec.drafts else None,
        "schedule": schedule and [[part.first, part.last, part.depth] for part in schedule],
        "adaptive": spec.verifies_adaptively,
        "tensor_parallel_size": asked.tensor_parallel_size,
        "pipeline_parallel_size": asked.pipeline_parallel_size,
        "scheduler_cls": SCHEDULER_CLASS if engine.has_plugin else None,
        "shutdown_timeout": asked.drain_seconds if engine.start.has(SHUTDOWN_TIMEOUT) else 0,
        "backend": asked.attention_backend.upper() or None,
        "host": "0.0.0.0",
        "port": 8000,
        "trust_remote_code": spec.model.trust_remote_code,
        **({"max_num_seqs": engine.max_num_seqs} if live else {}),
        # Only V2 keeps its full graphs where depth is live.
        **({"runner": "V2", "graphs": "FULL_AND_PIECEWISE"} if live and _captures(engine) else {}),
        **({"served_model_name": spec.model.served_name} if spec.model.served_name else {}),
        **(
            {"draft_tensor_parallel_size": draft.tensor_parallel_size}
            if draft.tensor_parallel_size
            else {}
        ),
    }


def _captures(engine: EngineProfile) -> bool:
    return engine.start.captures_graphs and not sets_graphs(engine.arguments)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_release_lacks_exactly_what_the_table_says(
    release: str, name: str, answers: Mapping[str, Answer], record_property: Recorder
) -> None:
    answer = answers[name]

    if ROWS[name].capability.in_version(known_as(release)):
        assert answer.refused_by is None, answer.error
        record_property("row", "has")
    else:
        assert answer.refused_by is not None
        assert SAMPLES[name].error in answer.error.lower()
        record_property("row", "lacks")


@pytest.mark.parametrize("name", BESIDE)
def test_what_vllm_refuses_beside_adaptive_verification_is_refused(
    release: str, name: str, answers: Mapping[str, Answer]
) -> None:
    if not LIVE_DEPTH.in_version(known_as(release)):
        return  # an earlier one refuses some of it only when it starts
    problems = list(capabilities(candidate_of(beside(name, release), {})))
    assert (answers[name].refused_by is not None) == bool(problems), answers[name].error


@pytest.mark.parametrize("name", AT_START)
def test_what_vllm_refuses_of_arguments_together_is_refused(
    release: str, name: str, answers: Mapping[str, Answer]
) -> None:
    asked = candidate_of(at_start(name, release), {})
    problems = [*lora_budget(asked), *asynchronous_method(asked)]
    assert (answers[name].refused_by is not None) == bool(problems), answers[name].error


def test_adaptive_verification_and_a_depth_schedule_go_together(
    answers: Mapping[str, Answer],
) -> None:
    config = answers[ADAPTIVE_AND_LIVE].config
    assert config is not None, answers[ADAPTIVE_AND_LIVE].error
    assert (config["adaptive"], config["schedule"]) == (True, SCHEDULE)
    assert (config["runner"], config["graphs"]) == ("V2", "FULL_AND_PIECEWISE")


def test_several_data_parallel_engines_lose_the_schedule(
    release: str, answers: Mapping[str, Answer], record_property: Recorder
) -> None:
    several = {"engine.version": str(known_as(release)), "engine.dataParallelSize": 2}
    config = answers[DATA_PARALLEL].config

    assert not resource(several).engine.live
    # Before, some releases keep it, and their ranks may wait for each other for ever.
    if LIVE_DEPTH.in_version(known_as(release)):
        assert config is not None
        assert config["schedule"] is None
        record_property("schedule", "dropped with data parallelism")


def kv_cache_hash(answer: Answer) -> str:
    """By which NIXL tells one KV cache from another: docs/prefill-decode.md says what is in it."""
    assert answer.config is not None, answer.error
    found = answer.config["kv_cache_hash"]
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize("other", [DECODE, *LIKE_PREFILL])
def test_halves_of_a_pair_may_differ_in_what_nixl_does_not_compare(
    other: str, answers: Mapping[str, Answer]
) -> None:
    assert kv_cache_hash(answers[other]) == kv_cache_hash(answers[PREFILL])


@pytest.mark.parametrize("other", UNLIKE_PREFILL)
def test_halves_of_a_pair_may_not_differ_in_what_nixl_compares(
    other: str, answers: Mapping[str, Answer]
) -> None:
    assert kv_cache_hash(answers[other]) != kv_cache_hash(answers[PREFILL])


def test_draft_models_of_a_pair_are_not_compared(answers: Mapping[str, Answer]) -> None:
    one, other = (kv_cache_hash(answers[name]) for name in OF_DRAFT_MODEL)

    assert one == other


def test_every_row_that_a_cpu_can_show_is_shown() -> None:
    shown = {row.what for row in TABLE if row.shown is not Shown.SOURCE}

    assert shown == {*SAMPLES, DATA_PARALLEL}
