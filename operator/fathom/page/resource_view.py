"""One resource in full, as its page shows it. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from fathom.api.conditions import title_of
from fathom.api.status import (
    GainedStatus,
    MeasuredStatus,
    ReportedStatus,
    SpeculativeDeploymentStatus,
)
from fathom.api.tuner import SpeculationTunerStatus
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT
from fathom.health import (
    NOT_MEASURED,
    UNKNOWN,
    engine_in_words,
    is_measured_now,
    signed,
)
from fathom.measurement.bench_result import DepthBench
from fathom.page.charts import Charts, EmptyPanels, charts_of, own_depth, panels_of
from fathom.page.draft_life import DraftLife, lives_in
from fathom.page.history import LONGEST_MESSAGE, Moment, moments_of
from fathom.page.overview import (
    TUNERS,
    Health,
    Notice,
    health_in,
    notices_in,
    path_of,
    thousands,
    under_way,
    warnings_in,
)
from fathom.page.subject import AnySubject, Fact, explained
from fathom.text import counted, shortened
from fathom.times import rfc3339
from fathom.tuning.explanation import Explanation
from fathom.tuning.surface import Speed, SurfaceRow

SHADES: Final = 7
"""Shades of the heat map: 0 is far below the best of its row, the last one is the best."""
_SHADE_STEP: Final = 0.05
"""Share of the best's tokens per second, from shade to shade."""
_LITTLE: Final = 0.005
"""Shares below half a percent are shown as none."""


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


