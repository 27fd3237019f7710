"""What the tuner remembers: sufficient statistics, and what it is in the middle of.

`to_json` is what survives a restart of the operator. The last look at each pod is left out: it is
large, and costs one window to have again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.main import IncEx

from fathom.api.bounded_json import UnreadableJsonError, parsed_json
from fathom.api.newer_release import read_known
from fathom.engine.depth import Schedule
from fathom.measurement.counters import PodCounters
from fathom.tuning.alarms.alarm import Watch
from fathom.tuning.estimate.acceptance_by_context import Contexts
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.estimate.acceptance_changes import Acceptance
from fathom.tuning.estimate.measured import Measured
from fathom.tuning.estimate.prompts import Prompts
from fathom.tuning.estimate.reference import Reference
from fathom.tuning.estimate.settled import Held, Residence
from fathom.tuning.estimate.step_time import StepTimes
from fathom.tuning.estimate.tail import Tail
from fathom.tuning.estimate.text_spread import TextSpread
from fathom.tuning.estimate.traffic import Load, Traffic
from fathom.tuning.estimate.yields import Yields
from fathom.tuning.gains import Gained
from fathom.tuning.policy.ledger import Ledger
from fathom.tuning.policy.option import Visit

LARGEST_BYTES: Final = 256 * 1024
"""A quarter of what a ConfigMap may hold. A fleet of four pods takes a few KiB."""
MOST_VISITS: Final = 96
"""Depths in buckets that were tried, the latest: the state must fit into a ConfigMap."""

SENTINEL_GUESS_S: Final = 5.0
"""What the first sentinel is expected to take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One pod at another depth for some seconds."""

    pod: str
    depths: tuple[tuple[int, int], ...]
    """Pairs of bucket and the depth tried there."""
    started_at_s: float
    in_force_at_s: float = 0.0
    """When the pod first reported the probe's generation; 0: not yet."""
    steps: float = 0.0
    """Steps seen so far in the probed buckets at the probed depths."""
    looks: int = 0
    """Windows of the probed pod that ended since it is in force."""
    sentinel: bool = False
    """It only looks whether drafts are accepted where none are made."""
    ends_after_s: int = 0
    """Seconds after which the pod ends it by itself; 0: never, as an earlier Fathom began it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A move of one bucket."""

    bucket: int
    start: int
    to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A move whose effect has yet to be measured."""

    changes: tuple[Change, ...]
    expected_gain: float
    at_s: float
    steps: float = 0.0
    """Steps seen so far in the buckets at their new depths."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A pod whose engine has an older document in force than was written."""

    pod: str
    generation: int
    """Generation of the document that it has."""
    since_s: float
    """When the first newer one was written (Unix seconds)."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A pod of the rest whose text is unlike its, or of a cohort whose text is like the rest's."""

    pod: str
    since_s: float
    """Since when that is seen without a break (Unix seconds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Pods that are tuned apart from the rest, since they are unlike it."""

    device: str
    """What they run on; empty: on what the rest does, but their text or their draft differs."""
    pods: tuple[str, ...]
    schedule: Schedule
    """Theirs as of the last decision."""
    state: "TuningState"
    """What is known of them alone."""
    draft: str = ""
    """The draft that they try; empty: they have the rest's."""
    settled: bool = False
    """Whether they, who try a draft, were ever at the best depth that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningState:
    """All that is carried from one decision to the next. Frozen; bounded; versioned."""

    # Pydantic reads it, and all that nests in it alike. Fields of another Fathom are passed over:
    # to go back to an earlier one must not cost what was learned. With NaN in it, it would decide
    # nonsense for ever.
    __pydantic_config__ = ConfigDict(extra="ignore", allow_inf_nan=False)

    version: Literal[1] = 1
    """Another one where a field that stays means something else: then all of it is begun again."""
    step_times: StepTimes = field(default_factory=StepTimes)
    survival: Survival = field(default_factory=Survival)
    yields: Yields | None = None
    """Instead of survival, where drafts are cut before they are verified; None: they are not."""
    contexts: Contexts = field(default_factory=Contexts)
    traffic: Traffic = field(default_factory=Traffic)
    prompts: Prompts = field(default_factory=Prompts)
    residence: Residence = field(default_factory=Residence)
    probe: Probe | None = None
    trial: Trial | None = None
    visits: tuple[Visit, ...] = ()
    probe_ended_at_s: float = 0.0
    probe_lasted_s: float = 0.0
    sentinel_ended_at_s: float = 0.0
    sentinel_lasted_s: float = SENTINEL_GUESS_S
    """The last one, or what one is expected to take."""
    load: Load = field(default_factory=Load)
    acceptance: Acceptance = field(default_factory=Acceptance)
    reference: Reference | None = None
    """The whole fleet's; None: none was begun."""
    watches: tuple[Watch, ...] = ()
    """Alarms that stand, and those in the making."""
    tail: Tail = field(default_factory=Tail)
    by_text: TextSpread = field(default_factory=TextSpread)
    ledger: Ledger = field(default_factory=Ledger)
    gained: Gained = field(default_factory=Gained)
    """Kept beside the rest, so that no release that does not know it stumbles over it."""
    returned_at_s: float = 0.0
    """When the tuner last gave the user's depth back (Unix seconds); 0: never."""
    measured: Measured | None = None
    tokens: int | None = None
    """The user's depth as of the last decision."""
    device: str = ""
    """GPU of the pods that are in no cohort; empty: they do not tell."""
    cohorts: tuple[Cohort, ...] = ()
    """Pods that are tuned apart."""
    misplaced: tuple[Misplaced, ...] = ()
    """Pods that seem to be with the wrong ones."""
    generation: int = 0
    """The newest generation ever asked for, so that a lost document does not start over."""
    poked_generation: int = 0
    disobeying: tuple[str, ...] = ()
    advised: str = ""
    looks: Mapping[str, PodCounters] = field(default_factory=lambda: MappingProxyType({}))
    """Last look at each pod that a delta was taken from. Not persisted."""
    stepped: tuple[tuple[str, float], ...] = ()
    """When each pod was last seen to step (Unix seconds). Not persisted."""
    held: tuple[Held, ...] = ()
    """Since when each pod is at the depth that it is at. Not persisted."""
    behind: tuple[Behind, ...] = ()
    """Not persisted."""

    @property
    def text(self) -> Survival | Yields:
        """What drafts are worth under the present traffic."""
        return self.survival if self.yields is None else self.yields

    def to_json(self) -> str:
        """Canonical text, well below `LARGEST_BYTES`; equal states are equal strings.

        The last cohorts are left out where they do not fit: it costs some probes.
        """
        text = _ADAPTER.dump_json(self, exclude=_APART).decode()
        fits = not self.cohorts or len(text) <= LARGEST_BYTES
        return text if fits else replace(self, cohorts=self.cohorts[:-1]).to_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a state. Garbage, or another version's, is a fresh state: soon learned again."""
        return cls.read(text) or cls()

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read a state; None: it is none of this version's."""
        return cls.known_part(text)[0]

    @classmethod
    def known_part(cls, text: str) -> tuple[Self | None, bool]:
        """As `read`; and whether nothing was left out for being of a kind without a name here."""
        if len(text) > LARGEST_BYTES:
            return None, False
        state, whole = _known_part(text)
        if state is None:
            return None, False
        cohorts = tuple(replace(each, state=_bare(each.state)) for each in state.cohorts)
        return replace(_bare(state), cohorts=cohorts), whole  # type: ignore[return-value]


def _bare(state: TuningState) -> TuningState:
    """Without what cannot have survived: a look, a step."""
    return replace(
        state,
        looks=MappingProxyType({}),
        stepped=(),
        held=(),
        behind=(),
        gained=Gained(),
        cohorts=(),
    )


def _known_part(text: str) -> tuple[TuningState | None, bool]:
    try:
        return _ADAPTER.validate_json(text), True
    except ValidationError:
        pass  # it is junk, or of another Fathom
    try:
        document = parsed_json(text)
    except UnreadableJsonError:
        return None, False
    return read_known(document, _ADAPTER.validate_python)


_UNKEPT: Final[Mapping[str, IncEx | bool]] = dict.fromkeys(
    ("looks", "stepped", "held", "behind", "gained"), True
)
_APART: Final[Mapping[str, IncEx | bool]] = {
    **_UNKEPT,
    "cohorts": {"__all__": {"state": {**_UNKEPT, "cohorts": True}}},
}
"""What is not persisted, or not with the rest."""
_ADAPTER: Final[TypeAdapter[TuningState]] = TypeAdapter(TuningState)
