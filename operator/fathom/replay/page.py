"""A replay as people read it: on a terminal, and as the page of a resource."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fathom.api.choices import TuningMode
from fathom.api.conditions import title_of
from fathom.api.status import DepthStatus, SpeculativeDeploymentStatus, TuningStatus
from fathom.cli.explain import bullets, explanation_view
from fathom.cluster.kinds import ObjectKey
from fathom.engine.depth import DepthDocument, merged, summary
from fathom.health import UNKNOWN
from fathom.page.charts import charts_of, panels_of
from fathom.page.history import History, Moment, MomentKind
from fathom.page.overview import Health, Notice
from fathom.page.resource_view import FactGroup, ResourceView, heat_map, measured_facts
from fathom.page.subject import Fact
from fathom.reconcile.tuning_report import gained_status, report
from fathom.replay.estimate import Occurrence
from fathom.replay.replay import Gap, Recorded, ReplayResult
from fathom.text import counted
from fathom.times import rfc3339
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.interface import Settings, TuningDecision
from fathom.tuning.learned_state import TuningState
from fathom.tuning.surface import surface


def replay_view(replayed: ReplayResult) -> Iterator[RenderableType]:
    """What was recorded, what would have been decided, what it would have gained, and why."""
    yield Text(f"Recorded: {recorded_sentence(replayed.recorded)}")
    yield from bullets(
        "Without any scrape",
        map(gap_sentence, replayed.recorded.gaps),
    )
    if replayed.unplugged:
        yield Text(f"\n{replayed.unplugged}")
    if not replayed.windows:
        return
    yield Text(f"\n{asked_sentence(replayed.settings, replayed.windows)}\n")
    yield from bullets("Left out", replayed.left_out)
    if replayed.decisions:
        yield decisions_table(replayed.decisions)
    yield Text(held_sentence(replayed))
    yield from bullets("Alarms it would have raised", map(str, replayed.alarms))
    yield Text()
    yield gains_table(replayed)
    yield Text("\nWhat it knows at the end\n", style="bold")
    yield explanation_view(replayed.explanation)


def decisions_table(decisions: Sequence[Occurrence]) -> Table:
    """What the tuner would have done, the same in a row put together."""
    table = Table(title="What the tuner would have done", title_justify="left")
    table.add_column("at", no_wrap=True)
    table.add_column("times", justify="right")
    table.add_column("action", no_wrap=True)
    table.add_column("depth", no_wrap=True)
    table.add_column("why", ratio=1)
    table.add_column("expected", justify="right", no_wrap=True)
    for each in decisions:
        table.add_row(
            rfc3339(each.at_s),
            str(each.times),
            each.action,
            way(each),
            Text(f"{each.reason}: {each.message}"),
            "" if each.expected_gain is None else f"{each.expected_gain:+.1%}",
        )
    return table


def gains_table(replayed: ReplayResult) -> Table:
    """The estimates, with how much of the load they are known for."""
    table = Table(
        title="Estimated gain in tokens per second",
        title_justify="left",
        caption="Weighted by the recorded busy time. Known: both depths were measured, or are the "
        "same; the rest is predicted.",
        caption_justify="left",
    )
    table.add_column("compared")
    for column in ("gain", "95 % interval", "load known"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in gains(replayed):
        table.add_row(each.compared, each.gain, each.interval, each.known)
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRow:
    """One estimate, in words."""

    compared: str
    gain: str
    interval: str
    """95 %; empty: the gain is unknown."""
    known: str
    """Share of the load."""


def gains(replayed: ReplayResult) -> Iterator[GainRow]:
    """Every estimate."""
    tokens = replayed.explanation.tokens
    estimates = {
        "what it would have decided, over what was recorded": replayed.over_recorded,
        f"what it would have decided, over depth {tokens}": replayed.over_tokens,
        f"what was recorded, over depth {tokens}": replayed.recorded_over_tokens,
        "best at any time as far as known, over what was recorded": replayed.best_over_recorded,
    }
    for compared, estimate in estimates.items():
        if estimate is None:
            yield GainRow(compared=compared, gain="unknown", interval="", known="0%")
        else:
            yield GainRow(
                compared=compared,
                gain=f"{estimate.gain:+.1%}",
                interval=f"{estimate.low:+.1%} to {estimate.high:+.1%}",
                known=f"{estimate.known_share:.0%}",
            )


def way(decision: Occurrence) -> str:
    """From which depth to which, from the smallest batch to the largest."""
    start, to = summary(decision.in_force), summary(decision.schedule)
    return start if start == to else f"{start} → {to}"


def gap_sentence(gap: Gap) -> str:
    return f"from {rfc3339(gap.from_s)} to {rfc3339(gap.to_s)}"


def recorded_sentence(recorded: Recorded) -> str:
    """How much there is to go by."""
    length = timedelta(seconds=round(recorded.to_s - recorded.from_s))
    return (
        f"{counted(recorded.looks, 'scrape')} of {counted(len(recorded.pods), 'pod')} "
        f"within {length}, from {rfc3339(recorded.from_s)} to {rfc3339(recorded.to_s)}; engine "
        f"restarts: {recorded.restarts}."
    )


def asked_sentence(settings: Settings, windows: int) -> str:
    """By which wishes it was asked."""
    return (
        f"Asked {counted(windows, 'time')}, as with mode Auto: objective {settings.objective}, "
        f"tokens {settings.tokens} within {settings.min_tokens} to {settings.max_tokens}, batches "
        f"up to {settings.max_batch}, windows of {settings.window_seconds:g} s, gains from "
        f"{settings.min_gain:.1%}."
    )


def held_sentence(replayed: ReplayResult) -> str:
    """What it would have done at all other times."""
    by_count = sorted(replayed.holds.items(), key=lambda item: -item[1])
    reasons = ", ".join(f"{count} {reason}" for reason, count in by_count)
    return f"Otherwise it would have held: {reasons}." if reasons else "It would never have held."


class ReplayPage:
    """Watches a replay, and has its page at the end."""

    def __init__(self, settings: Settings) -> None:
        """Start at the beginning, with the settings of the replay."""
        self._settings = settings
        self._history = History(0.0, kept_s=inf)
        self._status = SpeculativeDeploymentStatus()
        self._document: DepthDocument | None = None
        self._state = TuningState()
        self._last_s = inf

    def saw(self, decision: TuningDecision, document: DepthDocument, at_s: float) -> None:
        """Take in one decision. A `Watch`."""
        began_s = at_s - self._settings.window_seconds
        if began_s > self._last_s:
            # Nobody is asked while there are no looks: the line has to break there.
            self._history.saw(self._status, began_s)
        told = report(decision, TuningMode.AUTO, at_s, TuningStatus(), self._status.measured)
        schedule = merged(document.schedule)
        self._status = self._status.model_copy(
            update={
                "measured": told.measured,
                "gained": gained_status(decision.state.gained, on_gpus=True),
                "depth": DepthStatus(
                    summary=summary(document.schedule),
                    schedule=tuple((each.first, each.last, each.depth) for each in schedule),
                ),
            }
        )
        self._history.saw(self._status, at_s)
        self._document, self._state, self._last_s = document, decision.state, at_s

    def view(self, key: ObjectKey, replayed: ReplayResult) -> ResourceView:
        """The page.

        Args:
            key: what the resource is called there; its namespace may be empty.
            replayed: what came of the replay that was watched.
        """
        recorded, explanation = replayed.recorded, replayed.explanation
        charts = charts_of(self._history.points)
        panels, empty = panels_of(charts, explanation.tokens)
        rows = surface(self._state, self._settings, self._document, recorded.to_s)
        return ResourceView(
            namespace=key.namespace,
            name=key.name,
            health=None,
            headline="",
            cause="",
            at=rfc3339(recorded.to_s),
            since=rfc3339(recorded.from_s),
            notices=tuple(map(_notice, explanation.alarms)),
            groups=(
                FactGroup("At the end", (Fact("Depth", self._status.depth.summary or UNKNOWN),)),
                *measured_facts(self._status.measured, explanation.tokens),
            ),
            left_out=(),
            judgements=(*_recorded(replayed), *_gained(replayed)),
            charts=charts,
            panels=panels,
            empty=empty,
            heat=heat_map(rows, explanation),
            explanation=explanation,
            moments=tuple(sorted(_moments(replayed), key=lambda each: -each.at_s)),
            bench=None,
        )


def _recorded(replayed: ReplayResult) -> Iterator[Fact]:
    """What there is to go by."""
    yield Fact("Recorded", recorded_sentence(replayed.recorded))
    if replayed.recorded.gaps:
        yield Fact("Without any scrape", "; ".join(map(gap_sentence, replayed.recorded.gaps)))
    if replayed.left_out:
        yield Fact("Left out", " ".join(replayed.left_out))
    if replayed.unplugged:
        yield Fact("Without the plugin", replayed.unplugged)


def _gained(replayed: ReplayResult) -> Iterator[Fact]:
    if not replayed.windows:
        return
    asked = asked_sentence(replayed.settings, replayed.windows)
    yield Fact("How it was asked", f"{asked} {held_sentence(replayed)}")
    for each in gains(replayed):
        interval = f" (95 %: {each.interval})" if each.interval else ""
        name = each.compared[:1].upper() + each.compared[1:]
        yield Fact(name, f"{each.gain}{interval}, {each.known} of the load known")


def _moments(replayed: ReplayResult) -> Iterator[Moment]:
    for each in replayed.decisions:
        again = f" The same {counted(each.times, 'time')}, until {rfc3339(each.last_at_s)}."
        yield Moment(
            at_s=each.at_s,
            kind=MomentKind.DECISION,
            what=f"{each.action} {way(each)}",
            reason=each.reason,
            message=each.message + (again if each.times > 1 else ""),
        )
    for alarm in replayed.alarms:
        yield Moment(
            at_s=alarm.since_s,
            kind=MomentKind.ALARM,
            what=alarm.kind,
            reason=alarm.reason,
            message=f"{alarm.message} {alarm.recommendation}",
            bad=True,
        )


def _notice(alarm: Alarm) -> Notice:
    return Notice(
        health=Health.ALARMED,
        title=title_of(alarm.reason),
        code=f"{alarm.kind}/{alarm.reason}",
        cause=alarm.message,
        advice=alarm.recommendation,
        since=rfc3339(alarm.since_s),
    )
