"""The operator's own metrics."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from socket import has_dualstack_ipv6
from typing import Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)

from fathom.api.conditions import AlarmKind, ConditionType, Reason
from fathom.api.status import GainedStatus, ReportedStatus, SpeculativeDeploymentStatus
from fathom.api.training import TrainingStatus
from fathom.cluster.kinds import ObjectKey
from fathom.engine.depth import DepthDocument
from fathom.times import is_over, unix_seconds
from fathom.training.record import AWAITS_PERSON
from fathom.tuning.estimate.reference import Reference

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_PRESENT_WINDOWS: Final = 4.0
"""A window with traffic that ended so many windows ago says nothing of the present."""
_NOTHING_GAINED: Final = GainedStatus(since="")


def _utilization(status: ReportedStatus, now_s: float) -> str:
    """Empty: unknown. `status.measured` is the last window with traffic, however long ago."""
    tuning, measured = status.condition(ConditionType.TUNING), status.measured
    if tuning is not None and tuning.reason == Reason.NO_TRAFFIC:
        return "0"
    at_s = unix_seconds(measured.at)
    if at_s is None or is_over(at_s, _PRESENT_WINDOWS * measured.window_seconds, now_s):
        return ""
    served, headroom = measured.tokens_per_second, measured.headroom_tokens_per_second
    if served is None or headroom is None or not served + headroom:
        return ""
    return str(served / (served + headroom))


def _shown(number: int | None) -> str:
    return "" if number is None else str(number)


def _training(status: ReportedStatus) -> TrainingStatus | None:
    return status.training if isinstance(status, SpeculativeDeploymentStatus) else None


def _training_hours(status: ReportedStatus) -> tuple[str, str]:
    """GPU hours begun within seven days, and allowed; empty: nothing was ever proposed."""
    training = _training(status)
    begun, _, allowed = training.gpu_hours_this_week.partition("/") if training else ("", "", "")
    return begun, allowed


_Number = Callable[[ReportedStatus, float], str]
"""Takes a status and the time (Unix seconds). Empty: unknown."""
_NUMBERS: Final[tuple[tuple[str, str, _Number], ...]] = (
    (
        "fathom_gain_percent",
        "Tokens per second over what `tokens` would give, percent, as measured.",
        lambda status, _: status.measured.gain_percent,
    ),
    (
        "fathom_headroom_tokens_per_second",
        "Tokens per second that the ready replicas could at least serve in addition.",
        lambda status, _: _shown(status.measured.headroom_tokens_per_second),
    ),
    (
        "fathom_utilization",
        "Tokens per second over what the ready replicas could at least serve, 0 to 1.",
        _utilization,
    ),
    (
        "fathom_tokens_per_step",
        "Tokens that a request got in one decode step, those without drafts included.",
        lambda status, _: status.measured.tokens_per_step,
    ),
    (
        "fathom_gained_gpu_hours",
        "GPU hours that `tokens` would have taken longer, since this was first measured.",
        lambda status, _: (status.gained or _NOTHING_GAINED).gpu_hours,
    ),
    (
        "fathom_gained_gpu_hours_error",
        "Half the width of the 95 % interval of fathom_gained_gpu_hours.",
        lambda status, _: (status.gained or _NOTHING_GAINED).error_gpu_hours,
    ),
    (
        "fathom_measured_gpu_hours",
        "Busy GPU hours of which fathom_gained_gpu_hours is the sum.",
        lambda status, _: (status.gained or _NOTHING_GAINED).measured_gpu_hours,
    ),
    (
        "fathom_unmeasured_gpu_hours",
        "Busy GPU hours in which the gain was not measured.",
        lambda status, _: (status.gained or _NOTHING_GAINED).unmeasured_gpu_hours,
    ),
    (
        "fathom_training_gpu_hours",
        "GPU hours of trainings that were begun within seven days, at most.",
        lambda status, _: _training_hours(status)[0],
    ),
    (
        "fathom_training_gpu_hours_allowed",
        "GPU hours of trainings that may be begun within seven days.",
        lambda status, _: _training_hours(status)[1],
    ),
)
"""What of a status is a number: its metric, what that means, where it stands."""
_Metric = TypeVar("_Metric", Counter, Gauge)


def _labels(key: ObjectKey) -> tuple[str, str, str]:
    """Labels of each series of a resource: two kinds may have one name."""
    return key.kind.kind, key.namespace, key.name


def _by_name(key: ObjectKey) -> dict[str, str]:
    return dict(zip(("resource", "namespace", "name"), _labels(key), strict=True))


class Telemetry:
    """One registry per operator, so that two in one process do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "fathom_reconcile_seconds",
            "Time that one reconcile of one resource takes.",
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self._leader = Gauge(
            "fathom_leader",
            "1 while this operator acts, 0 while it stands by.",
            registry=self.registry,
        )
        self._of_resources: list[Counter | Gauge] = []
        self._errors = self._of_a_resource(
            Counter, "fathom_reconcile_errors_total", "Passes that could not be finished."
        )
        self._decisions = self._of_a_resource(
            Counter,
            "fathom_decisions_total",
            "Decisions of the tuner, those to hold included.",
            "action",
            "reason",
        )
        self._writes = self._of_a_resource(
            Counter, "fathom_writes_total", "Writes to the API server.", "kind", "verb"
        )
        self._depth = self._of_a_resource(
            Gauge,
            "fathom_depth",
            "Depth that is asked for, at the smallest and at the largest batch.",
            "batch",
        )
        self._alarms = self._of_a_resource(
            Gauge, "fathom_alarm", "1 while an alarm is active.", "alarm"
        )
        self._of_reference = self._of_a_resource(
            Gauge,
            "fathom_acceptance_of_reference",
            "Acceptance of the first draft token on the last day, over that on the draft's first.",
        )
        self._conditions = self._of_a_resource(
            Gauge,
            "fathom_condition",
            "1 for each condition, with its present status and reason.",
            "type",
            "status",
            "reason",
        )
        self._pod = self._of_a_resource(
            Gauge, "fathom_pod", "1 for each pod whose engine the resource reads.", "pod"
        )
        self._training = self._of_a_resource(
            Gauge,
            "fathom_training_awaits_person",
            "1 while the training of a draft waits for a person, with its present phase; else 0.",
            "phase",
        )
        self._shown: dict[ObjectKey, dict[Gauge, Collection[tuple[str, ...]]]] = defaultdict(dict)
        self._numbers = {name: self._of_a_resource(Gauge, name, text) for name, text, _ in _NUMBERS}
        self._overdue = self._of_a_resource(
            Gauge,
            "fathom_reconcile_overdue_seconds",
            "Seconds since the next reconcile should have begun.",
        )

    def serve(self, port: int) -> None:
        """Serve /metrics at every address of this pod: it may have IPv4 alone, or IPv6 alone."""
        ProcessCollector(registry=self.registry)
        every = "::" if has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - a pod's own addresses
        start_http_server(port, every, registry=self.registry)

    def _of_a_resource(self, kind: type[_Metric], name: str, text: str, *labels: str) -> _Metric:
        """A metric with a series, or one for each value of these labels, for each resource."""
        metric = kind(
            name, text, ["resource", "namespace", "name", *labels], registry=self.registry
        )
        self._of_resources.append(metric)
        return metric

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time one pass."""
        with self._seconds.time():
            yield

    def failed(self, key: ObjectKey) -> None:
        self._errors.labels(*_labels(key)).inc()

    def decided(self, key: ObjectKey, action: str, reason: str) -> None:
        self._decisions.labels(*_labels(key), action, reason).inc()

    def wrote(self, key: ObjectKey, kind: str, verb: str) -> None:
        self._writes.labels(*_labels(key), kind, verb).inc()

    def alarms(self, key: ObjectKey, standing: Collection[AlarmKind]) -> None:
        for kind in AlarmKind:
            self._alarms.labels(*_labels(key), kind).set(kind in standing)

    def reference(self, key: ObjectKey, reference: Reference | None) -> None:
        """Show where acceptance is; nothing before a second day shows it."""
        ratio = reference.ratio if reference is not None else None
        if ratio is None:
            self._of_reference.remove_by_labels(_by_name(key))
        else:
            self._of_reference.labels(*_labels(key)).set(ratio)

    def depth(self, key: ObjectKey, document: DepthDocument) -> None:
        if not document.schedule:
            return
        labels = _labels(key)
        self._depth.labels(*labels, "smallest").set(document.schedule[0].depth)
        self._depth.labels(*labels, "largest").set(document.schedule[-1].depth)

    def reported(self, key: ObjectKey, status: ReportedStatus, now_s: float) -> None:
        """Show what one pass has to say, whether or not the API server takes it.

        Args:
            key: of the resource.
            status: as it is reported.
            now_s: Unix seconds.
        """
        training = _training(status)
        phase = {training.phase: training.phase in AWAITS_PERSON} if training else {}
        found = ((each.type, each.status, each.reason) for each in status.conditions)
        self._show(self._conditions, key, dict.fromkeys(found, True))
        self._show(self._training, key, {(each,): waits for each, waits in phase.items()})
        for name, _, number in _NUMBERS:
            try:
                value = float(number(status, now_s))
            except ValueError:
                # It is not known; or it was read of the cluster, where others may have written it.
                self._numbers[name].remove_by_labels(_by_name(key))
            else:
                self._numbers[name].labels(*_labels(key)).set(value)

    def pods(self, key: ObjectKey, present: Iterable[str]) -> None:
        """Show whose pods are whose: the name of a foreign one does not tell a query."""
        self._show(self._pod, key, {(pod,): True for pod in present})

    def _show(self, metric: Gauge, key: ObjectKey, series: Mapping[tuple[str, ...], bool]) -> None:
        """Show these series of a resource, by their own labels, and none that it had before."""
        for labels, value in series.items():
            metric.labels(*_labels(key), *labels).set(value)
        # Last, for a scrape comes at any moment: one without a condition would end its alert.
        for past in self._shown[key].get(metric, ()):
            if past not in series:
                metric.remove(*_labels(key), *past)
        self._shown[key][metric] = series.keys()

    def leads(self, holds: Callable[[], bool]) -> None:
        """Show whether this operator acts, as it says at each scrape."""
        self._leader.set_function(lambda: float(holds()))

    def looked_after(self, key: ObjectKey, overdue_s: Callable[[], float]) -> None:
        """Show how late the next pass over a resource is, as it says at each scrape."""
        self._overdue.labels(*_labels(key)).set_function(overdue_s)

    def forget(self, key: ObjectKey) -> None:
        """Drop the series of a resource that is gone."""
        self._shown.pop(key, None)
        for metric in self._of_resources:
            metric.remove_by_labels(_by_name(key))
