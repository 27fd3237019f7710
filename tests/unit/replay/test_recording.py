"""The file format: what is written is read again, and what is damaged is told by its line."""

import gzip
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from fathom.measurement.counters import PodCounters
from fathom.replay.recording import BadLine, RecordingWriter, UnreadableRecordingError, looks_in
from support.engine_page import FakeEngine
from unit.replay.recorded import record, write
from unit.tuning.plant import Fleet


def read(file: Path) -> list[PodCounters | BadLine]:
    with file.open("rb") as stream:
        return list(looks_in(stream, file.name))


def line(at: object = 100.0, pod: object = "p", metrics: object = None) -> str:
    page = FakeEngine().page() if metrics is None else metrics
    return json.dumps({"at": at, "pod": pod, "metrics": page})


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    fleet = Fleet()
    fleet.pods[0].device = "NVIDIA GB200"
    looks = record(fleet, 60)
    assert looks[-1].cells
    assert looks[-1].drafts

    assert read(write(tmp_path / name, looks)) == looks


def test_a_page_as_an_engine_shows_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f"{line()}\n\n{line(at=130)}\n")

    (first, second) = read(file)

    assert isinstance(first, PodCounters)
    assert FakeEngine().is_shown_by(first)
    assert isinstance(second, PodCounters)
    assert (second.at_s, second.pod) == (130, "p")


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ("{", "it is not {"),
        (line(pod=5), "pod: input should be a valid string"),
        (line(at="NaN"), "at: "),
        (line(at=-1), "at: input should be greater than 0"),
        (line(at=1_760_000_000_000), "at: input should be in seconds since 1970: are these milli"),
        (line(at=1e300), "at: input should be in seconds since 1970"),
        ('{"at": 1, "pod": "p"}', "metrics: field required"),
        (line(metrics="up 1\n"), "shows no vllm: metrics"),
        (line(metrics="this is { not a page"), "shows no vllm: metrics"),
        (line(metrics="vllm:generation_tokens_total{ 1"), "Prometheus's text format"),
        (line(metrics="vllm:generation_tokens_total NaN\n"), "is nan, not a count"),
        (line(at=50), "older than the lines above"),
    ],
)
def test_a_damaged_line_is_told_by_its_number(tmp_path: Path, damaged: str, words: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f"{line()}\n{damaged}\n{line(at=130)}\n")

    first, bad, last = read(file)

    assert isinstance(first, PodCounters)
    assert isinstance(last, PodCounters)
    assert isinstance(bad, BadLine)
    assert bad.message.startswith("a.jsonl, line 2: ")
    assert words in bad.message
    assert bad.message.endswith(".")


def test_a_file_that_is_not_text_has_no_look_in_it() -> None:
    (bad,) = looks_in(BytesIO(b"\xff\xfe\x00"), "a")

    assert isinstance(bad, BadLine)
    assert bad.message.startswith("a, line 1: it is not {")


@pytest.mark.parametrize("damage", [lambda _: b"not gzip", lambda data: data[:-8] + bytes(8)])
def test_damaged_compression_is_refused(damage: Callable[[bytes], bytes]) -> None:
    data = gzip.compress(f"{line()}\n".encode())

    with pytest.raises(UnreadableRecordingError, match="it cannot be read to its end"):
        list(looks_in(BytesIO(damage(data)), "a.gz"))


def test_what_was_written_before_a_break_is_read() -> None:
    """As where the recorder was killed while it wrote: each line is compressed by itself."""
    whole = gzip.compress(f"{line()}\n".encode())

    first, bad = looks_in(BytesIO(whole + whole[:-20]), "a.gz")

    assert isinstance(first, PodCounters)
    assert bad == BadLine("a.gz: it breaks off in the middle of its last line.")


def test_a_flushed_line_needs_nothing_after_it(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    writer = RecordingWriter(file)
    for at_s in (100.0, 130.0):
        writer.write_page(at_s=at_s, pod="p", page=FakeEngine().page())
        size = writer.flush()

    looks = read(file)

    assert size == file.stat().st_size
    assert [each.at_s for each in looks if isinstance(each, PodCounters)] == [100.0, 130.0]
    writer.close()
    assert read(file) == looks


def test_an_existing_file_is_kept_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("kept")

    with pytest.raises(FileExistsError):
        RecordingWriter(file, replace=False)

    assert file.read_text() == "kept"
    RecordingWriter(file).close()
    assert file.read_text() == "kept", "nothing was written that could replace it"
    writer = RecordingWriter(file)
    writer.write_page(at_s=1.0, pod="a", page="up 1\n")
    assert file.read_text() == "kept"
    writer.close()
    assert "up 1" in file.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["a.jsonl"]
