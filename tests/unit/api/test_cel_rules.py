"""Each rule stands twice, as CEL and as a predicate: both must say the same of every spec."""

from typing import Any

import pytest

from cel import broken_by_cel, refused_on_creation
from fathom.api import names
from fathom.api.cel_rules import CREATION_RULES, RULES
from fathom.api.problem import Problem, Rule
from fathom.api.spec import MAX_REPLICAS
from fathom.resource import SpeculativeDeployment, parse
from manifest_samples import manifest
from support.validated import errors

URL = "https://prometheus.example.com/x"
TOKEN = {"name": "login", "key": "token"}
CPU: dict[str, Any] = {
    "nodePool.accelerator": "CPU",
    "engine.tensorParallelSize": 1,
    "engine.resources.requests": {"cpu": "2"},
}
TRAINING: dict[str, Any] = {
    "gpus": 4,
    "deadlineMinutes": 90,
    "gpuHoursPerWeek": 12,
    "template": {},
}
GOOD_AND_BAD: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "draft.id": (
        [{}, {"draft.id": None, "draft.method": "ngram"}, {"draft.method": "mtp"}],
        [{"draft.id": None}, {"draft.id": "", "draft.method": "draft_model"}],
    ),
    "engine": (
        [
            {"engine.pipelineParallelSize": 2},
            {"engine.tensorParallelSize": 1, "engine.dataParallelSize": 8},
            {"engine.tensorParallelSize": 8, "engine.dataParallelSize": 2},
            {"engine.tensorParallelSize": 1, "engine.dataParallelSize": 3},
        ],
        [
            {"engine.tensorParallelSize": 2, "engine.pipelineParallelSize": 3},
            {
                "engine.tensorParallelSize": 2,
                "engine.pipelineParallelSize": 3,
                "engine.dataParallelSize": 2,
            },
        ],
    ),
    "draft.method": (
        [
            {"draft.id": None, "speculation.drafting": "Disabled"},
            {"draft.id": None, "draft.method": "ngram"},
            {"draft.id": None, "draft.method": "suffix"},
            {"draft.method": "mtp", "draft.tensorParallelSize": 1},
            {**CPU, "draft.id": None, "draft.method": "ngram"},
        ],
        [
            {**CPU, "draft.id": None, "draft.method": "ngram_gpu"},
            {"draft.method": "ngram"},
            {"draft.method": "suffix"},
            {"draft.id": None, "draft.method": "ngram", "draft.revision": "main"},
            {"draft.id": None, "draft.method": "suffix", "draft.tensorParallelSize": 1},
        ],
    ),
    "speculation.drafting": (
        [
            {"speculation.drafting": "Canary"},
            {"speculation.drafting": "Canary", "speculation.adaptiveVerification": "Enabled"},
            {"speculation.adaptiveVerification": "Canary"},
        ],
        [{"speculation.drafting": "Canary", "speculation.adaptiveVerification": "Canary"}],
    ),
    "speculation.tuning.mode": (
        [
            {"speculation.drafting": "Canary", "speculation.tuning.mode": "Advise"},
            {"speculation.drafting": "Disabled", "speculation.tuning.mode": "Static"},
        ],
        [{"speculation.drafting": "Canary", "speculation.tuning.mode": "Static"}],
    ),
    "draft.trial": (
        [
            {"draft.trial": {"id": "a/b"}},
            {"draft.trial": {"id": "a/b"}, "speculation.tuning.mode": "Static"},
            {"draft.trial": {"id": "a/b"}, "speculation.adaptiveVerification": "Enabled"},
            {"draft.trial": {"id": "a/b"}, "draft.method": "mtp"},
            {"speculation.drafting": "Canary"},
        ],
        [
            {"draft.trial": {"id": "a/b"}, "draft.id": None, "draft.method": "mtp"},
            {"draft.trial": {"id": "a/b"}, "speculation.drafting": "Canary"},
            {"draft.trial": {"id": "a/b"}, "speculation.drafting": "Disabled"},
            {"draft.trial": {"id": "a/b"}, "speculation.adaptiveVerification": "Canary"},
        ],
    ),
    "draft.training": (
        [
            {"draft.training": TRAINING, "cache.claimName": "weights"},
            {"draft.training": TRAINING, "cache.size": "1Ti"},
        ],
        [
            {"draft.training": TRAINING},
            {
                "draft.training": TRAINING,
                "cache.size": "1Ti",
                "draft.id": None,
                "draft.method": "mtp",
            },
        ],
    ),
    "draft.training.gpuHoursPerWeek": (
        [
            {"draft.training": {**TRAINING, "gpuHoursPerWeek": 6}, "cache.size": "1Ti"},
            {"draft.training": {**TRAINING, "gpus": 0, "gpuHoursPerWeek": 0}, "cache.size": "1Ti"},
        ],
        [{"draft.training": {**TRAINING, "gpuHoursPerWeek": 5}, "cache.size": "1Ti"}],
    ),
    "draft.revision": (
        [
            {"draft.revision": "main"},
            {"draft.method": "mtp", "draft.revision": "main"},
            {"draft.method": "mtp", "draft.id": None},
        ],
        [
            {"draft.method": "mtp", "draft.id": None, "draft.revision": "main"},
            {"draft.method": "dspark", "draft.id": "", "draft.revision": "main"},
        ],
    ),
    "speculation.tokens": (
        [{"speculation.tokens": 9}, {"speculation.tokens": 4, "speculation.maxTokens": 4}],
        [{"speculation.tokens": 5, "speculation.maxTokens": 4}],
    ),
    "speculation.minTokens": (
        [{"speculation.minTokens": 3}, {"speculation.minTokens": 0}],
        [{"speculation.minTokens": 4}],
    ),
    "speculation.depths": (
        [
            {"speculation.depths": [3]},
            {"speculation.depths": [0, 1, 3, 9]},
            {"speculation.depths": [5, 3, 3], "speculation.maxTokens": 5},
            {"speculation.depths": [0, 3], "speculation.minTokens": 3},
        ],
        [
            {"speculation.depths": [1, 5]},
            {"speculation.depths": [1, 3], "speculation.minTokens": 2},
            {"speculation.depths": [3, 6], "speculation.maxTokens": 5},
        ],
    ),
    "speculation.tuning.tpotMilliseconds": (
        [
            {
                "speculation.tuning.objective": "Goodput",
                "speculation.tuning.tpotMilliseconds": 25.5,
            },
            {"speculation.tuning.objective": "Latency"},
        ],
        [{"speculation.tuning.objective": "Goodput"}],
    ),
    "speculation.maxTokens": (
        [
            {"engine.attentionBackend": "tokenspeed_mla"},
            {"engine.attentionBackend": "tokenspeed_mla", "speculation.maxTokens": 7},
            {"engine.attentionBackend": "tokenspeed_mla", "speculation.depths": [3, 7]},
            {"engine.attentionBackend": "flashinfer_mla", "speculation.maxTokens": 8},
            {
                "engine.attentionBackend": "tokenspeed_mla",
                "speculation.tokens": 7,
                "speculation.tuning.mode": "Static",
            },
        ],
        [
            {"engine.attentionBackend": "tokenspeed_mla", "speculation.maxTokens": 8},
            {"engine.attentionBackend": "tokenspeed_mla", "speculation.depths": [3, 8]},
            {"engine.attentionBackend": "TOKENSPEED_MLA", "speculation.tokens": 8},
            {
                "engine.attentionBackend": "tokenspeed_mla",
                "speculation.tokens": 8,
                "speculation.tuning.mode": "Static",
            },
        ],
    ),
    "engine.attentionBackend": (
        [
            {"engine.attentionBackend": "flashinfer_mla"},
            {"engine.attentionBackend": "flashinfer_mla", "nodePool.accelerator": "B200"},
            {
                "engine.attentionBackend": "flashinfer_mla",
                "nodePool.accelerator": "Custom",
                "nodePool.gpusPerNode": 4,
            },
            {"engine.attentionBackend": "flashmla", "nodePool.accelerator": "H200"},
            {"engine.attentionBackend": "triton_mla", "nodePool.accelerator": "MI300X"},
        ],
        [
            {"engine.attentionBackend": "tokenspeed_mla", "nodePool.accelerator": "H200"},
            {"engine.attentionBackend": "FLASHINFER_MLA", "nodePool.accelerator": "H100"},
            {"engine.attentionBackend": "Cutlass_MLA", "nodePool.accelerator": "H100"},
            {"engine.attentionBackend": "tokenspeed_mla", "nodePool.accelerator": "MI355X"},
        ],
    ),
    "engine.tensorParallelSize": (
        [{"engine.tensorParallelSize": size} for size in (1, 2, 4, 8, 16)]
        + [{"engine.tensorParallelSize": 8, "nodePool.accelerator": "H100"}],
        [{"engine.tensorParallelSize": size} for size in (3, 5, 6, 10)]
        + [
            {
                "engine.tensorParallelSize": 4,
                "nodePool.accelerator": "Custom",
                "nodePool.gpusPerNode": 6,
            }
        ],
    ),
    "draft.tensorParallelSize": (
        [
            {"draft.tensorParallelSize": 1},
            {"draft.tensorParallelSize": 4},
            {"draft.tensorParallelSize": 4, "draft.method": "draft_model"},
        ],
        [
            {"draft.tensorParallelSize": 2},
            {"draft.tensorParallelSize": 1, "draft.method": "draft_model"},
        ],
    ),
    "nodePool.gpusPerNode": (
        [CPU, {"nodePool.accelerator": "Custom", "nodePool.gpusPerNode": 4}],
        [
            {"nodePool.accelerator": "Custom", "engine.tensorParallelSize": 1},
            {**CPU, "nodePool.gpusPerNode": 1},
        ],
    ),
    "nodePool.products": (
        [
            {"nodePool.accelerator": "H100", "nodePool.products": ["NVIDIA-H100-NVL"]},
            {**CPU, "nodePool.products": []},
        ],
        [{**CPU, "nodePool.products": ["NVIDIA-H100-NVL"]}],
    ),
    "nodePool.accelerator": (
        [CPU, {**CPU, "draft.tensorParallelSize": 1}],
        [
            {**CPU, "engine.tensorParallelSize": 2},
            {**CPU, "engine.pipelineParallelSize": 2},
            {**CPU, "engine.dataParallelSize": 2},
        ],
    ),
    "engine.resources": (
        [CPU, {**CPU, "engine.resources.requests": {}, "engine.resources.limits": {"cpu": 2}}],
        [
            {**CPU, "engine.resources.requests": {}},
            {**CPU, "engine.resources.requests": {"memory": "4Gi"}},
        ],
    ),
    "speculation.adaptiveVerification": (
        [{**CPU, "speculation.adaptiveVerification": "Disabled"}],
        [
            {**CPU, "speculation.adaptiveVerification": "Enabled"},
            {**CPU, "speculation.adaptiveVerification": "Canary"},
        ],
    ),
    "cache.size": (
        [{"cache.size": "800Gi"}, {"cache.size": "1.5Ti"}, {"cache.claimName": "weights"}],
        [{"cache.size": "800Gi", "cache.claimName": "weights"}],
    ),
    "metrics.prometheus": (
        [
            {"metrics.prometheus": {"source": "central", "labels": {"cluster": "eu"}}},
            {"metrics.source": "Prometheus", "metrics.prometheus": {"source": "central"}},
        ],
        [
            {"metrics.prometheus": {"source": "c"}, "metrics.prometheusURL": "http://p:9090"},
            {"metrics.prometheus": {"source": "c"}, "metrics.prometheusLabels": {"cluster": "eu"}},
        ],
    ),
    "metrics.prometheus.source": (
        [
            {"metrics.prometheus": {"source": "central", "tenant": "ml"}},
            {"metrics.prometheus": {"url": URL, "bearerTokenSecretRef": TOKEN}},
            {"metrics.prometheus": {"url": URL, "basicAuthSecretRef": {"name": "login"}}},
            {"metrics.prometheus": {"url": URL, "caConfigMapRef": {"name": "ca", "key": "ca.crt"}}},
        ],
        [
            {"metrics.prometheus": {}},
            {"metrics.prometheus": {"source": "central", "url": URL}},
            {"metrics.prometheus": {"source": "central", "bearerTokenSecretRef": TOKEN}},
            {"metrics.prometheus": {"source": "central", "basicAuthSecretRef": {"name": "login"}}},
            {"metrics.prometheus": {"source": "c", "caConfigMapRef": {"name": "ca", "key": "k"}}},
            {"metrics.prometheus": {"url": URL, "tenant": "ml"}},
            {
                "metrics.prometheus": {
                    "url": URL,
                    "bearerTokenSecretRef": TOKEN,
                    "basicAuthSecretRef": {"name": "login"},
                }
            },
        ],
    ),
    "metrics.prometheus.url": (
        [{"metrics.prometheus": {"url": URL}}],
        [{"metrics.prometheus": {"url": "https://me:secret@prometheus.example.com"}}],
    ),
    "metrics.source": (
        [
            {"metrics.source": "Pods"},
            {"metrics.source": "Prometheus", "metrics.prometheusURL": "http://prometheus:9090"},
        ],
        [{"metrics.source": "Prometheus"}],
    ),
    "metrics.prometheusURL": (
        [
            {"metrics.prometheusURL": url}
            for url in (
                "",
                "http://prometheus:9090",
                "http://prometheus.monitoring.svc:9090/",
                "https://mimir.example.com/tenant-1/prometheus",
                "http://10.0.0.1:9090",
                "http://[fd00::1]:9090/p",
            )
        ],
        [
            {"metrics.prometheusURL": url}
            for url in (
                "prometheus:9090",
                "http://",
                "http:///api",
                "http://prometheus:9090/?tenant=a",
                "http://prometheus:9090?",
                "http://prometheus:9090/#",
                "http://kubernetes/api/v1/namespaces?limit=1#",
                "http://user:password@prometheus:9090",
                "http://user@prometheus",
                "http://prometheus:9090:1",
                "http://prometheus:port",
                "http://prometheus:9090/a b",
                "http://prometheus:9090/\n",
                "http://prometheus:9090\n",
                "http://prometheus\\@elsewhere",
                "file:///etc/passwd",
                "ftp://prometheus",
                "unix:///run/x",
            )
        ],
    ),
    "engine.image": (
        [
            {"engine.image": image}
            for image in (
                "vllm",
                "vllm/vllm-openai:v0.32.0",
                "registry.example.com:5000/team/vllm_openai:0.32.0-cu130",
                "vllm/vllm-openai@sha256:" + "a" * 64,
                "vllm/vllm-openai:v0.32.0@sha256:" + "0" * 64,
            )
        ],
        [
            {"engine.image": image}
            for image in (
                "vLLM/openai:v1",
                "vllm/vllm-openai:",
                "vllm openai",
                "vllm/vllm-openai@sha256:abc",
                "https://registry.example.com/vllm",
            )
        ],
    ),
    "rollout": (
        [
            {"rollout.maxUnavailable": 0, "rollout.maxSurge": 1},
            {"rollout.maxUnavailable": 1, "rollout.maxSurge": 0},
        ],
        [{"rollout.maxUnavailable": 0, "rollout.maxSurge": 0}],
    ),
}


