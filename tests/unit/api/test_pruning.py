"""What is pruned of a resource: the same as by an API server with the CRD of this release."""

from typing import Any

from fathom.api.crd import custom_resource_definition
from fathom.api.newer_release import pruned
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.resource import known_part
from manifest_samples import manifest

LATER = "laterField"


def schema() -> Any:
    (version,) = custom_resource_definition()["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]


def filled(of: Any, *, later: bool) -> Any:
    """A value with every field of a schema, and where asked for with one more in each object."""
    if "properties" in of:
        found = {name: filled(each, later=later) for name, each in of["properties"].items()}
        return {**found, LATER: 1} if later else found
    if isinstance(of.get("additionalProperties"), dict):
        return {"a": filled(of["additionalProperties"], later=later)}
    if "items" in of:
        return [filled(of["items"], later=later)] * 2
    return {"of": {"the": ["user's", None]}} if of.get("type") == "object" else 1


def objects(of: Any, path: str) -> list[str]:
    """The paths of the objects in a filled value."""
    if "properties" in of:
        below = [objects(each, f"{path}.{name}") for name, each in of["properties"].items()]
        return [path, *(each for found in below for each in found)]
    if "items" in of:
        return [each for index in range(2) for each in objects(of["items"], f"{path}[{index}]")]
    return []


def test_what_the_crd_knows_stays() -> None:
    document = {**manifest(), "spec": filled(schema()["spec"], later=False)}
    assert known_part(document).known == document
    assert known_part(document).unknown == ()


def test_what_the_crd_does_not_know_is_left_out_and_named() -> None:
    document = {**manifest(), "spec": filled(schema()["spec"], later=True), LATER: {"a": None}}
    document["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    found = known_part(document)
    assert found.known == {
        **manifest(),
        "metadata": document["metadata"],
        "spec": filled(schema()["spec"], later=False),
    }
    paths = {f"{place}.{LATER}" for place in objects(schema()["spec"], "spec")}
    assert set(found.unknown) == {*paths, LATER}


def test_a_status_is_pruned_as_well() -> None:
    found = pruned(SpeculativeDeploymentStatus, filled(schema()["status"], later=True))
    assert found.known == filled(schema()["status"], later=False)
    assert f"conditions[0].{LATER}" in found.unknown


def test_what_has_another_shape_is_left_to_those_who_refuse_it() -> None:
    for spec in (None, [], "text", {"engine": [7, {"image": 7}], "model": "text", "cache": None}):
        document = {**manifest(), "spec": spec}
        assert known_part(document).known == document
