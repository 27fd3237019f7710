"""From the bytes of a /metrics page to `PodCounters`, as fast as thousands of pods need it. No I/O.

How, and what else was tried: docs/design/0032-reading-many-pages.md.
"""

import re
from collections.abc import Sequence
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from fathom.adapters.exposition import (
    FAMILIES,
    NOWHERE,
    Destination,
    NotAnEngine,
    Point,
    counted,
    destination_of,
)
from fathom.adapters.remembered import Remembered
from fathom.core.measurement import PodCounters

MOST_SAMPLES: Final = 20_000
"""Of one page. Eight engines in a pod that have used every cell show less. At first sight of its
series each takes 20 µs, later one."""
LONGEST_LINE: Final = 4096
"""Characters. The time to read a line grows with the square of its length."""

_READ_NAMES: Final = frozenset(name.encode() for name in FAMILIES)
_NAME: Final = re.compile(rb"[^ \t{]+(?=[ \t{])")
_SERIES: Final = re.compile(rb"[^\s{]+(?:\{[^{}#]*\})?")
"""A series as vLLM shows it. What stands before a line's last space and is not one may hold another
space, and a value before it: such a line is parsed each time."""
_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
"""Of series and where they go, as much as 1,200 models' in each half. The plugin's carry no model's
name, so that the pods of all resources share them; of vLLM's there are 60, 26 KB, per model."""
_SAMPLE: Final = re.compile(rb"^[a-zA-Z_:][a-zA-Z0-9_:]*[ {\t]", re.MULTILINE)


class PageReader:
    """Reads /metrics pages. The library reads each series once; then its bytes are known."""

    def __init__(self, remembered_bytes: int = _REMEMBERED_BYTES) -> None:
        """Know no series yet.

        Args:
            remembered_bytes: that those which are known may take, about.
        """
        self._known: Remembered[Destination] = Remembered(remembered_bytes)

    def read(self, page: bytes, *, pod: str, at_s: float) -> PodCounters:
        """Read one page.

        Args:
            page: in Prometheus's text format.
            pod: whose page it is.
            at_s: when it was read (Unix seconds).

        Raises:
            NotAnEngine: it is malformed, or not vLLM's.
        """
        try:
            places, values = self._samples(page)
        except NotAnEngine:
            raise
        except UnicodeDecodeError as error:
            raise NotAnEngine("it is not UTF-8 text") from error
        except (ValueError, KeyError, IndexError, OverflowError) as error:
            raise NotAnEngine("it is not in Prometheus's text format") from error
        return counted(places, values, pod=pod, at_s=at_s)

    def _samples(self, page: bytes) -> tuple[list[Destination], list[float]]:
        # Thousands of pods show more than a thousand samples each: this loop is what they cost.
        younger = self._known.younger
        places: list[Destination] = []
        values: list[bytes] = []
        unknown: list[tuple[int, bytes]] = []
        for line in page.split(b"\n"):
            series, _, value = line.rpartition(b" ")
            place = younger.get(series)
            if place is None:
                name = _NAME.match(line)
                if name is None or name[0] not in _READ_NAMES:
                    continue
                unknown.append((len(places), line))
                place, value = NOWHERE, b"0"
            places.append(place)
            values.append(value)
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
        series, _, value = line.rpartition(b" ")
        place = self._known.find(series)
        if place is not None:
            (number,) = _numbers([value])
            return place, number
        found = point(line.decode())
        place = destination_of(found)
        if _SERIES.fullmatch(series):
            self._known.keep(series, place)
        return place, found.value


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
    try:
        if b"_" not in b" ".join(values):
            return list(map(float, values))
    except ValueError:
        pass
    return [point(f"any {value.decode()}").value for value in values]
