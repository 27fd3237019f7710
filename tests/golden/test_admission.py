"""Pods of all that is rendered, by the rules of an API server newer than the one of tests."""

from pathlib import Path
from typing import Any

import pytest

from fathom.engine.plugin import PluginBundle
from fathom.fetch.state import FetchProgram
from fathom.manifests.render import children
from golden.rendering import SOURCES, WORKLOADS, pods, read
from support.newer_server import as_older, refusals

BUNDLE = PluginBundle({"fathom_vllm/__init__.py": ""}, "0123456789ab")
PROGRAM = FetchProgram({"fathom_fetch/__init__.py": ""}, "0123456789ab")
KEY = "example.com/group"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_server_of_today_admits_its_pods(source: Path) -> None:
    workloads = [
        dict(each) for each in children(read(source), BUNDLE, PROGRAM) if each["kind"] in WORKLOADS
    ]

    assert [refusals(pod) for each in workloads for pod in pods(each)] == [
        [] for each in workloads for _ in pods(each)
    ]


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "pod", "labels": {KEY: "one"}},
        "spec": {"containers": [{"name": "vllm"}], **spec},
    }


def affinity(**term: Any) -> dict[str, Any]:
    """A pod with one required term."""
    required = {"topologyKey": "rack", **term}
    return pod(
        affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [required]}}
    )


BOTH = {"labelSelector": {"matchExpressions": [{"key": KEY, "operator": "Exists"}]},
        "matchLabelKeys": [KEY]}  # fmt: skip


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (affinity(**BOTH), f"podAffinity: {KEY} exists in both matchLabelKeys and labelSelector"),
        (
            affinity(labelSelector={"matchLabels": {KEY: "one"}}, mismatchLabelKeys=[KEY]),
            f"podAffinity: {KEY} exists in both mismatchLabelKeys and labelSelector",
        ),
        (
            affinity(labelSelector={}, matchLabelKeys=[KEY], mismatchLabelKeys=[KEY]),
            f"podAffinity: {KEY} exists in both matchLabelKeys and mismatchLabelKeys",
        ),
        (
            affinity(matchLabelKeys=[KEY]),
            "podAffinity: matchLabelKeys must not be specified when labelSelector is not set",
        ),
        (
            pod(
                affinity={
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 1, "podAffinityTerm": BOTH}
                        ]
                    }
                }
            ),
            f"podAntiAffinity: {KEY} exists in both matchLabelKeys and labelSelector",
        ),
        (
            pod(topologySpreadConstraints=[{"topologyKey": "rack", **BOTH}]),
            f"topologySpreadConstraints: {KEY} exists in both matchLabelKeys and labelSelector",
        ),
        (
            pod(containers=[{"name": "vllm", "resources": {"claims": [{"name": "a"}]}}]),
            "vllm: claims a, and the pod does not",
        ),
    ],
)
def test_what_it_would_refuse_is_found(refused: dict[str, Any], sentence: str) -> None:
    assert refusals(refused) == [sentence]


def test_an_older_server_is_told_the_same_in_its_own_words() -> None:
    older = as_older(affinity(labelSelector={"matchLabels": {"a": "b"}}, matchLabelKeys=[KEY]))

    terms = older["spec"]["affinity"]["podAffinity"]
    assert terms["requiredDuringSchedulingIgnoredDuringExecution"] == [
        {
            "topologyKey": "rack",
            "labelSelector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": KEY, "operator": "In", "values": ["one"]}],
            },
        }
    ]