def broken_by_predicate(document: dict[str, Any]) -> list[str]:
    parsed = parse(document)
    if isinstance(parsed, SpeculativeDeployment):
        return []
    return [problem.field.removeprefix("spec.") for problem in parsed]


def test_every_rule_has_its_cases() -> None:
    assert sorted(GOOD_AND_BAD) == sorted({rule.field for rule in RULES})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.message[:40])
def test_some_case_breaks_it(rule: Rule) -> None:
    """Two rules of one field are told apart by their sentence."""
    said = {
        problem.message
        for case in GOOD_AND_BAD[rule.field][1]
        for problem in parse(manifest(case))
        if isinstance(problem, Problem)
    }

    assert rule.message in said


@pytest.mark.parametrize(
    "changes", [case for good, _ in GOOD_AND_BAD.values() for case in good], ids=str
)
def test_good_specs_keep_every_rule(changes: dict[str, Any]) -> None:
    document = manifest(changes)

    assert broken_by_predicate(document) == []
    assert broken_by_cel(document["spec"]) == []


@pytest.mark.parametrize(
    ("field", "changes"),
    [(field, case) for field, (_, bad) in GOOD_AND_BAD.items() for case in bad],
    ids=str,
)
def test_bad_specs_break_their_rule_and_no_other(field: str, changes: dict[str, Any]) -> None:
    document = manifest(changes)

    assert broken_by_predicate(document) == [field]
    assert broken_by_cel(document["spec"]) == [field]


