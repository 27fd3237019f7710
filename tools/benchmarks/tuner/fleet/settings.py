"""What the user of a world wrote, as the tuner is told it."""

from benchmarks.tuner.worlds.world import SimulatedWorld
from fathom.api.choices import TuningMode
from fathom.tuning.interface import Settings


def settings(world: SimulatedWorld, mode: TuningMode, *, window_s: float) -> Settings:
    fleet = world.fleet
    slo = fleet.tpot_milliseconds
    return Settings(
        mode=mode,
        objective=fleet.objective,
        tpot_slo_seconds=None if slo is None else slo / 1000,
        window_seconds=window_s,
        min_gain=fleet.min_gain_percent / 100,
        probing=True,
        tokens=fleet.tokens,
        min_tokens=fleet.min_tokens,
        max_tokens=fleet.max_tokens,
        max_batch=fleet.max_batch,
        named=None if fleet.graphs is None else frozenset(fleet.named),
        drafts_are_cut=fleet.adaptive_verification,
    )
