"""The generated CRD: structural, strict, with the defaults of the models."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from fathom.adapters.yaml_documents import to_yaml
from fathom.api import names
from fathom.api.cel_rules import CREATION_RULES, RULES
from fathom.api.crd import custom_resource_definition
from fathom.api.spec import SpeculativeDeploymentSpec
from manifest_samples import manifest
from structural_schema import nodes, spec_schema, with_defaults

ROOT = Path(__file__).parents[3]
CRD: dict[str, Any] = custom_resource_definition()
VERSION = CRD["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
SPEC = spec_schema(CRD)

FORBIDDEN = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "not", "const", "title", "nullable"}


def test_the_file_is_in_step_with_the_models() -> None:
    file = ROOT / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml"

    assert file.read_text(encoding="utf-8") == to_yaml([CRD]), "stale: run `make regenerate`"


def test_the_schema_is_structural() -> None:
    for path, node in nodes(SCHEMA):
        assert not FORBIDDEN & node.keys(), path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_only_what_is_merged_over_pods_keeps_unknown_fields() -> None:
    keeping = [
        path
        for path, node in nodes(SCHEMA)
        if node.get("x-kubernetes-preserve-unknown-fields") is True
    ]

    templates = ["draft.training.template", "podTemplate", "workerTemplate"]
    assert keeping == [f".spec.{each}" for each in templates]


def test_every_field_is_described_in_whole_sentences() -> None:
    """`kubectl explain` wraps lines itself, and keeps those that stand in the text."""
    described = {
        path: node.get("description", "")
        for path, node in nodes(SCHEMA)
        if path.startswith((".spec", ".status")) and not path.endswith("]")
    }

    assert len(described) > 100

    assert [path for path, text in described.items() if not text.endswith(".")] == []
    assert [path for path, text in described.items() if " ".join(text.split()) != text] == []


@pytest.mark.parametrize("name", ["1digit", "dot.ted", "Upper", "ends-", "-begins", "under_score"])
def test_a_name_that_no_service_may_have_is_refused_by_the_server(name: str) -> None:
    names_schema = jsonschema.Draft4Validator(SCHEMA["properties"]["metadata"])

    assert not names_schema.is_valid({"name": name})
    assert names_schema.is_valid({"name": "kimi-k2-6"})


def test_the_defaults_are_those_of_the_models() -> None:
    stored = with_defaults(SPEC, manifest()["spec"])

    assert SpeculativeDeploymentSpec.model_validate(
        stored
    ) == SpeculativeDeploymentSpec.model_validate(manifest()["spec"])
    assert stored["speculation"]["tuning"]["mode"] == "Auto"
    assert stored["rollout"] == {
        "maxUnavailable": 1,
        "maxSurge": 1,
        "whenNoCapacity": "TakeReplica",
        "capacityMinutes": 10,
        "canaryMinutes": 20,
        "paused": False,
        "podDisruptionBudget": "Auto",
        "refresh": "Never",
    }


def test_what_must_be_given_is_required_and_nothing_else() -> None:
    required = {
        f"{path}.{name}".removeprefix(".")
        for path, node in nodes(SPEC)
        for name in node.get("required", ())
        if "[" not in path
    }

    assert required == {
        "model",
        "model.id",
        "model.tokenSecretRef.name",
        "model.tokenSecretRef.key",
        "draft.trial.id",
        "draft.training.gpus",
        "draft.training.deadlineMinutes",
        "draft.training.gpuHoursPerWeek",
        "draft.training.template",
        "metrics.prometheus.bearerTokenSecretRef.name",
        "metrics.prometheus.bearerTokenSecretRef.key",
        "metrics.prometheus.basicAuthSecretRef.name",
        "metrics.prometheus.caConfigMapRef.name",
        "metrics.prometheus.caConfigMapRef.key",
        "engine",
        "engine.image",
        "engine.tensorParallelSize",
    }


def test_no_enum_value_is_a_yaml_boolean() -> None:
    for path, node in nodes(SPEC):
        for value in node.get("enum", ()):
            assert isinstance(yaml.safe_load(value), str), path


def test_rules_have_a_message_and_a_place() -> None:
    assert [(rule["message"], rule["fieldPath"]) for rule in SPEC["x-kubernetes-validations"]] == [
        (rule.message, f".{rule.field}") for rule in RULES
    ]


def test_rules_about_new_resources_name_their_place_themselves() -> None:
    assert SCHEMA["x-kubernetes-validations"] == [
        {"rule": rule.cel, "message": f"{rule.field}: {rule.message}"} for rule in CREATION_RULES
    ]


def test_what_rules_compare_is_bounded() -> None:
    """An unbounded string or list in a rule exceeds the API server's cost budget."""
    for path, node in nodes(SPEC):
        if node.get("type") == "string" and "enum" not in node and "[" not in path:
            assert "maxLength" in node or "pattern" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path


def test_columns_answer_at_a_glance() -> None:
    shown = [
        column["name"]
        for column in VERSION["additionalPrinterColumns"]
        if not column.get("priority")
    ]

    assert shown == ["Ready", "Reason", "Depth", "Accept", "Gain", "Tuning", "Watched", "Age"]
    fields = {path for path, _ in nodes(SCHEMA)}
    for column in VERSION["additionalPrinterColumns"]:
        path = column["jsonPath"]
        assert path in fields or path == ".metadata.creationTimestamp", path


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_examples_satisfy_the_schema(path: Path) -> None:
    # OpenAPI 3.0, as Kubernetes has it, is JSON Schema's draft 4.
    strict = jsonschema.Draft4Validator(_closed(SPEC))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        strict.validate(document["spec"])


def _closed(node: Any) -> Any:
    """The same schema, refusing what an API server would prune."""
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in node.items() if key != "properties"}
    if "properties" in node:
        closed["properties"] = {name: _closed(child) for name, child in node["properties"].items()}
        closed["additionalProperties"] = False
    return closed
