"""What engines tell of themselves, beside what their arguments ask for."""

import json
from collections.abc import Mapping

import pytest

from fathom.engine.argument_parser import EngineArguments
from fathom.engine.flags import engine_args
from fathom.engine.profile import profile_of
from fathom.engine.report import (
    NOTHING_TOLD,
    Difference,
    EngineReport,
    asked_by,
    device_in,
    differences,
    report_in,
)
from manifest_samples import resource


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("max_num_seqs", ""),
        ("max_num_seqs", "many"),
        ("max_num_seqs", "-1"),
        ("max_num_seqs", "9" * 400),
        ("depths", "0,,3"),
        ("depths", "0,1000000"),
        ("capture_sizes", "1," * 5000 + "1"),
        ("method", "a sentence with spaces"),
        ("vllm_version", "x" * 1000),
        ("graph_mode", "NONE\nfathom_live_depth 1"),
        ("asynchronous", "perhaps"),
        ("of_a_later_plugin", "1"),
    ],
)
def test_what_cannot_be_read_is_not_told(label: str, value: str) -> None:
    assert report_in({label: value}) == NOTHING_TOLD


def test_lists_are_told_number_by_number_and_depths_in_order() -> None:
    assert report_in({"capture_sizes": "1,2,4", "depths": "3,0,1"}) == EngineReport(
        capture_sizes=(1, 2, 4), depths=(0, 1, 3)
    )


@pytest.mark.parametrize("labels", [{}, {"device": "x" * 65}, {"device": "two\nlines"}])
def test_a_device_has_a_name_of_one_short_line(labels: Mapping[str, str]) -> None:
    assert device_in(labels) == ""


def test_a_rendered_command_asks_for_what_the_spec_says() -> None:
    args = ["--max-num-seqs", "64", "--max-num-batched-tokens", "2k", "--no-async-scheduling"]
    spec = resource(
        {
            "speculation": {"tokens": 3, "depths": [1, 3, 7]},
            "engine.args": args,
        }
    ).spec

    assert asked_by(EngineArguments.of(engine_args(profile_of(spec)))) == EngineReport(
        depths=(0, 1, 3, 7),
        method=spec.draft.method.value,
        max_num_seqs=64,
        token_budget=2000,
        asynchronous=False,
    )


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ((), NOTHING_TOLD),
        (("--speculative-config", "not JSON"), NOTHING_TOLD),
        (("--speculative-config", "[1]"), NOTHING_TOLD),
        (
            ("--speculative-config", json.dumps({"num_speculative_tokens": 3})),
            EngineReport(depths=(3,)),
        ),
        (
            (
                "--speculative-config",
                '{"num_speculative_tokens_per_batch_size": [[1, 2, "x"], []]}',
            ),
            NOTHING_TOLD,
        ),
        (("--async-scheduling",), EngineReport(asynchronous=True)),
    ],
)
def test_what_arguments_leave_open_is_not_asked_for(
    args: tuple[str, ...], asked: EngineReport
) -> None:
    assert asked_by(EngineArguments.of(args)) == asked


ASKED = EngineReport(
    version="0.32.0", depths=(0, 1, 3, 7), method="eagle3", max_num_seqs=256, token_budget=8192,
    asynchronous=True, tensor_parallel=4,
)  # fmt: skip


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (NOTHING_TOLD, []),
        (ASKED, []),
        (EngineReport(version="0.32.1.dev4+g1a2b3c"), []),
        (EngineReport(version="nobody's number"), []),
        (EngineReport(version="0.28.0"), [("vLLM", "0.28", "0.32")]),
        (EngineReport(method="mtp"), [("method", "mtp", "eagle3")]),
        (EngineReport(depths=(7,)), [("depths", "7", "0, 1, 3, 7")]),
        (
            EngineReport(max_num_seqs=128, token_budget=2048),
            [("max_num_seqs", "128", "256"), ("max_num_batched_tokens", "2048", "8192")],
        ),
        (EngineReport(asynchronous=False), [("async_scheduling", "false", "true")]),
        (EngineReport(tensor_parallel=8), [("tensor_parallel_size", "8", "4")]),
        (EngineReport(runner="V1", graph_mode="NONE", devices=8), []),
    ],
)
def test_only_what_both_know_can_differ(
    told: EngineReport, found: list[tuple[str, str, str]]
) -> None:
    assert [*differences(told, ASKED)] == [Difference(*each) for each in found]
    assert [*differences(told, NOTHING_TOLD)] == []


@pytest.mark.parametrize(
    "config",
    [
        '{"num_speculative_tokens": [3]}',
        '{"num_speculative_tokens_per_batch_size": [[1, 4, [3]]]}',
    ],
)
def test_depths_that_are_no_numbers_are_not_told(config: str) -> None:
    """A webhook may have written anything."""
    assert asked_by(EngineArguments.of(("--speculative-config", config))).depths == ()
