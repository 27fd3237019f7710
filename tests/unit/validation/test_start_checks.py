"""What vLLM stops at when it starts: model runner, the target's layers, variables."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from fathom.api.problem import Problem, Severity
from fathom.model_facts import ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom.validation.candidate import Candidate, candidate_of
from fathom.validation.start_checks import (
    adaptive_architecture,
    engine_variable_values,
    model_runner,
    variables_of_fields,
)
from manifest_samples import resource

TARGET, DRAFT = "/models/target", "/models/draft"


def asked(
    changes: Mapping[str, Any], *, target: str = "", draft: str = "", version: str = "0.32.0"
) -> Candidate:
    """A spec whose models are of these architectures; empty: not known."""
    image = {"engine.image": f"vllm/vllm-openai:v{version}", "model.id": TARGET}
    sd = resource({**image, "draft.id": DRAFT, **changes})
    known = {
        ModelRef(name): ModelFacts(config=ModelConfig(architectures=(architecture,)))
        for name, architecture in ((TARGET, target), (DRAFT, draft))
        if architecture
    }
    return candidate_of(sd, known)


def env(**variables: str) -> dict[str, Any]:
    return {"engine.env": [{"name": name, "value": text} for name, text in variables.items()]}


def only(found: Iterable[Problem]) -> Problem:
    (problem,) = found
    return problem


ADAPTIVE = {
    "draft.method": "mtp",
    "draft.id": None,
    "speculation.adaptiveVerification": "Enabled",
    "nodePool.accelerator": "H100",
    "engine.tensorParallelSize": 2,
}


@pytest.mark.parametrize(
    ("architecture", "version"),
    [
        ("Qwen3NextForCausalLM", "0.33.0"),
        ("Qwen3_5MoeForConditionalGeneration", "0.32.1"),
        ("NemotronHForCausalLM", "0.32.0"),
        ("JambaForCausalLM", "0.33.0"),
        ("Lfm2ForCausalLM", "0.32.0"),
        ("BailingMoeV2_5ForCausalLM", "0.33.0"),
        ("KimiK3ForConditionalGeneration", "0.30.0"),
    ],
)
@pytest.mark.parametrize("mode", ["Enabled", "Canary"])
def test_layers_that_cannot_be_cut_refuse_adaptive_verification(
    architecture: str, version: str, mode: str
) -> None:
    changes = {**ADAPTIVE, "speculation.adaptiveVerification": mode, "replicas": 2}

    found = only(adaptive_architecture(asked(changes, target=architecture, version=version)))

    assert found.severity is Severity.ERROR
    assert found.field == "spec.speculation.adaptiveVerification"
    assert f"vLLM {version} has none for {architecture}" in found.message
    assert "set it to Disabled" in found.message


@pytest.mark.parametrize(
    ("architecture", "version", "changes"),
    [
        # As Mamba2 can, since this release.
        ("NemotronHForCausalLM", "0.33.0", {}),
        ("KimiK3ForConditionalGeneration", "0.32.0", {}),
        ("Qwen3ForCausalLM", "0.32.0", {}),
        ("Qwen3NextForCausalLM", "0.34.0", {}),
        ("AModelOfTomorrow", "0.32.0", {}),
        ("", "0.32.0", {}),
        ("Qwen3NextForCausalLM", "0.32.0", {"speculation.adaptiveVerification": "Disabled"}),
        ("Qwen3NextForCausalLM", "0.32.0", {"engine.args": ["--hf-overrides={}"]}),
        # It may be NVIDIA's or AMD's.
        (
            "KimiK3ForConditionalGeneration",
            "0.32.0",
            {"nodePool.accelerator": "Custom", "nodePool.gpusPerNode": 8},
        ),
    ],
)
def test_other_targets_have_it_or_are_not_known(
    architecture: str, version: str, changes: dict[str, Any]
) -> None:
    given = asked({**ADAPTIVE, **changes}, target=architecture, version=version)
    assert list(adaptive_architecture(given)) == []


def test_a_release_that_has_it_is_named() -> None:
    found = only(adaptive_architecture(asked(ADAPTIVE, target="NemotronHForCausalLM")))
    assert "change spec.engine.image to vLLM 0.33.0 or later" in found.message


def test_whose_gpus_they_are_decides_about_kimi_k3() -> None:
    changes = {**ADAPTIVE, "nodePool.accelerator": "MI300X"}
    assert list(adaptive_architecture(asked(changes, target="KimiK3ForConditionalGeneration")))


ON_V1, ON_V2 = env(VLLM_USE_V2_MODEL_RUNNER="0"), env(VLLM_USE_V2_MODEL_RUNNER="1")
SPLIT = {"engine.pipelineParallelSize": 2, "engine.args": ["--async-scheduling"]}


@pytest.mark.parametrize(
    ("changes", "models", "version", "part"),
    [
        ({"draft.method": "dspark", **ON_V1}, {}, "0.29.0", "V1, which in vLLM 0.29.0"),
        ({"draft.method": "dspark", **ON_V1}, {}, "0.33.0", "does not have method dspark"),
        ({**SPLIT, **ON_V1}, {}, "0.31.0", "pipelineParallelSize above 1 with --async-scheduling"),
        (
            {**SPLIT, "draft.options": {"parallel_drafting": "true"}},
            {},
            "0.32.0",
            "parallel_drafting selects",
        ),
        (
            {"draft.method": "dspark", "engine.args": ["--enable-dbo"]},
            {},
            "0.32.0",
            "Remove --enable-dbo.",
        ),
        (
            {"draft.method": "dflash", **ON_V1},
            {"draft": "DFlash2DraftModel"},
            "0.32.0",
            "the draft's DFlash2DraftModel",
        ),
        (ON_V1, {"target": "Step5ForCausalLM"}, "0.33.0", "the target's Step5ForCausalLM"),
        (
            {"engine.args": ["--return-sampling-mask"], **ON_V1},
            {},
            "0.28.0",
            "--return-sampling-mask in spec.engine.args",
        ),
        (
            {"draft.options": {"draft_lm_head_quantization": "fp8"}, **ON_V1},
            {},
            "0.33.0",
            "draft_lm_head_quantization",
        ),
        ({"draft.method": "suffix", "draft.id": None, **ON_V2}, {}, "0.32.0", "V2, which in"),
        ({"draft.method": "ngram", "draft.id": None, **ON_V2}, {}, "0.31.0", "method ngram"),
        ({"draft.method": "draft_model", **ON_V2}, {}, "0.30.0", "method draft_model"),
        (
            {"draft.options": {"parallel_drafting": "true"}, **ON_V2},
            {},
            "0.32.0",
            "spec.draft.options.parallel_drafting",
        ),
    ],
)
def test_what_a_model_runner_lacks_is_refused(
    changes: dict[str, Any], models: dict[str, str], version: str, part: str
) -> None:
    found = only(model_runner(asked(changes, version=version, **models)))

    assert found.severity is Severity.ERROR
    assert part in found.message
    assert "vLLM stops at start" in found.message


def test_a_variable_is_named_by_its_place() -> None:
    variables = env(OTHER="1", VLLM_USE_V2_MODEL_RUNNER="0")
    found = only(model_runner(asked({"draft.method": "dspark", **variables})))
    assert found.field == "spec.engine.env[1]"


@pytest.mark.parametrize(
    ("changes", "models", "version"),
    [
        ({"draft.method": "dspark"}, {}, "0.32.0"),
        ({"draft.method": "dspark", **ON_V2}, {}, "0.32.0"),
        # vLLM's configuration has nothing against it there.
        ({"draft.method": "dspark", **ON_V1}, {}, "0.28.0"),
        # Nobody has read that one.
        ({"draft.method": "dspark", **ON_V1}, {}, "0.34.0"),
        ({"draft.method": "dspark", "speculation.drafting": "Disabled", **ON_V1}, {}, "0.32.0"),
        ({**SPLIT, **ON_V1}, {}, "0.30.0"),
        ({"engine.pipelineParallelSize": 2, **ON_V1}, {}, "0.32.0"),
        ({**SPLIT, "engine.args": ["--no-async-scheduling"], **ON_V1}, {}, "0.32.0"),
        ({"draft.method": "dflash", **ON_V1}, {"draft": "DFlashDraftModel"}, "0.32.0"),
        ({"draft.method": "ngram", "draft.id": None, **ON_V2}, {}, "0.32.0"),
        ({"draft.method": "dflash", **ON_V2, "draft.options": {"parallel_drafting": "true"}},
         {}, "0.32.0"),
        ({"draft.method": "dspark", **env(VLLM_USE_V2_MODEL_RUNNER="no")}, {}, "0.32.0"),
    ],
)  # fmt: skip
def test_what_it_has_is_not_refused(
    changes: dict[str, Any], models: dict[str, str], version: str
) -> None:
    assert list(model_runner(asked(changes, version=version, **models))) == []


def of_variables(named: Mapping[str, str], *args: str, version: str = "0.32.0") -> list[str]:
    changes = {**env(**named), "engine.args": list(args)}
    return [
        f"{each.severity.name} {each.message}"
        for each in engine_variable_values(asked(changes, version=version))
    ]


@pytest.mark.parametrize(
    ("name", "version", "part"),
    [
        ("VLLM_ATTENTION_BACKEND", "0.32.0", "set spec.engine.attentionBackend instead"),
        ("VLLM_USE_V1", "0.28.0", "remove it, for there is no other engine"),
        ("VLLM_LOGGING_LEVL", "0.32.0", "did you mean VLLM_LOGGING_LEVEL?"),
        ("VLLM_KIMI_K3_GEMM_AR", "0.28.0", "0.32.0, 0.33.0 do; remove it"),
        ("VLLM_OF_NOBODY_AT_ALL", "0.33.0", "does not read VLLM_OF_NOBODY_AT_ALL: remove it."),
    ],
)
def test_a_variable_that_is_not_read_is_told(name: str, version: str, part: str) -> None:
    (found,) = of_variables({name: "anything"}, version=version)

    assert found.startswith("WARNING")
    assert part in found
    assert "anything" not in found


def test_where_vllm_is_to_stop_at_such_a_variable_it_is_an_error() -> None:
    (found,) = of_variables({"VLLM_USE_V1": "1"}, "--fail-on-environ-validation")
    assert found.startswith("ERROR")
    assert "stops at start, as --fail-on-environ-validation asks" in found


@pytest.mark.parametrize("word", ["true", "False", "on"])
def test_a_word_for_a_number_is_refused(word: str) -> None:
    (found,) = of_variables({"VLLM_USE_DEEP_GEMM": word})
    assert found.startswith("ERROR")
    assert 'write "1" for true' in found


@pytest.mark.parametrize(
    ("named", "version"),
    [
        ({"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_HOST_IP": "10.0.0.1"}, "0.32.0"),
        ({"VLLM_USE_DEEP_GEMM": "1", "VLLM_USE_MODELSCOPE": "true"}, "0.32.0"),
        ({"VLLM_USE_DEEP_GEMM": "$(OTHER)"}, "0.32.0"),
        # Read by a connector alone, and so not in vLLM's own list.
        ({"VLLM_MORIIO_TRANSFER_TIMEOUT_S": "9"}, "0.32.0"),
        ({"NCCL_DEBUG": "true", "VLLMS_OWN": "1"}, "0.32.0"),
        ({"VLLM_USE_V1": "1"}, "0.34.0"),
        ({"VLLM_USE_V1": "1"}, "0.27.0"),
    ],
)
def test_others_are_not_told(named: dict[str, str], version: str) -> None:
    assert of_variables(named, version=version) == []


def test_variables_of_pod_templates_are_read_too() -> None:
    container = {"name": "vllm", "env": [{"name": "VLLM_USE_V1", "value": "1"}]}
    other = {"name": "proxy", "image": "proxy:1", "env": [{"name": "VLLM_USE_V1", "value": "1"}]}
    changes = {"podTemplate": {"spec": {"containers": [other, container]}}}

    found = only(engine_variable_values(asked(changes)))

    assert found.field == "spec.podTemplate.spec.containers[1].env[0]"


def test_a_number_of_engines_has_a_field() -> None:
    found = only(variables_of_fields(asked(env(VLLM_DP_SIZE="2"))))
    assert found.severity is Severity.ERROR
    assert "set spec.engine.dataParallelSize instead" in found.message


def test_one_address_for_all_pods_of_a_replica_is_told() -> None:
    changes = {**env(VLLM_HOST_IP="10.0.0.1"), "nodePool.accelerator": "GB200"}
    found = only(variables_of_fields(asked({**changes, "engine.tensorParallelSize": 8})))
    assert found.severity is Severity.WARNING
    assert "status.podIP" in found.message


@pytest.mark.parametrize(
    "changes",
    [
        env(VLLM_DP_SIZE="1"),
        {**env(VLLM_DP_SIZE="2"), "engine.dataParallelSize": 2},
        env(VLLM_HOST_IP="127.0.0.1"),
    ],
)
def test_variables_that_agree_with_fields_are_let_be(changes: dict[str, Any]) -> None:
    assert list(variables_of_fields(asked(changes))) == []
