"""Limits of a process that are too low for thousands of pods, or for what one of them may hold."""

import json.scanner
import resource
import sys
from contextlib import suppress
from typing import Any, Final

_DEEPEST_JSON: Final = 10_000
"""Of Go's decoder (encoding/json, `maxNestingDepth`), so of every API server."""
_OTHER_FRAMES: Final = 2_000
"""Of whoever asks the decoder, and of an envelope around the object."""
_DECODER_HAS_ITS_OWN_LIMIT: Final = sys.version_info[:2] in {(3, 12), (3, 13)}
"""One that is compiled in (1,497 levels in Python 3.12.1, 9,998 in 3.13.0), and not Python's."""
_FRAMES_PER_LEVEL: Final = 2
"""Of the decoder that is written in Python."""


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
    """Of `json.loads`, which Kopf and the Kubernetes client call. Its frames take no C stack."""
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
