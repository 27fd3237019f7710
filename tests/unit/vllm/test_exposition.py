"""What a scrape shows."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fathom.adapters.metrics_page import parse
from fathom.adapters.series import FAMILIES, INFO, PAGE_LABELS
from fathom.measurement.counters import (
    Cell,
    CellCounts,
    ContextCounts,
    ContextRange,
    DraftCell,
    DraftCounts,
    StepKind,
)
from fathom_vllm.bundle import bundle_hash
from fathom_vllm.counters import DECODE, MIXED, STEP_KINDS, CountersWriter, DraftSums
from fathom_vllm.engine_report import engine_report
from fathom_vllm.exposition import OVERDUE_SECONDS, FathomCollector


class Pod:
    """The files of one pod, and what a scrape of it shows."""

    def __init__(self, directory: Path) -> None:
        self.depth_path = directory / "depth.json"
        self.counters_path = str(directory / "counters")
        self.now_s = 1000.0
        self.registry = CollectorRegistry()
        self.registry.register(
            FathomCollector(
                {
                    "FATHOM_DEPTH_FILE": str(self.depth_path),
                    "FATHOM_COUNTERS_FILE": self.counters_path,
                    "FATHOM_POD_NAME": "kimi-0",
                    "FATHOM_POD_UID": "9f1c",
                },
                engine_report(None, device="NVIDIA GB200"),
                clock=lambda: self.now_s,
            )
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def names(self) -> set[str]:
        return set(self.labels())

    def labels(self) -> dict[str, set[str]]:
        """Labels of each name that is shown."""
        return {
            sample.name: set(sample.labels)
            for family in self.registry.collect()
            for sample in family.samples
        }


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.fixture
def writer(pod: Pod) -> Iterator[CountersWriter]:
    writer = CountersWriter(pod.counters_path, max_batch=16, max_depth=7, token_budget=2048)
    writer.set_looked(pod.now_s)
    yield writer
    writer.close()


def test_before_an_engine_there_is_no_live_depth_and_no_generation(pod: Pod) -> None:
    of_a_pod = {"fathom_plugin_info", "fathom_pod_named", "fathom_engine_info"}
    assert pod.names() == {*of_a_pod, "fathom_counters_shown", "fathom_live_depth"}
    assert pod.value("fathom_counters_shown") == 0
    assert pod.value("fathom_live_depth") == 0
    labels = {"version": "0.1.0", "content": bundle_hash(), "pod_name": "kimi-0", "pod_uid": "9f1c"}
    assert pod.value("fathom_plugin_info", **labels) == 1
    assert pod.value("fathom_pod_named") == 1
    (engine,) = (each for each in pod.registry.collect() if each.name == "fathom_engine_info")
    assert [sample.value for sample in engine.samples] == [1]


def test_every_name_and_label_is_as_agreed(pod: Pod, writer: CountersWriter) -> None:
    writer.set_live(live=True)
    writer.set_idle(idle=False)
    writer.set_generation(12, 99)
    writer.reject_document()
    writer.hook_error()
    writer.hook_seconds(0.5)
    writer.transition_step(0.5, tokens=6, prefill=80)
    writer.stalled_step(3.0)
    writer.step(batch=9, depth=2, kind=DECODE, seconds=0.25, tokens=7)
    writer.step(
        batch=9, depth=2, kind=MIXED, seconds=0.75, tokens=4, prefill=50, drafts=3, accepted=[2, 1]
    )
    writer.context(2, DraftSums(9, 27, 11, 6))
    writer.context(7, DraftSums(5, 15, 2, 1))
    middle = {"context_ge": "4096", "context_le": "8191"}
    longest = {"context_ge": "131072", "context_le": "+Inf"}
    assert pod.value("fathom_context_drafts_total", **middle) == 9
    assert pod.value("fathom_context_draft_tokens_total", **middle) == 27
    assert pod.value("fathom_context_accepted_tokens_total", **middle) == 11
    assert pod.value("fathom_context_first_accepted_total", **middle) == 6
    assert pod.value("fathom_context_first_accepted_total", **longest) == 1
    cell = {"batch_ge": "9", "batch_le": "10", "depth": "2"}
    assert pod.value("fathom_steps_total", **cell, step="decode") == 1
    assert pod.value("fathom_step_seconds_total", **cell, step="decode") == 0.25
    assert pod.value("fathom_step_seconds_total", **cell, step="mixed") == 0.75
    assert pod.value("fathom_tokens_total", **cell, step="decode") == 7
    assert pod.value("fathom_scheduled_requests_total", **cell, step="mixed") == 9
    assert pod.value("fathom_drafts_total", **cell) == 3
    assert pod.value("fathom_accepted_tokens_total", **cell, position="0") == 2
    assert pod.value("fathom_accepted_tokens_total", **cell, position="1") == 1
    assert pod.value("fathom_prefill_tokens_total", **cell, step="mixed") == 50
    assert pod.value("fathom_prefill_tokens_total", **cell, step="decode") is None
    assert pod.value("fathom_transition_steps_total") == 1
    assert pod.value("fathom_transition_step_seconds_total") == 0.5
    assert pod.value("fathom_transition_tokens_total") == 6
    assert pod.value("fathom_transition_prefill_tokens_total") == 80
    assert pod.value("fathom_stalled_steps_total") == 1
    assert pod.value("fathom_stalled_step_seconds_total") == 3
    assert pod.value("fathom_token_budget") == 2048
    assert pod.value("fathom_depth_generation") == 12
    assert pod.value("fathom_depth_schedule_hash") == 99
    assert pod.value("fathom_depth_document_seen") == 0
    assert pod.value("fathom_depth_document_gone") == 0
    assert pod.value("fathom_depth_rejections_total") == 1
    assert pod.value("fathom_hook_errors_total") == 1
    assert pod.value("fathom_hook_seconds_total") == 0.5
    assert pod.value("fathom_live_depth") == 1
    assert pod.value("fathom_counters_shown") == 1


def test_the_operator_reads_the_names_that_the_plugin_shows(
    pod: Pod, writer: CountersWriter
) -> None:
    writer.set_live(live=True)
    writer.transition_step(0.5, tokens=6, prefill=80)
    writer.step(
        batch=9, depth=2, kind=MIXED, seconds=0.75, tokens=4, prefill=50, drafts=3, accepted=[2, 1]
    )
    writer.context(2, DraftSums(9, 27, 11, 6))
    page = generate_latest(pod.registry).decode() + "vllm:generation_tokens_total 4\n"

    found = parse(page, pod="kimi-0", at_s=1.0)

    assert {name for name in FAMILIES if name.startswith("fathom_")} <= pod.names()
    assert found.cells == {Cell(10, 2, StepKind.MIXED): CellCounts(1, 0.75, 4, 9, 50)}
    assert (found.transition_seconds, found.transition_tokens) == (0.5, 6)
    assert found.transition_prefill == 80
    assert found.token_budget == 2048
    assert found.device == "NVIDIA GB200"
    assert found.counts_prompts
    assert found.drafts == {DraftCell(10, 2): DraftCounts(3, (2, 1))}
    assert found.contexts == {ContextRange(4096): ContextCounts(9, 27, 11, 6)}
    assert found.live_depth


def test_a_label_of_the_plugin_is_known_to_the_operator_and_explained(
    pod: Pod, writer: CountersWriter
) -> None:
    writer.step(batch=9, depth=2, kind=MIXED, seconds=0.75, tokens=4, drafts=3, accepted=[2, 1])
    writer.context(2, DraftSums(9, 27, 11, 6))
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(fathom_\w+)` \| \w+ \|([^|]*)\|", page, re.MULTILINE)
    explained = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}

    for name, labels in pod.labels().items():
        assert labels == explained[name], f"docs/metrics.md gives {name} other labels"
        assert name not in FAMILIES - {INFO} or labels <= set(PAGE_LABELS), (
            f"PAGE_LABELS in operator/fathom/adapters/exposition.py lacks a label of {name}: what "
            "differs in nothing else would count as a copy"
        )


def test_the_operator_knows_the_kinds_of_steps_that_the_plugin_counts() -> None:
    assert tuple(StepKind) == STEP_KINDS, (
        "the operator reads kinds of steps into StepKind in operator/fathom/measurement/counters.py"
    )


def test_a_device_of_unknown_name_is_not_shown(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(FathomCollector({"FATHOM_COUNTERS_FILE": str(tmp_path / "counters")}))
    assert b"fathom_engine_info" not in generate_latest(registry)


def test_only_touched_cells_are_shown(pod: Pod, writer: CountersWriter) -> None:
    writer.step(batch=1, depth=0, kind=DECODE, seconds=0.1, tokens=1)
    cells = [
        sample
        for family in pod.registry.collect()
        for sample in family.samples
        if sample.name == "fathom_steps_total"
    ]
    assert [sample.labels for sample in cells] == [
        {"batch_ge": "1", "batch_le": "1", "depth": "0", "step": "decode"}
    ]
    assert "fathom_drafts_total" not in pod.names()


def test_an_idle_engine_shows_the_generation_its_next_step_obeys(
    pod: Pod, writer: CountersWriter
) -> None:
    writer.set_live(live=True)
    writer.set_generation(1, 10)
    writer.set_ready(2, 20)
    assert pod.value("fathom_depth_generation") == 2
    assert pod.value("fathom_depth_schedule_hash") == 20


def test_a_busy_engine_shows_what_its_last_step_was_scheduled_by(
    pod: Pod, writer: CountersWriter
) -> None:
    writer.set_live(live=True)
    writer.set_idle(idle=False)
    writer.set_generation(1, 10)
    writer.set_ready(2, 20)
    assert pod.value("fathom_depth_generation") == 1
    assert pod.value("fathom_depth_schedule_hash") == 10


def test_an_engine_without_live_depth_does_not_pretend(pod: Pod, writer: CountersWriter) -> None:
    writer.set_live(live=False)
    writer.set_ready(2)
    assert pod.value("fathom_depth_generation") == 0


def test_depth_is_not_live_while_nobody_looks_at_the_file(
    pod: Pod, writer: CountersWriter, caplog: pytest.LogCaptureFixture
) -> None:
    writer.set_live(live=True)
    pod.now_s += OVERDUE_SECONDS
    assert pod.value("fathom_live_depth") == 1
    pod.now_s += 1
    for _ in range(3):
        assert pod.value("fathom_live_depth") == 0
    assert caplog.text.count("the depth file has not been checked for 31 s") == 1
    writer.set_looked(pod.now_s)
    assert pod.value("fathom_live_depth") == 1


def test_a_document_that_was_seen_and_is_gone_is_told_apart(
    pod: Pod, writer: CountersWriter
) -> None:
    def found() -> tuple[bool, bool]:
        page = generate_latest(pod.registry).decode() + "vllm:generation_tokens_total 4\n"
        read = parse(page, pod="kimi-0", at_s=1.0)
        return read.document_seen, read.document_gone

    writer.set_live(live=True)
    assert found() == (False, False)
    for gone in (False, True, False):
        writer.set_document(gone=gone)
        assert found() == (True, gone)


def test_an_engine_without_its_pods_name_says_so(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(FathomCollector({"FATHOM_COUNTERS_FILE": str(tmp_path / "counters")}))
    page = generate_latest(registry).decode() + "vllm:generation_tokens_total 4\n"
    assert not parse(page, pod="kimi-0", at_s=1.0).named


def test_an_unreadable_file_never_breaks_the_scrape(pod: Pod) -> None:
    Path(pod.counters_path).mkdir()
    assert pod.value("fathom_live_depth") == 0


def test_what_cannot_be_shown_is_logged_once(
    pod: Pod, writer: CountersWriter, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> float:
        raise OSError("no clock")

    writer.set_live(live=True)
    collector = FathomCollector({"FATHOM_COUNTERS_FILE": pod.counters_path}, clock=broken)
    for _ in range(3):
        assert [*collector.collect()] == []
    assert caplog.text.count("the counters cannot be shown") == 1
