"""What is read of vLLM's configuration, as releases have it."""

from types import SimpleNamespace as Of
from typing import Any

import pytest

from fathom.engine.depth import DepthRange
from fathom.engine.report import EngineReport, device_in, report_in
from fathom_vllm.engine_report import LABELS, engine_report

SCHEDULE = [(1, 250, 3), (251, 251, 7), (252, 252, 1), (253, 256, 0)]


def config(**parts: object) -> Any:
    """A whole one, but for these parts."""
    whole = {
        "use_v2_model_runner": True,
        "compilation_config": Of(
            cudagraph_mode=Of(name="FULL_AND_PIECEWISE"), cudagraph_capture_sizes=[1, 2, 4, 8]
        ),
        "speculative_config": Of(
            method="eagle3",
            num_speculative_tokens=7,
            num_speculative_tokens_per_batch_size=SCHEDULE,
        ),
        "scheduler_config": Of(
            max_num_seqs=256, max_num_batched_tokens=8192, async_scheduling=True
        ),
        "parallel_config": Of(
            tensor_parallel_size=4, pipeline_parallel_size=2, data_parallel_size=1, world_size=8
        ),
    }
    return Of(**whole | parts)


WHOLE = EngineReport(
    version="0.32.0",
    runner="V2",
    graph_mode="FULL_AND_PIECEWISE",
    capture_sizes=(1, 2, 4, 8),
    depths=(0, 1, 3, 7),
    schedule=tuple(DepthRange(*each) for each in SCHEDULE),
    method="eagle3",
    max_num_seqs=256,
    token_budget=8192,
    asynchronous=True,
    tensor_parallel=4,
    pipeline_parallel=2,
    data_parallel=1,
    devices=8,
)


def test_the_operator_reads_what_the_plugin_tells() -> None:
    labels = engine_report(config(), device="NVIDIA GB200", version="0.32.0")

    assert tuple(labels) == LABELS
    assert device_in(labels) == "NVIDIA GB200"
    assert report_in(labels) == WHOLE


@pytest.mark.parametrize(
    ("drafting", "depths", "method"),
    [
        (None, (0,), ""),
        (Of(method="mtp", num_speculative_tokens=2), (2,), "mtp"),
        (
            Of(
                method="mtp",
                num_speculative_tokens=2,
                num_speculative_tokens_per_batch_size=None,
            ),
            (2,),
            "mtp",
        ),
    ],
    ids=["no speculation", "earlier release", "one depth"],
)
def test_depths_are_those_that_the_engine_can_be_at(
    drafting: object, depths: tuple[int, ...], method: str
) -> None:
    report = report_in(engine_report(config(speculative_config=drafting)))
    assert (report.depths, report.method) == (depths, method)


def test_what_a_release_does_not_tell_is_unknown_and_the_rest_is_told() -> None:
    labels = engine_report(
        config(compilation_config=Of(cudagraph_mode=None), scheduler_config=Of(max_num_seqs=64))
    )
    report = report_in(labels)

    assert (report.graph_mode, report.capture_sizes) == ("", ())
    assert (report.token_budget, report.asynchronous) == (None, None)
    assert (report.max_num_seqs, report.runner, report.devices) == (64, "V2", 8)


@pytest.mark.parametrize("config", [None, object(), "of another shape"])
def test_a_configuration_of_any_shape_stops_nothing(config: object) -> None:
    assert report_in(engine_report(config)) == EngineReport()


def test_a_startup_schedule_is_told_by_batch_and_one_depth_is_none() -> None:
    assert engine_report(config())["schedule"] == "1-250:3,251-251:7,252-252:1,253-256:0"
    one = Of(method="mtp", num_speculative_tokens=2, num_speculative_tokens_per_batch_size=None)
    assert engine_report(config(speculative_config=one))["schedule"] == ""
    assert engine_report(config(speculative_config=None))["schedule"] == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1-4",
        "1-4:5,",
        "2-4:5",
        "1-4:5,4-8:3",
        "5-4:5",
        "1-4:5,8-7:3",
        "1-4:5000",
        "1-4:-1",
        "x" * 2000,
        "1-9999999999:3",
    ],
)
def test_a_schedule_that_is_none_is_not_told(text: str) -> None:
    assert report_in({"schedule": text}).schedule == ()
    assert report_in({"schedule": "1-4:5,6-8:3"}).schedule == (
        DepthRange(1, 4, 5),
        DepthRange(6, 8, 3),
    )


def test_a_list_without_measure_is_left_out() -> None:
    sizes = Of(cudagraph_mode=Of(name="FULL"), cudagraph_capture_sizes=range(1, 1000))
    labels = engine_report(config(compilation_config=sizes))
    assert (labels["capture_sizes"], labels["graph_mode"]) == ("", "FULL")
