"""Writes docs/schemas/: a JSON Schema for each document that a command prints with `-o json`."""

import json
import sys
from pathlib import Path
from typing import Final

from fathom.bench.command import BenchReport
from fathom.cli.attach_report import AttachReport
from fathom.cli.check_report import CheckList
from fathom.cli.documents import Document
from fathom.cli.explanation_document import ExplanationReport
from fathom.cli.history import HistoryList
from fathom.cli.status import StatusList
from fathom.cli.top import TopList
from fathom.cli.traffic import TrafficReport
from fathom.cli.version import VersionReport

DOCUMENTS: Final[tuple[type[Document], ...]] = (
    AttachReport,
    BenchReport,
    CheckList,
    ExplanationReport,
    HistoryList,
    StatusList,
    TopList,
    TrafficReport,
    VersionReport,
)
"""Every kind, one for each command."""


def schemas() -> dict[str, str]:
    """The text of each schema, by the name of its file."""
    return {f"{each.__name__}.json": _schema(each) for each in DOCUMENTS}


def _schema(document: type[Document]) -> str:
    schema = document.model_json_schema(mode="serialization")
    return (
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1)
        + "\n"
    )


def main() -> None:
    """Write all of them, and remove what is of no kind any more."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for name, text in schemas().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
