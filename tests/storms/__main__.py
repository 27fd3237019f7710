"""`python -m storms`: histories of faults, run, replayed, and shrunk to the shortest that fails."""

import argparse
import gc
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from storms import hosts
from storms.crash_points import CRASHES
from storms.history import History, drawn
from storms.shrink import shrunk
from storms.storm import run

_SEEDS = re.compile(r"(hosts )?(\d+)-(\d+)(?:/(\d+))?")
_A_LINE_EACH = 250
"""Histories, where a line cannot be written over: a log of a long hunt shows how far it is."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one history."""

    name: str
    broken: str
    writes: int
    simulated_s: float
    cpu_s: float


def seed(number: int) -> Ran:
    """Run the history of a seed."""
    return _timed(f"seed {number}", drawn(number), None)


def host_seed(number: int) -> Ran:
    """Run the history of a seed with a SpeculationTuner and its pods' host."""
    began_s = time.process_time()
    verdict = hosts.run(number)
    cpu_s = time.process_time() - began_s
    return Ran(f"hosts {number}", verdict.broken, verdict.writes, verdict.at_s, cpu_s)


def crash(name: str, write: int) -> Ran:
    """Run a scenario whose operator dies at its n-th write; 0: never."""
    return _timed(f"{name}, dies at write {write}", CRASHES[name], write or None)


def again(file: Path) -> Ran:
    """Run a history that is in a file."""
    return _timed(file.stem, History.from_json(file.read_text(encoding="utf-8")), None)


def _timed(name: str, history: History, die_at: int | None) -> Ran:
    began_s = time.process_time()
    try:
        verdict = run(history, die_at=die_at)
    except Exception as error:
        error.add_note(f"in {name}")
        raise
    cpu_s = time.process_time() - began_s
    return Ran(name, verdict.broken, verdict.writes, verdict.at_s, cpu_s)


def seeds(numbers: range, jobs: int, one: Callable[[int], Ran] = seed) -> Iterator[Ran]:
    """Run seeds, each in one of some processes; in order."""
    with _pool(jobs) as pool:
        yield from pool.map(one, numbers)


def files(paths: Sequence[Path], jobs: int) -> Iterator[Ran]:
    """Run the histories of some files."""
    with _pool(jobs) as pool:
        yield from pool.map(again, paths)


def crashes(jobs: int) -> Iterator[Ran]:
    """Each scenario, ended at each of its writes."""
    with _pool(jobs) as pool:
        whole = dict(zip(CRASHES, pool.map(crash, CRASHES, [0] * len(CRASHES)), strict=True))
        yield from whole.values()
        points = [(name, n) for name, ran in whole.items() for n in range(1, ran.writes + 1)]
        yield from pool.map(crash, *zip(*points, strict=True))


def _pool(jobs: int) -> ProcessPoolExecutor:
    """Processes that do not look for garbage among the modules again and again.

    Forked, so that they have what is imported here: from Python 3.14 on that has to be said.
    """
    return ProcessPoolExecutor(jobs, mp_context=get_context("fork"), initializer=gc.freeze)


def told(found: Iterable[Ran]) -> int:
    """Print each that broke, and a sum; exit code."""
    broken, count, cpu_s, began_s = [], 0, 0.0, time.monotonic()
    for ran in found:
        count += 1
        cpu_s += ran.cpu_s
        if ran.broken:
            broken.append(ran)
            print(f"✘ {ran.name}, after {ran.simulated_s:.0f} s: {ran.broken}", flush=True)
        if sys.stdout.isatty():
            print(f"  {count} histories, {len(broken)} broken", end="\r", flush=True)
        elif count % _A_LINE_EACH == 0:
            passed_s = time.monotonic() - began_s
            print(f"  {count} histories, {len(broken)} broken, {passed_s:.0f} s", flush=True)
    wall_s = time.monotonic() - began_s
    print(f"{count} histories, {len(broken)} broken ({wall_s:.0f} s, {cpu_s:.0f} CPU seconds)")
    return 1 if broken else 0


def main() -> int:
    """Exit code 0 if every invariant held in every history."""
    parser = argparse.ArgumentParser(prog="storms", description=__doc__)
    parser.add_argument(
        "what",
        help="seeds such as 1-200 or, each tenth, 5-200/10; one to look at such as 17, a file, a "
        "folder, or `crashes`; with `hosts ` before seeds: of a SpeculationTuner",
    )
    parser.add_argument("--shrink", metavar="FILE", type=Path, help="shrink it, and write it here")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    if asked.what == "crashes":
        return told(crashes(asked.jobs))
    if (folder := Path(asked.what)).is_dir():
        return told(files(sorted(folder.glob("*.json")), asked.jobs))
    if found := _SEEDS.fullmatch(asked.what):
        of_hosts, *numbers = found.groups()
        first, last, step = (int(each or 1) for each in numbers)
        one = host_seed if of_hosts else seed
        return told(seeds(range(first, last + 1, step), asked.jobs, one))
    if asked.what.startswith("hosts "):
        verdict = hosts.run(int(asked.what.removeprefix("hosts ")))
        print(verdict.log, verdict.broken or "every invariant held", sep="\n")
        return 1 if verdict.broken else 0
    history = (
        drawn(int(asked.what))
        if asked.what.isdecimal()
        else History.from_json(Path(asked.what).read_text(encoding="utf-8"))
    )
    if asked.shrink:
        history = shrunk(history, lambda each: run(each).broken, print)
        asked.shrink.write_text(history.to_json(), encoding="utf-8")
    verdict = run(history)
    print(history.to_json(), verdict.log, verdict.said, sep="\n")
    print(verdict.broken or "every invariant held")
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings have the same order in every run, so that a seed is one history.
        environ = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "storms", *sys.argv[1:]], environ)
    sys.exit(main())
