"""What the long-running processes of a cluster have in common."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Coroutine

import structlog


def run_until_signal(work: Coroutine[None, None, None]) -> None:
    """Runs until the work ends or SIGTERM or SIGINT arrives; logs to stdout."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
    )
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_run(work))


async def _run(work: Coroutine[None, None, None]) -> None:
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
    await work
