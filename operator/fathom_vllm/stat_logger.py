"""The stat-logger hook: vLLM creates it in the API server's process, where it shows the counters.

It records nothing itself: it sees neither the batch of a step nor its depth.
"""

import os
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from fathom_vllm.engine_report import device_name, engine_report
from fathom_vllm.exposition import log, show


class FathomStatLogger(StatLoggerBase):  # type: ignore[misc] # vLLM is not installed where mypy runs
    """Puts the counters on `/metrics`, once per process."""

    _registered = False

    def __init__(self, vllm_config: object, engine_index: int = 0) -> None:  # noqa: ARG002 - vLLM's
        if FathomStatLogger._registered:
            return
        FathomStatLogger._registered = True
        try:
            device, version = device_name(_platform()), _version()
            show(os.environ, engine_report(vllm_config, device=device, version=version))
        except Exception:  # noqa: BLE001 - an engine that shows nothing still serves
            log.exception("Fathom: the counters cannot be shown on /metrics; serving continues")

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: counting happens in the scheduler hook."""

    def log_engine_initialized(self) -> None:
        """Nothing to say."""


def _platform() -> object | None:
    try:
        from vllm.platforms import current_platform  # noqa: PLC0415 - counters need none of it
    except Exception:  # noqa: BLE001 - a version without it, or none that knows this machine
        return None
    return current_platform  # type: ignore[no-any-return]


def _version() -> str:
    try:
        from vllm import __version__  # noqa: PLC0415 - as above
    except Exception:  # noqa: BLE001 - as above
        return ""
    return str(__version__)


# A method that another vLLM version declares abstract would keep its server from starting.
for _name in FathomStatLogger.__abstractmethods__:
    setattr(FathomStatLogger, _name, FathomStatLogger.record)
FathomStatLogger.__abstractmethods__ = frozenset()
