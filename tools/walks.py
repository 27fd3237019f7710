"""Counts in how many functions a value is received on its way through the code.

A value that is handed on from function to function is asked the same again and again, and whoever
reads one of them has to know all of it. `PYTHONPATH=tests .venv/bin/python tools/walks.py` prints
the counts; `-v` lists the functions. tests/unit/packaging/test_walks.py holds them.

Received is an argument of one of the named types, whichever of them holds the value. Lambdas and
comprehensions count as functions; methods of the value itself do not.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

import yaml

from fathom.cli.check import report_of
from fathom.cli.resources import judged
from fathom.resource import SpeculativeDeployment, parse
from fathom.tuning.tuner import decide
from support.loop_harness import LoopHarness
from unit.tuning.plant import EASY, Fleet

ROOT: Final = Path(__file__).parents[1]
EXAMPLE: Final = ROOT / "examples" / "kimi-k2.6-gb200.yaml"
SPEC: Final = frozenset(
    {"SpeculativeDeployment", "SpeculativeDeploymentSpec", "EngineProfile", "Candidate"}
)
SITUATION: Final = frozenset({"TuningSnapshot", "Situation"})

Walk = Counter[str]
"""Calls that received the value, by function."""


def walk(trip: Callable[[], object], types: Collection[str]) -> Walk:
    """The functions of this project that receive a value of one of these types.

    Args:
        trip: what is watched.
        types: names of classes.
    """
    found: Walk = Counter()
    of_this_project = str(ROOT / "operator") + "/"

    def called(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(of_this_project):
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = [type(frame.f_locals.get(name)).__name__ for name in names]
        if names[:1] == ("self",) and given[0] in types:
            return
        if not types.isdisjoint(given):
            found[f"{code.co_filename.removeprefix(of_this_project)}:{code.co_qualname}"] += 1

    sys.setprofile(called)
    try:
        trip()
    finally:
        sys.setprofile(None)
    return found


def check() -> Walk:
    """From a parsed manifest to what `fathom check` says of it."""
    resource = parse(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))
    if not isinstance(resource, SpeculativeDeployment):
        raise TypeError(resource)
    return walk(lambda: report_of("", resource, judged(resource, {})), SPEC)


def edit() -> Walk:
    """From an edited spec to the Deployment that is written for it: one pass of a loop."""
    harness = LoopHarness()

    async def passes() -> None:
        await harness.tick()

    return walk(lambda: asyncio.run(passes()), SPEC)


def decision() -> Walk:
    """A decision of the tuner's, of a fleet that has served for two minutes."""
    fleet = Fleet(acceptance=EASY).run(120)
    snapshot = fleet.snapshot()
    return walk(lambda: decide(snapshot), SITUATION)


TRIPS: Final[Mapping[str, Callable[[], Walk]]] = {
    "edit": edit,
    "check": check,
    "decision": decision,
}


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", action="store_true", help="list the functions, with their calls")
    asked = parser.parse_args()
    for name, trip in TRIPS.items():
        found = trip()
        sys.stdout.write(f"{name}: {len(found)} functions, {found.total()} calls\n")
        for where, calls in sorted(found.items()) if asked.v else ():
            sys.stdout.write(f"  {calls:4} {where}\n")


if __name__ == "__main__":
    main()
