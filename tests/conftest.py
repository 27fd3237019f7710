"""Marks tests by the folder they lie in: `make test` chooses the tests of a tier by their marks.

With `--dist loadgroup` a file's tests stay on one worker, as with loadfile. Files that share what
is dear to start name a group (`pytest.mark.xdist_group`), and all of it stays on one.
"""

from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

# An example may take as long as a slow machine takes for it.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any")


@pytest.fixture(autouse=True)
def _plain_log() -> None:
    """Log tracebacks as Python has them: with each frame's values, one takes up to ten seconds."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()]
    )


NEEDS = ("cluster", "engine", "e2e")
"""Folders whose name is what their tests need; anywhere else a test says so itself."""


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in NEEDS:
            item.add_marker(folder)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
