"""Every check of a vLLM release that needs no GPU, and its row for docs/engines.md.

Run in the root of a checkout as `python -m maintenance.try_engine VERSION`. The checks are
tests of the engine tier. Ends with 1 where one of them fails, and says what to do about it.
"""

import argparse
import os
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from fathom.engine.capability_table import (
    ARCHITECTURES,
    EVERY_RELEASE,
    LIVE_DEPTH,
    TABLE,
    Capability,
)
from local_cluster.engine.environment import EngineEnvironmentError
from local_cluster.engine.releases import NEWEST_KNOWN, VARIABLE, known_as
from local_cluster.engine.sources import AskedEngine, ensure_asked_engine

_MOST_CHARACTERS: Final = 600
"""Characters of what one test says."""
_NOT_LIVE: Final = "depth is live in {versions}, and not here"
_BEFORE: Final = (
    "or end LIVE_DEPTH in operator/fathom/engine/capability_table.py before this release"
)


@dataclass(frozen=True, slots=True)
class Check:
    """Something that has to hold of a release."""

    title: str
    path: str
    """Its tests."""
    remedy: str
    """What to do where it does not hold, as a sentence."""
    only_in: Capability = EVERY_RELEASE
    """The releases that it says anything of."""
    elsewhere: str = ""
    """Why it says nothing of others."""
    of_a_running_engine: bool = False


CHECKS: Final = (
    Check(
        "matrix",
        "tests/engine/test_parser_matrix.py",
        "Correct the row in operator/fathom/engine/capability_table.py, or what "
        "operator/fathom/engine writes.",
    ),
    Check(
        "flags",
        "tests/engine/test_vllm_parser.py",
        "Correct FLAGS in operator/fathom/engine/flags.py, or raise NEWEST_KNOWN "
        "in tools/local_cluster/engine/releases.py and run make known-names.",
    ),
    Check(
        "values",
        "tests/engine/test_option_values.py",
        "Run make known-names, with this release in NEWEST_KNOWN in "
        "tools/local_cluster/engine/releases.py, or correct "
        "operator/fathom/validation/release_checks.py.",
    ),
    Check(
        "preflight",
        "tests/engine/test_preflight_in_vllm.py",
        "Correct operator/fathom/validation/pair_checks.py, or end ARCHITECTURES in "
        "operator/fathom/engine/capability_table.py before this release.",
        only_in=ARCHITECTURES,
        elsewhere="its names are said of {versions} alone, and preflight refuses none of them here",
    ),
    Check(
        "CUDA graphs",
        "tests/engine/test_graphs_equal_vllms.py",
        f"Correct operator/fathom/engine/cuda_graphs.py, {_BEFORE}.",
        only_in=LIVE_DEPTH,
        elsewhere=_NOT_LIVE,
    ),
    Check(
        "plugin",
        "tests/engine/test_hook_contract.py",
        f"Mend operator/fathom_vllm, {_BEFORE}.",
        only_in=LIVE_DEPTH,
        elsewhere=_NOT_LIVE,
    ),
    Check(
        "start",
        "tests/engine/test_release_gates.py",
        "Correct operator/fathom/validation/start_checks.py, or raise NEWEST_KNOWN "
        "in tools/local_cluster/engine/releases.py and run make known-names.",
        only_in=Capability(SpecifierSet(">=0.28.0")),
        elsewhere="its variables and gates are listed of {versions} alone",
    ),
    Check(
        "under traffic",
        "tests/engine/test_live_engine.py",
        f"Mend operator/fathom_vllm, {_BEFORE}.",
        only_in=LIVE_DEPTH,
        elsewhere=_NOT_LIVE,
        of_a_running_engine=True,
    ),
)


