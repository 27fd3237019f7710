"""What is known of models, without ever making a pass wait for the hub."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fathom.adapters.model_files import is_directory, local_facts
from fathom.adapters.ports import Clock, ModelHub
from fathom.core.model_facts import Absence, ModelFacts, ModelRef

KNOWN_FOR_S: Final = 6 * 3600.0
"""How long what the hub said counts."""
TRIED_FOR_S: Final = 300.0
"""How long a failure, or a look at a directory, keeps the next one away."""
MOST_MODELS: Final = 256
_AT_ONCE: Final = 4

NOT_YET: Final = ModelFacts(absence=Absence.NOT_YET, explanation="it is being asked for")


@dataclass(frozen=True, slots=True)
class _Known:
    facts: ModelFacts
    until_s: float
    """Unix seconds from which on the model is looked up again."""


class ModelCache:
    """Looks each model up at most once at a time, in the background.

    All methods belong to one event loop's thread.
    """

    def __init__(self, hub: ModelHub, clock: Clock) -> None:
        self._hub = hub
        self._clock = clock
        self._known: dict[ModelRef, _Known] = {}
        self._running: dict[ModelRef, asyncio.Task[None]] = {}
        self._waiting: defaultdict[ModelRef, set[Callable[[], None]]] = defaultdict(set)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def facts(self, ref: ModelRef, changed: Callable[[], None]) -> ModelFacts:
        """What is known of a model now.

        Args:
            ref: the model. A directory is read here and now; the hub is asked in the background.
            changed: called once, as soon as something else is known.
        """
        known = self._known.get(ref)
        if known is not None and self._clock.now_s() < known.until_s:
            return known.facts
        if is_directory(ref):
            return self._keep(ref, await asyncio.to_thread(local_facts, ref), TRIED_FOR_S)
        self._waiting[ref].add(changed)
        if ref not in self._running:
            task = asyncio.create_task(self._look_up(ref), name=f"look-up of {ref.id}")
            self._running[ref] = task
        return known.facts if known is not None else NOT_YET

    async def stop(self) -> None:
        """End every look-up where it stands."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_up(self, ref: ModelRef) -> None:
        before = self._known.get(ref)
        try:
            async with self._slots:
                facts = await self._hub.look_up(ref)
        finally:
            del self._running[ref]
            waiting = self._waiting.pop(ref, set())
        if facts.config is None and before is not None and before.facts.config is not None:
            # A hub that is down for a while takes nothing back.
            facts = before.facts
            self._keep(ref, facts, TRIED_FOR_S)
        else:
            self._keep(ref, facts)
        if before is None or before.facts != facts:
            for changed in waiting:
                changed()

    def _keep(self, ref: ModelRef, facts: ModelFacts, for_s: float | None = None) -> ModelFacts:
        """Remember facts, as the newest of a bounded number."""
        lasting = for_s or (TRIED_FOR_S if facts.config is None else KNOWN_FOR_S)
        self._known.pop(ref, None)
        self._known[ref] = _Known(facts, self._clock.now_s() + lasting)
        while len(self._known) > MOST_MODELS:
            del self._known[next(iter(self._known))]
        return facts
