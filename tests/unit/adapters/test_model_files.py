import json
from pathlib import Path

import pytest

from fathom.adapters.model_files import MAX_CONFIG_BYTES, is_directory, local_facts
from fathom.model_facts import Absence, ModelConfig, ModelFacts, ModelRef, Weights


def safetensors(tensors: dict[str, int], *, padding: int = 0) -> bytes:
    """A file in the safetensors format, of tensors of bytes."""
    header, end = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * (end + padding)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"fc_norm": true}', encoding="utf-8")
    return tmp_path


def facts(directory: Path) -> ModelFacts:
    return local_facts(ModelRef(str(directory)))


def test_reads_the_config_of_a_local_model(model: Path) -> None:
    assert facts(model) == ModelFacts(config=ModelConfig.from_json({"fc_norm": True}))
    assert facts(model).config == ModelConfig(fc_norm=True, eagle_keys=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[1]", "it is no JSON object"),
        ("[" * 100_000, "it nests deeper than 100 levels"),
        ('"' + "x" * MAX_CONFIG_BYTES + '"', "it is not JSON"),
        (None, "it cannot be read: No such file or directory"),
    ],
    ids=["empty", "broken", "list", "deep", "long", "missing"],
)
def test_what_is_no_config_is_not_at_hand(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")

    found = facts(tmp_path)

    assert (found.config, found.absence) == (None, Absence.UNREADABLE)
    assert found.explanation == why


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "it is no directory of this machine"),
        ("org/model", "it is no directory of this machine"),
        ("relative/config", "it is no directory of this machine"),
        ("/nowhere/model", "there is no such directory on this machine"),
    ],
)
def test_what_is_not_on_this_machine_is_not_at_hand(name: str, why: str) -> None:
    found = local_facts(ModelRef(name))

    assert (found.absence, found.explanation) == (Absence.NOT_LOCAL, why)
    assert is_directory(ModelRef(name)) == name.startswith("/")


def test_knows_the_size_of_the_weights_and_whether_they_map_draft_tokens(model: Path) -> None:
    content = safetensors({"d2t": 10, "lm_head.weight": 20})
    (model / "model.safetensors").write_bytes(content)
    # The same weights once more, in another layout; vLLM leaves them out.
    (model / "consolidated.safetensors").write_bytes(content)

    assert facts(model).weights == Weights(len(content), has_d2t=True)


def test_no_table_is_told_from_not_knowing(model: Path) -> None:
    file = model / "model.safetensors"

    file.write_bytes(safetensors({"lm_head.weight": 20}))
    assert facts(model).weights.has_d2t is False

    file.write_bytes(b"no safetensors")
    assert facts(model).weights == Weights(len(b"no safetensors"), has_d2t=None)


def test_the_sizes_of_all_shards_are_added(model: Path) -> None:
    for shard in (1, 2):
        (model / f"model-0000{shard}-of-00002.safetensors").write_bytes(b"x" * 100)

    assert facts(model).weights == Weights(200, has_d2t=None)
