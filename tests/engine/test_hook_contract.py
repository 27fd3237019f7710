"""What the plugin takes for granted of vLLM, asked of vLLM's own scheduler; no model runs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fathom.engine.report import device_in, report_in
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.releases import asked_releases
from support.asked_vllm import AskVllm

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE = Path(__file__).with_name("hook_probe.py")
DEPTHS = (5, 1, 0, 7, 2, 3)
STEPS = 6
"""At each."""
STEPS_WITH_PROMPTS = 60
STARTUP = 3
TOKENS = 4
"""The user's own, once the document is gone."""
NOTHING = -1
"""Is verified by a prompt."""


@pytest.fixture(scope="module", params=asked_releases(os.environ))
def said(request: pytest.FixtureRequest, pair: ModelPair, ask_vllm: AskVllm) -> Mapping[str, Any]:
    question = {
        "target": str(pair.target),
        "draft": str(pair.draft),
        "depths": DEPTHS,
        "steps": STEPS,
        "steps_with_prompts": STEPS_WITH_PROMPTS,
        "tokens": TOKENS,
    }
    found: Mapping[str, Any] = ask_vllm(PROBE, question, release=request.param)
    return found


def test_tables_are_equal_for_any_schedule(said: Mapping[str, Any]) -> None:
    assert said["unequal_tables"] == []


def test_each_step_obeys_the_document_and_the_next_one_verifies_it(said: Mapping[str, Any]) -> None:
    drafting = [step[0] for step in said["steps"]]

    # The last one is still in flight.
    depths = (*DEPTHS, TOKENS)
    assert drafting == [STARTUP, *(depth for depth in depths for _ in range(STEPS))][:-1]
    assert [step[1:] for step in said["steps"]] == [
        [NOTHING, NOTHING],
        *([depth, depth] for depth in drafting[:-1]),
    ]


def test_every_step_is_counted_at_its_depth_and_nothing_fails(said: Mapping[str, Any]) -> None:
    counted = said["counted"]

    assert counted["live"]
    assert (counted["generation"], counted["gone"], counted["rejections"]) == (0, True, 0)
    assert counted["errors"] == 0
    assert counted["transitions"] == len(DEPTHS) + 1
    assert counted["depths"] == sorted((*DEPTHS, TOKENS))
    assert counted["steps"] + counted["transitions"] == len(said["steps"])


def test_an_engine_without_speculation_counts_its_steps_at_depth_0(said: Mapping[str, Any]) -> None:
    counted = said["without_drafts"]

    assert not counted["live"]
    assert counted["errors"] == 0
    assert counted["depths"] == [0]
    # The last one is still in flight.
    assert counted["steps"] == STEPS - 1


def test_vllms_total_tells_steps_with_prompts_and_their_tokens(said: Mapping[str, Any]) -> None:
    prompts = said["prompts"]

    assert prompts["counted"] == prompts["scheduled"]
    assert 0 < prompts["scheduled"][0] < STEPS_WITH_PROMPTS - 1


def test_vllms_configuration_says_what_it_runs_with(said: Mapping[str, Any]) -> None:
    told, report = said["told"], report_in(said["told"])

    assert {name for name, value in told.items() if not value} == {"capture_sizes"}
    assert (device_in(told), report.devices, report.graph_mode) == ("cpu", 1, "NONE")
    assert (report.runner, report.method, report.depths) == ("V1", "eagle3", (STARTUP,))
    assert report.token_budget == 16 * (report.max_num_seqs or 0)
    ranks = (report.tensor_parallel, report.pipeline_parallel, report.data_parallel)
    assert (report.asynchronous, *ranks) == (False, 1, 1, 1)


def test_vllm_finds_the_logger_and_can_use_it(said: Mapping[str, Any]) -> None:
    assert said["loggers"] == ["FathomStatLogger"]
