"""Probes that vLLM answers with 401 or 404, however well it runs."""

from typing import Any

import pytest

from fathom.api.problem import Problem, Severity
from manifest_samples import resource
from support.validated import errors, warnings

SECRET = {"valueFrom": {"secretKeyRef": {"name": "keys", "key": "vllm"}}}
KEY = {"engine.env": [{"name": "VLLM_API_KEY", **SECRET}]}
BEARER = {"httpHeaders": [{"name": "authorization", "value": "Bearer x"}]}


def pod(probe: str = "readinessProbe", *, path: str | None, **fields: Any) -> dict[str, Any]:
    asked = {"httpGet": {"path": path, "port": 8000, **fields}}
    return {"podTemplate": {"spec": {"containers": [{"name": "vllm", probe: asked}]}}}


def said(*changes: dict[str, Any]) -> list[Problem]:
    merged = {key: value for each in changes for key, value in each.items()}
    found = (*errors(resource(merged)), *warnings(resource(merged)))
    return [each for each in found if each.rule == "probe-paths"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([KEY, pod(path="/v1/models")], "with VLLM_API_KEY vLLM asks a key for /v1/models"),
        ([KEY, pod(path="v1/models?x=1")], "asks a key for /v1/models,"),
        ([KEY, pod(path="/v2/rerank")], "asks a key for /v2/rerank"),
        ([pod(path="/healthz")], "vLLM 0.32.0 serves no /healthz, so that the pod is never ready"),
        ([pod(path=None)], "vLLM 0.32.0 serves no /, so"),
        ([pod(path="/v1/health")], "vLLM 0.32.0 serves no /v1/health"),
        ([pod("livenessProbe", path="/live")], "so that the engine is started again and again"),
        ([pod("startupProbe", path="/ready", port="http")], "started again without end"),
    ],
    ids=str,
)
def test_a_probe_that_vllm_refuses_is_refused(changes: list[dict[str, Any]], words: str) -> None:
    (found,) = said(*changes)

    assert found.severity is Severity.ERROR
    assert found.field.startswith("spec.podTemplate.spec.containers[0].")
    assert words in found.message
    assert found.message.endswith("ask /health, which needs no key.")


@pytest.mark.parametrize(
    "changes",
    [
        [KEY],
        [pod(path="/v1/models")],
        [KEY, pod(path="/health/")],
        [KEY, pod(path="ping")],
        [KEY, pod(path="/v1/models", **BEARER)],
        [{"engine.env": [{"name": "VLLM_API_KEY", "value": ""}]}, pod(path="/v1/models")],
        [pod(path="/metrics")],
        [pod(path="/healthz", host="example.com")],
        [{"engine.args": ["--root-path=/llm"]}, pod(path="/llm/health")],
        [{"engine.args": ["--middleware=a.b"]}, pod(path="/healthz")],
        [{"engine.env": [{"name": "VLLM_USE_RUST_FRONTEND", "value": "1"}]}, pod(path="/healthz")],
        [{"engine.image": "vllm/vllm-openai:v0.34.0"}, pod(path="/healthz")],
    ],
    ids=str,
)
def test_a_probe_that_may_be_answered_is_not(changes: list[dict[str, Any]]) -> None:
    assert said(*changes) == []


def test_of_a_program_around_the_engine_nothing_is_said() -> None:
    wrapped = pod(path="/healthz")
    container = wrapped["podTemplate"]["spec"]["containers"][0]
    container["command"] = ["sh", "-c", 'proxy & exec vllm serve "$@"', "--"]
    assert said(wrapped) == []


def test_another_image_may_serve_more() -> None:
    (found,) = said({"engine.image": "acme/vllm:0.32.0"}, pod(path="/healthz"))
    assert found.severity is Severity.WARNING
