"""`fathom local traffic`: what it tells, and that it needs a cluster. For real: tests/e2e."""

import pytest
from typer.testing import CliRunner

from local_cluster.cli import app
from local_cluster.demo.traffic_command import told_line
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.traffic import Phase, TrafficSummary

NO_CLUSTER = {"KUBECONFIG": "/nonexistent"}


@pytest.mark.parametrize(
    ("phase", "told", "error", "line"),
    [
        (
            Phase(EASY, 4),
            TrafficSummary(requests=85, failed=0, tokens=8160, seconds=10.0),
            "",
            "easy × 4: 816 tokens per second, 85 requests, none failed",
        ),
        (
            Phase(HARD, 1),
            TrafficSummary(requests=3, failed=2, tokens=96, seconds=10.0),
            "HTTP 503: starting",
            "hard × 1: 10 tokens per second, 3 requests, 2 failed, such as: HTTP 503: starting",
        ),
    ],
)
def test_what_came_of_some_seconds_is_one_line(
    phase: Phase, told: TrafficSummary, error: str, line: str
) -> None:
    assert told_line(phase, told, error) == line


def test_without_a_cluster_it_says_so() -> None:
    ran = CliRunner().invoke(app, ["traffic", "eagle", "-n", "llm"], env=NO_CLUSTER)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "KUBECONFIG names /nonexistent, which does not exist" in ran.stderr
