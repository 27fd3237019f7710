"""The tuner over recorded metrics: what it would have decided, and when. Pure.

The engines ran the depths that they were recorded with, so nothing the tuner decides is carried
out. At every window it is asked again, with the schedule that was in force then as the document in
force: what it answers is what an operator that took over at that moment would have done.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from fathom.api.choices import TuningMode
from fathom.api.conditions import Reason
from fathom.engine.depth import DepthDocument, buckets, depths_of, flat, schedule_of
from fathom.measurement.counters import PodCounters
from fathom.measurement.deltas import CLOCK_TOLERANCE_S
from fathom.replay import estimate
from fathom.replay.estimate import BusyTime, Chronicle, Estimate, Occurrence, Unplugged, Window
from fathom.replay.recording import RecordedDepths
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.checks.probing import planned_s
from fathom.tuning.context import clamped
from fathom.tuning.explanation import Explanation, explain
from fathom.tuning.interface import Action, Settings, TunedPod, TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import TuningState
from fathom.tuning.learning import learn
from fathom.tuning.tuner import decide

Watch = Callable[[TuningDecision, DepthDocument, float], None]
"""Sees each decision, with the document in force when it was made, and when (Unix seconds)."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without any look at any pod (Unix seconds)."""

    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was replayed."""

    from_s: float
    to_s: float
    looks: int
    pods: tuple[str, ...]
    restarts: int
    """Engines that were seen to start again."""
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of a replay."""

    recorded: Recorded
    settings: Settings
    windows: int
    """Moments at which the tuner was asked."""
    decisions: tuple[Occurrence, ...]
    """What it would have done, in order of time."""
    holds: Mapping[Reason, int]
    """Windows in which it would have held, by reason."""
    alarms: tuple[Alarm, ...]
    """Every alarm that would have been raised."""
    over_recorded: Estimate | None
    """The schedules it would have had, over those recorded; None: nothing to go by."""
    over_tokens: Estimate | None
    """The same over the user's own depth."""
    recorded_over_tokens: Estimate | None
    best_over_recorded: Estimate | None
    """What is best in each bucket, merely predicted or not, over what was recorded."""
    explanation: Explanation
    """What it knows at the end."""
    left_out: tuple[str, ...]
    """What ran outside of the settings, as sentences."""
    unplugged: str
    """What cannot be told of engines without the plugin, and why; empty: all have it."""


