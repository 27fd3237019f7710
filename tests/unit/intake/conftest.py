from collections.abc import Iterator

import pytest

from support.trained_drafts import Intake, new_intake


@pytest.fixture
def intake() -> Iterator[Intake]:
    with new_intake() as found:
        yield found
