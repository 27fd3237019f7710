"""Kinds of bad input: each refused by `fathom render`, with its field and its sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from bad_input import BAD
from fathom.cli.main import app
from manifest_samples import manifest

OLD_DRAFT = {"fc_norm": True, "norm_output": True, "kv_lora_rank": 512}


def render(path: Path, document: dict[str, Any]) -> Result:
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return CliRunner().invoke(app, ["render", "-f", str(path)])


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
