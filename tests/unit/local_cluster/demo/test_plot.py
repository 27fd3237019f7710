"""The demo's picture says what its tables say."""

from pathlib import Path

import pytest

from local_cluster.demo.measure import Pairs, PhaseResult, SweepResult
from local_cluster.demo.phases import PHASES
from local_cluster.demo.plot import write_plot

RESULTS = [PhaseResult(phase, 5, Pairs((120.0, 130.0), (100.0, 104.0))) for phase in PHASES]
SWEEPS = [SweepResult(phase, {3: 100.0, 5: 125.0, 7: 110.0}) for phase in PHASES]


def test_each_kind_of_traffic_has_a_panel_with_its_ratio(tmp_path: Path) -> None:
    file = tmp_path / "demo.svg"
    write_plot(RESULTS, SWEEPS, 3, file)
    text = file.read_text()
    for phase in PHASES:
        assert f"{phase}: tuned / static" in text
    assert text.count(str(RESULTS[0].ratio)) == len(PHASES)
    for label in ("each static depth", "static 3", "Fathom's choice"):
        assert label in text


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_same_figures_make_the_same_file(tmp_path: Path, ending: str) -> None:
    one, two = (tmp_path / f"{name}.{ending}" for name in ("one", "two"))
    for file in (one, two):
        write_plot(RESULTS, SWEEPS, 3, file)
    assert one.read_bytes() == two.read_bytes()
