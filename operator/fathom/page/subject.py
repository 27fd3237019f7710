"""What a page or an explanation is about: one resource, as it is known at one moment. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from fathom.api.choices import TuningMode
from fathom.api.conditions import ConditionType, title_of
from fathom.api.problem import Problem
from fathom.api.spec import TuningGoals
from fathom.api.status import ReportedStatus, SpeculativeDeploymentStatus
from fathom.api.tuner import Level, SpeculationTunerStatus
from fathom.cluster.kinds import SPECULATION_TUNER, ObjectKey
from fathom.cluster.manifest import Manifest, Meta
from fathom.engine.depth import DepthDocument
from fathom.health import (
    UNKNOWN,
    UNREADABLE,
    Headline,
    Wellness,
    cause_of,
    is_measured_now,
    wellness_in,
)
from fathom.measurement.bench_result import DepthBench
from fathom.page.history import History
from fathom.resource import (
    SpeculationTuner,
    SpeculativeDeployment,
    known_part,
    known_part_of_tuner,
    parse,
    parse_tuner,
    why_not_live,
)
from fathom.tuning.explanation import Explanation, PositionExplanation, explain
from fathom.tuning.interface import Settings, as_started, settings_from, settings_reported
from fathom.tuning.learned_state import TuningState
from fathom.tuning.surface import SurfaceRow, surface


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what is known of it."""

    name: str
    value: str
    note: str = ""
    """Since when, over what, or in which unit; empty: the name says it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What is tuned of a resource of either kind, and what is asked for."""

    goals: TuningGoals | None = None
    """None: the spec is refused."""
    tokens: int | None = None
    """The user's own depth; None: it is not known."""
    within: str = ""
    """The depths that are allowed, such as 1 to 7; empty: it is not known."""
    settings: Settings | None = None
    """What the tuner goes by; None: nothing is tuned by batch."""
    nothing: str = ""
    """Why nothing is; empty: something is."""
    live: bool = True
    fixed: str = ""
    """Why depth does not change while the engines run; empty: it may, or the spec is refused."""
    document: DepthDocument | None = None
    """What the engines run, as the tuner sees it; None: it is not known."""
    pods: int | None = None
    """That can be tuned; None: as many as were measured."""
    started_elsewhere: bool = False
    """Whether Fathom did not start these pods."""

    @property
    def asked(self) -> str:
        """What the user asks for; empty: the spec is refused."""
        if self.goals is None:
            return ""
        tokens = self.tokens or "not known"
        within = f" within {self.within}" if self.within else ""
        return f"mode {self.goals.mode}, objective {self.goals.objective}, tokens {tokens}{within}"


LEVELS: Final[Mapping[Level, str]] = MappingProxyType(
    {
        Level.METRICS: "acceptance is known, and its break-evens",
        Level.COUNTED: "steps are counted, and depth cannot be changed",
        Level.LIVE: "depth can be changed while engines run",
    }
)
"""What can be done at each."""
_REFUSED: Final = Tuned(nothing="Nothing is tuned: the spec is refused.")
"""Which fields, its alarm says."""


_Resource_co = TypeVar("_Resource_co", covariant=True)
_Status_co = TypeVar("_Status_co", bound=ReportedStatus, covariant=True)


