import pytest

from fathom.tuning.estimate.acceptance_length import decay


@pytest.mark.parametrize(("passed_s", "kept"), [(0, 1), (600, 0.5), (1800, 0.125), (-5, 1)])
def test_what_was_counted_fades_by_halves(passed_s: float, kept: float) -> None:
    assert decay(passed_s, 600) == kept
