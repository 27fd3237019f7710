import pytest

from support.local_cluster import http, local_cluster, namespace

__all__ = ["http", "local_cluster", "namespace"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that may take longest first, so that no worker is left with one at the end."""

    def seconds(item: pytest.Item) -> float:
        allowed = item.get_closest_marker("timeout")
        return 0.0 if allowed is None else float(allowed.args[0])

    items.sort(key=seconds, reverse=True)
