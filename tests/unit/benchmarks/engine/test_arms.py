"""The arms on a simulated engine, under traffic."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from benchmarks.engine.arms import StaticArms, TunerArm, settings_for
from benchmarks.engine.clocks import MonotonicClock, PausableClock
from benchmarks.engine.meter import Generations, Meter
from benchmarks.engine.rotation import Turn
from fathom.engine.depth import DepthDocument, flat
from local_cluster.engine.language import EASY
from local_cluster.engine.process import EngineProcess, simulated_setup
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.errors import LocalClusterError

SECONDS = 2.5
"""Seconds of a turn: a machine that is busy with other work gives an engine a part of them."""
START_S = 1_800_000_000.0
MINE = Turn(None, SECONDS, round=0, steady=False)
THEIRS = Turn(0, SECONDS, round=3, steady=True)


class Stand:
    """Both arms on one engine."""

    def __init__(self, engine: EngineProcess, http: aiohttp.ClientSession) -> None:
        self.engine = engine
        self.http = http
        self.generations = Generations()
        self.generations.taken(40)
        self.clock = PausableClock(START_S)
        self.static = StaticArms(engine, Meter(engine, http, MonotonicClock()), self.generations)

    def tuner(self, window_seconds: float) -> TunerArm:
        """A cold one, which does not probe."""
        settings = replace(
            settings_for(self.engine.setup, 5), window_seconds=window_seconds, probing=False
        )
        meter = Meter(self.engine, self.http, self.clock)
        return TunerArm(self.engine, meter, self.clock, self.generations, settings)

    def document(self) -> DepthDocument:
        found = DepthDocument.from_json(self.engine.depth_path.read_text())
        assert found is not None
        return found


@pytest.fixture(scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    with EngineProcess(simulated_setup(), tmp_path_factory.mktemp("engine")) as engine:
        async with (
            aiohttp.ClientSession() as http,
            LoadGenerator(engine.base_url, engine.model) as load,
        ):
            load.set_phase(Phase(EASY, concurrency=2))
            yield Stand(engine, http)


async def test_each_arm_finds_its_depths_again_under_a_new_generation(stand: Stand) -> None:
    tuner = stand.tuner(window_seconds=60)  # longer than its turns: it has no reason to move
    first = await tuner.take(MINE)
    begun = stand.document()
    assert begun.schedule == flat(3, 16)  # the user's guess
    assert begun.generation > 40
    stood_at_s = stand.clock.now_s()

    other = await stand.static.take(THEIRS, 0)
    between = stand.document()
    assert between.schedule == flat(0, 16)
    assert between.generation > begun.generation
    assert stand.clock.now_s() == stood_at_s

    again = await tuner.take(MINE)
    after = stand.document()
    assert after.schedule == begun.schedule
    assert after.generation > between.generation
    assert stand.clock.now_s() - stood_at_s >= SECONDS
    assert (other.round, other.steady) == (3, True)
    assert other.seconds >= SECONDS
    assert min(first.rate, again.rate) > other.rate > 0  # depth 0 makes a quarter of the tokens


async def test_what_others_make_the_engine_count_is_not_learnt(stand: Stand) -> None:
    tuner = stand.tuner(window_seconds=0.5)
    await tuner.take(MINE)
    await stand.static.take(THEIRS, 0)
    await tuner.take(MINE)
    learnt = {cell.depth for cell in tuner.decided[-1].decision.state.step_times.cells}
    assert 3 in learnt
    assert 0 not in learnt


async def test_an_engine_that_makes_no_tokens_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    with EngineProcess(simulated_setup(), tmp_path) as engine:
        async with aiohttp.ClientSession() as http:
            idle = Stand(engine, http).tuner(window_seconds=5)
            with pytest.raises(LocalClusterError, match="made no token"):
                await idle.take(replace(MINE, seconds=0.1))
