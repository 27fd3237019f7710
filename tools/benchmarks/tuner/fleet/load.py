"""How many requests each replica has in flight, tick by tick."""

from dataclasses import dataclass
from math import exp, floor
from typing import Protocol

from benchmarks.tuner.course.course import WorldCourse
from benchmarks.tuner.fleet.plant import CourseWork


@dataclass(frozen=True, slots=True)
class Batch:
    """What one replica serves during one tick."""

    running: int
    lost: float = 0.0
    """Share of the time lost to preemption."""
    waiting: float = 0.0
    kv_usage: float = 0.0


class CourseLoad(Protocol):
    @property
    def request_seconds(self) -> float | None:
        """Time that requests spent in flight, waiting included; None: closed traffic."""
        ...

    def batches(self, tick: int, up: list[bool]) -> list[Batch]:
        """Each replica's batch in a tick, given which replicas serve."""
        ...

    def busy_share(self, batch: Batch, replica: int, work: CourseWork) -> float:
        """Share of the tick that a replica needs for what there is to do."""
        ...

    def served(self, replica: int, tokens: float) -> None:
        """So many tokens were made in the tick."""
        ...


def admitted(course: WorldCourse, wanted: float, context: float) -> Batch:
    """What runs of what is wanted: within the engine's batch and the KV cache."""
    traffic = course.world.traffic
    wanted = min(wanted, course.world.fleet.max_batch)
    fits = max(1.0, traffic.kv_tokens / context)
    running = min(int(wanted), floor(fits))
    lost = traffic.preemption_cost * min(1.0, max(0.0, wanted / fits - 1))
    return Batch(running, lost, kv_usage=min(1.0, running / fits))


@dataclass
class ClosedLoad:
    """The course's own batches; what a replica that is down leaves behind goes to the others."""

    course: WorldCourse
    request_seconds: None = None

    def __post_init__(self) -> None:
        self.wanted: list[list[int]] = self.course.wanted.tolist()
        self.demand: list[list[float]] = self.course.demand.tolist()
        self.serving: list[list[bool]] = self.course.serving.tolist()
        self.context: list[float] = self.course.context.tolist()

    def batches(self, tick: int, up: list[bool]) -> list[Batch]:
        wanted: list[float] = list(self.wanted[tick])
        if up != self.serving[tick]:
            demand = self.demand[tick]
            left = sum(each for each, is_up in zip(demand, up, strict=True) if is_up)
            more = sum(demand) / left if left > 0 else 0.0
            wanted = [
                round(each * more) if is_up else 0 for each, is_up in zip(demand, up, strict=True)
            ]
        return [admitted(self.course, each, self.context[tick]) for each in wanted]

    def busy_share(self, batch: Batch, replica: int, work: CourseWork) -> float:
        del batch, replica, work
        return 1.0

    def served(self, replica: int, tokens: float) -> None:
        """The next request is there at once."""
        del replica, tokens


@dataclass
class OpenLoad:
    """Requests arrive whatever is served: a queue per replica, as a fluid.

    Within a tick each request is served at the speed of the tick's first batch m, so that the
    number in flight follows x' = a - m·x: x(t) = a/m + (x0 - a/m)·exp(-m·t).
    """

    course: WorldCourse
    request_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.arrivals: list[list[float]] = self.course.arrivals.tolist()
        self.context: list[float] = self.course.context.tolist()
        self.flight = [0.0] * self.course.replicas
        """Requests in flight, those that wait included."""
        self.arriving = [0.0] * self.course.replicas
        self.turned_away = 0.0

    def batches(self, tick: int, up: list[bool]) -> list[Batch]:
        traffic, most = self.course.world.traffic, self.course.world.fleet.max_batch
        self.arriving = _rerouted(self.arrivals[tick], up)
        result = []
        for replica, flight in enumerate(self.flight):
            if not up[replica]:
                result.append(Batch(0, waiting=flight))
                continue
            wanted = max(1.0, round(flight)) if flight + self.arriving[replica] > 0 else 0.0
            batch = admitted(self.course, wanted, self.context[tick])
            waiting = max(0.0, flight - batch.running)
            over = max(0.0, flight - most - traffic.queue_limit)
            self.flight[replica] -= over
            self.turned_away += over
            result.append(Batch(batch.running, batch.lost, waiting, batch.kv_usage))
        return result

    def busy_share(self, batch: Batch, replica: int, work: CourseWork) -> float:
        seconds, output = self.course.clock.tick_s, self.course.world.traffic.output_tokens
        x0, arriving = self.flight[replica], self.arriving[replica]
        per_request = work.rate / output / max(x0, batch.running, 1e-9)
        rest = arriving / seconds / per_request
        x1 = rest + (x0 - rest) * exp(-per_request * seconds)
        return min(1.0, max(0.0, x0 + arriving - x1) * output / (work.rate * seconds))

    def served(self, replica: int, tokens: float) -> None:
        done = tokens / self.course.world.traffic.output_tokens
        before = self.flight[replica]
        after = max(0.0, before + self.arriving[replica] - done)
        self.request_seconds += (before + after) / 2 * self.course.clock.tick_s
        self.flight[replica] = after


def _rerouted(arriving: list[float], up: list[bool]) -> list[float]:
    """What would arrive at replicas that are down goes to the others in equal parts."""
    down = sum(each for each, is_up in zip(arriving, up, strict=True) if not is_up)
    if not down or not any(up):
        return arriving
    more = down / sum(up)
    return [each + more if is_up else 0.0 for each, is_up in zip(arriving, up, strict=True)]
