"""Bytes present are what lies on the disk."""

import os
import time
from pathlib import Path

from fathom_fetch.cache import ABANDONED_SECONDS, CachedModel

COMMIT = "0" * 40
SIZES: dict[str, int | None] = {"a.safetensors": 8192, "b.safetensors": 8192}


def model(cache: Path, sizes: dict[str, int | None] | None = None) -> CachedModel:
    return CachedModel(cache, "org/x", COMMIT, SIZES if sizes is None else sizes)


def blob(cache: Path, name: str, size: int) -> Path:
    path = cache / "models--org--x" / "blobs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def link(cache: Path, name: str, to: Path) -> None:
    snapshot = cache / "models--org--x" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True, exist_ok=True)
    (snapshot / name).symlink_to(to)


def aged(path: Path, seconds: float) -> None:
    before = time.time() - seconds
    os.utime(path, (before, before))


def test_finished_files_and_those_under_way_count(tmp_path: Path) -> None:
    link(tmp_path, "a.safetensors", blob(tmp_path, "etag-a", 8192))
    found = model(tmp_path)
    assert found.present_bytes() == 8192
    partial = blob(tmp_path, "etag-b.01234567.incomplete", 4096)
    aged(partial, -1)
    assert found.present_bytes() == 8192 + 4096
    assert found.total_bytes == 16384


def test_what_an_earlier_fetch_left_half_done_does_not(tmp_path: Path) -> None:
    aged(blob(tmp_path, "etag-b.01234567.incomplete", 4096), 60)
    assert model(tmp_path).present_bytes() == 0


def test_files_of_other_commits_do_not_count(tmp_path: Path) -> None:
    blob(tmp_path, "another", 8192)
    assert model(tmp_path).present_bytes() == 0


def test_a_size_that_is_not_known_makes_the_total_unknown(tmp_path: Path) -> None:
    assert model(tmp_path, {"a": 1, "b": None}).total_bytes is None


def test_partial_files_that_nobody_goes_on_with_are_removed(tmp_path: Path) -> None:
    """Older releases of huggingface_hub go on with a file that no process has put its name to."""
    old = blob(tmp_path, "etag-a.01234567.incomplete", 1)
    fresh = blob(tmp_path, "etag-b.89abcdef.incomplete", 1)
    of_an_older = blob(tmp_path, "etag-c.incomplete", 1)
    for path in (old, of_an_older):
        aged(path, ABANDONED_SECONDS + 60)
    model(tmp_path).tidy()
    assert not old.exists()
    assert fresh.exists()
    assert of_an_older.exists()
