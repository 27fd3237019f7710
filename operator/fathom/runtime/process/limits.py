"""Limits of a process that are too low for thousands of pods, or for what one of them may hold."""

import resource
import sys
from contextlib import suppress
from typing import Final

_DEEPEST_JSON: Final = 10_000
"""Of Go's decoder (encoding/json, `maxNestingDepth`), so of every API server."""
_OTHER_FRAMES: Final = 2_000
"""Of whoever asks the decoder, and of an envelope around the object."""


def make_room_for_deep_json() -> None:
    """Let JSON nest as deep as an API server takes it.

    Python's decoder gives up at a thousand values in each other, and Kopf reads all resources from
    one stream: one pod template that is deeper would end every loop, and the operator again at each
    start. With room it is read, and refused as the invalid spec of one resource
    (`fathom.api.resource`). The decoder needs less than 2 MB of stack for it, of 8 that there are.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEPEST_JSON + _OTHER_FRAMES))


def make_room_for_connections() -> None:
    """Let as many files be open as may be: each connection is one.

    Container runtimes start with 1024, for programs that know no more, and allow far more. Each
    namespace that is served by name takes eleven, and up to 768 go to pods.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems refuse what they say themselves; then it stays as it is.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
