"""A pytest plugin: fewer examples, always the same; and which test executes which line.

With `FATHOM_MUTANTS_RECORD` set to a file, the run is recorded there, as JSON: what it executes of
the files that `FATHOM_MUTANTS_OF` names.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import HealthCheck, Phase, settings

RECORD = "FATHOM_MUTANTS_RECORD"
OF = "FATHOM_MUTANTS_OF"
PROFILE = "mutants"

settings.register_profile(
    PROFILE,
    derandomize=True,
    database=None,
    max_examples=30,
    deadline=None,
    # A mutant is killed by any example, so that none is made smaller.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(PROFILE)


class Recorder:
    """What ran, by test; "" is what ran when modules were imported."""

    def __init__(self, into: Path, of: list[str]) -> None:
        self._into = into
        self._seconds: dict[str, float] = {}
        self._coverage = coverage.Coverage(data_file=None, include=of, branch=False)
        # Not each file of tests executes what is mutated.
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        began_s = time.process_time()
        result = yield
        self._seconds[item.nodeid] = time.process_time() - began_s
        self._coverage.switch_context("")
        return result

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {
            str(Path(file).relative_to(Path.cwd())): data.contexts_by_lineno(file)
            for file in data.measured_files()
        }
        record: dict[str, Any] = {"seconds": dict(self._seconds), "lines": lines}
        self._into.write_text(json.dumps(record))


def pytest_configure(config: pytest.Config) -> None:
    into = os.environ.get(RECORD)
    if into:
        config.pluginmanager.register(Recorder(Path(into), os.environ[OF].split(os.pathsep)))
