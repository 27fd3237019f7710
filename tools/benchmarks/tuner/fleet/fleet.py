"""Our tuner in the loop: pods that serve and count, a document, and the time."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from benchmarks.tuner.course.course import WorldCourse
from benchmarks.tuner.course.drawing import generator
from benchmarks.tuner.course.wear import wear
from benchmarks.tuner.fleet.engine import CourseEngine
from benchmarks.tuner.fleet.load import Batch, CourseLoad
from benchmarks.tuner.fleet.normals import normals
from benchmarks.tuner.fleet.plant import CoursePlant, CourseWork
from benchmarks.tuner.outcome import AlarmRaised, CourseOutcome, Logged
from fathom.api.conditions import AlarmKind
from fathom.engine.depth import DepthDocument, Schedule, depth_at, flat
from fathom.engine.report import ServedPair
from fathom.measurement.counters import PodCounters
from fathom.tuning.interface import Settings, TunedPod, TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import TuningState
from fathom.tuning.tuner import decide

EPOCH_S = 1_750_032_000.0
"""Unix time at which every course begins: a midnight."""
_LEAST_WAKE_S = 1.0
_PAIR = ServedPair(target="target", draft="draft", engine="engine", commits=True)
"""One for good: where a world's draft stops fitting, nothing has changed."""
Tuner = Callable[[TuningSnapshot], TuningDecision]


@dataclass
class CoursePod:
    """One replica: its engine, and the depths it runs."""

    replica: int
    engine: CourseEngine
    schedule: Schedule
    depths: list[int]
    """By batch."""
    started_s: float
    ready_since_s: float
    generation: int = 0
    served_until_s: float = 0.0
    due: list[tuple[float, DepthDocument]] = field(default_factory=list)
    """Documents on their way, and when they arrive."""
    shown: PodCounters | None = None
    """The newest scrape."""
    next_scrape_s: float = 0.0

    def run(self, schedule: Schedule, max_batch: int) -> None:
        if schedule != self.schedule:
            self.schedule = schedule
            self.depths = by_batch(schedule, max_batch)


def by_batch(schedule: Schedule, max_batch: int) -> list[int]:
    """Depth at every batch from 0, where nothing runs."""
    return [0, *(depth_at(schedule, batch) for batch in range(1, max_batch + 1))]