@dataclass(frozen=True, slots=True)
class FactGroup:
    """Facts of one time."""

    title: str
    """Such as `Measured in the 30 s until 2026-…`; empty: the moment of the page."""
    facts: tuple[Fact, ...]
    past: bool = False
    """Whether it says nothing of the present."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView:
    """All that one page shows."""

    kind: str = ""
    """The kind of the resource; empty: it owns its pods."""
    path: str = "resources"
    """The first part of its address, where it is served."""
    namespace: str
    name: str
    health: Health | None
    """None: a recording has none."""
    headline: str
    """Such as `is not well`."""
    cause: str
    """Why, unless one of the notices says it."""
    at: str
    """When it was made."""
    since: str
    """Since when its history goes; empty: whoever made it has none."""
    notices: tuple[Notice, ...]
    """What to read first: alarms, conditions, what is over since lately, warnings of the spec."""
    lives: tuple[DraftLife, ...] = ()
    """Another draft that is trained or on trial."""
    groups: tuple[FactGroup, ...]
    left_out: tuple[str, ...]
    """Optional objects that are not made, and why."""
    judgements: tuple[Fact, ...]
    """Rollout or comparison that is not over."""
    charts: Charts
    panels: tuple[str, ...]
    """Names of the charts that there are; what each shows, `parts.html` says."""
    empty: tuple[EmptyPanels, ...]
    heat: tuple[HeatRow, ...]
    explanation: Explanation
    moments: tuple[Moment, ...]
    """Newest first."""
    bench: DepthBench | None
    """What `fathom bench` found last."""

    @property
    def reports(self) -> str:
        """Where the same is to be saved."""
        return "tuner-reports" if self.path == TUNERS else "reports"

    @property
    def depths(self) -> tuple[int, ...]:
        """Columns of the heat map."""
        return tuple(each.depth for each in self.heat[0].cells) if self.heat else ()

    @property
    def contexts(self) -> tuple[tuple[str, ...], ...]:
        """Rows of acceptance by context, under `CONTEXT_COLUMNS`."""
        return tuple(
            (f"{whom}, {context}" if whom else context, *cells)
            for whom, explanation in (("", self.explanation), *self.explanation.apart)
            for context, *cells in (each.row for each in explanation.contexts)
        )

    @property
    def whys(self) -> tuple[str, ...]:
        """Why each batch has its depth; those with the same depth and reason together."""
        alike: dict[tuple[str, int, str], list[str]] = {}
        for whom, explanation in (("", self.explanation), *self.explanation.apart):
            for each in explanation.buckets:
                alike.setdefault((whom, each.depth, each.why), []).append(each.batches)
        return tuple(
            f"{f'{whom}, ' if whom else ''}{_together(found)} at depth {depth}: {why}"
            for (whom, depth, why), found in alike.items()
        )


def _together(found: Iterable[str]) -> str:
    """`batch 3`, `batch 4-5` as `batch 3, 4-5`."""
    return f"batch {', '.join(each.removeprefix('batch ') for each in found)}"


def resource_view(subject: AnySubject, now_s: float) -> ResourceView:
    """What a page shows of a resource at a moment (Unix seconds)."""
    status, history, tuned = subject.status, subject.history, subject.tuned
    explanation, rows = explained(subject, now_s)
    wellness = subject.wellness(now_s)
    notices = (*notices_in(status, subject.key.name, now_s), *warnings_in(status))
    judgements, lives = tuple(under_way(status)), lives_in(status)
    causes = (*(each.cause for each in notices), *(each.cause for each in lives))
    above = (*causes, *(each.value for each in judgements))
    charts = charts_of(history.points if history else ())
    panels, empty = panels_of(
        charts, explanation.tokens, tuned.fixed, uncounted=_uncounted(subject)
    )
    kind = subject.key.kind
    return ResourceView(
        kind="" if kind == SPECULATIVE_DEPLOYMENT else kind.kind,
        path=path_of(kind),
        namespace=subject.key.namespace,
        name=subject.key.name,
        health=health_in(wellness.headline),
        headline=wellness.headline,
        cause="" if notices else wellness.cause,
        at=rfc3339(now_s),
        since=rfc3339(history.since_s) if history else "",
        notices=notices,
        lives=lives,
        groups=(
            FactGroup("", tuple(subject.facts())),
            *_of_engines(status),
            *measured_facts(
                status.measured, explanation.tokens, past=not is_measured_now(status, now_s)
            ),
            *_acceptance_facts(subject, now_s),
            *_gained_facts(status.gained, explanation.tokens),
        ),
        left_out=status.left_out if isinstance(status, SpeculativeDeploymentStatus) else (),
        judgements=judgements,
        charts=charts,
        panels=panels,
        empty=empty,
        heat=heat_map(rows, explanation),
        explanation=explanation,
        moments=_once(history.moments if history else moments_of(status), above),
        bench=subject.bench,
    )


def _once(moments: Iterable[Moment], above: Iterable[str]) -> tuple[Moment, ...]:
    """Moments without the sentences that the page already has."""
    shown = {shortened(each, LONGEST_MESSAGE) for each in above}
    return tuple(replace(each, message="") if each.message in shown else each for each in moments)


def measured_facts(
    measured: MeasuredStatus, tokens: int, *, past: bool = False
) -> Iterator[FactGroup]:
    """The last window with traffic, if there was one.

    Args:
        measured: that window.
        tokens: the user's own depth.
        past: whether that is not of the present.
    """
    if not measured.at:
        return
    tpot, gain = measured.tpot_milliseconds, measured.gain_percent
    when = f"easured in the {measured.window_seconds} s until {measured.at}"
    yield FactGroup(
        f"Nothing is measured now. Last m{when}" if past else f"M{when}",
        (
            Fact("Tokens per second", thousands(measured.tokens_per_second), "of all replicas"),
            Fact("Requests per step", measured.mean_batch or NOT_MEASURED, "the batch"),
            Fact(
                "Acceptance length",
                measured.acceptance_length or NOT_MEASURED,
                "tokens per step, 1 without accepted drafts",
            ),
            Fact("Time per output token", f"{tpot} ms" if tpot else NOT_MEASURED),
            Fact(
                f"Gain over {own_depth(tokens)}",
                f"{signed(gain)} %" if gain else NOT_MEASURED,
                "more tokens per second than your own depth",
            ),
        ),
        past,
    )


def _uncounted(subject: AnySubject) -> str:
    """Why no engine counts batches; empty: they do, or it is not known."""
    return subject.tuned.nothing if subject.positions() else ""


def _of_engines(status: ReportedStatus) -> Iterator[FactGroup]:
    """The engines of a SpeculationTuner, by kind."""
    if isinstance(status, SpeculationTunerStatus) and status.engines:
        found = (
            Fact(
                counted(each.pods, "pod"),
                f"level {each.level}" if each.level else "not readable",
                ", ".join(filter(None, (title_of(each.reason), engine_in_words(each)))),
            )
            for each in status.engines
        )
        yield FactGroup("Engines, by kind", tuple(found))


def _acceptance_facts(subject: AnySubject, now_s: float) -> Iterator[FactGroup]:
    """What is known of engines that count no batches."""
    status = subject.status
    past = not is_measured_now(status, now_s)
    if positions := subject.positions():
        found = (
            Fact(
                f"Position {each.position}",
                f"{each.acceptance:.0%}",
                f"{each.survival:.0%} of drafts come so far",
            )
            for each in positions
        )
        yield FactGroup("Accepted by position, in that window", tuple(found), past)
    if isinstance(status, SpeculationTunerStatus) and status.break_even:
        shallower = (
            Fact(
                f"Depth {each.depth}",
                f"{each.keeps_percent} %",
                "of the tokens; pays if a step gets over "
                f"{each.pays_if_shorter_by_percent} % shorter",
            )
            for each in status.break_even
        )
        title = "Break-even of a decode step; what it means for whole requests is not known"
        yield FactGroup(title, tuple(shallower), past)


def _gained_facts(gained: GainedStatus | None, tokens: int) -> Iterator[FactGroup]:
    if gained is None:
        return
    percent = f"{signed(gained.percent)} % ± {gained.error_percent}"
    known = percent if gained.percent else NOT_MEASURED
    facts = [Fact(f"Gain over {own_depth(tokens)}", known, "± is the 95 % interval")]
    # Engines without GPUs have no GPU hours.
    if gained.measured_gpu_hours:
        gpu_hours = f"{signed(gained.gpu_hours)} ± {gained.error_gpu_hours}"
        facts += [
            Fact("GPU hours gained", gpu_hours if gained.gpu_hours else NOT_MEASURED),
            Fact("GPU hours measured", gained.measured_gpu_hours),
            Fact("GPU hours unmeasured", gained.unmeasured_gpu_hours),
        ]
    yield FactGroup(f"In all since {gained.since}", tuple(facts))


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
