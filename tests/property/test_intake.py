"""Whatever becomes of a draft's files, an intake stores a sound one or says why it stores none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fathom_intake.verdict import LONGEST_MESSAGE, Code
from support.trained_drafts import MARK, Intake, new_intake

FILES = ("result.json", "draft/config.json", "draft/model.safetensors")
_HEADER = 700
"""Bytes at a file's beginning, where most of what matters is."""

_PLACES = st.one_of(st.integers(0, 10), st.integers(0, _HEADER), st.integers(0, 1 << 14))
_TEXTS = st.sampled_from(
    [b"", b"0", b"9", b'"', b"{", b"]", b"-", b",", b"null", b"\xff\x7f", b"[1]", MARK.encode()]
)
_CHANGES = st.lists(
    st.tuples(st.sampled_from(FILES), _PLACES, st.integers(0, 3), _TEXTS), min_size=1, max_size=3
)
"""In which file, from which byte on, how many go, and what comes instead."""


def is_sound(folder: Path) -> None:
    """Reads a stored draft in another way than the intake does."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    content = (folder / "model.safetensors").read_bytes()
    length = int(np.frombuffer(content[:8], "<u8")[0])
    tensors = json.loads(content[8 : 8 + length])
    tensors.pop("__metadata__", None)
    data, held = content[8 + length :], 0
    for name, described in tensors.items():
        begin, end = described["data_offsets"]
        held += end - begin
        assert end <= len(data)
        if described["dtype"] == "BF16":
            numbers = np.frombuffer(data[begin:end], "<u2").astype("<u4") << 16
            assert np.isfinite(numbers.view("<f4")).all()
            assert numbers.size == np.prod(described["shape"])
        if name == "d2t":
            tokens = np.frombuffer(data[begin:end], "<i8") + np.arange(described["shape"][0])
            assert ((tokens >= 0) & (tokens < 32)).all()
    assert held == len(data)
    assert "auto_map" not in config


def corrupted(intake: Intake, changes: list[tuple[str, int, int, bytes]]) -> None:
    for name, place, gone, text in changes:
        path = intake.output.path / name
        content = path.read_bytes()
        path.write_bytes(content[:place] + text + content[place + gone :])


@given(_CHANGES)
def test_what_is_stored_is_sound_and_all_else_is_refused_by_a_code(
    changes: list[tuple[str, int, int, bytes]],
) -> None:
    with new_intake() as intake:
        corrupted(intake, changes)

        taken = intake.run()

        assert MARK not in taken.text
        assert len(taken.text) <= LONGEST_MESSAGE
        if taken.exit_code:
            assert Code(taken.refused) is not Code.BROKEN
            assert intake.stored == []
        elif "draft" in taken.message:
            assert intake.stored == [taken.message["draft"]["folder"]]
            is_sound(intake.store / intake.stored[0])
            assert intake.run() == taken
