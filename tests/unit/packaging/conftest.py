from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import JsonValue

from local_cluster.helm import Helm, Release, find_helm

Render = Callable[[Mapping[str, JsonValue]], dict[tuple[str, str], Any]]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return Path(__file__).parents[3]


@pytest.fixture(scope="session")
def chart(root: Path) -> Path:
    return root / "charts" / "fathom"


@pytest.fixture(scope="session")
def helm() -> Helm:
    return find_helm()


@pytest.fixture(scope="session")
def render(helm: Helm, chart: Path) -> Render:
    """What `helm template` makes of some values, by kind and name."""

    def render(values: Mapping[str, JsonValue]) -> dict[tuple[str, str], Any]:
        text = helm.template(Release(chart, "fathom", "fathom-system", values))
        documents = [document for document in yaml.safe_load_all(text) if document]
        return {(each["kind"], each["metadata"]["name"]): each for each in documents}

    return render
