"""Depth by rollout: new pods carry a document out."""

from dataclasses import replace

from fathom.core.depth import DepthDocument, Schedule
from fathom.tuning.interface import Settings
from fathom.tuning.tuner import decide
from fathom_bench.tuner.course.course import WorldCourse
from fathom_bench.tuner.fleet.fleet import CourseFleet, CoursePod, Tuner
from fathom_bench.tuner.fleet.load import CourseLoad
from fathom_bench.tuner.outcome import CourseOutcome


class RolloutFleet(CourseFleet):
    """Depth is fixed for the life of an engine: a document is carried out by restarts, in turn."""

    live_depth = False

    def __init__(
        self,
        course: WorldCourse,
        load: CourseLoad,
        settings: Settings,
        name: str,
        tuner: Tuner = decide,
    ) -> None:
        self.restarting: CoursePod | None = None
        self.back_s = 0.0
        self.restarts: list[tuple[int, float]] = []
        self.schedules: list[tuple[float, Schedule]] = []
        super().__init__(course, load, settings, name, tuner)

    def outcome(self) -> CourseOutcome:
        return replace(
            super().outcome(), restarts=tuple(self.restarts), schedules=tuple(self.schedules)
        )

    def carry_out(self, document: DepthDocument) -> None:
        """The restarts follow one by one, in `act`."""
        first = not self.schedules
        if first or self.schedules[-1][1] != document.schedule:
            self.schedules.append((self.now_s, document.schedule))
        if first:
            for pod in self.pods:  # The engines start with the first document.
                pod.run(document.for_pod(pod.engine.pod), self.settings.max_batch)

    def act(self) -> None:
        if self.restarting is not None and self.now_s >= self.back_s:
            self.restarting = None
        if self.restarting is None and self.document is not None:
            self._restart_next(self.document)

    def _restart_next(self, document: DepthDocument) -> None:
        behind = [
            pod
            for pod in self.pods
            if self.is_up(pod) and pod.schedule != document.for_pod(pod.engine.pod)
        ]
        if not behind:
            return
        pod = min(behind, key=lambda each: (each.engine.pod not in document.pods, each.replica))
        low, high = self.course.world.fleet.restart_minutes
        self.back_s = self.now_s + 60 * self.random.uniform(low, high)
        self.restarting = pod
        self.restarts.append((pod.replica, self.now_s))
        pod.engine = self.new_engine(pod.engine.pod, self.now_s)
        pod.started_s, pod.ready_since_s, pod.shown = self.now_s, self.back_s, None
        pod.next_scrape_s = 0.0
        pod.run(document.for_pod(pod.engine.pod), self.settings.max_batch)

    def next_act_s(self) -> float:
        return self.back_s if self.restarting is not None else float("inf")

    def is_up(self, pod: CoursePod) -> bool:
        return self.serving[self.tick][pod.replica] and pod is not self.restarting
