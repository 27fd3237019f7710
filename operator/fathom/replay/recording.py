"""Recordings of metrics (JSON Lines, gzipped if named .gz), and the depths that ran.

`{"at": 1760000000.0, "pod": "kimi-0", "metrics": "<the page that /metrics showed>"}`

A page is kept as it was shown, so any program can write a recording, and one made today can be
read by a later version that reads more of it.
"""

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from fathom.adapters.metrics_page import parse
from fathom.adapters.series import NotAnEngine, Point
from fathom.engine.depth import Depths, buckets
from fathom.measurement.counters import PodCounters
from fathom.measurement.deltas import PodDelta

_GZIP_SUFFIX: Final = ".gz"
_YEAR_10000_S: Final = 253_402_300_800.0
"""No date is written beyond it, and no window of some seconds can be added to a much larger one."""
LEAST_STEPS: Final = 3.0
"""With fewer steps in a bucket, a pod has no say about it."""


class UnreadableRecordingError(Exception):
    """A file that cannot be read at all; the message is a sentence."""


def _of_a_clock(at_s: float) -> float:
    if at_s >= _YEAR_10000_S:
        raise PydanticCustomError(
            "beyond_dates", "Input should be in seconds since 1970: are these milliseconds?"
        )
    return at_s


class _RecordedLine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    at: Annotated[float, Field(gt=0), AfterValidator(_of_a_clock)]
    pod: Annotated[str, Field(min_length=1)]
    metrics: str


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was passed over, and why, as a sentence."""

    message: str


def looks_in(stream: BinaryIO, where: str) -> Iterator[PodCounters | BadLine]:
    """Every look of a recording, in its order; what cannot be read is told and passed over.

    Args:
        stream: the file, opened in binary.
        where: its name, for sentences; one that ends in .gz is unpacked.

    Raises:
        UnreadableRecordingError: the disk fails, or the compression is damaged.
    """
    zipped = where.endswith(_GZIP_SUFFIX)
    lines: Iterable[bytes] = gzip.GzipFile(fileobj=stream) if zipped else stream
    newest_s = 0.0
    try:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            look = _look(line, f"{where}, line {number}")
            if isinstance(look, PodCounters):
                if look.at_s < newest_s:
                    look = BadLine(f"{where}, line {number}: it is older than the lines above.")
                else:
                    newest_s = look.at_s
            yield look
    except EOFError:
        # As of a recorder that was killed while it wrote.
        yield BadLine(f"{where}: it breaks off in the middle of its last line.")
    except (OSError, zlib.error) as error:
        raise UnreadableRecordingError(
            f"{where}: it cannot be read to its end: {error}."
        ) from error


def _look(text: bytes, where: str) -> PodCounters | BadLine:
    try:
        line = _RecordedLine.model_validate_json(text)
        return parse(line.metrics, pod=line.pod, at_s=line.at)
    except NotAnEngine as error:
        return BadLine(f"{where}: its page cannot be used: {error}.")
    except ValidationError as error:
        first = error.errors()[0]
        path = "".join(f"{part}: " for part in first["loc"])
        what = path + first["msg"][:1].lower() + first["msg"][1:]
        return BadLine(f'{where}: it is not {{"at": …, "pod": …, "metrics": …}}: {what}.')


class RecordingWriter:
    """Writes a recording; close it."""

    def __init__(self, file: Path, *, replace: bool = True) -> None:
        """Open, and empty, a file.

        Args:
            file: gzipped if its name ends in .gz.
            replace: whether there may be one of that name already.

        Raises:
            FileExistsError: there is one, and it is not to be replaced.
            OSError: it cannot be written.
        """
        self._file = file
        # One that is replaced stays as it is until there is something to replace it by.
        self.path = file.with_name(f"{file.name}.part") if replace and file.is_file() else file
        self._raw = self.path.open("wb" if replace else "xb")
        self._zipped = file.name.endswith(_GZIP_SUFFIX)
        self._member: gzip.GzipFile | None = None

    def write(self, *, at_s: float, pod: str, points: Iterable[Point]) -> None:
        """Add one look."""
        self.write_page(at_s=at_s, pod=pod, page=page_of(points))

    def write_page(self, *, at_s: float, pod: str, page: str) -> None:
        """Add one look, as the pod's own page.

        Raises:
            OSError: it cannot be written.
        """
        line = {"at": at_s, "pod": pod, "metrics": page}
        text = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        if self._zipped and self._member is None:
            self._member = gzip.GzipFile(fileobj=self._raw, mode="wb")
        (self._raw if self._member is None else self._member).write(text)

    def flush(self) -> int:
        """Keep what was written so far whole, whatever becomes of this process.

        What follows is compressed by itself: gzip's own flush would leave a file without an end.

        Returns:
            Size of the file in bytes.

        Raises:
            OSError: it cannot be written.
        """
        if self._member is not None:
            member, self._member = self._member, None
            member.close()
        self._raw.flush()
        size = self._raw.tell()
        if size and self.path != self._file:
            self.path = self.path.replace(self._file)
        return size

    def close(self) -> None:
        with self._raw:
            self.flush()
        if self.path != self._file:
            self.path.unlink(missing_ok=True)


def page_of(points: Iterable[Point]) -> str:
    """Samples as a page that `fathom.adapters.metrics_page.parse` reads as the same samples."""
    registry = CollectorRegistry()
    registry.register(_Points(points))
    return generate_latest(registry).decode()


class _Points(Collector):
    def __init__(self, points: Iterable[Point]) -> None:
        self._points = tuple(points)

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        for point in self._points:
            # Of unknown type: only so do names keep their endings as they are.
            metric = metrics.setdefault(point.name, Metric(point.name, "", "untyped"))
            metric.add_sample(point.name, dict(point.labels), point.value)
        yield from metrics.values()


@dataclass(frozen=True, slots=True)
class RecordedDepths:
    """The schedule that the fleet ran, and the pods that ran something else."""

    depths: Depths
    """Per bucket."""
    deviating: Mapping[str, int]
    """Pods that ran another depth than the fleet, and where most of their steps did so, which: a
    probe, a canary or a pin."""

    @classmethod
    def at_start(cls, tokens: int, max_batch: int) -> "RecordedDepths":
        """Before anything was seen: the user's own depth."""
        return cls(dict.fromkeys(buckets(max_batch), tokens), {})

    def updated(self, deltas: Iterable[PodDelta]) -> "RecordedDepths":
        """After one more window.

        In each bucket every pod speaks for the depth of most of its steps, and most pods decide.
        With as many for another depth as for the one before, that one stays: so on two pods a probe
        of one is a probe. A bucket that nobody ran in keeps its depth.
        """
        own = {each.pod: _steps_by_bucket(each) for each in deltas}
        depths = {
            bucket: _decided(before, [steps[bucket] for steps in own.values() if bucket in steps])
            for bucket, before in self.depths.items()
        }
        found = {pod: _deviation(steps, depths) for pod, steps in own.items()}
        deviating = {pod: depth for pod, depth in found.items() if depth is not None}
        return RecordedDepths(depths, deviating)


