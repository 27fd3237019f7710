"""What users got, and whether what the tuner says of it is true."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict

from benchmarks.tuner.requests.bar import at_one_depth, best_schedule, outcome
from benchmarks.tuner.requests.engine import RequestEngine, Served
from benchmarks.tuner.requests.fleet import TunedFleet, engines, obey
from benchmarks.tuner.requests.world import RequestWorld, TrafficPart
from benchmarks.tuner.worlds.errors import WorldError
from fathom.engine.depth import DepthDocument
from fathom.tuning.gains import Gained
from fathom.tuning.policy.policy import GAIN_KNOWN_SHARE

_FLOOD_FACTOR: Final = 1.5
"""Requests for each that an engine may have in a step, where all that it can do is asked of it."""
_FLOOD_S: Final = 120.0
"""So long it is filled with them, and so long measured, …"""
_FLOOD_SHARE: Final = 0.25
"""… or this share of the world's hours."""
SETTLED_SHARE: Final = 0.5
"""Share of a world's hours, the last, in which the gain that is said is held against the truth."""


class Arm(BaseModel):
    """One way to run a world."""

    model_config = ConfigDict(frozen=True)

    finished: int
    finished_tokens: int
    first_token_p50_s: float
    first_token_p99_s: float
    waiting_at_end: int
    waiting_mean: float
    busy_s_per_token: float
    settled_busy_s_per_token: float
    """The same of the world's last part."""


class RequestScore(BaseModel):
    """One world and seed."""

    model_config = ConfigDict(frozen=True)

    world: str
    seed: int
    tokens: int
    """The user's own depth."""
    tuned: Arm
    own: Arm
    """At the user's own depth."""
    best_schedule: tuple[int, ...]
    """Depths for batches of 1, 2, to 4, to 8 and so on, in hindsight."""
    best_finished_tokens: int
    schedule: dict[int, int]
    """Depths at the end: the first batch of each range to its depth."""
    gain_said: float | None
    """Relative, of the depths in force over `tokens`; None: unknown."""
    gpu_share_said: float | None
    """GPU hours gained over those measured; None: too few were measured to hold it against all."""
    gpu_share_half_width: float
    headroom_said: float | None
    """More tokens per second, at the end."""
    headroom_true: float | None
    """What the engines make when requests wait all the time, less what they made; None: it was not
    measured."""

    @property
    def vs_tokens(self) -> float:
        """Tokens of finished requests over those at `tokens`, relative."""
        return self.tuned.finished_tokens / self.own.finished_tokens - 1

    @property
    def vs_best(self) -> float:
        """The same over the best schedule by batch."""
        return self.tuned.finished_tokens / self.best_finished_tokens - 1

    @property
    def gain_true(self) -> float:
        """Engine seconds per token at `tokens` over those at the depths that ran, at the end."""
        return self.own.settled_busy_s_per_token / self.tuned.settled_busy_s_per_token - 1

    @property
    def gpu_share_true(self) -> float:
        """The same over all of the world's hours."""
        return self.own.busy_s_per_token / self.tuned.busy_s_per_token - 1


@dataclass(frozen=True, slots=True)
class _Past:
    busy_s: float
    tokens: int


def score(world: RequestWorld, seed: int) -> RequestScore:
    """Run one world under the tuner, at its user's depth, and at the best schedule.

    Raises:
        WorldError: its hours are over before any request is done.
    """
    fleet, seconds = TunedFleet(world, seed), 3600 * world.fleet.hours
    settled_s = (1 - SETTLED_SHARE) * seconds
    fleet.run(settled_s)
    past = _past(fleet.engines)
    fleet.run(seconds)
    tuned = _arm(world, fleet.engines, past)
    measured = fleet.last.measured if fleet.last else None
    served_now = measured.tokens_per_second if measured else None
    document = fleet.document
    gained = fleet.state.gained
    running = engines(world, seed, world.fleet.tokens)
    for each in running:
        each.advance(settled_s)
    past = _past(running)
    for each in running:
        each.advance(seconds)
    at_tokens = outcome(at_one_depth(world, world.fleet.tokens), running)
    best = best_schedule(world, seed, at_tokens)
    return RequestScore(
        world=world.name,
        seed=seed,
        tokens=world.fleet.tokens,
        tuned=tuned,
        own=_arm(world, running, past),
        best_schedule=best.depths,
        best_finished_tokens=best.finished_tokens,
        schedule={each.first: each.depth for each in document.schedule} if document else {},
        gain_said=measured.gain if measured else None,
        gpu_share_said=gained.ratio if _is_told(gained) else None,
        gpu_share_half_width=gained.half_width,
        headroom_said=fleet.last.headroom_tokens_per_second if fleet.last else None,
        headroom_true=_headroom(world, seed, document, served_now),
    )


def _is_told(gained: Gained) -> bool:
    """Whether what was measured is most of what ran, so that it can be held against all of it."""
    return gained.measured_gpu_s >= GAIN_KNOWN_SHARE * (
        gained.measured_gpu_s + gained.unmeasured_gpu_s
    )


def _headroom(
    world: RequestWorld, seed: int, document: DepthDocument | None, served_now: float | None
) -> float | None:
    """Tokens per second of engines that never lack requests, at these depths, less those now."""
    if document is None or served_now is None:
        return None
    most, seconds = world.engine.max_batch, min(_FLOOD_S, _FLOOD_SHARE * 3600 * world.fleet.hours)
    flood = world.model_copy(update={"traffic": TrafficPart(load=_FLOOD_FACTOR * most)})
    running = engines(flood, seed, world.fleet.tokens)
    for each in running:
        obey(each, document, most)
        each.advance(seconds)
    before = _past(running).tokens
    for each in running:
        each.advance(2 * seconds)
    return max(0.0, (_past(running).tokens - before) / seconds - served_now)


def _past(running: Iterable[RequestEngine]) -> _Past:
    served = [each.served for each in running]
    return _Past(sum(each.busy_s for each in served), sum(each.tokens for each in served))


def _arm(world: RequestWorld, running: Sequence[RequestEngine], past: _Past) -> Arm:
    served: list[Served] = [each.served for each in running]
    now = _past(running)
    if not sum(each.finished for each in served) or now.tokens == past.tokens:
        raise WorldError(f"World {world.name} serves too little in its hours: give it more.")
    first = np.concatenate([each.first_token_s for each in served])
    return Arm(
        finished=sum(each.finished for each in served),
        finished_tokens=sum(each.finished_tokens for each in served),
        first_token_p50_s=float(np.quantile(first, 0.5)),
        first_token_p99_s=float(np.quantile(first, 0.99)),
        waiting_at_end=sum(each.waiting for each in running),
        waiting_mean=sum(each.waiting_s for each in served) / (3600 * world.fleet.hours),
        busy_s_per_token=now.busy_s / now.tokens,
        settled_busy_s_per_token=(now.busy_s - past.busy_s) / (now.tokens - past.tokens),
    )


def by_world(scores: Iterable[RequestScore]) -> Mapping[str, list[RequestScore]]:
    """By world, in their order."""
    found: dict[str, list[RequestScore]] = {}
    for each in scores:
        found.setdefault(each.world, []).append(each)
    return found
