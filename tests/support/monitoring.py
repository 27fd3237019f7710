"""The chart's alerts and dashboards, as they lie in it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

FILES: Final = Path(__file__).parents[2] / "charts" / "fathom" / "files"
RULES: Final = sorted((FILES / "rules").glob("*.yaml"))
DASHBOARDS: Final = sorted((FILES / "dashboards").glob("*.json"))

_TEXT: Final = re.compile(r'"[^"]*"')
_BESIDE_METRICS: Final = re.compile(
    r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|ignoring|group_left)\s*\([^)]*\)"
)
"""In a query without text: labels, ranges, and lists of labels."""
_NAME: Final = re.compile(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()")
_WORDS: Final = {"and", "or", "unless", "group_left"}


def alerts() -> dict[str, dict[str, Any]]:
    """Every alert by its name."""
    documents = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in RULES)
    return {
        rule["alert"]: rule
        for document in documents
        for group in document["groups"]
        for rule in group["rules"]
    }


def dashboard(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def panels(path: Path) -> list[dict[str, Any]]:
    """Those of a dashboard, rows left out."""
    return [panel for panel in dashboard(path)["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Where each panel's queries stand, and the queries."""
    for path in DASHBOARDS:
        for panel in panels(path):
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']} {target['refId']}", target["expr"]


def metrics_of(query: str) -> set[str]:
    """The metrics that a query names."""
    return {*_NAME.findall(_BESIDE_METRICS.sub(" ", _TEXT.sub("", query)))} - _WORDS
