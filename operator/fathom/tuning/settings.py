from collections.abc import Iterable
from typing import Final

from fathom.api.choices import AdaptiveVerification, Switch
from fathom.api.spec import SpeculationSpec
from fathom.tuning.interface import Settings

_PERCENT: Final = 100
_MILLISECONDS_PER_SECOND: Final = 1000


def settings_from(
    speculation: SpeculationSpec, max_batch: int, named: Iterable[int] | None = None
) -> Settings:
    """The user's wishes in the tuner's units.

    Args:
        speculation: what the user wrote, or its defaults.
        max_batch: the engine's `--max-num-seqs`.
        named: the depths that the engine has; None: all.
    """
    tuning, slo = speculation.tuning, speculation.tuning.tpot_milliseconds
    return Settings(
        mode=tuning.mode,
        objective=tuning.objective,
        tpot_slo_seconds=None if slo is None else slo / _MILLISECONDS_PER_SECOND,
        window_seconds=tuning.window_seconds,
        min_gain=tuning.min_gain_percent / _PERCENT,
        probing=tuning.probing is Switch.ENABLED,
        tokens=speculation.tokens,
        min_tokens=speculation.min_tokens,
        max_tokens=speculation.effective_max_tokens,
        max_batch=max_batch,
        named=None if named is None else frozenset(named),
        drafts_are_cut=speculation.adaptive_verification is AdaptiveVerification.ENABLED,
    )
