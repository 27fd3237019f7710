"""The published schemas are those of the documents that commands print."""

from pathlib import Path

from fathom.cli.documents import Document
from generators.document_schemas import DOCUMENTS, schemas

FOLDER = Path(__file__).parents[3] / "docs" / "schemas"


def test_the_published_schemas_are_those_of_the_code() -> None:
    published = {each.name: each.read_text(encoding="utf-8") for each in FOLDER.glob("*.json")}
    assert published == schemas(), "Run: make regenerate"


def test_every_document_has_a_published_schema() -> None:
    assert set(Document.__subclasses__()) == set(DOCUMENTS)
    assert all(each.model_fields["kind"].default == each.__name__ for each in DOCUMENTS)
