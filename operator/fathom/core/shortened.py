"""Texts of unknown length, in places that have an end."""

from fathom.core.counted import counted


def shortened(text: str, longest: int) -> str:
    """The text, or where it is too long its two ends, and how much is left out between them.

    Our messages say at their end what follows, and a traceback what went wrong.

    Args:
        text: of any length.
        longest: characters that it may have.
    """
    if len(text) <= longest:
        return text
    room = longest - len(_left_out(len(text)))
    half = room // 2
    return f"{text[: room - half]}{_left_out(len(text) - room)}{text[len(text) - half :]}"


def _left_out(characters: int) -> str:
    return f" ... {counted(characters, 'more character')} ... "
