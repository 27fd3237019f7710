"""Each old fault's patch still applies: who changes a line that one undoes learns it at once."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BITES = sorted((ROOT / "tests" / "storms" / "bites").glob("*.patch"))


@pytest.mark.parametrize("patch", BITES, ids=lambda patch: patch.stem)
def test_an_old_fault_can_still_be_put_back(patch: Path) -> None:
    """Else nobody would know any more whether the histories find it."""
    tried = subprocess.run(
        ["patch", "--dry-run", "-p1", "-i", patch],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert tried.returncode == 0, tried.stdout
