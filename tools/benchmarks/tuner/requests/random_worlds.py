"""Worlds of whole requests that nobody chose: drawn at random over the width of the format."""

from typing import Final

from benchmarks.tuner.requests.world import (
    Change,
    ClassPart,
    EnginePart,
    FleetPart,
    HardwarePart,
    PodsPart,
    RequestWorld,
    TrafficPart,
)
from benchmarks.tuner.worlds.dice import Dice
from benchmarks.tuner.worlds.random_worlds import PREFIX, random_acceptance

_FORMAT: Final = 0xFA7404
_HOURS: Final = 2.0
_CLASS_NAMES: Final = ("chat", "code", "summaries")
_DEPTHS: Final[tuple[tuple[int, ...], ...]] = ((1, 3, 7), (1, 3, 7), (1, 2, 4), (1, 3, 5, 8))
_OPEN_SHARE: Final = 0.6
"""How much of what engines can roughly serve arrives where arrivals are open."""


def random_request_world(number: int) -> RequestWorld:
    """The world of this number; always the same one."""
    dice = Dice(number, _FORMAT)
    engine, hardware, classes = _engine(dice), _hardware(dice), _classes(dice)
    return RequestWorld(
        name=f"{PREFIX}{number}",
        about="Drawn at random.",
        fleet=_fleet(dice),
        engine=engine,
        hardware=hardware,
        pods=_pods(dice, classes),
        traffic=_traffic(dice, engine, hardware, classes),
        classes=classes,
    )


def _fleet(dice: Dice) -> FleetPart:
    depths = dice.one_of(_DEPTHS)
    return FleetPart(
        tokens=dice.one_of(depths),
        min_tokens=min(depths),
        max_tokens=max(depths),
        depths=depths,
        window_seconds=dice.one_of((15, 30, 30, 60)),
        scrape_seconds=dice.one_of((0, 0, 0, 15)),
        hours=_HOURS,
    )


def _engine(dice: Dice) -> EnginePart:
    chunked = dice.chance(0.85)
    return EnginePart(
        max_batch=dice.one_of((32, 64, 128, 256, 256, 512, 1024)),
        # Without chunks vLLM wants a budget that holds the longest prompt.
        token_budget=dice.one_of((2048, 4096, 8192, 16384)) if chunked else 32768,
        chunked_prefill=chunked,
        asynchronous=dice.chance(0.8),
        kv_tokens=round(dice.factor(30_000, 300_000)) if dice.chance(0.15) else 4_000_000,
        prefix_hits=(dice.between(0, 0.9), dice.between(0, 0.9)) if dice.chance(0.25) else (0.0,),
    )


def _hardware(dice: Dice) -> HardwarePart:
    return HardwarePart(
        overhead_ms=dice.factor(0.5, 3),
        weights_ms=dice.factor(2, 15),
        token_us=dice.factor(4, 40),
        attention_ns=dice.factor(3, 40),
        knee=dice.factor(1.5, 12),
        draft_ms=dice.factor(0.1, 1.5),
        draft_token_ms=dice.factor(0.15, 1.5),
        draft_request_us=dice.factor(0.5, 8),
        noise=dice.between(0.03, 0.3),
    )


def _classes(dice: Dice) -> tuple[ClassPart, ...]:
    return tuple(
        ClassPart(
            name=name,
            share=dice.factor(0.2, 1),
            acceptance=random_acceptance(dice),
            prompt=round(dice.factor(30, 6000)),
            prompt_spread=dice.between(0, 1),
            answer=round(dice.factor(10, 1500)),
            answer_spread=dice.between(0, 1),
        )
        for name in _CLASS_NAMES[: dice.whole(1, len(_CLASS_NAMES))]
    )


def _pods(dice: Dice, classes: tuple[ClassPart, ...]) -> tuple[PodsPart, ...]:
    if dice.chance(0.2):
        other = _hardware(dice).model_copy(update={"device": "another GPU"})
        return PodsPart(count=dice.whole(1, 2)), PodsPart(hardware=other)
    if len(classes) > 1 and dice.chance(0.15):
        return PodsPart(text=classes[0].name), PodsPart(text=classes[1].name)
    return (PodsPart(count=dice.one_of((1, 1, 2, 3))),)


def _traffic(
    dice: Dice, engine: EnginePart, hardware: HardwarePart, classes: tuple[ClassPart, ...]
) -> TrafficPart:
    is_open = dice.chance(0.25)
    load = _open_load(engine, hardware, classes) if is_open else 0.9 * engine.max_batch
    load = dice.factor(max(0.02 * load, 0.01 if is_open else 1), load)
    changes = tuple(
        Change(at_minutes=dice.between(5, 100), load=round(load * dice.factor(0.4, 1.1), 4))
        for _ in range(dice.whole(0, 3))
    )
    turn_seconds = dice.factor(60, 3600) if dice.chance(0.15) else None
    return TrafficPart(
        mode="open" if is_open else "closed",
        load=load,
        changes=changes,
        turn_seconds=turn_seconds,
    )


def _open_load(engine: EnginePart, hardware: HardwarePart, classes: tuple[ClassPart, ...]) -> float:
    """Requests a second that the slowest kind leaves an engine time for, roughly."""
    batch = min(engine.max_batch, 64)
    fixed_ms = hardware.overhead_ms + hardware.weights_ms + hardware.draft_ms
    token_ms = fixed_ms / batch + hardware.token_us / 1000 + hardware.draft_token_ms / batch
    prompt_ms = hardware.token_us / 1000
    return min(
        _OPEN_SHARE * 1000 / (each.prompt * prompt_ms + each.answer * token_ms) for each in classes
    )
