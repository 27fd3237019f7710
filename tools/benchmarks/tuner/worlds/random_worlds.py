"""Worlds that nobody chose: drawn at random over the whole width of the format.

Shipped worlds are those that somebody thought of. These ask what nobody did.
"""

from typing import Final

from benchmarks.tuner.worlds.dice import Dice
from benchmarks.tuner.worlds.events import (
    ClassCycle,
    ClassShift,
    ContextDrift,
    DeafPod,
    Decay,
    Disobey,
    Event,
    MetricsGap,
    Mismatch,
    PodRestart,
    Scale,
    SlowPod,
)
from benchmarks.tuner.worlds.parts import (
    ClassPart,
    ExpertsPart,
    FleetPart,
    NoisePart,
    StepTimePart,
    TrafficPart,
)
from benchmarks.tuner.worlds.world import SimulatedWorld

PREFIX: Final = "random-"
_CLASS_NAMES: Final = ("chat", "code", "summaries", "poems")
_GRAPHS: Final[tuple[tuple[int, ...], ...]] = (
    (),
    (),
    # What vLLM captures unless told otherwise (`cudagraph_capture_sizes`), and sparser sets.
    (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)),
    (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    (4, 16, 64, 256, 1024),
)
_LONGEST_DAY_MINUTES: Final = 1440.0


def random_world(number: int) -> SimulatedWorld:
    """The world of this number; always the same one."""
    dice = Dice(number, 0xFA7403)
    fleet = _fleet(dice)
    classes = _classes(dice)
    return SimulatedWorld(
        name=f"{PREFIX}{number}",
        about="Drawn at random.",
        fleet=fleet,
        step_time=_step_time(dice),
        noise=_noise(dice),
        traffic=_traffic(dice, fleet.max_batch),
        classes=classes,
        events=tuple(
            _event(dice, fleet.replicas, tuple(each.name for each in classes))
            for _ in range(dice.whole(0, 3))
        ),
    )


def _fleet(dice: Dice) -> FleetPart:
    least, most = dice.one_of((0, 1, 1)), dice.one_of((4, 5, 7, 7, 8))
    return FleetPart(
        replicas=dice.one_of((1, 2, 3, 4, 8, 16)),
        max_batch=dice.one_of((16, 32, 64, 128, 256)),
        tokens=dice.whole(max(1, least), most),
        min_tokens=least,
        max_tokens=most,
        window_seconds=dice.one_of((15, 30, 30, 60)),
    )


def _step_time(dice: Dice) -> StepTimePart:
    moe = ExpertsPart(
        experts=dice.one_of((64, 128, 256)),
        top=dice.one_of((4, 8)),
        expert_us=dice.factor(20, 90),
        own_experts=dice.between(0.3, 1),
    )
    return StepTimePart(
        weights_ms=dice.factor(2, 15),
        compute_per_token_us=dice.factor(8, 150),
        attention_per_request_us_per_1k=dice.factor(3, 40),
        knee=dice.factor(1, 12),
        draft_fixed_ms=dice.factor(0.1, 1.5),
        draft_token_ms=dice.factor(0.15, 1.5),
        draft_token_request_us=dice.factor(0.5, 8),
        graph_sizes=dice.one_of(_GRAPHS),
        moe=moe if dice.chance(0.25) else None,
    )


def _noise(dice: Dice) -> NoisePart:
    return NoisePart(
        pod_speed_sd=dice.factor(0.004, 0.05),
        pod_speed_memory_s=dice.factor(30, 900),
        pod_spread_sd=dice.factor(0.005, 0.06),
        step_spread=dice.between(0.1, 0.5),
        design_effect=dice.factor(2, 40),
        outliers_per_hour=dice.between(0, 2),
        outlier_slowdown=dice.between(0.1, 0.6),
        scrape_seconds=dice.one_of((0, 0, 0, 15)),
        scrape_failures=dice.one_of((0, 0, 0.05)),
        clock_error_s=dice.one_of((0, 0, 0.5)),
    )


def _traffic(dice: Dice, max_batch: int) -> TrafficPart:
    concurrency = dice.factor(1, 0.8 * max_batch)
    output = dice.factor(100, 4000)
    # Open: long answers, as many as keep some of the batch busy at about 5 ms a token.
    is_open, long_output = dice.chance(0.2), dice.factor(2500, 6000)
    quiet_from = dice.between(0, 20)
    return TrafficPart(
        mode="open" if is_open else "closed",
        concurrency=concurrency,
        requests_per_second=max(0.01, 0.6 * concurrency / (long_output * 0.005)),
        diurnal=dice.one_of((0, dice.between(0.2, 0.9))),
        peak_hour=dice.between(0, 23),
        fluctuation=dice.between(0, 0.4),
        fluctuation_memory_s=dice.factor(20, 600),
        bursts_per_hour=dice.one_of((0, 0, dice.between(0.5, 6))),
        skew=dice.factor(0.01, 0.4),
        quiet_hours=((quiet_from, quiet_from + 3),) if dice.chance(0.15) else (),
        prompt_tokens=dice.factor(100, 8000),
        output_tokens=long_output if is_open else output,
        prefill_us_per_token=dice.factor(1, 10),
    )


def _classes(dice: Dice) -> tuple[ClassPart, ...]:
    return tuple(
        ClassPart(
            name=name,
            share=dice.factor(0.2, 1),
            acceptance=random_acceptance(dice),
            tail=dice.between(0, 0.4),
            context=dice.factor(500, 30_000),
        )
        for name in _CLASS_NAMES[: dice.whole(1, len(_CLASS_NAMES))]
    )


def random_acceptance(dice: Dice) -> tuple[float, ...]:
    """Chance of a draft whose forerunners were accepted, by position; it fades."""
    accepted, fade = dice.between(0.3, 0.95), dice.between(0.85, 1)
    return tuple(round(accepted * fade**position, 4) for position in range(8))


def _event(dice: Dice, replicas: int, classes: tuple[str, ...]) -> Event:
    at = dice.between(0, _LONGEST_DAY_MINUTES)
    pod, minutes = dice.whole(0, replicas - 1), dice.factor(10, 240)
    kinds: tuple[Event, ...] = (
        ClassShift(
            kind="class_shift",
            at_minutes=at,
            shares={dice.one_of(classes): 1.0},
            over_minutes=dice.one_of((0.0, 30.0)),
        ),
        ClassCycle(
            kind="class_cycle",
            at_minutes=at,
            period_minutes=dice.factor(40, 600),
            dominance=dice.between(0.6, 1),
        ),
        ContextDrift(kind="context_drift", at_minutes=at, factor=dice.factor(0.3, 4)),
        DeafPod(kind="deaf_pod", at_minutes=at, pod=pod, minutes=minutes),
        Decay(kind="decay", at_minutes=at, per_hour=dice.between(0.01, 0.05)),
        Disobey(kind="disobey", at_minutes=at, pod=pod, minutes=minutes),
        MetricsGap(kind="missing_metrics", at_minutes=at, minutes=minutes),
        Mismatch(kind="mismatch", at_minutes=at, factor=dice.between(0.05, 0.5)),
        PodRestart(kind="pod_restart", at_minutes=at, pod=pod, minutes=minutes),
        Scale(kind="scale", at_minutes=at, replicas=dice.one_of((1, 2, 3, 4, 8))),
        SlowPod(
            kind="slow_pod", at_minutes=at, pod=pod, minutes=minutes, factor=dice.between(1.1, 1.6)
        ),
    )
    return dice.one_of(kinds)
