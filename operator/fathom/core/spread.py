"""Keeps many from doing the same at the same moment."""

from typing import Final
from zlib import crc32

_SHARE: Final = 0.2


def spread(seconds: float, who: str) -> float:
    """Up to a fifth less, always the same for one of them.

    Args:
        seconds: that all of them would wait.
        who: the one that waits.
    """
    return seconds * (1 - _SHARE * crc32(who.encode()) / 2**32)
