"""What this engine runs with, as vLLM hands it to a stat logger, for the labels of one series.

Each part is read by itself: a release that has it elsewhere, or not at all, leaves it unknown,
which is an empty label. It is read once, when the engine starts.
"""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

LONGEST_VALUE: Final = 1024
"""Characters of a label; a longer one is left out, since a reader of metrics bounds its lines."""
log = logging.getLogger("vllm.fathom")
LONGEST_NAME: Final = 64
"""Characters; NVIDIA's and AMD's have fewer, and a label's value must not grow without bound."""
_ASK_NO_DEVICE: Final = frozenset({"NvmlCudaPlatform", "RocmPlatform", "CpuPlatform"})
"""Platforms that ask a library of the driver, or nobody. Others ask PyTorch, which would start the
accelerator in a process that has to leave its memory to the engine."""


def _runner(config: Any) -> str:
    return "V2" if config.use_v2_model_runner else "V1"


def _depths(config: Any) -> str:
    drafting = config.speculative_config
    if drafting is None:
        return "0"
    ranges = getattr(drafting, "num_speculative_tokens_per_batch_size", None)
    named = {depth for _, _, depth in ranges} if ranges else {drafting.num_speculative_tokens}
    return _listed(sorted(named))


def _schedule(config: Any) -> str:
    """Depth by batch as vLLM was started: `1-4:5,5-8:3`; empty: it was given one depth or none."""
    ranges = config.speculative_config.num_speculative_tokens_per_batch_size
    return _listed(f"{first}-{last}:{depth}" for first, last, depth in ranges or ())


def _devices(config: Any) -> int:
    parallel = config.parallel_config
    return int(parallel.world_size * parallel.data_parallel_size)


def _listed(numbers: Any) -> str:
    return ",".join(map(str, numbers))


_PARTS: Final[Mapping[str, Callable[[Any], object]]] = MappingProxyType(
    {
        "runner": _runner,
        "graph_mode": lambda config: config.compilation_config.cudagraph_mode.name,
        "capture_sizes": lambda config: _listed(config.compilation_config.cudagraph_capture_sizes),
        "depths": _depths,
        "schedule": _schedule,
        "method": lambda config: config.speculative_config.method,
        "max_num_seqs": lambda config: config.scheduler_config.max_num_seqs,
        "token_budget": lambda config: config.scheduler_config.max_num_batched_tokens,
        "asynchronous": lambda config: config.scheduler_config.async_scheduling,
        "tensor_parallel": lambda config: config.parallel_config.tensor_parallel_size,
        "pipeline_parallel": lambda config: config.parallel_config.pipeline_parallel_size,
        "data_parallel": lambda config: config.parallel_config.data_parallel_size,
        "devices": _devices,
    }
)

LABELS: Final = ("device", "vllm_version", *_PARTS)
"""Labels of `fathom_engine_info`."""


def engine_report(config: Any, *, device: str = "", version: str = "") -> Mapping[str, str]:
    """A value for each of `LABELS`; empty: unknown. Never raises.

    Args:
        config: vLLM's `VllmConfig`, of whatever release; None: there is none.
        device: the accelerator's name.
        version: vLLM's.
    """
    parts = {name: _read(part, config) for name, part in _PARTS.items()}
    return {"device": device, "vllm_version": version, **parts}


def _read(part: Callable[[Any], object], config: Any) -> str:
    try:
        value = part(config)
    except Exception:  # noqa: BLE001 - what a release does not tell is unknown
        return ""
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST_VALUE else ""


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
