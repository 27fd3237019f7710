"""What the probe and vLLM itself write of an engine, and the benchmark reads. Needs only Python."""

import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

STEPS_FILE: Final = "steps"
GRAPHS_FILE: Final = "graphs.json"
DIRECTORY_VARIABLE: Final = "FATHOM_PROBE_DIRECTORY"

_STEP: Final = struct.Struct("<ddHhhh?")


class RecordedStep(NamedTuple):
    """One step of an engine."""

    scheduled_at_s: float
    ended_at_s: float
    """Both by `time.perf_counter`, the same clock in every process of a machine."""
    batch: int
    drafting: int
    """Depth of the drafts that it makes for the next one."""
    least: int
    most: int
    """Drafts that a decoding request verifies in it; both -1 where none decodes."""
    plain: bool
    """Whether all of its requests decode."""

    def packed(self) -> bytes:
        """As the file holds it."""
        return _STEP.pack(*self)

    def verifies(self, depth: int) -> bool:
        """Whether every decoding request verifies so many drafts."""
        return self.least == self.most == depth


def step_count(directory: Path) -> int:
    """How many whole steps an engine has written down."""
    try:
        return (directory / STEPS_FILE).stat().st_size // _STEP.size
    except FileNotFoundError:
        return 0


def read_steps(directory: Path, first: int = 0) -> list[RecordedStep]:
    """The steps that an engine has written down, from number `first` on."""
    try:
        with (directory / STEPS_FILE).open("rb") as file:
            file.seek(first * _STEP.size)
            data = file.read()
    except FileNotFoundError:
        return []
    whole = len(data) - len(data) % _STEP.size
    return [RecordedStep(*values) for values in _STEP.iter_unpack(data[:whole])]


class Dispatched(NamedTuple):
    """How vLLM ran the target over decodes of one length."""

    batch: int
    depth: int
    mode: str
    """FULL: one graph is replayed; PIECEWISE: a graph for each piece; NONE: no graph."""


@dataclass(frozen=True, slots=True)
class GraphUse:
    """What an engine captured, and what its steps got of it. Counts since it started."""

    runner: str
    """V1 or V2, vLLM's model runners: V1 is not watched."""
    mode: str
    sizes: tuple[int, ...]
    captured: int
    """Graphs, of every kind."""
    dispatched: Mapping[Dispatched, int]
    """Dispatches of the target, by V2, over decodes of one length."""
    replays: int
    """Full graphs of the target that were really replayed, by V2."""

    def since(self, before: "GraphUse") -> "GraphUse":
        """What came after an earlier look at the same engine."""
        gained = {
            each: count - before.dispatched.get(each, 0) for each, count in self.dispatched.items()
        }
        return GraphUse(
            self.runner,
            self.mode,
            self.sizes,
            self.captured,
            {each: count for each, count in gained.items() if count},
            self.replays - before.replays,
        )

    def to_json(self) -> str:
        """As the file holds it."""
        dispatched = [[*each, count] for each, count in self.dispatched.items()]
        return json.dumps({**asdict(self), "dispatched": dispatched})

    @classmethod
    def from_json(cls, text: str) -> "GraphUse":
        """What a file holds."""
        document = json.loads(text)
        dispatched: Iterable[tuple[int, int, str, int]] = document["dispatched"]
        counts = {Dispatched(batch, depth, mode): n for batch, depth, mode, n in dispatched}
        sizes = tuple(document["sizes"])
        return cls(**{**document, "sizes": sizes, "dispatched": counts})


def read_graph_use(directory: Path) -> GraphUse:
    """The last one that an engine has written.

    Raises:
        FileNotFoundError: it has made no step yet.
    """
    return GraphUse.from_json((directory / GRAPHS_FILE).read_text(encoding="utf-8"))


_CAPTURED: Final = re.compile(r"Graph capturing finished in (\S+) secs, took (\S+) GiB")
_SET_ASIDE: Final = re.compile(
    r"CUDA graph pool memory: \S+ GiB \(actual\), (\S+) GiB \(estimated\)"
)
_CACHE: Final = re.compile(r"KV cache size: ([0-9,]+) tokens")


@dataclass(frozen=True, slots=True)
class StartUp:
    """What vLLM 0.32's log says of an engine's start. None: it says nothing."""

    capture_seconds: float | None
    graph_gib: float | None
    """Memory that CUDA graphs took …"""
    set_aside_gib: float | None
    """… and what vLLM had kept free for them before it made the KV cache."""
    cache_tokens: int | None
    """Size of the KV cache."""


def read_start_up(log: str) -> StartUp:
    """What a log says. Graphs are captured twice, the first time to see what they take."""
    captured, set_aside = _last(_CAPTURED, log), _last(_SET_ASIDE, log)
    cache = _last(_CACHE, log)
    return StartUp(
        capture_seconds=float(captured[1]) if captured else None,
        graph_gib=float(captured[2]) if captured else None,
        set_aside_gib=float(set_aside[1]) if set_aside else None,
        cache_tokens=int(cache[1].replace(",", "")) if cache else None,
    )


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return found
