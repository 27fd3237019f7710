"""Does the simulator bite? Each old fault is put back, and has to be found.

Every patch in `bites` undoes the mend of one fault, in a copy of the code. The first seed that
breaks an invariant there is told, and, if asked, kept as its shortest history.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
SEEDS: Final = 200
CHUNK: Final = 10


def main() -> int:
    """Exit code 0 if every fault is found."""
    parser = argparse.ArgumentParser(prog="storms.bite", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep the shortest histories in found/")
    parser.add_argument("only", nargs="?", default="", help="part of a patch's name, such as 07")
    asked = parser.parse_args()
    missed = []
    patches = (HERE / "bites").glob("*.patch")
    for patch in sorted(each for each in patches if asked.only in each.name):
        with tempfile.TemporaryDirectory(prefix="fathom-bite-") as place:
            copy = Path(place)
            for part in ("operator", "tests"):
                shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pyc*"))
            subprocess.run(["patch", "-s", "-p1", "-i", str(patch)], cwd=copy, check=True)
            found = _first(copy)
            print(f"{patch.stem}: {found or 'NOT found'}", flush=True)
            if not found:
                missed.append(patch.stem)
            elif asked.keep:
                seed = found.split()[1].rstrip(",")
                kept = HERE / "found" / f"{patch.stem}.json"
                _storms(copy, seed, "--shrink", str(kept))
    return 1 if missed else 0


def _first(copy: Path) -> str:
    """The first seed that breaks something, and what; empty: none does."""
    for first in range(1, SEEDS + 1, CHUNK):
        told = _storms(copy, f"{first}-{first + CHUNK - 1}")
        for line in told.splitlines():
            if "✘ seed" in line:
                return line.removeprefix("✘ ")
    return ""


def _storms(copy: Path, *arguments: str) -> str:
    paths = os.pathsep.join(str(copy / part) for part in ("operator", "tests"))
    ran = subprocess.run(
        [sys.executable, "-m", "storms", *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main())
