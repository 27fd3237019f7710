"""What the tuner remembers, as the tuning ConfigMap keeps it: its state, and what was gained.

What an earlier release does not know of it, it passes over, and reads the rest all the same: what
was learnt is worth a fleet's probes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fathom.manifests.children.tuning_config_map import STATE_KEY
from fathom.tuning.gained import Gained
from fathom.tuning.state import TuningState

GAINED_KEY: Final = "gained.json"
STATE_KEYS: Final = frozenset({STATE_KEY, GAINED_KEY})


@dataclass(frozen=True, slots=True)
class KeptState:
    """What was read."""

    state: TuningState
    lost: tuple[str, ...]
    """What is there and cannot be read, keys or parts of one: what it told is begun anew."""


def state_data(state: TuningState) -> dict[str, str]:
    """As data of the ConfigMap."""
    return {STATE_KEY: state.to_json(), GAINED_KEY: state.gained.to_json()}


def kept_state(data: Mapping[str, str]) -> KeptState:
    """Read from the ConfigMap's data. Never raises; what is not there is fresh."""
    text = data.get(STATE_KEY)
    state, whole = (TuningState(), True) if text is None else TuningState.known_part(text)
    gained = Gained.read(data[GAINED_KEY]) if GAINED_KEY in data else Gained()
    found = {STATE_KEY: state, GAINED_KEY: gained}
    lost = [key for key, each in found.items() if each is None]
    if state is not None and not whole:
        lost.append(f"parts of {STATE_KEY}")
    return KeptState(replace(state or TuningState(), gained=gained or Gained()), tuple(lost))
