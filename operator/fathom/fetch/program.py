"""The program that fetches weights, as the operator delivers it."""

from fathom.core.delivered_code import DeliveredCode
from fathom_fetch.bundle import fetch_files
from fathom_vllm.content import content_hash


class FetchProgram(DeliveredCode):
    """One version of it."""

    __slots__ = ()


def fetch_program() -> FetchProgram:
    """The one that comes with this Fathom."""
    files = fetch_files()
    return FetchProgram(files, content_hash(files))
