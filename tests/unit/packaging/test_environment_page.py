"""docs/environment.md lists what a pod's environment says, all of it, with its values."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from fathom.manifests.engine_env import engine_env
from manifest_samples import resource

PAGE: Final = (Path(__file__).parents[3] / "docs" / "environment.md").read_text(encoding="utf-8")
ROWS: Final = re.findall(
    r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$",
    PAGE.partition("## Not on one tray")[0],
    re.MULTILINE,
)
"""Variable, value, when."""

STOCK: Final[Mapping[str, Any]] = {"speculation.tuning.mode": "Static"}
SEVERAL_NODES: Final = {"engine.tensorParallelSize": 16, "nodePool.accelerator": "H200"}
WHEN: Final[Mapping[str, Mapping[str, Any]]] = {
    "always": {},
    "`model.tokenSecretRef`": {"model.tokenSecretRef": {"name": "hf", "key": "token"}},
    "a `cache`": {"cache.claimName": "weights"},
    "weights were [fetched](weights.md)": {
        "cache.claimName": "weights",
        "model.revision": "a" * 40,
        "draft.revision": "b" * 40,
    },
    "`engine.user`": {"engine.user": 2000},
    "several nodes": SEVERAL_NODES,
    "several trays of one NVLink domain": {"engine.tensorParallelSize": 8},
    "steps are counted": {
        "speculation.tuning.mode": "Auto",
        "engine.image": "vllm/vllm-openai:v0.28.0",
    },
    "depth is live": {"speculation.tuning.mode": "Auto"},
    "accelerator CPU": {
        "nodePool.accelerator": "CPU",
        "engine.tensorParallelSize": 1,
        "engine.resources": {"requests": {"cpu": "1"}},
    },
}
IMPLIED: Final = {
    "depth is live": ("steps are counted",),
    "several trays of one NVLink domain": ("several nodes",),
    "weights were [fetched](weights.md)": ("a `cache`",),
}


def environment(changes: Mapping[str, Any]) -> dict[str, str]:
    """Values by name; one that comes from elsewhere as the page says it."""
    found = {}
    for variable in engine_env(resource({**STOCK, **changes}).engine):
        assert isinstance(variable, dict)
        source = variable.get("valueFrom")
        elsewhere = "from the pod" if source and "fieldRef" in source else "from the Secret"  # type: ignore[operator]
        found[str(variable["name"])] = elsewhere if source else f"`{variable['value']}`"
    return found


def stated(when: str) -> dict[str, str]:
    return {name: value for name, value, its in ROWS if its == when}


def test_every_row_says_when_in_words_that_are_checked() -> None:
    assert {when for _, _, when in ROWS} == WHEN.keys()


@pytest.mark.parametrize("when", WHEN)
def test_what_is_added_is_what_the_page_says(when: str) -> None:
    expected = stated("always") | stated(when)
    for other in IMPLIED.get(when, ()):
        expected |= stated(other)

    assert environment(WHEN[when]) == expected
