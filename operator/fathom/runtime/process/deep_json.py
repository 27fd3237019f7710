"""Room for JSON as deep as an API server takes it.

Python's decoder gives up at a thousand values in each other, and Kopf reads all resources from one
stream: one pod template that is deeper would end every loop, and the operator again at each start.
With room it is read, and refused as the invalid spec of one resource (`fathom.api.resource`).
"""

import sys
from typing import Final

_DEEPEST_JSON: Final = 10_000
"""Of Go's decoder (encoding/json, `maxNestingDepth`), so of every API server."""
_OTHER_FRAMES: Final = 2_000
"""Of whoever asks the decoder, and of an envelope around the object."""


def make_room_for_deep_json() -> None:
    """For this process. The decoder needs less than 2 MB of stack for it, of 8 that there are."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEPEST_JSON + _OTHER_FRAMES))
