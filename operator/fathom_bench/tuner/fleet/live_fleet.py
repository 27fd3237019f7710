"""Depth that is live: engines adopt a document seconds after it was written."""

from fathom.core.depth import DepthDocument
from fathom_bench.tuner.fleet.fleet import CourseFleet, CoursePod


class LiveFleet(CourseFleet):
    """Depth follows the document within seconds, without a restart."""

    live_depth = True

    def carry_out(self, document: DepthDocument) -> None:
        for pod in self.pods:
            delay_s = self.random.uniform(*self.course.world.fleet.delivery_seconds)
            # A later document never arrives first: the volume holds one at a time.
            arrives_s = max([self.now_s + delay_s, *(at_s for at_s, _ in pod.due)])
            pod.due.append((arrives_s, document))

    def act(self) -> None:
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

    def next_act_s(self) -> float:
        return min((pod.due[0][0] for pod in self.pods if pod.due), default=float("inf"))

    def is_up(self, pod: CoursePod) -> bool:
        return self.serving[self.tick][pod.replica]
