"""What kind of accelerator this engine runs on, asked of vLLM's platform."""

import logging
from typing import Any, Final

log = logging.getLogger("vllm.fathom")

LONGEST_NAME: Final = 64
"""Characters; NVIDIA's and AMD's have fewer, and a label's value must not grow without bound."""
_ASK_NO_DEVICE: Final = frozenset({"NvmlCudaPlatform", "RocmPlatform", "CpuPlatform"})
"""Platforms that ask a library of the driver, or nobody. Others ask PyTorch, which would start the
accelerator in a process that has to leave its memory to the engine."""


def device_name(platform: Any) -> str:
    """The name of the first device that this pod sees, such as `NVIDIA GB200`; empty: unknown.

    Args:
        platform: vLLM's `current_platform`. Never raises, whatever it is.
    """
    try:
        classes = {each.__name__ for each in type(platform).__mro__}
        if classes.isdisjoint(_ASK_NO_DEVICE):
            return ""
        return str(platform.get_device_name()).strip()[:LONGEST_NAME]
    except Exception as error:  # noqa: BLE001 - an engine of unknown kind still serves
        log.info("Fathom: the device's name cannot be read: %r", error)
        return ""