class State(StrEnum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


SIGNS: Final = {State.PASSED: "✔", State.FAILED: "✘", State.NOT_RUN: "–"}


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What came of one test."""

    path: str
    fault: str = ""
    """Why it failed, in one line; empty: it passed."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What it found, for the row."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check, and why."""

    check: Check
    state: State
    why: str


def why_not_run(check: Check, release: str, *, serves: bool) -> str:
    """Why a check says nothing of a release; empty: it does."""
    if not check.only_in.in_version(known_as(release)):
        return check.elsewhere.format(versions=check.only_in.versions)
    if check.of_a_running_engine and not serves:
        return f"no vLLM {release} for the CPU can be had here, and its Python files run no model"
    return ""


def result_of(check: Check, outcomes: Iterable[CheckOutcome], not_run: str) -> Result:
    """Judge a check by the outcomes of its tests. One whose tests did not come about failed."""
    if not_run:
        return Result(check, State.NOT_RUN, not_run)
    of_it = [outcome for outcome in outcomes if outcome.path == check.path]
    # One cause often fails many tests.
    faults = list(dict.fromkeys(outcome.fault for outcome in of_it if outcome.fault))
    if not of_it:
        return Result(check, State.FAILED, "none of its tests ran")
    if faults:
        failed = sum(bool(outcome.fault) for outcome in of_it)
        return Result(check, State.FAILED, f"{failed} of {len(of_it)} tests: {'; '.join(faults)}")
    return Result(check, State.PASSED, f"{len(of_it)} tests")


def row(release: str, results: Sequence[Result], outcomes: Iterable[CheckOutcome]) -> str:
    """The line of a release in the table of docs/engines.md that says what was run."""
    found = Counter(item for outcome in outcomes for item in outcome.properties.items())
    commands = [
        f"{found['command', kind]} {kind}"
        for kind in ("accepted", "refused by both", "parsed", "newer than the release")
        if found["command", kind]
    ]
    rows = f"{found['row', 'has']}, {found['row', 'lacks']}"
    dropped = "dropped with data parallelism"
    if found["schedule", dropped]:
        rows += f"; the schedule {dropped}"
    signs = [SIGNS[result.state] for result in results]
    return f"| {' | '.join([release, ', '.join(commands), rows, *signs])} |"


def column(release: str) -> list[str]:
    """The cells of a release in the table of docs/engines.md that puts releases side by side."""
    known = known_as(release)
    cells = ("✔" if each.capability.in_version(known) else "–" for each in TABLE)
    return [
        f"| {what} | {cell} |"
        for what, cell in [("", release), *zip((each.what for each in TABLE), cells, strict=True)]
    ]


class _Watch:
    """Keeps what came of each test, and tells of each file that begins. A plugin of pytest."""

    def __init__(self, checks: Iterable[Check]) -> None:
        self.outcomes: list[CheckOutcome] = []
        self._titles = {check.path: check.title for check in checks}
        self._path = ""
        self._started_s = time.monotonic()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.outcomes.append(CheckOutcome(_path_of(report.nodeid), _fault(report)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if (path := _path_of(nodeid)) != self._path:
            self._path = path
            _say(f"{time.monotonic() - self._started_s:4.0f} s  {self._titles[path]} …")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.outcomes.append(CheckOutcome(_path_of(report.nodeid), _fault(report)))
        elif report.when == "call":
            properties = {name: str(value) for name, value in report.user_properties}
            self.outcomes.append(CheckOutcome(_path_of(report.nodeid), properties=properties))


def _path_of(node: str) -> str:
    return node.partition("::")[0]


def _fault(report: pytest.CollectReport | pytest.TestReport) -> str:
    """A test, and the first line of what is wrong with it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else crash.message
    first = next((line for line in text.splitlines() if line.strip()), report.outcome)
    shown = textwrap.shorten(first, _MOST_CHARACTERS, placeholder=" …")
    return f"{report.nodeid.partition('::')[2]}: {shown}"


def try_engine(release: str, engine: AskedEngine) -> int:
    """Run all checks, print what came of each and the row; the exit code."""
    not_run = {check: why_not_run(check, release, serves=engine.serves) for check in CHECKS}
    os.environ[VARIABLE] = release
    watch = _Watch(CHECKS)
    paths = [check.path for check in CHECKS if not not_run[check]]
    quiet = ("-o", "addopts=", "--import-mode=importlib", "-p", "no:terminal")
    whole = ("-o", "verbosity_assertions=2")
    pytest.main([*quiet, *whole, "-p", "no:cacheprovider", *paths], plugins=[watch])
    results = [result_of(check, watch.outcomes, not_run[check]) for check in CHECKS]
    failed = [result for result in results if result.state is State.FAILED]
    _say("")
    for result in results:
        _say(f"{result.state:8} {result.check.title}: {result.why}")
    for result in failed:
        _say(f"\n{result.check.title}: {result.check.remedy}")
    _say("\nFor docs/engines.md, of what was run:")
    _say(row(release, results, watch.outcomes))
    _say("\nAnd of the releases side by side" + (", once nothing fails:" if failed else ":"))
    for line in column(release):
        _say(line)
    if not failed and Version(release) > Version(NEWEST_KNOWN):
        _say(
            f"\nvLLM {release} does as {NEWEST_KNOWN} does, as far as this shows. To support it: "
            "read what is shown by source, raise the bounds in "
            "operator/fathom/engine/capability_table.py and NEWEST_KNOWN in "
            "tools/local_cluster/engine/releases.py, and put the cells into docs/engines.md."
        )
    return int(bool(failed))


def main() -> int:
    """Install what there is of the release, and try it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="such as 0.33.0")
    release = parser.parse_args().version
    try:
        Version(release)
        engine = ensure_asked_engine(release)
    except InvalidVersion:
        return _refused(f"{release!r} is no release: name one, such as VERSION={NEWEST_KNOWN}.")
    except EngineEnvironmentError as error:
        return _refused(str(error))
    return try_engine(release, engine)


def _refused(sentence: str) -> int:
    print(sentence, file=sys.stderr)  # noqa: T201 - a command's own output
    return 2


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command's own output


if __name__ == "__main__":
    sys.exit(main())
