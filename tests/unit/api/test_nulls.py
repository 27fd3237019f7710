"""A field without a value is one that is not there, as the API server has it."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import yaml

from fathom.api.crd import custom_resource_definition
from fathom.resource import SpeculativeDeployment, parse
from manifest_samples import manifest
from structural_schema import Schema, spec_schema, with_defaults

SPEC: Final = spec_schema(custom_resource_definition())
CASES: Final = Path(__file__).parents[2] / "golden" / "cases"
EVERYTHING: Final[dict[str, Any]] = yaml.safe_load((CASES / "everything-set.yaml").read_text())

At = tuple[str | int, ...]


def places(schema: Schema, above: At = ()) -> Iterator[At]:
    """Places of every value that a spec may have, one in each list and one under each own name."""
    inner: list[tuple[str | int, Schema]] = list(schema.get("properties", {}).items())
    if isinstance(extra := schema.get("additionalProperties"), dict):
        inner.append(("a", extra))
    if "items" in schema:
        inner.append((0, schema["items"]))
    for name, child in inner:
        yield (*above, name)
        yield from places(child, (*above, name))


PLACES: Final = list(places(SPEC))


def with_null(place: At, base: Any) -> Any:
    """The base with null there, and what lies around it made if it is not."""
    if not place:
        return None
    name, *rest = place
    if isinstance(name, int):
        items = base or [None]
        return [with_null(tuple(rest), items[0]), *items[1:]]
    base = base or {}
    return {**base, name: with_null(tuple(rest), base.get(name))}


def accepted(document: dict[str, Any]) -> Any:
    parsed = parse(document)
    return parsed.spec if isinstance(parsed, SpeculativeDeployment) else None


def test_is_read_as_the_api_server_reads_it() -> None:
    server = jsonschema.Draft4Validator(SPEC)
    kept, refused, wrong = 0, 0, []
    for place in PLACES:
        document = {**EVERYTHING, "spec": with_null(place, copy.deepcopy(EVERYTHING["spec"]))}
        stored = with_defaults(SPEC, document["spec"])
        good = server.is_valid(stored)
        kept, refused = kept + good, refused + (not good)
        found = accepted(document)
        if found != (accepted({**document, "spec": stored}) if good else None):
            wrong.append(place)

    assert wrong == []
    assert kept > 50
    assert refused > 5


def test_without_a_value_a_section_is_what_it_is_by_default() -> None:
    document = manifest()
    for section in ("speculation", "nodePool", "cache", "metrics", "rollout", "podTemplate"):
        document["spec"][section] = None
    document["spec"]["engine"] |= {"args": None, "env": None, "resources": None, "user": None}
    document["metadata"] |= {"labels": None, "annotations": None}
    document["status"] = None

    assert accepted(document) == accepted(manifest())


def test_a_null_in_pod_template_stays_since_it_removes_something() -> None:
    document = manifest({"podTemplate": {"spec": {"affinity": None}}})

    assert accepted(document).pod_template == {"spec": {"affinity": None}}
