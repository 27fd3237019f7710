"""Ten kinds of bad input: each refused by `fathom render`, with its field and its sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from fathom.cli import app
from manifest_samples import manifest

OLD_DRAFT = {"fc_norm": True, "norm_output": True, "kv_lora_rank": 512}


def render(path: Path, document: dict[str, Any]) -> Result:
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return CliRunner().invoke(app, ["render", "-f", str(path)])


BAD = {
    "unknown field": (
        {"speculation.token": 3},
        "spec.speculation.token: unknown field. Did you mean tokens?",
    ),
    "tokens above maxTokens": (
        {"speculation.tokens": 5, "speculation.maxTokens": 4},
        (
            "spec.speculation.tokens: tokens is above maxTokens: lower tokens, or raise maxTokens "
            "(which needs new pods)."
        ),
    ),
    "unknown method": (
        {"draft.method": "eagle4"},
        (
            "spec.draft.method: 'eagle4' is not one of 'eagle3', 'eagle', 'mtp', 'draft_model', "
            "'ngram', 'suffix', 'dflash' or 'dspark'."
        ),
    ),
    "no tray layout": (
        {"engine.tensorParallelSize": 3},
        (
            "spec.engine.tensorParallelSize: no layout of nodes fits this size: use a divisor of "
            "the GPUs on one node (1, 2 or 4 on a GB200 tray) or a multiple of them."
        ),
    ),
    "too deep for tokenspeed_mla": (
        {"engine.attentionBackend": "tokenspeed_mla", "speculation.maxTokens": 8},
        (
            "spec.speculation.maxTokens: attention backend tokenspeed_mla verifies at most 7 "
            "drafted tokens: set maxTokens (and tokens) to 7 or less, or choose another "
            "attentionBackend."
        ),
    ),
    "owned flag": (
        {"engine.args": ["--max-model-len", "4096", "--tensor_par=8"]},
        (
            "spec.engine.args[2]: --tensor_par (which vLLM reads as --tensor-parallel-size) may "
            "not be set here: set spec.engine.tensorParallelSize instead."
        ),
    ),
    "missing draft": (
        {"draft.id": None},
        (
            "spec.draft.id: this method needs a draft model: set draft.id to its Hugging Face id "
            "or to its absolute path in the pod."
        ),
    ),
    "Goodput without an SLO": (
        {"speculation.tuning.objective": "Goodput"},
        (
            "spec.speculation.tuning.tpotMilliseconds: objective Goodput needs an SLO: set "
            "tpotMilliseconds to the largest acceptable time per output token."
        ),
    ),
    "invalid image": (
        {"engine.image": "vLLM OpenAI:latest"},
        (
            "spec.engine.image: this is not a container image reference: write "
            "registry/repository:tag or registry/repository@sha256:digest."
        ),
    ),
    "engine too old for the known draft": (
        {"engine.image": "vllm/vllm-openai:v0.22.1"},
        (
            "spec.draft.id: lightseekorg/kimi-k2.6-eagle3.1-mla is an EAGLE 3.1 draft with MLA "
            "(Fathom's own table), which vLLM 0.22.1 loads without applying its fc_norm: use vLLM "
            "0.23.0 or later."
        ),
    ),
}


@pytest.mark.parametrize(("changes", "sentence"), BAD.values(), ids=BAD.keys())
def test_is_refused_with_its_field_and_a_sentence(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    file = tmp_path / "bad.yaml"

    result = render(file, manifest(changes))

    assert result.exit_code == 2
    assert result.stderr == f"{file}: {sentence}\n"
    assert result.stdout == ""


def test_an_old_engine_is_told_from_a_local_config(tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "config.json").write_text(json.dumps(OLD_DRAFT), encoding="utf-8")
    file = tmp_path / "bad.yaml"

    result = render(
        file, manifest({"draft.id": str(draft), "engine.image": "vllm/vllm-openai:v0.22.1"})
    )

    assert result.exit_code == 2
    assert result.stderr == (
        f"{file}: spec.draft.id: {draft} is an EAGLE 3.1 draft with MLA (its config.json), which "
        "vLLM 0.22.1 loads without applying its fc_norm: use vLLM 0.23.0 or later.\n"
    )


def test_a_draft_that_nothing_is_known_of_is_not_refused(tmp_path: Path) -> None:
    document = manifest({"draft.id": "someone/else", "engine.image": "vllm/vllm-openai:v0.22.1"})

    result = render(tmp_path / "unknown.yaml", document)

    assert result.exit_code == 0


def test_what_is_not_built_yet_is_refused_as_such(tmp_path: Path) -> None:
    file = tmp_path / "two-trays.yaml"

    result = render(file, manifest({"engine.tensorParallelSize": 8}))

    assert result.exit_code == 2
    assert result.stderr == (
        f"{file}: spec.engine.tensorParallelSize: a replica of 8 GPUs spans several nodes of 4, "
        "which is not supported yet: keep tensorParallelSize × pipelineParallelSize within one "
        "node.\n"
    )
    assert result.stdout == ""
