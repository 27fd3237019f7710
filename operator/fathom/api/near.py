"""Which name is meant by a misspelt one: one measure for fields, values, options and commands."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

NEAR: Final = 0.65
"""Of two names of one place; by difflib's measure, which is 1 for the same."""
VERY_NEAR: Final = 0.8
"""Of names that are looked for anywhere, or among hundreds: there, many are a little alike."""


def plain(name: str) -> str:
    """A name without what tells one way of spelling from another."""
    return re.sub(r"[-_]", "", name).lower()


def nearest(name: str, names: Iterable[str], likeness: float = NEAR) -> str:
    """The one of the names that is meant, in another spelling or misspelt; empty: none is near.

    Args:
        name: as it was written.
        names: those that there are.
        likeness: that is asked for; 1: nothing but the spelling may differ.
    """
    by_plain = {plain(each): each for each in names}
    close = difflib.get_close_matches(plain(name), by_plain, n=1, cutoff=likeness)
    return by_plain[close[0]] if close else ""
