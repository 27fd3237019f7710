"""From the bytes of a /metrics page to `PodCounters`, as fast as thousands of pods need it. No I/O.

How, and what else was tried: docs/design/0032-reading-many-pages.md.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from prometheus_client.parser import text_string_to_metric_families

from fathom.adapters.exposition import Layout, counted
from fathom.adapters.series import (
    FAMILIES,
    NOWHERE,
    Destination,
    NotAnEngine,
    Point,
    destination_of,
)
from fathom.measurement.counters import PodCounters

_Key = TypeVar("_Key", str, bytes)
_Value = TypeVar("_Value")
_EACH_BYTES: Final = 300
"""What one entry takes besides its key's own bytes and a large value: heads of objects, tables."""
MOST_SAMPLES: Final = 20_000
"""Samples of one page. Eight engines in a pod that have used every cell show less. Each takes 20 µs
when its series is new, later one."""
LONGEST_LINE: Final = 4096
"""Characters. The time to read a line grows with the square of its length."""
_READ_NAMES: Final = frozenset(name.encode() for name in FAMILIES)
_NAME: Final = re.compile(rb"[^ \t{]+(?=[ \t{])")
_SERIES: Final = re.compile(rb'[^\s{]+(?:\{(?:[^{}#"]*"[^{}#"]*")*[^{}#"]*\})? ')
"""A series as vLLM shows it, and a space. What a line has up to its last space and is not one may
hold a value before it, or end within a label: such a line is parsed each time."""
_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
"""Memory for series and where they go: those of 1,200 models in each half. The plugin's have no
model's name, so that all resources' pods share them; of vLLM's there are 60, 26 KB, per model."""
_PATTERNS_BYTES: Final = 192 * 1024 * 1024
"""Memory for pages that are known: a pod that has used every cell takes 30 KB of it, and less in
truth where others show the same. Each half has space for 3,000 pods."""
_LINE_BYTES: Final = 24
"""Bytes for each line of a page that is known: measured."""
_PASSED_BYTES: Final = 1024 * 1024
"""Memory for the beginnings of lines that are not read: vLLM shows some hundreds of them."""
_LENGTHS_BYTES: Final = 8 * 1024 * 1024
"""Memory for how many lines each pod has shown: each half has space for 12,000 pods."""
_SAMPLE: Final = re.compile(rb"^[a-zA-Z_:][a-zA-Z0-9_:]*[ {\t]", re.MULTILINE)


class Remembered(Generic[_Key, _Value]):
    """What was found out about keys that come again and again; it forgets those that do not.

    There are two generations. When the younger one is full, it becomes the elder one; what has not
    come again by the time the next is full is gone.
    """

    def __init__(self, most_bytes: int, value_bytes: Callable[[_Value], int] = lambda _: 0) -> None:
        """Start with nothing.

        Args:
            most_bytes: of both generations together, about; whoever makes up keys, however long,
                gets no more of our memory.
            value_bytes: of a value, where it is large.
        """
        self._most_bytes = most_bytes // 2
        self._left_bytes = self._most_bytes
        self._value_bytes = value_bytes
        self._younger: dict[_Key, _Value] = {}
        self._elder: dict[_Key, _Value] = {}

    @property
    def younger(self) -> Mapping[_Key, _Value]:
        """What came lately, for whoever asks too often to call `find`; other calls change it."""
        return self._younger

    def find(self, key: _Key) -> _Value | None:
        """What is known of a key, which thereby stays known."""
        value = self._younger.get(key)
        if value is None and (value := self._elder.get(key)) is not None:
            self.keep(key, value)
        return value

    def keep(self, key: _Key, value: _Value) -> None:
        """Remember."""
        self.forget(key)
        size = self._size(key, value)
        if size > self._left_bytes:
            self._elder, self._younger = self._younger, {}
            self._left_bytes = self._most_bytes
        self._younger[key] = value
        self._left_bytes -= size

    def forget(self, key: _Key) -> None:
        """Know nothing of a key any more."""
        self._elder.pop(key, None)
        if (before := self._younger.pop(key, None)) is not None:
            self._left_bytes += self._size(key, before)

    def _size(self, key: _Key, value: _Value) -> int:
        return len(key) + self._value_bytes(value) + _EACH_BYTES


class _Series(NamedTuple):
    """A series that is read."""

    start: bytes
    """Beginning of its lines, up to the value: one object for all pages."""
    place: Destination


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Pattern:
    """A page but for its values: a pod most often shows the same lines again, and so do others."""

    starts: tuple[bytes, ...]
    """Beginnings of the lines: a series and a space, or what shows that a line is skipped."""
    is_read: bytes
    """Byte of each line: 1, or 0 where it is skipped."""
    layout: Layout

    @property
    def most_bytes(self) -> int:
        """That it takes for itself."""
        return _LINE_BYTES * len(self.starts)

    def totals(self, lines: Sequence[bytes]) -> Sequence[float] | None:
        """What the lines add up to; None: they are other ones, or have to be looked at closely."""
        starts, is_read = self.starts, self.is_read
        if len(lines) != len(starts) or not all(map(bytes.startswith, lines, starts)):
            return None
        found = map(bytes.removeprefix, compress(lines, is_read), compress(starts, is_read))
        values = list(found)
        numbers = _plain_numbers(values)
        if numbers is None or max(map(len, values), default=0) > LONGEST_LINE:
            return None
        return self.layout.totals(numbers)


