"""The chart's alerts by Prometheus' own tool: when each fires, and when it does not."""

import re
import subprocess
from pathlib import Path

import yaml

from local_cluster.prometheus import find_promtool
from support.monitoring import RULES, alerts
from support.waiting import GUARD_S

TESTS = sorted((Path(__file__).parent / "rules").glob("*.yaml"))


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(
        [find_promtool(), *arguments], capture_output=True, text=True, timeout=GUARD_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_rules() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)


def test_they_fire_when_they_should_and_at_no_other_time() -> None:
    promtool("test", "rules", *TESTS)


def test_each_alert_is_seen_to_fire() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in TESTS)
    assert {*re.findall(r'alertname="(\w+)", alertstate="firing"', shown)} == alerts().keys()


def test_each_file_of_rules_has_moments_at_which_nothing_fires() -> None:
    for path in TESTS:
        scenarios = yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
        moments = [each for scenario in scenarios for each in scenario["promql_expr_test"]]
        assert any("exp_samples" not in each for each in moments), path.name
    assert [path.name for path in TESTS] == [path.name for path in RULES]
