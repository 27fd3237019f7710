"""Pages of earlier plugins, as recorded: pods keep the plugin that they were started with.

Each was recorded of the plugin of that time, with the same counts. A page that a release of Fathom
shows is added before the plugin's exposition changes, and never edited.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from fathom.adapters.metrics_page import parse
from fathom.engine.depth import DepthDocument, DepthRange, flat
from fathom.engine.report import NOTHING_TOLD, EngineReport
from fathom.measurement.counters import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    PodCounters,
    StepKind,
)

PAGES = Path(__file__).with_name("plugin_pages")
OF_VLLM = 'vllm:generation_tokens_total{engine="0",model_name="m"} 184.0\n'
REPORT = EngineReport(
    version="0.32.0",
    runner="V2",
    graph_mode="FULL_AND_PIECEWISE",
    capture_sizes=(1, 2, 4, 8),
    depths=(0, 1, 3, 7),
    method="eagle3",
    max_num_seqs=256,
    token_budget=8192,
    asynchronous=True,
    tensor_parallel=4,
    pipeline_parallel=1,
    data_parallel=1,
    devices=4,
)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """In what the pages differ."""

    buckets: tuple[int, int] = (6, 20)
    prompts: bool = True
    report: bool = False


SHOWN = {
    "1_whole_doublings": Shown(buckets=(8, 32), prompts=False),
    "2_quarters_of_doublings": Shown(prompts=False),
    "3_prompts_and_stalls": Shown(),
    "4_engine_info": Shown(report=True),
    "5_document_gone": Shown(report=True),
}


def read(page: str) -> PodCounters:
    text = (PAGES / f"{page}.prom").read_text(encoding="utf-8")
    return parse(text + OF_VLLM, pod="kimi-0a1b2c3d-x", at_s=1.0)


def test_every_recorded_page_is_read() -> None:
    assert {path.stem for path in PAGES.iterdir()} == SHOWN.keys()


@pytest.mark.parametrize("page", SHOWN)
def test_it_counts_as_it_did(page: str) -> None:
    found, shown = read(page), SHOWN[page]
    small, large = shown.buckets
    prompts = 300.0 if shown.prompts else 0.0

    assert found.cells == {
        Cell(small, 3, StepKind.DECODE): CellCounts(10, 0.625, 150, 60, 0),
        Cell(small, 3, StepKind.MIXED): CellCounts(1, 0.125, 14, 6, prompts),
        Cell(large, 0, StepKind.DECODE): CellCounts(1, 0.125, 20, 20, 0),
    }
    assert found.drafts == {DraftCell(small, 3): DraftCounts(65, (54, 33, 11))}
    assert found.counts_prompts is shown.prompts
    assert found.token_budget == (8192 if shown.prompts else 0)
    assert (found.live_depth, found.counters_shown) == (True, True)
    assert (found.depth_rejections, found.hook_errors, found.transition_steps) == (1, 1, 1)
    later = (found.transition_seconds, found.transition_tokens, found.transition_prefill)
    assert later == ((0.5, 6, 80) if shown.prompts else (0, 0, 0))
    device = "NVIDIA GB200" if shown.report else ""
    assert (found.device, found.report) == (device, REPORT if shown.report else NOTHING_TOLD)


@pytest.mark.parametrize("page", SHOWN)
def test_what_it_does_not_show_is_nothing_against_it(page: str) -> None:
    found = read(page)

    assert (found.document_seen, found.document_gone, found.named) == (True, False, True)
    assert found.report.schedule == ()
    assert not found.contexts
    document = DepthDocument(generation=12, schedule=flat(3, 256))
    assert found.runs(document)
    assert not found.runs(DepthDocument(generation=13, schedule=flat(3, 256)))
    # By its number alone, where it shows no hash.
    foreign = DepthDocument(generation=12, schedule=(DepthRange(1, 256, 5),))
    assert found.runs(foreign) is (page < "4")
