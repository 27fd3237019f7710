"""What releases read and refuses at start, as our tables say, against vLLM itself."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from fathom.engine.flags import engine_args
from fathom.engine.known_options import names_of
from fathom.engine.start import release_gates
from fathom.resource import SpeculativeDeployment
from fathom.validation.candidate import candidate_of
from fathom.validation.engine_checks import capabilities
from fathom.validation.start_checks import model_runner
from local_cluster.engine import gate_probe
from local_cluster.engine.releases import asked_releases, known_as
from manifest_samples import resource
from support.asked_vllm import AskVllm
from support.tiny_models import with_tiny_models, write_models

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE = Path(__file__).with_name("runner_probe.py")
ARCHITECTURES = (
    *("Qwen3NextForCausalLM", "Qwen3_5MoeForConditionalGeneration", "NemotronHForCausalLM"),
    *("JambaForCausalLM", "Lfm2ForCausalLM", "BailingMoeV2_5ForCausalLM", "InklingForCausalLM"),
    *("KimiK3ForConditionalGeneration", "KimiLinearForCausalLM", "Qwen3ForCausalLM"),
    *("DeepseekV3ForCausalLM", "NemotronH_Nano_VL_V2"),
)
"""One of each kind of layers: all of them take a while."""
STATIC = {"speculation.tuning.mode": "Static"}
NO_DRAFT = {"draft.id": None}
PIPELINE = {
    **STATIC,
    "draft.method": "draft_model",
    "engine.tensorParallelSize": 2,
    "engine.pipelineParallelSize": 2,
}
RUNNERS: Mapping[str, tuple[str | None, Mapping[str, Any]]] = MappingProxyType(
    {
        "eagle3 on V1": ("0", STATIC),
        "eagle3 on V2": ("1", STATIC),
        "dspark on V1": ("0", {**STATIC, "draft.method": "dspark"}),
        "dspark": (None, {**STATIC, "draft.method": "dspark"}),
        "pipeline on V1": ("0", PIPELINE),
        "asynchronous pipeline on V1": ("0", {**PIPELINE, "engine.args": ["--async-scheduling"]}),
        "asynchronous pipeline": (None, {**PIPELINE, "engine.args": ["--async-scheduling"]}),
        "sharded sampling on V1": (
            "0",
            {**STATIC, "engine.args": ["--enable-batch-sharded-sampling"]},
        ),
        "sampling mask on V1": ("0", {**STATIC, "engine.args": ["--return-sampling-mask"]}),
        "suffix on V2": ("1", {**STATIC, **NO_DRAFT, "draft.method": "suffix"}),
        "n-grams on V2": ("1", {**STATIC, **NO_DRAFT, "draft.method": "ngram"}),
        "draft model on V2": ("1", {**STATIC, "draft.method": "draft_model"}),
        "parallel drafting on V2": (
            "1",
            {**STATIC, "draft.options": {"parallel_drafting": "true"}},
        ),
        "parallel drafting on V1": (
            "0",
            {**STATIC, "draft.options": {"parallel_drafting": "true"}},
        ),
    }
)


@pytest.fixture(scope="module", params=asked_releases(os.environ))
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def said(release: str, ask_vllm: AskVllm) -> Mapping[str, Sequence[str]]:
    found: Mapping[str, Sequence[str]] = ask_vllm(
        Path(gate_probe.__file__), ARCHITECTURES, release=release
    )
    return found


@pytest.mark.parametrize("kind", ["environment", "environment_numbers"])
def test_what_a_release_reads_is_listed(
    release: str, kind: str, said: Mapping[str, Sequence[str]]
) -> None:
    gates = release_gates()
    assert release in gates.releases, "run make known-names, with this release in NEWEST_KNOWN"

    assert set(said[kind]) == names_of(release, getattr(gates, kind))


@pytest.mark.parametrize("vendor", sorted(gate_probe.VENDORS))
def test_who_cannot_have_adaptive_verification_is_listed(
    release: str, vendor: str, said: Mapping[str, Sequence[str]]
) -> None:
    gates = release_gates()
    kind = f"no_adaptive_verification_{vendor}"

    assert set(said[kind]) == names_of(release, getattr(gates, kind)) & set(ARCHITECTURES)


def runs_on(release: str, name: str) -> SpeculativeDeployment:
    runner, changes = RUNNERS[name]
    variables = [] if runner is None else [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": runner}]
    return resource({"engine.version": str(known_as(release)), **changes, "engine.env": variables})


@pytest.fixture(scope="module")
def answers(
    release: str, ask_vllm: AskVllm, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Mapping[str, Any]]:
    """By the name of the command."""
    models = tmp_path_factory.mktemp("models")
    write_models(models)
    asked = [
        (runner, with_tiny_models(list(engine_args(runs_on(release, name).engine)), models))
        for name, (runner, _) in RUNNERS.items()
    ]
    return dict(zip(RUNNERS, ask_vllm(PROBE, asked, release=release), strict=True))


@pytest.mark.parametrize("name", RUNNERS)
def test_what_a_model_runner_lacks_is_refused_by_both(
    release: str, name: str, answers: Mapping[str, Mapping[str, Any]]
) -> None:
    candidate = candidate_of(runs_on(release, name), {})

    problems = [*capabilities(candidate), *model_runner(candidate)]

    # The parser of a release that lacks an option refuses it in any case.
    refused = answers[name]["refused_by"] not in {None, "parser"}
    assert refused == bool(problems), answers[name]["error"]