class Replay:
    """One replay in the making. Looks go in by time, the result comes out."""

    def __init__(self, settings: Settings, watch: Watch | None = None) -> None:
        """Start at the beginning.

        Args:
            settings: the user's wishes; the mode counts as Auto, since that is what is asked about.
            watch: told of each decision; None: nobody is.
        """
        self._settings = replace(settings, mode=TuningMode.AUTO)
        self._watch = watch
        self._tokens = clamped(settings.tokens, settings)
        self._state = TuningState()
        self._depths = RecordedDepths.at_start(self._tokens, settings.max_batch)
        self._newest: dict[str, PodCounters] = {}
        self._seen_since_s: dict[str, float] = {}
        self._document = DepthDocument(
            generation=0, schedule=flat(self._tokens, settings.max_batch)
        )
        self._document_since_s = 0.0
        self._unplugged = Unplugged()
        self._first_s = self._last_s = self._next_s = 0.0
        self._looks = self._restarts = self._asked = self._ready = 0
        self._gaps: list[Gap] = []
        self._windows: list[Window] = []
        self._chronicle = Chronicle()

    def take(self, look: PodCounters) -> None:
        """Take in one look; the tuner is asked about each window that it completes.

        Raises:
            ValueError: it is older than the one before.
        """
        if look.at_s < self._last_s:
            raise ValueError(f"{look.pod} at {look.at_s} comes after a scrape at {self._last_s}")
        if not self._looks:
            self._first_s = look.at_s
            self._next_s = look.at_s + self._settings.window_seconds
        while look.at_s >= self._next_s:
            self._ask(self._next_s)
            self._next_s += self._settings.window_seconds
            if not self._fresh(self._next_s) and look.at_s > self._next_s:
                self._gaps.append(Gap(self._last_s, look.at_s))
                self._next_s = look.at_s + self._settings.window_seconds
        self._note(look)

    def result(self) -> ReplayResult | None:
        """What came of it; None: there was no look at all."""
        if not self._looks:
            return None
        self._ask(self._last_s)
        settings = self._settings
        deepest = estimate.deepest_of(self._windows, self._tokens, self._settings.max_tokens)

        def compared(to: estimate.Depth, start: estimate.Depth) -> Estimate | None:
            times = self._state.step_times
            return estimate.estimate(self._windows, times, deepest, to, start)

        return ReplayResult(
            recorded=Recorded(
                from_s=self._first_s,
                to_s=self._last_s,
                looks=self._looks,
                pods=tuple(sorted(self._seen_since_s)),
                restarts=self._restarts,
                gaps=tuple(self._gaps),
            ),
            settings=self._settings,
            windows=self._asked,
            decisions=tuple(self._chronicle.decisions),
            holds=self._chronicle.holds,
            alarms=self._chronicle.alarms,
            over_recorded=compared(estimate.wanted, estimate.recorded),
            over_tokens=compared(estimate.wanted, estimate.at(self._tokens)),
            recorded_over_tokens=compared(estimate.recorded, estimate.at(self._tokens)),
            best_over_recorded=compared(
                estimate.best_of(range(settings.min_tokens, settings.max_tokens + 1)),
                estimate.recorded,
            ),
            explanation=explain(
                self._state, self._settings, self._document, self._last_s, pods=self._ready
            ),
            left_out=tuple(_left_out(self._windows, settings)),
            unplugged=self._unplugged.sentence(),
        )

    def _note(self, look: PodCounters) -> None:
        before = self._newest.get(look.pod)
        if before is not None and before.started_at_s + CLOCK_TOLERANCE_S < look.started_at_s:
            self._restarts += 1
        self._unplugged.take(before, look)
        # The document is inferred from what ran: no engine shows the hash of that.
        self._newest[look.pod] = replace(look, schedule_hash=0)
        self._seen_since_s.setdefault(look.pod, look.at_s)
        self._last_s = look.at_s
        self._looks += 1

    def _fresh(self, now_s: float) -> tuple[PodCounters, ...]:
        """The newest look at each pod that is not gone."""
        stale_s = self._settings.stale_after_s
        return tuple(each for each in self._newest.values() if now_s - each.at_s <= stale_s)

    def _ask(self, now_s: float) -> None:
        """Ask the tuner about one moment. Pods without the plugin tell it nothing."""
        looks = tuple(each for each in self._fresh(now_s) if each.live_depth or each.cells)
        if not looks:
            return
        pods = tuple(self._pod(each, now_s) for each in looks)
        snapshot = self._snapshot(pods, now_s)
        deltas = learn(snapshot).deltas
        self._depths = self._depths.updated(deltas)
        self._document = self._recorded_document(looks, now_s)
        deviating = self._depths.deviating
        pods = tuple(replace(pod, pinned_depth=deviating.get(pod.name)) for pod in pods)
        decision = decide(replace(snapshot, pods=pods, document=self._document))
        self._asked += 1
        self._ready = len(pods)
        self._state = self._after(decision, now_s)
        self._chronicle.add(decision, self._document, now_s)
        if self._watch is not None:
            self._watch(decision, self._document, now_s)
        loads = tuple(
            BusyTime(cell.batch_le, cell.depth, counts.step_seconds)
            for delta in deltas
            for cell, counts in delta.cells.items()
        )
        if loads:
            wanted = depths_of(decision.document.schedule, self._settings.max_batch)
            state = decision.state
            self._windows.append(
                Window(
                    at_s=now_s,
                    survival=state.survival,
                    traffic=state.traffic,
                    loads=loads,
                    wanted=wanted,
                )
            )

    def _after(self, decision: TuningDecision, now_s: float) -> TuningState:
        """The state to go on with.

        A probe was not made and taught nothing, but it counts as having taken its time: else it
        would be asked for again and again, without the rest that follows one.
        """
        if decision.action is not Action.PROBE:
            return decision.state
        return replace(
            decision.state,
            probe=None,
            probe_ended_at_s=now_s,
            probe_lasted_s=planned_s(self._settings),
        )

    def _pod(self, look: PodCounters, now_s: float) -> TunedPod:
        since_s = look.started_at_s or self._seen_since_s[look.pod]
        return TunedPod(
            name=look.pod, ready=True, ready_for_s=max(0.0, now_s - since_s), counters=look
        )

    def _snapshot(self, pods: tuple[TunedPod, ...], now_s: float) -> TuningSnapshot:
        return TuningSnapshot(
            now_s=now_s,
            settings=self._settings,
            pods=pods,
            document=self._document,
            document_written_at_s=self._document_since_s,
            live_refusal=None,
            state=self._state,
        )

    def _recorded_document(self, looks: tuple[PodCounters, ...], now_s: float) -> DepthDocument:
        """The document that must have been in force, as far as can be told by its effects."""
        settings = self._settings
        depths = {bucket: clamped(each, settings) for bucket, each in self._depths.depths.items()}
        generation = max(each.depth_generation for each in looks)
        if generation != self._document.generation or not self._document_since_s:
            self._document_since_s = now_s
        return DepthDocument(
            generation=generation,
            schedule=schedule_of(depths, settings.max_batch),
            pods={
                each.pod: flat(
                    clamped(self._depths.deviating[each.pod], settings), settings.max_batch
                )
                for each in looks
                if each.pod in self._depths.deviating
            },
        )


def _left_out(windows: Iterable[Window], settings: Settings) -> Iterator[str]:
    loads = [load for window in windows for load in window.loads]
    largest = max(buckets(settings.max_batch))
    beyond = max((load.bucket for load in loads if load.bucket > largest), default=None)
    if beyond is not None:
        yield (
            f"Steps at batches above {largest} are not judged, up to {beyond} were seen: give "
            "--max-batch as the engine's --max-num-seqs."
        )
    outside = {
        load.depth for load in loads if not settings.min_tokens <= load.depth <= settings.max_tokens
    }
    if outside:
        yield (
            f"Engines ran depth {', '.join(map(str, sorted(outside)))}, outside of "
            f"{settings.min_tokens} to {settings.max_tokens}: the tuner was asked as if they ran "
            "the nearest allowed one. Give --min-tokens or --max-tokens to allow more."
        )