@dataclass(frozen=True, kw_only=True)
class _Subject(ABC, Generic[_Resource_co, _Status_co]):
    """One resource of either kind, as it is known at one moment."""

    key: ObjectKey
    resource: _Resource_co | tuple[Problem, ...]
    """As its user wrote it; or what is wrong with it."""
    status: _Status_co
    document: DepthDocument | None
    """None: there is none."""
    state: TuningState
    history: History | None = None
    """None: whoever asks has none."""
    bench: DepthBench | None = None
    """What `fathom bench` found last; None: nothing, or whoever asks does not look."""
    newest: int = 0
    """Generation of the resource; 0: it is not known."""
    unreadable: bool = False
    """Whether it has a status of another release, which this one cannot read."""

    def wellness(self, now_s: float) -> Wellness:
        """Judge what its status says (Unix seconds)."""
        if self.unreadable:
            return Wellness(Headline.UNKNOWN, UNREADABLE)
        return wellness_in(self.status, name=self.key.name, newest=self.newest, now_s=now_s)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with its spec; empty: nothing."""
        return self.resource if isinstance(self.resource, tuple) else ()

    @cached_property
    @abstractmethod
    def tuned(self) -> Tuned:
        """What is tuned."""

    def positions(self) -> tuple[PositionExplanation, ...]:
        """What is known of acceptance where nothing is tuned by batch."""
        return ()

    @abstractmethod
    def facts(self) -> Iterator[Fact]:
        """How it is at the moment."""

    def _depth_facts(self) -> Iterator[Fact]:
        depth = self.status.depth
        since = f", since {depth.since}" if depth.since else ""
        yield Fact("Depth", depth.summary or UNKNOWN, f"drafted tokens, by batch{since}")
        mode, _, does = self.status.tuning.summary.partition("/")
        yield Fact("Tuning", mode or UNKNOWN, f"{title_of(does)} ({does})" if does else "")


@dataclass(frozen=True, kw_only=True)
class Subject(_Subject[SpeculativeDeployment, SpeculativeDeploymentStatus]):
    """One SpeculativeDeployment."""

    @cached_property
    def tuned(self) -> Tuned:
        sd = self.resource
        if isinstance(sd, tuple):
            return _REFUSED
        speculation, why = sd.spec.speculation, why_not_live(sd, self.status)
        asked = Tuned(
            goals=speculation.tuning,
            tokens=speculation.tokens,
            within=f"{speculation.min_tokens} to {speculation.effective_max_tokens}",
            live=not why,
            fixed=why or ("" if sd.spec.tunable else "nothing is tuned."),
            document=self.document,
            pods=self.status.ready_replicas or None,
        )
        if not (sd.spec.tunable and sd.spec.drafts):
            return replace(asked, nothing=f"Nothing is tuned: depth stays at {asked.tokens}.")
        settings = settings_from(speculation, sd.engine.max_num_seqs, sd.engine.depths)
        return replace(asked, settings=settings)

    def facts(self) -> Iterator[Fact]:
        engine = self.status.engine
        yield Fact("Replicas ready", self.status.ready or UNKNOWN)
        yield from self._depth_facts()
        version = f"vLLM {engine.version}" if engine.version else UNKNOWN
        yield Fact("Engine", version, self.status.draft.family)
        live = {"Live": "while engines run", "None": "by a restart"}
        yield Fact("Depth changes", live.get(engine.actuation, engine.actuation or UNKNOWN))


@dataclass(frozen=True, kw_only=True)
class TunerSubject(_Subject[SpeculationTuner, SpeculationTunerStatus]):
    """One SpeculationTuner."""

    @cached_property
    def tuned(self) -> Tuned:
        tuner, status = self.resource, self.status
        if isinstance(tuner, tuple):
            return _REFUSED
        spec, level = tuner.spec, status.level
        attached = status.condition(ConditionType.ATTACHED)
        none = UNREADABLE if self.unreadable else "no operator has reported on it yet."
        why = cause_of(attached) if attached else none
        live = level is Level.LIVE
        asked = Tuned(
            goals=spec.tuning,
            tokens=status.tokens or spec.tokens,
            within=f"{spec.min_tokens} to {spec.max_tokens}" if spec.max_tokens else "",
            live=live,
            fixed="" if live else why,
            pods=status.tuned_pods or None,
            started_elsewhere=True,
        )
        if level is Level.METRICS:
            return replace(asked, nothing=_ACCEPTANCE_ALONE)
        if level is None or asked.tokens is None:
            return replace(asked, nothing=f"Nothing is tuned: {why}")
        settings = settings_reported(spec, status, self.state, asked.tokens)
        auto = settings.mode is TuningMode.AUTO
        if live and not auto and self.document is None:
            asked = replace(asked, fixed="mode Advise leaves it as the engines were started.")
        return replace(
            asked,
            within=f"{settings.min_tokens} to {settings.max_tokens}",
            settings=settings,
            document=self.document or (None if live and auto else as_started(settings)),
        )

    def positions(self) -> tuple[PositionExplanation, ...]:
        alone = self.status.level is Level.METRICS
        return _positions(tuple(map(float, self.status.measured.survival))) if alone else ()

    def facts(self) -> Iterator[Fact]:
        status, tokens = self.status, self.tuned.tokens
        yield Fact("Pods readable", status.readable or UNKNOWN, "of those that the selector finds")
        yield Fact("Level", status.level or UNKNOWN, LEVELS[status.level] if status.level else "")
        yield from self._depth_facts()
        yield Fact("Your own depth", str(tokens or UNKNOWN), "to which all goes back")


_ACCEPTANCE_ALONE: Final = (
    "Of these engines acceptance is known, and nothing of batches and depths: they run without "
    "what counts them."
)


AnySubject = _Subject[SpeculativeDeployment | SpeculationTuner, ReportedStatus]
"""One of either kind."""


def _positions(survival: Sequence[float]) -> tuple[PositionExplanation, ...]:
    """Draft positions of which one window alone is known: the share of drafts that got so far."""
    return tuple(
        PositionExplanation(
            position=i,
            acceptance=each / before,
            error=None,
            survival=each,
            acceptance_length=1 + sum(survival[:i]),
            measured=True,
        )
        for i, (before, each) in enumerate(pairwise((1.0, *survival)), start=1)
        if before > 0
    )


def subject_in(
    key: ObjectKey,
    manifest: Manifest,
    told: ReportedStatus | None,
    *,
    document: DepthDocument | None,
    state: TuningState,
    history: History | None = None,
) -> AnySubject:
    """One resource of either kind, as it was read.

    Args:
        key: of it.
        manifest: as the cluster has it.
        told: its status; None: there is none, or none that can be read.
        document: that is in the cluster; None: none.
        state: what was learned.
        history: None: whoever asks has none.
    """
    found: AnySubject
    if key.kind == SPECULATION_TUNER:
        found = TunerSubject(
            key=key,
            resource=parse_tuner(known_part_of_tuner(manifest).known),
            status=told if isinstance(told, SpeculationTunerStatus) else SpeculationTunerStatus(),
            document=document,
            state=state,
        )
    else:
        found = Subject(
            key=key,
            resource=parse(known_part(manifest).known),
            status=told
            if isinstance(told, SpeculativeDeploymentStatus)
            else SpeculativeDeploymentStatus(),
            document=document,
            state=state,
        )
    newest = Meta.model_validate(manifest["metadata"]).generation
    unreadable = told is None and bool(manifest.get("status"))
    return replace(found, history=history, newest=newest, unreadable=unreadable)


def explanation_of(subject: AnySubject, now_s: float) -> Explanation | None:
    """Why depth is what it is; None: nothing is tuned, and no acceptance is known."""
    tuned, settings = subject.tuned, subject.tuned.settings
    if settings is None:
        positions = subject.positions()
        if not positions:
            return None
        return Explanation(tokens=tuned.tokens or 0, nothing=tuned.nothing, positions=positions)
    return explain(
        subject.state,
        settings,
        tuned.document,
        now_s,
        pods=tuned.pods,
        live=tuned.live,
        started_elsewhere=tuned.started_elsewhere,
    )


def explained(subject: AnySubject, now_s: float) -> tuple[Explanation, tuple[SurfaceRow, ...]]:
    """The same, and the surface: where depth is not live, only what was measured."""
    tuned, explanation = subject.tuned, explanation_of(subject, now_s)
    if explanation is None:
        return Explanation(tokens=tuned.tokens or 0, nothing=tuned.nothing), ()
    if explanation.nothing or tuned.settings is None:
        return explanation, ()
    if not is_measured_now(subject.status, now_s):
        explanation = replace(explanation, next_step="Nothing while nothing is measured.")
    document = tuned.document if tuned.live else None
    rows = surface(subject.state, tuned.settings, document, now_s)
    return explanation, rows if tuned.live else tuple(map(_measured_only, rows))


def _measured_only(row: SurfaceRow) -> SurfaceRow:
    return replace(
        row,
        speeds=tuple(
            each if each.measured else replace(each, tokens_per_second=None) for each in row.speeds
        ),
    )
