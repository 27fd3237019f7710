"""No token in arguments or in the spec; what the sentences are stands in tests/bad_input.py."""

from typing import Any

import pytest

from bad_input import HUB_TOKEN
from fathom.validation.spec_checks import plain_secrets
from manifest_samples import resource
from support.validated import candidate


def env(name: str, **value: Any) -> dict[str, Any]:
    return {"engine.env": [{"name": "A", "value": "1"}, {"name": name, **value}]}


def container(**fields: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": {"containers": [{"name": "vllm", **fields}]}}}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"engine.args": ["--seed", f"--x={HUB_TOKEN}"]}, "spec.engine.args[1]"),
        (env("HF_TOKEN", value="anything"), "spec.engine.env[1]"),
        (env("HUGGING_FACE_HUB_TOKEN", value="anything"), "spec.engine.env[1]"),
        (env("VLLM_API_KEY", value="anything"), "spec.engine.env[1]"),
        (env("SOMETHING", value=f"Bearer {HUB_TOKEN}"), "spec.engine.env[1]"),
        (
            container(env=[{"name": "T", "value": HUB_TOKEN}]),
            "spec.podTemplate.spec.containers[0].env[0].value",
        ),
        (
            {"podTemplate": {"metadata": {"annotations": {"note": HUB_TOKEN}}}},
            "spec.podTemplate.metadata.annotations.note",
        ),
        (
            {"workerTemplate": {"metadata": {"annotations": {"note": HUB_TOKEN}}}},
            "spec.workerTemplate.metadata.annotations.note",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_secret_in_clear_is_found_and_never_repeated(changes: dict[str, Any], field: str) -> None:
    (problem,) = plain_secrets(candidate(resource(changes)))

    assert problem.field == field
    assert HUB_TOKEN not in str(problem)
    assert "anything" not in str(problem)


@pytest.mark.parametrize(
    "changes",
    [
        env("HF_TOKEN", valueFrom={"secretKeyRef": {"name": "hf", "key": "token"}}),
        env("HF_TOKEN", value="$(TOKEN_OF_ANOTHER_SECRET)"),
        env("HF_TOKEN", value=""),
        env("HF_HUB_DISABLE_IMPLICIT_TOKEN", value="1"),
        env("HF_HOME", value="/models/hf_home"),
        {"engine.args": ["--download-dir", "/models/hf_cache", "--max-num-batched-tokens", "1"]},
        container(envFrom=[{"secretRef": {"name": "hf-token-secret"}}]),
    ],
    ids=str,
)
def test_what_is_no_secret_passes(changes: dict[str, Any]) -> None:
    assert list(plain_secrets(candidate(resource(changes)))) == []
