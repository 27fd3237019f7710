"""`python -m rights`: which of the operator's rights nothing would miss. Exit code 1 if any."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from textwrap import shorten

from rich.console import Console
from rich.table import Table

from local_cluster.cluster import LocalCluster
from rights.granted import CLUSTER_RULES, LEASE_RULES, rights_in
from rights.mutants import Missed, Ran, Stage, all_missed, holes
from rights.scenarios import SCENARIOS, foreign_kinds
from support.local_cluster import a_namespace

NODES = 4
"""A scenario holds two of them at most, and each tray has room for four engines."""


async def main() -> int:
    """Play every scenario, then each right's without it; print a table."""
    parser = argparse.ArgumentParser(prog="rights", description=__doc__)
    parser.add_argument("--at-once", type=int, default=3, help="scenarios that run at a time")
    parser.add_argument(
        "--patience",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="until a step of a scenario has failed",
    )
    parser.add_argument(
        "--only", default="", metavar="WORD", help="rights in whose name it stands, such as pods"
    )
    asked = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="fathom-rights-") as directory:
        async with (
            LocalCluster.start("rbac-mutants", nodes=NODES) as cluster,
            a_namespace(cluster) as home,
            foreign_kinds(home),
        ):
            stage = Stage(cluster, Path(directory), asked.patience, asked.at_once)
            played = await asyncio.gather(*(stage.play(name) for name in SCENARIOS))
            ran = dict(zip(SCENARIOS, played, strict=True))
            version = ".".join(map(str, home.release))
            missed = await all_missed(
                stage, ran, asked.only, lambda each: console.print(_line(each))
            )
    return _verdict(console, version, ran, missed)


def _verdict(console: Console, version: str, ran: dict[str, Ran], missed: list[Missed]) -> int:
    granted = rights_in((*CLUSTER_RULES, *LEASE_RULES))
    used = frozenset[object]().union(*(each.used for each in ran.values()))
    table = Table("right", "scenario", "refused", "what misses it", title=f"Kubernetes {version}")
    for each in missed:
        table.add_row(str(each.right), each.scenario, str(each.refused), _why(each))
    console.print(table)
    unused = sorted(granted - used)
    if unused:
        console.print(
            f"Not used: {', '.join(map(str, unused))}. This Kubernetes does not serve the kind, or "
            "tests/rights/scenarios.py lacks a scenario."
        )
    found = holes(missed)
    console.print(
        f"{len(granted)} rights: {len(missed) - len(found)} are missed, {len(found)} are not, "
        f"{len(unused)} were not used."
    )
    return 1 if found else 0


def _line(missed: Missed) -> str:
    return f"{'✔' if missed.holds else '✘'} {missed.right}: {_why(missed)}"


def _why(missed: Missed) -> str:
    if not missed.refused:
        return "nothing: it was never asked for"
    if not missed.failed and not missed.said:
        return "nothing: nobody told of it"
    return shorten(missed.failed or f"log: {missed.said}", 150, placeholder=" …")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
