"""The trace: traffic shifts from phase to phase, and in each phase all arms take their turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.engine.arms import Decided, StaticArms, TunerArm
from benchmarks.engine.clocks import PausableClock
from benchmarks.engine.estimates import Held, Slice, mean_rate
from benchmarks.engine.rotation import Turn, fastest, learning_turns, steady_turns
from benchmarks.engine.timing import SWITCH_SECONDS, EngineBenchTiming
from benchmarks.engine.view import BenchView
from fathom.engine.depth import Schedule, depth_at, summary
from fathom.tuning.interface import Action
from local_cluster.demo.phases import title
from local_cluster.engine.traffic import LoadGenerator, Phase

_QUIET: Final = frozenset({Action.HOLD, Action.POKE})


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """All that was measured in one phase."""

    phase: Phase
    tuner: tuple[Slice, ...]
    static: dict[int, tuple[Slice, ...]]
    """By depth."""
    held: tuple[Held, ...]
    """Depths that the tuner asked for at this phase's batch, the first from its beginning on."""
    schedule: Schedule
    """What the tuner asked for at the end."""
    decided: tuple[Decided, ...]
    """The tuner's decisions to act, at times since the phase began."""


@dataclass(frozen=True, slots=True)
class Arms:
    """Everybody who takes turns."""

    tuner: TunerArm
    clock: PausableClock
    """The tuner's."""
    static: StaticArms
    depths: Sequence[int]


async def run_trace(
    load: LoadGenerator, arms: Arms, timing: EngineBenchTiming, view: BenchView
) -> list[PhaseRun]:
    """Run all phases; the tuner goes from one to the next with what it has learnt.

    Raises:
        LocalClusterError: the engine does not do as it should.
    """
    runs = []
    for number, phase in enumerate(timing.phases):
        view.say(f"[bold]trace: {title(phase)}[/bold] requests in flight")
        load.set_phase(phase)
        runs.append(await _run_phase(number, phase, arms, timing, view))
    await load.stop()
    return runs


async def _run_phase(
    number: int, phase: Phase, arms: Arms, timing: EngineBenchTiming, view: BenchView
) -> PhaseRun:
    began_at_s, decided_before = arms.clock.now_s(), len(arms.tuner.decided)
    held = [Held(0.0, depth_at(arms.tuner.schedule, phase.concurrency))]
    tuner: list[Slice] = []
    static: dict[int, list[Slice]] = {depth: [] for depth in arms.depths}

    async def take(turns: Sequence[Turn]) -> None:
        for turn in turns:
            view.doing(f"{title(phase)}: {_name(turn)}")
            if turn.depth is None:
                tuner.append(await arms.tuner.take(turn))
            else:
                static[turn.depth].append(await arms.static.take(turn, turn.depth))
            view.advance(turn.seconds + SWITCH_SECONDS)

    await take(tuple(learning_turns(timing, arms.depths, number)))
    rates = {depth: mean_rate(slices) for depth, slices in static.items()}
    best = fastest(rates, timing.contenders)
    await take(tuple(steady_turns(timing, best, number)))
    decided = _since(began_at_s, arms.tuner.decided[decided_before:])
    held += [
        Held(each.at_s, depth_at(each.decision.document.schedule, phase.concurrency))
        for each in decided
    ]
    acted = tuple(each for each in decided if each.decision.action not in _QUIET)
    for each in acted:
        asks = summary(each.decision.document.schedule)
        view.say(f"  [cyan]{each.at_s:5.1f} s {asks}[/cyan] {each.decision.message}")
    return PhaseRun(
        phase=phase,
        tuner=tuple(tuner),
        static={depth: tuple(slices) for depth, slices in static.items()},
        held=tuple(held),
        schedule=arms.tuner.schedule,
        decided=acted,
    )


def _since(began_at_s: float, decided: Sequence[Decided]) -> list[Decided]:
    return [Decided(each.at_s - began_at_s, each.decision) for each in decided]


def _name(turn: Turn) -> str:
    return "the tuner" if turn.depth is None else f"static {turn.depth}"
