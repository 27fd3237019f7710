"""What there is to see, sampled every few seconds."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import aiohttp
from kubernetes.aio.client.exceptions import ApiException

from fathom.engine.depth import Schedule
from fathom.measurement.counters import PodCounters
from local_cluster.demo.fleet import DemoFleet

UNREADABLE: Final = (aiohttp.ClientError, ApiException, TimeoutError)
"""What a look at a fleet may raise on a busy machine; the next one comes soon."""
_EVERY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The fleet at one moment."""

    tokens_per_second: float | None
    """None: not known at this moment."""
    schedule: Schedule
    """Depth by batch."""
    overridden_pods: int
    """Pods that are at another depth, to measure it."""
    why: str
    """The last decision in words."""


async def observe(fleet: DemoFleet, show: Callable[[Frame], None]) -> None:
    """Look again and again until cancelled; a look that fails is skipped, not fatal."""
    before: tuple[PodCounters, ...] = ()
    while True:
        with suppress(*UNREADABLE):
            after = await fleet.counters()
            show(await _frame(fleet, before, after))
            before = after
        await asyncio.sleep(_EVERY_SECONDS)


async def _frame(
    fleet: DemoFleet, before: tuple[PodCounters, ...], after: tuple[PodCounters, ...]
) -> Frame:
    document = await fleet.document()
    tuning = (await fleet.resource()).get("status", {}).get("tuning", {})
    return Frame(
        tokens_per_second=token_rate(before, after),
        schedule=document.schedule,
        overridden_pods=len(document.pods),
        why=(tuning.get("lastDecision") or {}).get("message", ""),
    )


def token_rate(before: tuple[PodCounters, ...], after: tuple[PodCounters, ...]) -> float | None:
    """Generated tokens per second over all pods, by vLLM's own counter.

    Returns:
        None if the pods are not the same, or one started anew in between.
    """
    pairs = _same_pods(before, after)
    if not pairs:
        return None
    return sum(
        (new.engine.generation_tokens - old.engine.generation_tokens) / (new.at_s - old.at_s)
        for old, new in pairs
    )


def _same_pods(
    before: tuple[PodCounters, ...], after: tuple[PodCounters, ...]
) -> list[tuple[PodCounters, PodCounters]]:
    if [pod.pod for pod in before] != [pod.pod for pod in after]:
        return []
    pairs = list(zip(before, after, strict=True))
    if any(old.started_at_s != new.started_at_s or new.at_s <= old.at_s for old, new in pairs):
        return []
    return pairs