def _steps_by_bucket(delta: PodDelta) -> dict[int, dict[int, float]]:
    """Steps per bucket and depth, where there are enough."""
    steps: defaultdict[int, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for cell, counts in delta.cells.items():
        steps[cell.batch_le][cell.depth] += counts.steps
    return {
        bucket: dict(by_depth)
        for bucket, by_depth in steps.items()
        if sum(by_depth.values()) >= LEAST_STEPS
    }


def _decided(before: int, pods: list[dict[int, float]]) -> int:
    votes: defaultdict[int, int] = defaultdict(int)
    steps: defaultdict[int, float] = defaultdict(float)
    for by_depth in pods:
        votes[max(by_depth, key=by_depth.__getitem__)] += 1
        for depth, count in by_depth.items():
            steps[depth] += count
    return max(
        votes, key=lambda depth: (votes[depth], depth == before, steps[depth]), default=before
    )


def _deviation(by_bucket: Mapping[int, Mapping[int, float]], depths: Depths) -> int | None:
    """The depth of most of a pod's steps that are not the fleet's; None: it ran as the fleet."""
    other: defaultdict[int, float] = defaultdict(float)
    for bucket, by_depth in by_bucket.items():
        depth = max(by_depth, key=by_depth.__getitem__)
        if depth != depths.get(bucket, depth):
            other[depth] += by_depth[depth]
    return max(other, key=other.__getitem__, default=None)
