"""Watching the mounted document, as a ConfigMap volume presents it."""

import errno
import json
import os
from pathlib import Path

import pytest

from fathom_vllm.depth_file import Adopted, DepthFile, Missing, Rejected


class Volume:
    """A ConfigMap volume: files are links through `..data`, which is swapped as a whole."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "depth.json"
        self._version = 0

    def publish(self, text: str) -> None:
        self._version += 1
        version = self.directory / f"..{self._version}"
        version.mkdir()
        (version / "depth.json").write_text(text)
        link = self.directory / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(self.directory / "..data")
        if not self.path.is_symlink():
            self.path.symlink_to("..data/depth.json")

    def publish_depth(self, generation: int, depth: int) -> None:
        self.publish(json.dumps({"generation": generation, "schedule": [[1, 16, depth]]}))


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path)


@pytest.fixture
def depth_file(volume: Volume) -> DepthFile:
    return DepthFile(str(volume.path), pod="pod-0", max_depth=7)


Found = Adopted | Rejected | Missing | None


def adopted(found: Found) -> tuple[int, int]:
    assert isinstance(found, Adopted)
    return found.document.generation, found.document.schedule[0][2]


def rejected(found: Found) -> str:
    assert isinstance(found, Rejected)
    return found.sentence


def test_each_swap_of_the_volume_is_seen_once(volume: Volume, depth_file: DepthFile) -> None:
    volume.publish_depth(1, 3)
    assert adopted(depth_file.poll()) == (1, 3)
    assert depth_file.poll() is None
    volume.publish_depth(2, 5)
    assert adopted(depth_file.poll()) == (2, 5)
    assert depth_file.poll() is None


def test_a_generation_may_go_back(volume: Volume, depth_file: DepthFile) -> None:
    volume.publish_depth(12, 3)
    depth_file.poll()
    volume.publish_depth(1, 4)
    assert adopted(depth_file.poll()) == (1, 4)


def test_a_missing_file_is_missing_at_each_look_and_no_rejection(depth_file: DepthFile) -> None:
    assert [depth_file.poll(), depth_file.poll()] == [Missing(), Missing()]


def test_a_folder_that_is_gone_or_no_folder_has_no_file_either(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "absent" / "depth.json", tmp_path / "file" / "depth.json"):
        assert DepthFile(str(path), pod="", max_depth=7).poll() == Missing()


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ESTALE])
def test_a_file_that_cannot_be_looked_at_may_be_there(
    volume: Volume, depth_file: DepthFile, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    volume.publish_depth(1, 3)
    depth_file.poll()

    def fails(_: Path) -> os.stat_result:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", fails)
        assert "cannot be read" in rejected(depth_file.poll())
        assert depth_file.poll() is None
    assert adopted(depth_file.poll()) == (1, 3)


def test_the_same_bad_content_is_reported_once(volume: Volume, depth_file: DepthFile) -> None:
    volume.publish("{}")
    assert "generation" in rejected(depth_file.poll())
    volume.publish("{}")
    assert depth_file.poll() is None
    volume.publish("[]")
    assert "JSON object" in rejected(depth_file.poll())


def test_good_content_in_between_makes_bad_content_news_again(
    volume: Volume, depth_file: DepthFile
) -> None:
    volume.publish("{}")
    depth_file.poll()
    volume.publish_depth(1, 3)
    assert adopted(depth_file.poll()) == (1, 3)
    volume.publish("{}")
    assert "generation" in rejected(depth_file.poll())


def test_a_file_that_comes_back_is_adopted(volume: Volume, depth_file: DepthFile) -> None:
    volume.publish_depth(1, 3)
    depth_file.poll()
    volume.path.unlink()
    assert depth_file.poll() == Missing()
    volume.publish_depth(1, 3)
    assert adopted(depth_file.poll()) == (1, 3)


def test_bytes_that_are_not_text_are_refused(volume: Volume, depth_file: DepthFile) -> None:
    volume.path.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in rejected(depth_file.poll())


def test_a_directory_in_its_place_is_refused_and_tried_again(
    volume: Volume, depth_file: DepthFile
) -> None:
    volume.path.mkdir()
    assert "cannot be read" in rejected(depth_file.poll())
    assert depth_file.poll() is None
    volume.path.rmdir()
    volume.publish_depth(1, 3)
    assert adopted(depth_file.poll()) == (1, 3)


def test_a_pipe_in_its_place_does_not_stop_the_engine(
    volume: Volume, depth_file: DepthFile
) -> None:
    os.mkfifo(volume.path)
    assert rejected(depth_file.poll())


def test_where_and_for_whom_comes_from_the_environment(volume: Volume) -> None:
    volume.publish(
        json.dumps({"generation": 1, "schedule": [[1, 16, 3]], "pods": {"me": [[1, 16, 6]]}})
    )
    environ = {"FATHOM_DEPTH_FILE": str(volume.path), "FATHOM_POD_NAME": "me"}
    assert adopted(DepthFile.from_environment(environ, max_depth=7).poll()) == (1, 6)
    assert DepthFile.from_environment({}, max_depth=7).path == "/etc/fathom/depth/depth.json"
