"""One resource in full, as its page shows it. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from fathom.api.status import MeasuredStatus, SpeculativeDeploymentStatus
from fathom.measurement.bench_result import DepthBench
from fathom.page.history import Charts, Moment, charts_of, moments_of
from fathom.page.subject import Subject
from fathom.resource import (
    NOT_MEASURED,
    UNKNOWN,
    SpeculativeDeployment,
    alarming,
    gained_in_words,
    unwatched_in_words,
    unwatched_since,
    why_not_live,
)
from fathom.times import rfc3339
from fathom.tuning.explanation import Explanation, explain
from fathom.tuning.interface import settings_from
from fathom.tuning.surface import Speed, SurfaceRow, surface

SHADES: Final = 7
"""Shades of the heat map: 0 is far below the best of its row, the last one is the best."""
_SHADE_STEP: Final = 0.05
"""Share of the best's tokens per second, from shade to shade."""
_LITTLE: Final = 0.005
"""Shares below half a percent are shown as none."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what stands behind it."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """One depth at one batch."""

    depth: int
    speed: str
    """Tokens per second of one replica; empty: unknown."""
    gain: str
    """Over the user's own depth, such as +4.1 %; empty: unknown, or that depth itself."""
    measured: bool
    in_force: bool
    shade: int


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One bucket of batches."""

    batches: str
    load: str
    """Share of the recent busy time; a dash: none."""
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView:
    """All that one page shows."""

    namespace: str
    name: str
    at: str
    """When it was made."""
    since: str
    """Since when its history goes; empty: whoever made it has none."""
    alarms: tuple[Fact, ...]
    """That stand, Degraded among them."""
    facts: tuple[Fact, ...]
    judgements: tuple[Fact, ...]
    """Rollout, comparison and quality check, as they stand."""
    charts: Charts
    heat: tuple[HeatRow, ...]
    explanation: Explanation
    moments: tuple[Moment, ...]
    """Newest first."""
    bench: DepthBench | None
    """What `fathom bench` found last."""

    @property
    def depths(self) -> tuple[int, ...]:
        """Columns of the heat map."""
        return tuple(each.depth for each in self.heat[0].cells) if self.heat else ()

    @property
    def whys(self) -> tuple[str, ...]:
        """Why each batch has its depth."""
        parts = (("", self.explanation), *self.explanation.apart)
        return tuple(
            f"{f'{whom}, ' if whom else ''}{each.batches} at {each.depth}: {each.why}"
            for whom, explanation in parts
            for each in explanation.buckets
        )


def resource_view(subject: Subject, now_s: float) -> ResourceView:
    """What a page shows of a resource at a moment (Unix seconds)."""
    status, history = subject.status, subject.history
    explanation, rows = _explained(subject, now_s)
    busy = {load.batch_le for load in subject.state.traffic.loads}
    return ResourceView(
        namespace=subject.key.namespace,
        name=subject.key.name,
        at=rfc3339(now_s),
        since=rfc3339(history.since_s) if history else "",
        alarms=tuple(_alarms(status, now_s)),
        facts=tuple(_facts(status)),
        judgements=tuple(_judgements(status)),
        charts=charts_of(history.points if history else (), busy),
        heat=heat_map(rows, explanation),
        explanation=explanation,
        moments=history.moments if history else moments_of(status),
        bench=subject.bench,
    )


def _explained(subject: Subject, now_s: float) -> tuple[Explanation, tuple[SurfaceRow, ...]]:
    """Why depth is what it is, and the surface: where it is not live, only what was measured."""
    sd, status = subject.resource, subject.status
    if not isinstance(sd, SpeculativeDeployment):
        problems = " ".join(str(each) for each in sd)
        return Explanation(tokens=0, nothing=f"The spec is refused: {problems}"), ()
    speculation = sd.spec.speculation
    if not (sd.spec.tunable and sd.spec.drafts):
        why = f"Nothing is tuned: depth stays at {speculation.tokens}."
        return Explanation(tokens=speculation.tokens, nothing=why), ()
    settings = settings_from(speculation, sd.engine.max_num_seqs, sd.engine.depths)
    live = not why_not_live(sd, status)
    explanation = explain(
        subject.state,
        settings,
        subject.document,
        now_s,
        pods=status.ready_replicas or None,
        live=live,
    )
    if explanation.nothing:
        return explanation, ()
    rows = surface(subject.state, settings, subject.document if live else None, now_s)
    return explanation, rows if live else tuple(map(_measured_only, rows))


def _measured_only(row: SurfaceRow) -> SurfaceRow:
    return replace(
        row,
        speeds=tuple(
            each if each.measured else replace(each, tokens_per_second=None) for each in row.speeds
        ),
    )


def _alarms(status: SpeculativeDeploymentStatus, now_s: float) -> Iterator[Fact]:
    if since := unwatched_since(status, now_s):
        yield Fact("Unwatched", unwatched_in_words(since))
    for each in alarming(status):
        name = f"{each.type}/{each.reason} since {each.last_transition_time}"
        yield Fact(name, each.message)


def _facts(status: SpeculativeDeploymentStatus) -> Iterator[Fact]:
    yield Fact("Ready", status.ready or UNKNOWN)
    yield Fact("State", status.reason or UNKNOWN)
    yield Fact("Depth in force", status.depth.summary or UNKNOWN)
    yield from measured_facts(status.measured)
    if status.gained is not None:
        yield Fact("Gained since then", gained_in_words(status.gained))
    yield Fact("Tuning", status.tuning.summary or UNKNOWN)
    yield Fact("Engine", f"vLLM {status.engine.version}" if status.engine.version else UNKNOWN)
    yield Fact("Depth is live", status.engine.actuation or UNKNOWN)
    if status.left_out:
        yield Fact("Not made", " ".join(status.left_out))


def measured_facts(measured: MeasuredStatus) -> Iterator[Fact]:
    """The last window with traffic."""
    speed, gain, tpot = (
        measured.tokens_per_second,
        measured.gain_percent,
        measured.tpot_milliseconds,
    )
    yield Fact("Tokens per second", str(speed) if measured.at else NOT_MEASURED)
    yield Fact("Gain over tokens", f"{gain} %" if gain else NOT_MEASURED)
    yield Fact("Acceptance length", measured.acceptance_length or NOT_MEASURED)
    yield Fact("Mean batch", measured.mean_batch or NOT_MEASURED)
    yield Fact("Time per output token", f"{tpot} ms" if tpot else NOT_MEASURED)
    window = f"{measured.window_seconds} s until {measured.at}"
    yield Fact("Measured", window if measured.at else "never")


def _judgements(status: SpeculativeDeploymentStatus) -> Iterator[Fact]:
    if (rollout := status.rollout) is not None:
        name = f"Rollout to {rollout.revision}: {rollout.stage} since {rollout.since}"
        yield Fact(name, _said(rollout.reason, rollout.message, rollout.why))
    if (compared := status.comparison) is not None:
        found = f"{compared.percent} % ({compared.interval_percent})" if compared.percent else ""
        what = "Adaptive verification" if status.adaptive_verification else "No drafts"
        name = f"{what} on {compared.pod or 'one replica'}: {compared.state}"
        yield Fact(name, _said(compared.result or compared.reason, found, compared.message))
    if (quality := status.quality) is not None:
        yield Fact(f"Quality check at {quality.at}: {quality.result}", quality.message)


def _said(*parts: str) -> str:
    return " – ".join(each for each in parts if each)


def heat_map(rows: Iterable[SurfaceRow], explanation: Explanation) -> tuple[HeatRow, ...]:
    """The surface in colours, with the load that an explanation tells of."""
    return tuple(_heat_row(each, explanation) for each in rows)


def _heat_row(row: SurfaceRow, explanation: Explanation) -> HeatRow:
    known = [each.tokens_per_second for each in row.speeds if each.tokens_per_second]
    base = next(
        (each.tokens_per_second for each in row.speeds if each.depth == explanation.tokens), None
    )
    name = f"batch {row.first}" if row.first == row.last else f"batch {row.first}-{row.last}"
    share = next((each.share for each in explanation.buckets if each.batches == name), 0.0)
    return HeatRow(
        batches=name.removeprefix("batch "),
        load=f"{share:.0%}" if share >= _LITTLE else UNKNOWN,
        cells=tuple(_cell(each, max(known, default=0.0), base) for each in row.speeds),
    )


def _cell(speed: Speed, best: float, base: float | None) -> HeatCell:
    value = speed.tokens_per_second
    if value is None:
        return HeatCell(
            depth=speed.depth, speed="", gain="", measured=False, in_force=speed.in_force, shade=0
        )
    behind = round((1 - value / best) / _SHADE_STEP)
    return HeatCell(
        depth=speed.depth,
        speed=f"{value:,.0f}",
        gain=f"{value / base - 1:+.1%}" if base and value != base else "",
        measured=speed.measured,
        in_force=speed.in_force,
        shade=max(0, SHADES - 1 - behind),
    )