class PageReader:
    """Reads /metrics pages. The library reads each series once; then its bytes are known."""

    def __init__(self, remembered_bytes: int = _REMEMBERED_BYTES) -> None:
        """Know no series and no page yet.

        Args:
            remembered_bytes: that series which are known may take, about.
        """
        self._known: Remembered[bytes, _Series] = Remembered(remembered_bytes)
        self._passed: Remembered[bytes, bytes] = Remembered(_PASSED_BYTES)
        """How lines begin that are not read: one object for all pages."""
        self._patterns: Remembered[str, _Pattern] = Remembered(
            _PATTERNS_BYTES, lambda pattern: pattern.most_bytes
        )
        """By pod."""
        self._shared: WeakValueDictionary[tuple[bytes, ...], _Pattern] = WeakValueDictionary()
        """One object each for all pods that show the same."""
        self._lines: Remembered[str, int] = Remembered(_LENGTHS_BYTES)
        """How many each pod has shown last."""

    def read(self, page: bytes, *, pod: str, at_s: float) -> PodCounters:
        """Read one page.

        Args:
            page: in Prometheus's text format.
            pod: whose page it is.
            at_s: when it was read (Unix seconds).

        Raises:
            NotAnEngine: it is malformed, or not vLLM's.
        """
        lines = page.split(b"\n")
        if not lines[-1]:
            lines.pop()
        pattern = self._patterns.find(pod)
        if pattern is not None and (totals := pattern.totals(lines)) is not None:
            return pattern.layout.counters(totals, pod=pod, at_s=at_s)
        try:
            places, values = self._samples(page, lines)
        except NotAnEngine:
            raise
        except UnicodeDecodeError as error:
            raise NotAnEngine("it is not UTF-8 text") from error
        except (ValueError, KeyError, IndexError, OverflowError) as error:
            raise NotAnEngine("it is not in Prometheus's text format") from error
        found, layout = counted(places, values, pod=pod, at_s=at_s)
        self._keep(pod, lines, layout)
        return found

    def _samples(
        self, page: bytes, lines: Sequence[bytes]
    ) -> tuple[list[Destination], list[float]]:
        younger = self._known.younger
        places: list[Destination] = []
        values: list[bytes] = []
        unknown: list[tuple[int, bytes]] = []
        for line in lines:
            value_at = line.rfind(b" ") + 1
            known = younger.get(line[:value_at])
            if known is not None:
                places.append(known.place)
                values.append(line[value_at:])
                continue
            name = _NAME.match(line)
            if name is not None and name[0] in _READ_NAMES:
                unknown.append((len(places), line))
                places.append(NOWHERE)
                values.append(b"0")
        if not places and page.strip() and _SAMPLE.search(page) is None:
            raise NotAnEngine("it is not in Prometheus's text format")
        if len(places) > MOST_SAMPLES:
            raise NotAnEngine(f"it shows more than {MOST_SAMPLES} samples of what is read")
        if max(map(len, (*values, *(line for _, line in unknown))), default=0) > LONGEST_LINE:
            raise NotAnEngine(f"a line is longer than {LONGEST_LINE} characters")
        numbers = _numbers(values)
        for at, line in unknown:
            places[at], numbers[at] = self._meet(line)
        return places, numbers

    def _meet(self, line: bytes) -> tuple[Destination, float]:
        start, value = _parted(line)
        known = self._known.find(start)
        if known is not None:
            (number,) = _numbers([value])
            return known.place, number
        found = point(line.decode())
        place = destination_of(found)
        if _SERIES.fullmatch(start):
            self._known.keep(start, _Series(start, place))
        return place, found.value

    def _keep(self, pod: str, lines: Sequence[bytes], layout: Layout) -> None:
        """Remember how a page looks, for the next one of this pod: once it has ceased to grow."""
        before = self._lines.find(pod)
        if before != len(lines):
            self._lines.keep(pod, len(lines))
            return
        if len(lines) > MOST_SAMPLES:
            return
        starts = list[bytes]()
        is_read = bytearray()
        for line in lines:
            known = self._known.find(_parted(line)[0])
            start = self._passed_start(line) if known is None else known.start
            if start is None:
                return
            starts.append(start)
            is_read.append(known is not None)
        key = tuple(starts)
        pattern = self._shared.setdefault(key, _Pattern(key, bytes(is_read), layout))
        self._patterns.keep(pod, pattern)

    def _passed_start(self, line: bytes) -> bytes | None:
        """By what a line is known to be none that is read; None: it is one, or might be."""
        name = _NAME.match(line)
        if name is None or name[0] in _READ_NAMES:
            return None
        start = line[: name.end() + 1]
        found = self._passed.find(start)
        if found is None:
            self._passed.keep(start, start)
        return found or start


def _parted(line: bytes) -> tuple[bytes, bytes]:
    """At its last space, which goes with what stands before it."""
    value_at = line.rfind(b" ") + 1
    return line[:value_at], line[value_at:]


_READER: Final = PageReader()


def parse(text: str, *, pod: str, at_s: float) -> PodCounters:
    """As `PageReader.read`, of text: one reader for all that call it."""
    return _READER.read(text.encode(errors="surrogatepass"), pod=pod, at_s=at_s)


def point(line: str) -> Point:
    """Read one line with the library.

    Raises:
        ValueError: the line is not in the format; also KeyError, IndexError and OverflowError.
    """
    # Without its type, a sample keeps its name, so nothing is lost with the other lines.
    (family,) = text_string_to_metric_families(f"{line}\n")
    (sample,) = family.samples
    return Point(sample.name, sample.labels, float(sample.value))


def _numbers(values: Sequence[bytes]) -> list[float]:
    """As the library reads them, which takes twenty times as long."""
    numbers = _plain_numbers(values)
    if numbers is None:
        return [point(f"any {value.decode()}").value for value in values]
    return numbers


def _plain_numbers(values: Sequence[bytes]) -> list[float] | None:
    """None: the library may read one of them in another way, or not at all."""
    try:
        return None if b"_" in b" ".join(values) else list(map(float, values))
    except ValueError:
        return None
