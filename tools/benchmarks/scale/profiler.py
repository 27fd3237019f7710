"""Runs `fathom` as it is, and samples what its main thread does while it uses the processor.

`python -m benchmarks.scale.profiler FOLDER run …`: at each SIGUSR2, and at the end, the stacks
since the last time go into the next numbered file of the folder. The clock is the processor time
of the process, so that waiting is not seen; threads beside the main one are not either.
"""

import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

from benchmarks.scale.sampling import function_name, to_text
from fathom.cli.main import app

_EVERY_S: Final = 0.005
"""Seconds of processor time. A sample takes some 20 µs of it."""
_DEEPEST: Final = 200


class Sampler:
    """Counts stacks until they are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = 0
        self._stacks = Counter[str]()
        self._names: dict[object, str] = {}

    def start(self) -> None:
        signal.signal(signal.SIGUSR2, lambda _, __: self.write())
        signal.signal(signal.SIGPROF, lambda _, frame: self._sample(frame))
        # A read that a sample interrupts is to go on.
        signal.siginterrupt(signal.SIGPROF, False)  # noqa: FBT003
        signal.setitimer(signal.ITIMER_PROF, _EVERY_S, _EVERY_S)

    def write(self) -> None:
        """Write what was counted, and begin anew."""
        file = self._folder / f"{self._written}.folded"
        new = file.with_suffix(".new")
        new.write_text(to_text(self._stacks))
        new.rename(file)
        self._written += 1
        self._stacks.clear()

    def _sample(self, frame: FrameType | None) -> None:
        names = list[str]()
        while frame is not None and len(names) < _DEEPEST:
            code = frame.f_code
            name = self._names.get(code)
            if name is None:
                name = self._names[code] = function_name(code.co_filename, code.co_qualname)
            names.append(name)
            frame = frame.f_back
        self._stacks[";".join(reversed(names))] += 1


def main() -> None:
    """Run the rest of the command line as `fathom`."""
    sampler = Sampler(Path(sys.argv[1]))
    sampler.start()
    try:
        app(sys.argv[2:], prog_name="fathom")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        sampler.write()


if __name__ == "__main__":
    main()
