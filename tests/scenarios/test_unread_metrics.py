"""Why metrics cannot be read stands in the status and in the log, once."""

from collections.abc import Sequence

import structlog

from fathom.adapters.ports import PodEndpoint, Sample
from fathom.measurement.counters import FORGOTTEN_AFTER_S, Unread, UnreadKind
from fathom.reconcile.last_status import QUIET_S
from support.loop_harness import FakeMetrics, LoopHarness

CAUSE = "Prometheus at prometheus:9090 cannot be read: it answers with HTTP status 503"


class Failing(FakeMetrics):
    """Metrics that cannot be read of the first so many pods, always or at every other look."""

    pods = 0
    every = 1
    looks = 0
    kind = UnreadKind.NO_ANSWER

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        self.looks += 1
        failing = sorted(pod.pod for pod in pods)[
            : self.pods if self.looks % self.every == 0 else 0
        ]
        read = await super().sample([pod for pod in pods if pod.pod not in failing])
        unread = tuple(Unread(pod, CAUSE, self.kind) for pod in failing)
        return Sample(read.counters, unread)


def failing(harness: LoopHarness) -> Failing:
    metrics = harness.metrics = Failing(harness.clock)
    harness.restart()
    return metrics


def message(harness: LoopHarness) -> str:
    return str(harness.condition("Tuning")["message"])


async def test_the_tuning_condition_names_pods_and_cause(harness: LoopHarness) -> None:
    metrics = failing(harness)
    metrics.pods = 1
    await harness.run_for(4 * QUIET_S)

    assert message(harness).endswith(f" ({CAUSE}).")
    assert "Metrics not read: kimi-" in message(harness)
    assert message(harness).startswith("no requests, nothing to measure. ")
    assert harness.condition("Tuning")["reason"] == "NoTraffic"


async def test_all_pods_unread_is_told_with_the_cause(harness: LoopHarness) -> None:
    failing(harness).pods = 2
    await harness.run_for(4 * QUIET_S)

    assert harness.condition("Tuning")["reason"] == "NoMetrics"
    assert message(harness).count("kimi-") == 2
    # The cause comes first.
    assert message(harness).startswith("Metrics not read: kimi-")
    assert CAUSE in message(harness)


async def test_a_prometheus_that_refuses_the_operator_has_a_reason_of_its_own(
    harness: LoopHarness,
) -> None:
    metrics = failing(harness)
    metrics.pods, metrics.kind = 2, UnreadKind.REFUSED
    await harness.run_for(4 * QUIET_S)

    assert harness.condition("Tuning")["reason"] == "MetricsRefused"
    assert harness.status["tuning"]["summary"].endswith("/MetricsRefused")

    metrics.pods = 1
    await harness.run_for(4 * QUIET_S)

    assert harness.condition("Tuning")["reason"] == "NoTraffic"


async def test_what_fails_now_and_then_is_written_once(harness: LoopHarness) -> None:
    metrics = failing(harness)
    metrics.pods, metrics.every = 1, 2
    metrics.generation = 0  # who obeys is another matter: of who cannot be read it is not known
    await harness.run_for(6 * QUIET_S)
    told = message(harness)
    harness.kube.writes.clear()
    await harness.run_for(20 * QUIET_S)

    assert CAUSE in told
    assert message(harness) == told
    assert harness.kube.news == []


async def test_what_can_be_read_again_is_no_longer_told(harness: LoopHarness) -> None:
    metrics = failing(harness)
    metrics.pods = 1
    await harness.run_for(4 * QUIET_S)
    metrics.pods = 0
    await harness.run_for(FORGOTTEN_AFTER_S + 3 * QUIET_S)

    assert message(harness) == "no requests, nothing to measure."


async def test_the_log_says_it_once_and_when_it_is_over(harness: LoopHarness) -> None:
    with structlog.testing.capture_logs() as logs:
        metrics = failing(harness)
        metrics.pods = 1
        await harness.run_for(20 * QUIET_S)
        metrics.pods = 0
        await harness.run_for(FORGOTTEN_AFTER_S + 3 * QUIET_S)

    (told,) = [each for each in logs if each["event"] == "metrics not read"]
    assert CAUSE in told["why"]
    assert (told["namespace"], told["name"], told["log_level"]) == ("llm", "kimi", "warning")
    said = [each["event"] for each in logs]
    assert (said.count("metrics are read again"), said[-1]) == (1, "metrics are read again")
