"""`python -m benchmarks gpu --race`: the tuner against fixed depths and vLLM's own ways.

All engines are up at once, started as the operator starts them, and only the one whose turn it is
has traffic. For each kind of traffic the tuned engine first runs alone, so that it can adapt. Then
all take turns, in an order that rotates, until every ratio is known to a few percent or the most
rounds are over. A rival that cannot start is left out, and the report says why.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from benchmarks.engine.arms import TunerArm, settings_for
from benchmarks.engine.clocks import MonotonicClock, PausableClock
from benchmarks.engine.main import ended_by_sigterm, engine_may_fail
from benchmarks.engine.meter import Generations, Meter
from benchmarks.engine.rotation import Turn, rotated
from benchmarks.engine.view import BenchView
from benchmarks.gpu.figures import Model
from benchmarks.gpu.plan import SETTLE_SECONDS
from fathom.adapters.completions import RequestResult
from local_cluster.demo.compare import Ratio, sequential_ratio
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.process import EngineProcess, EngineProcessError, EngineSetup
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.errors import LocalClusterError

TUNED: Final = "tuned"
CLOSE_ENOUGH: Final = 0.05
"""Half the width of an interval, relative, at which a ratio needs no more rounds."""
FEWEST_ROUNDS: Final = 4
_LAST_LINES: Final = 15


@dataclass(frozen=True, slots=True)
class RaceTraffic:
    """What comes to an engine in its turn: the phases side by side."""

    name: str
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class RacePlan:
    """Lengths in seconds; starting engines comes on top."""

    traffic: tuple[RaceTraffic, ...]
    adapt_seconds: float
    """That the tuned engine has for itself."""
    turn_seconds: float
    """Two windows of the tuner or more, unless it is a quick race: so it can take back in a turn
    what it tried there."""
    most_rounds: int
    window_seconds: int = 5
    start_timeout_seconds: float = 1800

    def seconds(self, engines: int) -> float:
        """What all of it takes at most, about."""
        turns = self.most_rounds * engines * (self.turn_seconds + SETTLE_SECONDS)
        return len(self.traffic) * (self.adapt_seconds + turns)


def _traffic(*, easy: int = 0, hard: int = 0, max_tokens: int, prompt: int = 8) -> RaceTraffic:
    kinds = [(EASY, easy), (HARD, hard)]
    phases = [Phase(kind, n, max_tokens=max_tokens, prompt_tokens=prompt) for kind, n in kinds if n]
    name = "easy" if not hard else "mixed" if easy else "hard"
    prompts = f", prompts of {prompt}" if prompt > 8 else ""  # noqa: PLR2004 - the usual ones
    return RaceTraffic(f"{name} × {easy + hard}{prompts}", tuple(phases))


ON_A_GPU: Final = RacePlan(
    traffic=(
        _traffic(easy=4, max_tokens=480),
        _traffic(hard=16, max_tokens=480),
        _traffic(easy=32, hard=32, max_tokens=480),
        _traffic(easy=32, hard=32, max_tokens=200, prompt=600),
    ),
    adapt_seconds=45,
    turn_seconds=10,
    most_rounds=12,
)
ON_THE_CPU: Final = RacePlan(
    traffic=(_traffic(easy=2, max_tokens=200), _traffic(hard=4, max_tokens=200)),
    adapt_seconds=30,
    turn_seconds=10,
    most_rounds=6,
    start_timeout_seconds=300,
)


def quick_race(plan: RacePlan) -> RacePlan:
    """Shows that everything works; its numbers say little."""
    return RacePlan(
        traffic=plan.traffic[:1],
        adapt_seconds=5,
        turn_seconds=2,
        most_rounds=2,
        start_timeout_seconds=plan.start_timeout_seconds,
    )


class RaceResult(Model):
    """One kind of traffic."""

    traffic: str
    tokens_per_second: Mapping[str, tuple[float, ...]]
    """By engine, turn by turn."""
    tuned_over: Mapping[str, Ratio]
    """By rival: turn by turn, with an interval that may be looked at after each."""


class RaceReport(Model):
    """Everything."""

    machine: str
    quick: bool
    left_out: Mapping[str, str]
    """Engines that did not start, and the end of what they said."""
    requests: int
    requests_wrong: int
    """Failed, cut short, or with any token but the expected one."""
    first_error: str
    results: tuple[RaceResult, ...]


def tuned_over(rates: Mapping[str, Sequence[float]]) -> Mapping[str, Ratio]:
    """The tuned engine's tokens per second over each rival's, by turns."""
    ours = rates[TUNED]
    return {name: sequential_ratio(ours, theirs) for name, theirs in rates.items() if name != TUNED}


def decided(rates: Mapping[str, Sequence[float]]) -> bool:
    """Whether every ratio is known well enough."""
    if len(rates[TUNED]) < FEWEST_ROUNDS:
        return False
    halves = ((each.high - each.low) / 2 / each.estimate for each in tuned_over(rates).values())
    return all(half <= CLOSE_ENOUGH for half in halves)


def race_table(report: RaceReport) -> Group:
    """For a person: what the tuned engine makes of each rival's tokens."""
    table = Table(
        title=f"The tuned engine's tokens per second over each rival's [95 %], {report.machine}"
        + ("; too short to tell" if report.quick else "")
    )
    table.add_column("traffic")
    rivals = list(dict.fromkeys(name for each in report.results for name in each.tuned_over))
    for name in rivals:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("turns", justify="right")
    for each in report.results:
        ratios = [str(each.tuned_over[name]) for name in rivals]
        table.add_row(each.traffic, *ratios, str(len(each.tokens_per_second[TUNED])))
    wrong = f"{report.requests} requests, {report.requests_wrong} failed or with a wrong token"
    lines = [f"{name} did not start: {why}" for name, why in report.left_out.items()]
    return Group(table, Text("\n".join([wrong, *lines])))


