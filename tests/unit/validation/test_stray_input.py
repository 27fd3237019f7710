"""Input that has the right type and means nothing to vLLM or to Kubernetes."""

import pytest

from fathom.engine.argument_parser import EngineArguments
from fathom.model_refs import is_model_name
from fathom.validation.argument_checks import lone_argument_problems
from manifest_samples import resource
from support.validated import errors


@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        "nvidia/Kimi-K2.6-NVFP4",
        "someone_1/else.v2",
        "unsloth/Qwen3-0.6B-GGUF:Q4_K_M",
        "/models/kimi",
        "/models/with a space/é",
        "s3://bucket/kimi",
        "gs://bucket/kimi",
        "az://container/kimi",
        "$(MODEL_DIRECTORY)/kimi",
    ],
)
def test_names_that_vllm_looks_for_are_taken(name: str) -> None:
    assert is_model_name(name)
    assert errors(resource({"model.id": name})) == ()


@pytest.mark.parametrize(
    "name",
    [
        "--help",
        "-",
        "a/b; rm -rf /",
        "hf://nvidia/Kimi-K2.6-NVFP4",
        "pvc://weights/kimi",
        "https://huggingface.co/nvidia/Kimi-K2.6-NVFP4",
        "./rel",
        "../rel",
        "~/models",
        "models/kimi/v2",
        "nvidia/",
        "/models/kimi\n",
        " nvidia/Kimi-K2.6-NVFP4",
    ],
)
@pytest.mark.parametrize("field", ["model.id", "draft.id"])
def test_names_that_are_none_are_refused(name: str, field: str) -> None:
    found = [problem.field for problem in errors(resource({field: name}))]

    assert found == [f"spec.{field}"]


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--max-num-seqs", "64"),
        ("--max-num-seqs=64", "--max-model-len", "4096"),
        ("--chat-template", "{{ a b }} --not an option"),
        ("--hf-overrides", '{"a": "b c"}'),
        ("--compilation-config", '{"mode": 3}', "--seed=1"),
        ("--cudagraph-capture-sizes", "1", "2", "4"),
        ("--rope-scaling=a value with spaces",),
        ("-O3",),
        ("--temperature", "-1"),
        ("--enable-expert-parallel", "--seed", "1"),
        ("--compilation-config.mode", "3"),
        ("--override", "- a list in YAML"),
    ],
)
def test_arguments_that_vllm_may_take_are_taken(args: tuple[str, ...]) -> None:
    assert lone_argument_problems(EngineArguments.of(args)) == ()


TWO = "and its value are one argument here, which vLLM does not know: make them two, or write"
STRAY = "remove this argument, or write its option before it."


@pytest.mark.parametrize(
    ("args", "index", "sentence"),
    [
        (
            ("--seed", "1", "--max-num-seqs 64"),
            2,
            f"--max-num-seqs {TWO} --max-num-seqs= before the value.",
        ),
        (("-tp 8",), 0, f"-tp {TWO} -tp= before the value."),
        (("--max-num-seqs\n64",), 0, f"--max-num-seqs {TWO} --max-num-seqs= before the value."),
        (
            ("kimi", "--seed", "1"),
            0,
            f"no option comes before this, and the model comes from spec.model.id: {STRAY}",
        ),
        (("--seed=1", "2"), 1, f"--seed has its value already: {STRAY}"),
        (
            ("--no-enable-prefix-caching", "true"),
            1,
            f"--no-enable-prefix-caching takes no value: {STRAY}",
        ),
    ],
)
def test_arguments_of_no_option_are_refused(
    args: tuple[str, ...], index: int, sentence: str
) -> None:
    assert [str(problem) for problem in lone_argument_problems(EngineArguments.of(args))] == [
        f"spec.engine.args[{index}]: {sentence}"
    ]


def test_what_may_be_a_secret_is_not_repeated() -> None:
    sd = resource(
        {
            "engine.args": ["--api-key s3cret", "s3cret"],
            "engine.env": [{"name": "PASSWORD=s3cret"}],
            "model.id": "https://user:s3cret@host/model",
        }
    )

    found = errors(sd)

    assert len(found) == 4
    assert "s3cret" not in " ".join(map(str, found))


@pytest.mark.parametrize("name", ["A", "a.b-c", "_9", "WITH SPACE", "9A"])
def test_names_of_variables_that_some_kubernetes_takes_are_taken(name: str) -> None:
    assert errors(resource({"engine.env": [{"name": name, "value": "1"}]})) == ()


@pytest.mark.parametrize("name", ["A=B", "=", "Ä", "A\n"])
def test_names_of_variables_that_no_kubernetes_takes_are_refused(name: str) -> None:
    found = errors(resource({"engine.env": [{"name": name, "value": "1"}]}))

    assert [problem.field for problem in found] == ["spec.engine.env[0].name"]
