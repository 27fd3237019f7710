"""What is known of models, without ever making a pass wait for the hub.

As large as what is in use: whoever needs a model asks for it at every pass, and what nobody has
asked for in a while goes.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fathom.adapters.model_files import is_directory, local_facts
from fathom.adapters.ports import Clock, ModelHub
from fathom.core.backoff import Backoff
from fathom.core.models.facts import Absence, ModelFacts, ModelRef
from fathom.core.times import is_over

KNOWN_FOR_S: Final = 6 * 3600.0
"""How long what the hub said counts."""
TRIED_FOR_S: Final = 300.0
"""How long a look at a directory, or one of many failures, keeps the next one away."""
RETRY_S: Final = 10.0
"""The same of a first failure, each further one doubling it: a new revision waits for 40 s."""
UNUSED_S: Final = 900.0
"""How long what nobody asks for is remembered. Passes are never further apart than 300 s."""
_AT_ONCE: Final = 4

NOT_YET: Final = ModelFacts(absence=Absence.NOT_YET, explanation="it is being asked for")

_BACKOFF: Final = Backoff(first_s=RETRY_S, longest_s=TRIED_FOR_S)


@dataclass(frozen=True, slots=True)
class _Known:
    facts: ModelFacts
    at_s: float
    """Unix seconds of the look-up."""
    lasts_s: float
    """Seconds until the next one."""
    failures: int = 0
    """Look-ups in a row that told nothing."""


class ModelCache:
    """Looks each model up at most once at a time, in the background.

    All methods belong to one event loop's thread.
    """

    def __init__(self, hub: ModelHub, clock: Clock) -> None:
        self._hub = hub
        self._clock = clock
        self._known: dict[ModelRef, _Known] = {}
        self._asked_at_s: dict[ModelRef, float] = {}
        self._running: dict[ModelRef, asyncio.Task[None]] = {}
        self._waiting: defaultdict[ModelRef, set[Callable[[], None]]] = defaultdict(set)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def __len__(self) -> int:
        return len(self._known)

    async def facts(self, ref: ModelRef, changed: Callable[[], None]) -> ModelFacts:
        """What is known of a model now.

        Args:
            ref: the model. A directory is read here and now; the hub is asked in the background.
            changed: called once, as soon as something else is known.
        """
        now_s = self._clock.now_s()
        self._asked_at_s[ref] = now_s
        known = self._known.get(ref)
        if known is not None and not is_over(known.at_s, known.lasts_s, now_s):
            return known.facts
        if is_directory(ref):
            facts = await asyncio.to_thread(local_facts, ref)
            self._keep(ref, _Known(facts, now_s, TRIED_FOR_S))
            return facts
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
        after = self._after(facts, before)
        self._keep(ref, after)
        if before is None or before.facts != after.facts:
            for changed in waiting:
                changed()

    def _after(self, facts: ModelFacts, before: _Known | None) -> _Known:
        """What is known after a look-up. A hub that is down for a while takes nothing back."""
        now_s = self._clock.now_s()
        if facts.config is not None:
            return _Known(facts, now_s, KNOWN_FOR_S)
        failures = before.failures + 1 if before is not None else 1
        lasting_s = _BACKOFF.after(failures)
        if before is not None and before.facts.config is not None:
            facts, lasting_s = before.facts, TRIED_FOR_S
        return _Known(facts, now_s, lasting_s, failures)

    def _keep(self, ref: ModelRef, known: _Known) -> None:
        """Remember, and forget what is not in use any more."""
        self._known[ref] = known
        since_s = self._clock.now_s() - UNUSED_S
        for each in [each for each, at_s in self._asked_at_s.items() if at_s < since_s]:
            del self._asked_at_s[each]
            self._known.pop(each, None)
