from pathlib import Path

import pytest

from fathom.adapters.model_files import MAX_CONFIG_BYTES, local_config


def model(directory: Path, text: str) -> str:
    (directory / "config.json").write_text(text, encoding="utf-8")
    return str(directory)


def test_reads_the_config_of_a_local_model(tmp_path: Path) -> None:
    assert local_config(model(tmp_path, '{"fc_norm": true}')) == {"fc_norm": True}


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "[" * 100_000, '"' + "x" * MAX_CONFIG_BYTES + '"']
)
def test_what_is_no_config_is_not_at_hand(tmp_path: Path, text: str) -> None:
    assert local_config(model(tmp_path, text)) is None


@pytest.mark.parametrize("name", ["", "org/model", "/nowhere/model", "relative/config"])
def test_what_is_not_on_this_machine_is_not_at_hand(name: str) -> None:
    assert local_config(name) is None
