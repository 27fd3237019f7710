"""What a Dockerfile says, one instruction at a time."""

import re
from pathlib import Path


def instructions(path: Path) -> list[tuple[str, str]]:
    """Each instruction with all of its words on one line."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (name, rest)
        for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)
    ]


def arguments(path: Path, instruction: str) -> list[str]:
    """Arguments of an instruction, each time that it occurs."""
    return [rest for name, rest in instructions(path) if name == instruction]
