"""What `make test` says of a tier: which processes count, and what fails it."""

import subprocess
import sys

from maintenance.tier import over_budget
from support.waiting import GUARD_S

COMPUTES = "import time\nwhile time.process_time() < 0.5: pass"
DAEMON = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
"""


def tier(
    *command: str, budget: float = 100.0, patience_seconds: float = GUARD_S
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "maintenance.tier", "light"),
            *("--budget", str(budget), "--patience", str(patience_seconds), "--", *command),
        ],
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )


def test_within_its_budget_the_code_is_that_of_the_tests() -> None:
    assert tier("true").returncode == 0
    assert tier("sh", "-c", "exit 5").returncode == 5


def test_a_daemons_time_counts_and_twice_the_budget_fails_with_what_to_do() -> None:
    done = tier(sys.executable, "-c", DAEMON, COMPUTES, budget=0.01)
    assert done.returncode == 1
    assert "more than its budget of 0 by the Makefile" in done.stderr
    assert "share an engine or a cluster" in done.stderr


def test_what_is_over_its_budget_is_told_what_fails() -> None:
    assert over_budget("light", 100.0, 100.0) == ""
    said = over_budget("light", 150.0, 100.0)
    assert "took 150 CPU seconds, 50% more than its budget of 100 by the Makefile" in said
    assert "2 times the budget fails" in said


def test_what_is_left_running_is_ended_named_and_a_fault() -> None:
    forever = "import time; time.sleep(3600)"
    done = tier(sys.executable, "-c", DAEMON, forever, patience_seconds=0.5)
    assert done.returncode == 1
    assert "left processes running" in done.stderr
    assert "time.sleep(3600) (pid " in done.stderr


def test_each_line_of_the_tests_is_printed_whole_after_the_name_of_its_tier() -> None:
    lines = "echo one; printf two; echo '!' >&2"
    done = tier("sh", "-c", lines)
    assert done.stdout.splitlines() == ["light   | one", "light   | two!"]


def test_what_a_daemon_prints_last_is_not_lost() -> None:
    late = "import time; time.sleep(0.3); print('late')"
    assert "light   | late" in tier(sys.executable, "-c", DAEMON, late).stdout
