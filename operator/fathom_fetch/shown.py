"""What a fetch shows of itself, to be read by the operator: names only, and no I/O."""

from typing import Final

PORT: Final = 8080
"""Of the pod's /metrics."""

TOTAL_BYTES: Final = "fathom_fetch_total_bytes"
"""Bytes of the files of one model that are wanted; absent until the hub has said so."""
PRESENT_BYTES: Final = "fathom_fetch_present_bytes"
"""Of them, bytes that lie in the cache, those of an earlier fetch included."""

MODEL: Final = "model"
DRAFT: Final = "draft"
"""Values of the label `role`, and keys of the message that a fetch leaves when it has ended."""

COMMIT: Final = "commit"
BYTES: Final = "bytes"
"""What that message tells of each role."""
