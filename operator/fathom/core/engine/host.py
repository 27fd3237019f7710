"""At which addresses an engine listens.

vLLM listens at one address: 0.0.0.0 is every IPv4 address, and :: every address where the pod has
IPv6, IPv4 included. With :: it fails to start where the kernel has no IPv6 (`create_server_socket`
in vllm/entrypoints/openai/api_server.py, 0.28 and 0.32).
"""

from collections.abc import Sequence
from typing import Final

from fathom.core.engine.options import options

HOST_FLAG: Final = "--host"
EVERY_IPV4: Final = "0.0.0.0"  # noqa: S104 - pods are reached at an address of their own
EVERY_ADDRESS: Final = "::"


def stated_host(args: Sequence[str]) -> str | None:
    """Where the arguments say that the engine listens; None: they do not."""
    given = [each for each in options(args) if each.name == HOST_FLAG and not each.keys]
    return given[-1].value if given else None
