"""The arms of the comparison: each depth held still, and the tuner left to itself."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from benchmarks.engine.clocks import PausableClock
from benchmarks.engine.estimates import Slice
from benchmarks.engine.meter import Generations, Meter, in_force
from benchmarks.engine.rotation import Turn
from fathom.api.spec import SpeculationSpec, TuningSpec
from fathom.engine.depth import DepthDocument, Schedule, flat
from fathom.measurement.counters import PodCounters
from fathom.tuning.interface import (
    Settings,
    TunedPod,
    TuningDecision,
    TuningSnapshot,
    settings_from,
)
from fathom.tuning.learned_state import TuningState
from fathom.tuning.tuner import decide
from local_cluster.engine.process import EngineProcess, EngineSetup
from local_cluster.errors import LocalClusterError

_NEARLY_S: Final = 0.5
"""A turn whose end is nearer than this is over."""
_MOST_TURNS: Final = 10
"""That an engine may take for its first token."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, and when it was made on the tuner's clock."""

    at_s: float
    decision: TuningDecision


class StaticArms:
    """Any depth, at every batch."""

    def __init__(self, engine: EngineProcess, meter: Meter, generations: Generations) -> None:
        self._engine = engine
        self._meter = meter
        self._generations = generations

    async def take(self, turn: Turn, depth: int) -> Slice:
        """Hold a depth for one turn.

        Raises:
            LocalClusterError: it did not come into force, or the engine makes no tokens.
        """
        schedule = flat(depth, self._engine.setup.max_batch)
        document = DepthDocument(generation=next(self._generations), schedule=schedule)
        self._engine.write_depth_text(document.to_json())
        await in_force(self._engine, document.generation)
        before = await self._meter.look()
        await asyncio.sleep(turn.seconds)
        return await _slice(turn, before, self._meter)


class TunerArm:
    """The operator's tuner with one pod, cold at first, on a clock that runs in its turns only.

    Between two turns other arms run, and what the engine counts then is not the tuner's. So each
    turn begins without the last look at the pod, as after a restart of the operator; since turns
    end where windows end, that costs it nothing it had counted.
    """

    def __init__(
        self,
        engine: EngineProcess,
        meter: Meter,
        clock: PausableClock,
        generations: Generations,
        settings: Settings,
    ) -> None:
        """Nothing is written before the first turn.

        Args:
            engine: its only pod.
            meter: looks at that pod by `clock`.
            clock: paused.
            generations: shared with the other arms.
            settings: what its user asks for.
        """
        self.decided: list[Decided] = []
        self._engine = engine
        self._meter = meter
        self._clock = clock
        self._generations = generations
        self._settings = settings
        self._state = TuningState(generation=generations.last)
        self._document: DepthDocument | None = None
        self._written_at_s = clock.now_s()

    @property
    def schedule(self) -> Schedule:
        """What it asks for; the user's depth before its first turn."""
        if self._document is None:
            return flat(self._settings.tokens, self._settings.max_batch)
        return self._document.schedule

    async def take(self, turn: Turn) -> Slice:
        """Tune for one turn, beginning with what it asked for at the end of the last one.

        Raises:
            LocalClusterError: the engine cannot be read, obeys no more, or makes no tokens.
        """
        await self._put_back()
        self._clock.resume()
        first = latest = await self._meter.look()
        ends_at_s = first.at_s + turn.seconds
        while True:
            wake_after_s = self._decide(latest)
            left_s = ends_at_s - self._clock.now_s()
            if left_s < _NEARLY_S:
                break
            await asyncio.sleep(min(wake_after_s, left_s))
            latest = await self._meter.look()
        self._clock.pause()
        return await _slice(turn, first, self._meter)

    async def _put_back(self) -> None:
        if self._document is None:
            return
        self._document = replace(self._document, generation=next(self._generations))
        self._engine.write_depth_text(self._document.to_json())
        await in_force(self._engine, self._document.generation)
        self._written_at_s = self._clock.now_s()
        self._state = replace(self._state, looks=MappingProxyType({}), stepped=())

    def _decide(self, counters: PodCounters) -> float:
        """Decide, and carry it out; seconds until the next decision."""
        now_s = self._clock.now_s()
        name = self._engine.setup.pod_name
        pod = TunedPod(name=name, ready=True, ready_for_s=_ready_for_s(counters), counters=counters)
        decision = decide(
            TuningSnapshot(
                now_s=now_s,
                settings=self._settings,
                pods=(pod,),
                document=self._document,
                document_written_at_s=self._written_at_s,
                live_refusal=None,
                state=self._state,
            )
        )
        self._state = decision.state
        if decision.document != self._document:
            self._document = decision.document
            self._written_at_s = now_s
            self._generations.taken(decision.document.generation)
            self._engine.write_depth_text(decision.document.to_json())
        self.decided.append(Decided(now_s, decision))
        return decision.wake_after_s


def _ready_for_s(counters: PodCounters) -> float:
    """Since when the engine serves, nearly: it started before the benchmark's clock did."""
    return max(0.0, counters.at_s - counters.started_at_s)


async def _slice(turn: Turn, before: PodCounters, meter: Meter) -> Slice:
    """What was made since; on a machine with other work the first token may take several turns."""
    for _ in range(_MOST_TURNS):
        after = await meter.look()
        tokens = after.engine.generation_tokens - before.engine.generation_tokens
        if tokens > 0:
            return Slice(turn.round, turn.steady, after.at_s - before.at_s, tokens)
        await asyncio.sleep(turn.seconds)
    raise LocalClusterError(
        f"The engine made no token in {_MOST_TURNS * turn.seconds:.0f} s, so there is nothing to "
        "compare."
    )


def settings_for(
    setup: EngineSetup, window_seconds: int, named: Iterable[int] | None = None
) -> Settings:
    """What the tuner is told when a user asks for this engine, with defaults where it can.

    Args:
        setup: the engine.
        window_seconds: of its measurements.
        named: the depths that the engine has; None: all.
    """
    return settings_from(
        SpeculationSpec(
            tokens=setup.depth,
            max_tokens=setup.max_depth,
            min_tokens=0,  # the static arms may stop speculating, so the tuner may too
            tuning=TuningSpec(window_seconds=window_seconds),
        ),
        setup.max_batch,
        named,
    )
