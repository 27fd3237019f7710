from pathlib import Path
from typing import Final

import pytest

from support.local_cluster import http, local_cluster, namespace

__all__ = ["http", "local_cluster", "namespace"]

LONGEST: Final = (
    "test_groups.py",
    "test_operator_traffic.py",
    "test_operator_after_traffic.py",
    "test_adaptive_arm.py",
    "test_histories_on_the_server.py",
    "test_takeover.py",
    "test_chart_upgrade.py",
    "test_operator_at_rest.py",
    "test_quickstart.py",
    "test_rights.py",
    "test_prefetch.py",
    "test_operator.py",
)
"""These first, so that no worker is left with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    assert [name for name in LONGEST if not (folder / name).is_file()] == []

    def place(item: pytest.Item) -> int:
        name = item.path.name
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)
