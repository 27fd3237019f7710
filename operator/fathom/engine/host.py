"""At which addresses an engine listens.

vLLM listens at one address: 0.0.0.0 is every IPv4 address, and :: every address where the pod has
IPv6, IPv4 included. With :: it fails to start where the kernel has no IPv6 (`create_server_socket`
in vllm/entrypoints/openai/api_server.py, 0.28 and 0.32).
"""

from typing import Final

HOST_FLAG: Final = "--host"
EVERY_IPV4: Final = "0.0.0.0"  # noqa: S104 - pods are reached at an address of their own
EVERY_ADDRESS: Final = "::"
