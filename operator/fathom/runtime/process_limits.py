"""What the process of an operator sets for itself: limits and garbage collection.

A full collection looks at every object. Beside 1,000 resources it took 1.6 s, every 10 to 30 s, in
which nothing else ran: no edit was answered, and no lease renewed.
"""

import gc
import json.scanner
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_DEEPEST_JSON: Final = 10_000
"""Limit of Go's decoder (encoding/json, `maxNestingDepth`), so of every API server."""
_OTHER_FRAMES: Final = 2_000
"""Frames of whoever asks the decoder, and of an envelope around the object."""
_DECODER_HAS_ITS_OWN_LIMIT: Final = sys.version_info[:2] in {(3, 12), (3, 13)}
"""One that is compiled in (1,497 levels in Python 3.12.1, 9,998 in 3.13.0), and not Python's."""
_FRAMES_PER_LEVEL: Final = 2
"""Frames of the decoder that is written in Python."""
LONGEST_S: Final = 0.1
"""Duration of a collection that puts nothing aside. What is in use in a cycle at that moment, such
as the pages that are being read, stays until the next collection of everything: under traffic at
1,000 resources some 0.3 MiB, by how memory grew. So it is done no more often than it has to be."""
EVERYTHING_S: Final = 600.0
"""Between two collections of everything, at least."""
_FULL: Final = 2
"""The oldest generation."""


def make_room_for_deep_json() -> None:
    """Let JSON nest as deep as an API server takes it.

    Python's decoder gives up at a thousand values in each other, and Kopf reads all resources from
    one stream: one pod template that is deeper would end every loop, and the operator again at each
    start. With room it is read, and refused as the invalid spec of one resource
    (`fathom.resource`). The decoder needs less than 2 MB of stack for it, of 8 that there are.
    """
    frames = _DEEPEST_JSON
    if _DECODER_HAS_ITS_OWN_LIMIT:
        _decode_in_python_what_is_deeper()
        frames *= _FRAMES_PER_LEVEL
    sys.setrecursionlimit(max(sys.getrecursionlimit(), frames + _OTHER_FRAMES))


def _decode_in_python_what_is_deeper() -> None:
    """Patch `json.loads`, which Kopf and the Kubernetes client call. Its frames take no C stack."""
    decoder = json._default_decoder  # type: ignore[attr-defined] # noqa: SLF001 - nobody else's
    quick = decoder.scan_once
    deep = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined] # it is not typed

    def scan_once(text: str, start: int) -> tuple[Any, int]:
        try:
            found: tuple[Any, int] = quick(text, start)
        except RecursionError:
            found = deep(text, start)
        return found

    decoder.scan_once = scan_once


def make_room_for_connections() -> None:
    """Let as many files be open as may be: each connection is one.

    Container runtimes start with 1024, for programs that know no more, and allow far more. Each
    namespace that is served by name takes eleven, and up to 768 go to pods.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems refuse what they say themselves; then it stays as it is.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def short_collections(now_s: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Put aside what a long collection has left, so that the next one looks at what is new.

    Every ten minutes everything is looked at. What is in no cycle is freed at once, as ever.

    Args:
        now_s: seconds of a clock that never goes back.
    """
    began_s = everything_at_s = now_s()

    def collecting(phase: str, info: dict[str, Any]) -> None:
        nonlocal began_s, everything_at_s
        if info["generation"] != _FULL:
            return
        if phase == "stop":
            if now_s() - began_s > LONGEST_S:
                gc.freeze()
            return
        began_s = now_s()
        if began_s - everything_at_s >= EVERYTHING_S:
            everything_at_s = began_s
            gc.unfreeze()

    gc.callbacks.append(collecting)
    try:
        yield
    finally:
        gc.callbacks.remove(collecting)
        gc.unfreeze()