class CourseFleet:
    """Time, tick by tick; depth follows the document within seconds, without a restart."""

    def __init__(
        self,
        course: WorldCourse,
        load: CourseLoad,
        settings: Settings,
        name: str,
        tuner: Tuner = decide,
    ) -> None:
        self.tuner = tuner
        self.course = course
        self.load = load
        self.settings = settings
        self.plant = CoursePlant.of(course)
        self.random = Random(f"{course.world.name} {course.seed} {name}")  # noqa: S311 - no secret
        self.normals = normals(generator(course.world, course.seed, f"counts of {name}"))
        self.now_s = 0.0
        self.tick = 0
        self.wake_s = 0.0
        self.document: DepthDocument | None = None
        self.written_s = 0.0
        self.state = TuningState()
        self.tokens = np.zeros((course.clock.ticks, course.replicas))
        self.depth = np.zeros((course.clock.ticks, course.replicas), dtype=np.int64)
        self.batch = np.zeros_like(self.depth)
        self.actions: Counter[str] = Counter()
        self.log: list[Logged] = []
        self.standing: frozenset[AlarmKind] = frozenset()
        self.raised: list[AlarmRaised] = []
        self.started_s: list[list[float]] = course.started_s.tolist()
        self.ready_since_s: list[list[float]] = course.ready_since_s.tolist()
        self.present: list[list[bool]] = course.present.tolist()
        self.serving: list[list[bool]] = course.serving.tolist()
        self.missing: list[list[bool]] = course.missing.tolist()
        self.frozen: list[list[bool]] = course.frozen.tolist()
        self.batches: list[Batch] = []
        self.busy: list[float | None] = []
        """Share of the tick that each replica works, once it is known."""
        self.made: list[float] = []
        self.pods = [self._new_pod(replica) for replica in range(course.replicas)]

    def run(self) -> CourseOutcome:
        """Live through the course."""
        for tick in range(self.course.clock.ticks):
            self._live_through(tick)
        return self.outcome()

    def outcome(self) -> CourseOutcome:
        return CourseOutcome(
            tokens=self.tokens,
            depth=self.depth,
            batch=self.batch,
            request_seconds=self.load.request_seconds,
            actions=dict(self.actions),
            alarms=tuple(self.raised),
            log=tuple(self.log),
        )

    def _live_through(self, tick: int) -> None:
        self.tick = tick
        end_s = (tick + 1) * self.course.clock.tick_s
        self._renew()
        self._act()
        self._take_up_load()
        while self.now_s < end_s:
            if self.now_s >= self.wake_s:
                self._decide()
            self.now_s = min(end_s, max(self.now_s, min(self.wake_s, self._next_act_s())))
            if self.now_s < end_s:
                self._act()
        for pod in self.pods:
            self.serve(pod)
            running = self.batches[pod.replica].running
            self.batch[tick, pod.replica] = running
            self.depth[tick, pod.replica] = pod.depths[running]
            self.load.served(pod.replica, self.made[pod.replica])

    def _take_up_load(self) -> None:
        self.batches = self.load.batches(self.tick, [self._is_up(pod) for pod in self.pods])
        self.made = [0.0] * len(self.pods)
        self.busy = [None] * len(self.pods)

    def _work(self, pod: CoursePod, batch: Batch) -> CourseWork:
        fades = self.course.decays
        return self.plant.work(
            self.tick,
            pod.replica,
            batch.running,
            pod.depths[batch.running],
            wear=wear(fades, self.tick * self.course.clock.tick_s, pod.started_s) if fades else 1.0,
            lost=batch.lost,
        )

    def serve(self, pod: CoursePod) -> None:
        """Let a pod work up to now."""
        seconds = self.now_s - pod.served_until_s
        batch = self.batches[pod.replica]
        pod.served_until_s = self.now_s
        if seconds <= 0 or batch.running == 0:
            return
        work = self._work(pod, batch)
        busy = self.busy[pod.replica]
        if busy is None:
            busy = self.busy[pod.replica] = self.load.busy_share(batch, pod.replica, work)
        seconds *= busy
        self.tokens[self.tick, pod.replica] += work.rate * seconds
        self.made[pod.replica] += work.rate * seconds
        pod.engine.serve(work, seconds, self.plant.prefill_s)

    def _new_pod(self, replica: int) -> CoursePod:
        """The pod that is this replica from this tick on: at the newest document from the start."""
        course, most = self.course, self.settings.max_batch
        started_s = self.started_s[self.tick][replica]
        name = f"pod-{replica}-{course.life[self.tick, replica]}"
        schedule = (
            flat(self.settings.tokens, most)
            if self.document is None
            else self.document.for_pod(name)
        )
        return CoursePod(
            replica=replica,
            engine=self.new_engine(name, started_s),
            schedule=schedule,
            depths=by_batch(schedule, most),
            started_s=started_s,
            ready_since_s=self.ready_since_s[self.tick][replica],
            generation=self.document.generation if self.document else 0,
            served_until_s=self.now_s,
        )

    def new_engine(self, pod: str, started_s: float) -> CourseEngine:
        return CourseEngine(
            pod=pod,
            started_at_s=EPOCH_S + started_s,
            noise=self.course.world.noise,
            traffic=self.course.world.traffic,
            normals=self.normals,
        )

    def _renew(self) -> None:
        """Engines that restarted by themselves, and pods that came."""
        if self.tick == 0 or self.started_s[self.tick] == self.started_s[self.tick - 1]:
            return
        before = self.started_s[self.tick - 1]
        for replica, started_s in enumerate(self.started_s[self.tick]):
            if started_s != before[replica]:
                self.pods[replica] = self._new_pod(replica)

    def _decide(self) -> None:
        decision = self.tuner(self._snapshot())
        self.state = decision.state
        self.actions[decision.action.value] += 1
        self._note(decision)
        if decision.document != self.document:
            self.document = decision.document
            self.written_s = self.now_s
            self._carry_out(decision.document)
        self.wake_s = self.now_s + max(_LEAST_WAKE_S, decision.wake_after_s)

    def _carry_out(self, document: DepthDocument) -> None:
        for pod in self.pods:
            delay_s = self.random.uniform(*self.course.world.fleet.delivery_seconds)
            # A later document never arrives first: the volume holds one at a time.
            arrives_s = max([self.now_s + delay_s, *(at_s for at_s, _ in pod.due)])
            pod.due.append((arrives_s, document))

    def _act(self) -> None:
        for pod in self.pods:
            if pod.due and pod.due[0][0] <= self.now_s:
                self._deliver(pod)

    def _deliver(self, pod: CoursePod) -> None:
        if self.course.deaf[self.tick, pod.replica]:
            pod.due = [(self.now_s + self.course.clock.tick_s, pod.due[-1][1])]
            return
        self.serve(pod)
        _, document = pod.due.pop(0)
        pod.generation = document.generation
        pod.run(document.for_pod(pod.engine.pod), self.settings.max_batch)

    def _next_act_s(self) -> float:
        return min((pod.due[0][0] for pod in self.pods if pod.due), default=float("inf"))

    def _is_up(self, pod: CoursePod) -> bool:
        return self.serving[self.tick][pod.replica]

    def _note(self, decision: TuningDecision) -> None:
        document = decision.document
        self.log.append(
            Logged(
                at_s=self.now_s,
                action=decision.action.value,
                reason=decision.reason.value,
                message=decision.message,
                document=document,
            )
        )
        self.raised += [
            AlarmRaised(each.kind, each.reason, self.now_s)
            for each in decision.alarms
            if each.kind not in self.standing
        ]
        self.standing = frozenset(each.kind for each in decision.alarms)

    def _snapshot(self) -> TuningSnapshot:
        return TuningSnapshot(
            now_s=EPOCH_S + self.now_s,
            settings=self.settings,
            pods=tuple(
                self._seen(pod) for pod in self.pods if self.present[self.tick][pod.replica]
            ),
            document=self.document,
            document_written_at_s=EPOCH_S + self.written_s,
            live_refusal=None,
            state=self.state,
            pair=_PAIR,
        )

    def _seen(self, pod: CoursePod) -> TunedPod:
        ready = self._is_up(pod)
        return TunedPod(
            name=pod.engine.pod,
            ready=ready,
            ready_for_s=max(0.0, self.now_s - pod.ready_since_s) if ready else 0.0,
            counters=self._look(pod) if ready else None,
        )

    def _look(self, pod: CoursePod) -> PodCounters | None:
        """What a reader of this pod's metrics gets now."""
        noise = self.course.world.noise
        if self.missing[self.tick][pod.replica] or self.random.random() < noise.scrape_failures:
            return None
        stuck = self.frozen[self.tick][pod.replica] or self.now_s < pod.next_scrape_s
        if stuck and pod.shown is not None:
            return pod.shown
        self.serve(pod)
        error_s = noise.clock_error_s * self.random.gauss(0.0, 1.0)
        pod.shown = pod.engine.counters(
            EPOCH_S + self.now_s + error_s,
            generation=pod.generation,
            live_depth=True,
            batch=self.batches[pod.replica],
        )
        pod.next_scrape_s = self.now_s + noise.scrape_seconds
        return pod.shown
