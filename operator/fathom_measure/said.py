"""What the pod says while it measures: one line of JSON each, told from all else by a word."""

import json
import sys
from enum import Enum
from typing import Final

PREFIX: Final = "fathom-bench "


class LineKind(str, Enum):  # noqa: UP042 - StrEnum is newer than the oldest Python of an engine's image
    """The kinds of lines."""

    PLAN = "plan"
    """`runs`: how many rows there will be."""
    STARTING = "starting"
    """An engine starts: `drafts`, whether it speculates."""
    RUNNING = "running"
    """A run begins: `data`, `concurrency`, `depth` (null: it does not speculate), `prompts`."""
    RESULT = "result"
    """A run ended: the same, and `result`, what of vLLM's own result is kept."""
    FAILED = "failed"
    """A run, or all that an engine was to do, came to nothing: `why`, a sentence."""
    END = "end"
    """Nothing more comes."""


def say(what: LineKind, **fields: object) -> None:
    """Print one line."""
    line = json.dumps({"said": what.value, **fields}, separators=(",", ":"))
    sys.stdout.write(f"{PREFIX}{line}\n")
    sys.stdout.flush()
