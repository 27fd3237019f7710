"""The shortest history that still fails: deeds are left out as long as the same thing breaks."""

from collections.abc import Callable

from storms.history import History


def shrunk(
    history: History, broken: Callable[[History], str], say: Callable[[str], None]
) -> History:
    """Leave out halves, then quarters and so on, then single deeds (delta debugging).

    Another sentence than before counts as another fault, apart from its numbers.
    """
    wanted = _kind(broken(history))
    if not wanted:
        return history
    size = max(1, len(history.deeds) // 2)
    while True:
        index, smaller = 0, False
        while index < len(history.deeds):
            gone = frozenset(range(index, min(index + size, len(history.deeds))))
            candidate = history.without(gone)
            if _kind(broken(candidate)) == wanted:
                history, smaller = candidate, True
                say(f"{len(history.deeds)} deeds still break it")
            else:
                index += size
        if size == 1 and not smaller:
            return history
        size = max(1, size // 2)


def _kind(sentence: str) -> str:
    return "".join(each for each in sentence if not each.isdigit())[:60]
