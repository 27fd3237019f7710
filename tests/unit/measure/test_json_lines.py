"""The stand-in for pandas reads lines as vLLM's loader goes through them."""

import json
from pathlib import Path

import pytest

from fathom_measure.json_lines import read_json


def test_columns_and_rows_are_what_the_loader_asks_for(tmp_path: Path) -> None:
    file = tmp_path / "qualitative.jsonl"
    lines = [{"messages": [{"content": "grün"}], "category": "coding"}, {"messages": []}]
    file.write_text("\n\n".join(map(json.dumps, lines)), encoding="utf-8")

    found = read_json(path_or_buf=file, lines=True)

    assert found.columns == ["category", "messages"]
    rows = [row for _, row in found.iterrows()]
    assert rows[0]["messages"][0]["content"] == "grün"
    assert [row.to_dict() for row in rows] == lines


def test_what_is_no_json_lines_is_not_read_as_such(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        read_json(tmp_path / "whole.json", lines=False)
