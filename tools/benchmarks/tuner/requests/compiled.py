"""Machine code for what runs in every step: an hour of one engine has hundreds of thousands."""

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The same function as machine code, made at its first call: in some seconds, in each process.

    Numba could keep it in a file, and would not see that a function in another file has changed. It
    takes arguments by keyword, and knows none that may only be so given.
    """
    return cast("F", njit(function))
