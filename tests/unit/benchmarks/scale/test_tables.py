"""The report: for a person, and as JSON."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.scale.command import hottest_parts, sizes_of
from benchmarks.scale.figures import Percentiles, ScaleReport, SizeFigures, Start, WindowLoad
from benchmarks.scale.memory import MemoryLook
from benchmarks.scale.plot import write_plot
from benchmarks.scale.sampling import Profile
from benchmarks.scale.tables import ROWS, figures_table, result_tables
from benchmarks.scale.takeover import Ending, Takeover
from local_cluster.errors import LocalClusterError


def load(cores: float, pages: float) -> WindowLoad:
    return WindowLoad(
        seconds=60.0,
        operator_cores=cores,
        waited_cores=0.0,
        rss_mib=200.0,
        passes_per_minute=100.0,
        failed_passes=0,
        restarts=0,
        cpu_ms_per_pass=12.0,
        reads_per_minute=1100.0,
        reads_by_kind={"pods": 600, "deployments": 500},
        writes_per_minute=0.0,
        writes_by_kind={},
        received_kib_per_minute=None,
        pages_per_second=pages,
        decisions={},
        api_server_cores=0.3,
        api_server_mib=500.0,
        etcd_cores=0.1,
        bench_cores=0.1,
        machine_cores=1.0,
    )


def size(resources: int, cores: float) -> SizeFigures:
    start = Start(seconds=10.0, cpu_seconds=5.0, restarts=0, reads=1100, writes=0)
    return SizeFigures(
        resources=resources,
        pods=4 * resources,
        namespaces=10,
        build=start,
        start=start,
        rest=load(0.1, 1.0),
        edits_at_rest=Percentiles(count=20, p50=0.4, p99=1.2, most=1.2),
        traffic=load(cores, 11.0),
        edits_under_traffic=None,
        steady=load(cores / 2, 6.0),
        edits_when_steady=None,
        takeovers=(
            Takeover(
                ending=Ending.KILLED,
                first_pass_seconds=16.25,
                looked_at_seconds=40.0,
                workloads_written=0,
            ),
        ),
        memory=tuple(MemoryLook(seconds=60.0 * i, mib=200.0 + i / 4) for i in range(30)),
        edits_unanswered=0,
        status_bytes=Percentiles(count=resources, p50=3000.0, p99=4000.0, most=4100.0),
        restarts=0,
        warnings={"pass not finished": resources},
    )


REPORT = ScaleReport(
    kubernetes="1.36.2",
    python="3.11.2",
    processors=2,
    slowness=1.5,
    pods_each=4,
    one_namespace=False,
    quick=False,
    minutes=3.0,
    sizes=(size(100, 0.2), size(300, 0.5)),
)


def shown(report: ScaleReport, profile: Profile) -> str:
    console = Console(file=StringIO(), width=130)
    console.print(result_tables(report, hottest_parts(profile)))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_each_figure_stands_with_its_growth_from_size_to_size() -> None:
    table = figures_table(REPORT)
    assert [column.header for column in table.columns] == ["resources", "100", "×3", "300"]
    assert table.row_count == len(ROWS)
    (row,) = [
        line for line in shown(REPORT, Profile()).splitlines() if "traffic: operator, cores" in line
    ]
    assert [each.strip() for each in row.split("│")[1:-1]] == [
        "traffic: operator, cores",
        "0.200",
        "×2.5",
        "0.500",
    ]


def cells(text: str, label: str) -> list[str]:
    rows = ([cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines())
    (found,) = [row for row in rows if row and row[0] == label]
    return found[1:]


def test_memory_is_told_by_the_hour() -> None:
    assert cells(shown(REPORT, Profile()), "steady: memory gained, MiB an hour") == [
        *("15.0", "×1", "15.0"),
    ]


def test_a_takeover_stands_by_how_the_leader_ended() -> None:
    text = shown(REPORT, Profile())
    assert cells(text, "leader killed: first pass of the next, s") == ["16.2", "×1", "16.2"]
    assert cells(text, "leader stopped: first pass of the next, s") == ["", "", ""]


def test_the_picture_names_what_was_measured(tmp_path: Path) -> None:
    write_plot(REPORT, tmp_path / "scale.svg")
    drawn = (tmp_path / "scale.svg").read_text()
    for label in ("at rest", "first minutes of traffic", "steady", "300 resources"):
        assert label in drawn
    write_plot(REPORT, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == drawn


def test_a_page_costs_what_traffic_takes_beyond_rest() -> None:
    assert size(100, 0.2).page_cpu_ms == pytest.approx(10)
    assert size(100, 0.2).pods_per_core == pytest.approx(2000)
    assert size(100, 0.0).pods_per_core is None
    assert size(100, 0.2).pods_per_core_once_a_window == pytest.approx(3000)
    assert size(100, 0.1).pods_per_core_once_a_window is None


def test_requests_stand_by_kind_and_a_minute() -> None:
    assert "pods 600, deployments 500" in shown(REPORT, Profile())


def test_warnings_stand_with_how_often_they_came_at_each_size() -> None:
    (row,) = [line for line in shown(REPORT, Profile()).splitlines() if "pass not" in line]
    assert [each.strip() for each in row.split("│")[1:-1]] == ["pass not finished", "100", "300"]


def test_a_profile_shows_rest_and_traffic_of_the_largest_size() -> None:
    profile = Profile(
        {
            "300_resources;cold_start": {"a.py:f": 1},
            "300_resources;rest": {"fathom/x.py:g;json/decoder.py:h": 3, "fathom/x.py:g": 1},
            "300_resources;traffic": {"fathom/y.py:i": 2},
        }
    )
    text = shown(REPORT, profile)
    assert "300 resources, rest: 4 samples" in text
    assert "75.0%" in text
    assert "a.py:f" not in text
    assert "300_resources;rest;fathom/x.py:g 1\n" in profile.to_text()


def test_figures_survive_as_json() -> None:
    assert ScaleReport.model_validate_json(REPORT.model_dump_json()) == REPORT


def test_sizes_are_read_as_they_are_written() -> None:
    assert sizes_of("100,300") == (100, 300)
    assert sizes_of("") == ()


@pytest.mark.parametrize("text", ["many", "300,100", "0", "100,100", "-3"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(LocalClusterError, match=r"such as 100,300"):
        sizes_of(text)
