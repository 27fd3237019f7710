"""Lines that a command wrapped to the width of a screen, made one again."""


def unwrapped(printed: str) -> list[str]:
    """Each statement in one line: what continues one is indented further than it."""
    lines: list[str] = []
    for line in printed.splitlines():
        if lines and line.startswith("    "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return lines