def test_messages_are_sentences() -> None:
    for rule in (*RULES, *CREATION_RULES):
        assert rule.message.endswith("."), rule.field
        assert len(rule.message) <= 2048, rule.field


@pytest.mark.parametrize("replica", [0, 9, 10, MAX_REPLICAS - 1])
def test_a_group_name_has_room_for_the_labels_of_each_groups_workers(replica: int) -> None:
    group_set = names.group_set("n" * names.LONGEST_GROUP_NAME, "12345678", replica)

    assert len(f"{group_set}-0-{2**32 - 1}") == 63


@pytest.mark.parametrize(
    ("longest", "replicas", "engine"),
    [
        (41, 0, {"engine.tensorParallelSize": 8}),
        (41, 10, {"engine.tensorParallelSize": 8}),
        (41, 11, {"engine.pipelineParallelSize": 2}),
        (41, 1000, {"engine.tensorParallelSize": 1, "engine.dataParallelSize": 8}),
        (41, 1024, {"engine.tensorParallelSize": 16, "nodePool.accelerator": "H100"}),
        (45, 1024, {}),
        (45, 1024, {"engine.tensorParallelSize": 8, "nodePool.accelerator": "H100"}),
    ],
)
def test_a_name_is_as_long_as_groups_let_it_be(
    longest: int, replicas: int, engine: dict[str, Any]
) -> None:
    fits = manifest({"replicas": replicas, **engine})
    fits["metadata"]["name"] = "n" * longest
    assert refused_on_creation(fits) == []
    assert _refused(fits) == []
    if longest == 45:
        return
    too_long = {**fits, "metadata": {"name": "n" * (longest + 1)}}
    assert refused_on_creation(too_long) == ["metadata.name"]
    assert _refused(too_long) == ["metadata.name"]


def test_a_name_that_is_there_already_keeps_the_server_from_nothing() -> None:
    document = manifest({"engine.tensorParallelSize": 8})
    document["metadata"]["name"] = "n" * 45

    assert refused_on_creation({**document, "status": {"replicas": 1}}) == []
    assert _refused(document) == ["metadata.name"]


def _refused(document: dict[str, Any]) -> list[str]:
    sd = parse(document)
    assert isinstance(sd, SpeculativeDeployment)
    return [problem.field for problem in errors(sd)]