def cause(log: str) -> str:
    """The line of an engine's last words that says why it ended."""
    lines = [line.strip() for line in log.strip().splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() and "https://" not in line]
    return (telling or lines or [""])[-1]


@dataclass(slots=True)
class _Race:
    plan: RacePlan
    view: BenchView
    engines: Mapping[str, EngineProcess]
    results: list[RequestResult] = field(default_factory=list)


def run_race(
    console: Console,
    machine: str,
    setups: Mapping[str, EngineSetup],
    depths: Sequence[int],
    plan: RacePlan,
    *,
    quick: bool,
) -> RaceReport:
    """Run it all. Leaves no process behind, however it ends.

    Args:
        console: where progress is shown.
        machine: what the report calls it.
        setups: of the engines by name, `TUNED` among them.
        depths: that the tuned engine has.
        plan: what is done.
        quick: whether the report is to say that its numbers mean little.

    Raises:
        LocalClusterError: the tuned engine does not start, or an engine does not do as it should.
    """
    view = BenchView(console, plan.seconds(len(setups)))
    left_out: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_sigterm())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fathom-bench-")))
        stack.enter_context(view)
        engines: dict[str, EngineProcess] = {}
        for number, (name, setup) in enumerate(setups.items()):
            view.say(f"starting an engine: {name}")
            engine = EngineProcess(setup, directory / str(number))
            try:
                engine.start(plan.start_timeout_seconds)
            except EngineProcessError as error:
                if name == TUNED:
                    raise LocalClusterError(f"The tuned engine did not start: {error}") from error
                left_out[name] = cause(str(error))
                view.say(f"{name} is left out: {left_out[name]}")
                continue
            stack.callback(engine.stop)
            stack.enter_context(engine_may_fail(engine))
            engines[name] = engine
        race = _Race(plan, view, engines)
        found = asyncio.run(_all(race, depths))
    wrong = [each for each in race.results if not each.ok]
    return RaceReport(
        machine=machine,
        quick=quick,
        left_out=left_out,
        requests=len(race.results),
        requests_wrong=len(wrong),
        first_error=wrong[0].error if wrong else "",
        results=tuple(found),
    )


async def _all(race: _Race, depths: Sequence[int]) -> list[RaceResult]:
    engine, clock = race.engines[TUNED], PausableClock(time.time())
    settings = settings_for(engine.setup, race.plan.window_seconds, depths)
    found: list[RaceResult] = []
    async with aiohttp.ClientSession() as http:
        meters = {
            name: Meter(each, http, MonotonicClock())
            for name, each in race.engines.items()
            if name != TUNED
        }
        tuner = TunerArm(engine, Meter(engine, http, clock), clock, Generations(), settings)
        for traffic in race.plan.traffic:
            race.view.say(f"{traffic.name}: the tuned engine adapts")
            await _tuned_turn(race, tuner, traffic, race.plan.adapt_seconds)
            race.view.advance(race.plan.adapt_seconds)
            found.append(await _rounds(race, tuner, meters, traffic))
    return found


async def _rounds(
    race: _Race, tuner: TunerArm, meters: Mapping[str, Meter], traffic: RaceTraffic
) -> RaceResult:
    """Turns of all, until it is decided."""
    rates: dict[str, list[float]] = {name: [] for name in race.engines}
    for number in range(race.plan.most_rounds):
        for name in rotated([*race.engines], number):
            race.view.doing(f"{traffic.name}: {name}, round {number + 1}")
            if name == TUNED:
                rate = await _tuned_turn(race, tuner, traffic, race.plan.turn_seconds)
            else:
                rate = await _turn(race, name, meters[name], traffic)
            rates[name].append(rate)
            race.view.advance(race.plan.turn_seconds + SETTLE_SECONDS)
        if decided(rates):
            break
    ratios = tuned_over(rates)
    for name, ratio in ratios.items():
        race.view.say(f"{traffic.name}: tuned over {name} {ratio}")
    return RaceResult(
        traffic=traffic.name,
        tokens_per_second={name: tuple(each) for name, each in rates.items()},
        tuned_over=ratios,
    )


async def _tuned_turn(race: _Race, tuner: TunerArm, traffic: RaceTraffic, seconds: float) -> float:
    async with _loaded(race, TUNED, traffic):
        slice_ = await tuner.take(Turn(None, seconds, round=0, steady=True))
    return slice_.rate


async def _turn(race: _Race, name: str, meter: Meter, traffic: RaceTraffic) -> float:
    async with _loaded(race, name, traffic):
        before = await meter.look()
        await asyncio.sleep(race.plan.turn_seconds)
        after = await meter.look()
    made = after.engine.generation_tokens - before.engine.generation_tokens
    if made <= 0:
        raise LocalClusterError(
            f"The engine ({name}) made no token in its turn. The end of its log:\n"
            f"{race.engines[name].log_tail(_LAST_LINES)}"
        )
    return made / (after.at_s - before.at_s)


@contextlib.asynccontextmanager
async def _loaded(race: _Race, name: str, traffic: RaceTraffic) -> AsyncIterator[None]:
    """Traffic, settled; afterwards what is in flight is answered."""
    engine = race.engines[name]
    async with contextlib.AsyncExitStack() as stack:
        for seed, phase in enumerate(traffic.phases):
            load = LoadGenerator(engine.base_url, engine.model, seed=seed)
            stack.callback(_kept, race, load)
            await stack.enter_async_context(load)
            load.set_phase(phase)
        await asyncio.sleep(SETTLE_SECONDS)
        yield


def _kept(race: _Race, load: LoadGenerator) -> None:
    race.results += load.results
