"""A replay as a page shows a resource: what was recorded, and what would have been decided."""

from collections.abc import Iterator
from math import inf

from fathom.api.choices import TuningMode
from fathom.api.status import DepthStatus, SpeculativeDeploymentStatus, TuningStatus
from fathom.cluster.kinds import ObjectKey
from fathom.engine.depth import DepthDocument, merged, summary
from fathom.page.history import History, Moment, MomentKind, charts_of
from fathom.page.resource_view import Fact, ResourceView, heat_map, measured_facts
from fathom.reconcile.tuning_report import report
from fathom.replay.replay import ReplayResult
from fathom.replay.view import (
    asked_sentence,
    gains,
    gap_sentence,
    held_sentence,
    recorded_sentence,
    way,
)
from fathom.resource import UNKNOWN
from fathom.text import counted
from fathom.times import rfc3339
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.interface import Settings, TuningDecision
from fathom.tuning.learned_state import TuningState
from fathom.tuning.surface import surface


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
        busy = {each.batch_le for each in self._state.traffic.loads}
        rows = surface(self._state, self._settings, self._document, recorded.to_s)
        return ResourceView(
            namespace=key.namespace,
            name=key.name,
            at=rfc3339(recorded.to_s),
            since=rfc3339(recorded.from_s),
            alarms=tuple(
                Fact(f"{each.kind}/{each.reason} since {rfc3339(each.since_s)}", _said(each))
                for each in explanation.alarms
            ),
            facts=tuple(self._facts()),
            judgements=(*_recorded(replayed), *_gained(replayed)),
            charts=charts_of(self._history.points, busy),
            heat=heat_map(rows, explanation),
            explanation=explanation,
            moments=tuple(sorted(_moments(replayed), key=lambda each: -each.at_s)),
            bench=None,
        )

    def _facts(self) -> Iterator[Fact]:
        """As it stands at the end."""
        yield Fact("Depth in force", self._status.depth.summary or UNKNOWN)
        yield from measured_facts(self._status.measured)


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
            message=_said(alarm),
            bad=True,
        )


def _said(alarm: Alarm) -> str:
    return f"{alarm.message} {alarm.recommendation}"
