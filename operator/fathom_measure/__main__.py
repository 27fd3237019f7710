"""`python3 FOLDER PLAN`: the program of a bench's pod."""

import signal
import sys
from types import FrameType

from fathom_measure.measure import measure
from fathom_measure.plan import MeasurePlan


def _leave(number: int, frame: FrameType | None) -> None:
    """Process 1 of a pod ignores what it has no handler for; an exit ends the engine, too."""
    del frame
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    measure(MeasurePlan.from_json(sys.argv[1]))
