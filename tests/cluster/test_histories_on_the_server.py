"""Histories of the simulator's kind on a real API server, behind a proxy that injects faults.

All run at once. Each has a resource of its own, and its faults concern nothing else; what happens
to processes happens to an operator of two replicas. docs/reliability.md says what must hold.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from local_cluster.cluster import LocalCluster
from storms.history import Deed, History, Scenario
from storms.hub import BAD_DRAFT
from storms.on_the_server import Fleet, fleet_in
from support.local_cluster import a_namespace
from support.waiting import GUARD_S

pytestmark = pytest.mark.cluster


def history(*deeds: Deed, replicas: int = 1, operators: int = 1, latency_s: float = 0.0) -> History:
    scenario = Scenario(
        replicas=replicas, operators=operators, canary_minutes=0, latency_s=latency_s
    )
    return History(0, scenario, deeds)


def errors(status: int, share: float = 0.7) -> Deed:
    return Deed(
        0.0, "API server answers with errors", {"status": status, "share": share, "for_s": 7.0}
    )


SCALED_UP = Deed(1.0, "user scales", {"replicas": 2})
SCALED_DOWN = Deed(1.0, "user scales", {"replicas": 0})
DELETED = Deed(1.0, "hand deletes a child", {"kind": "Service"})

ALONE: Mapping[str, History] = {
    "conflicts": history(errors(409), SCALED_UP),
    "throttled": history(errors(429), DELETED),
    "failing": history(
        errors(500, 0.2), errors(503), Deed(1.0, "hand scales a Deployment", {"replicas": 0})
    ),
    "refused": history(
        Deed(0.0, "admission refuses", {"kind": "Deployment", "for_s": 6.0}), SCALED_DOWN
    ),
    "hanging": history(
        Deed(0.0, "API server hangs", {"for_s": 4.0}),
        Deed(1.0, "ConfigMap is spoilt", {"which": "tuning", "how": "junk"}),
    ),
    "lost": history(
        Deed(0.0, "answers are lost", {"for_s": 8.0}),
        Deed(0.5, "user sets the image", {"image": "fathom.local/shell:v0.32.1"}),
    ),
    "stale": history(
        SCALED_DOWN,
        Deed(4.0, "reads are stale", {"by_s": 30.0, "for_s": 6.0}),
        Deed(5.0, "hand deletes a child", {"kind": "Service"}),
    ),
    "missed": history(
        Deed(0.0, "watch events are lost", {"share": 1.0, "for_s": 2.0}),
        Deed(0.5, "user sets tokens", {"tokens": 2}),
        # All watches: before a resource is made again, which would be found by this.
        Deed(2.5, "watches end", {}),
    ),
    "doubled": history(
        Deed(0.0, "watch events come twice and late", {"by_s": 2.0, "for_s": 8.0}),
        Deed(0.5, "user edits hundreds of times", {"times": 60, "for_s": 6.0}),
        Deed(2.0, "ConfigMap is spoilt", {"which": "depth", "how": "deleted"}),
    ),
    "again": history(Deed(4.0, "user deletes and creates again", {"after_s": 10.0}), latency_s=0.4),
    "taken": history(
        Deed(0.0, "name is taken", {"kind": "Service", "for_s": GUARD_S}),
        Deed(0.0, "name is taken", {"kind": "ConfigMap", "for_s": GUARD_S}),
    ),
    "unfit": history(
        Deed(0.0, "hub is slow", {"takes_s": 6.0, "for_s": 9.0}),
        Deed(0.5, "user sets the draft", {"draft": BAD_DRAFT}),
    ),
}
TOGETHER: Mapping[str, History] = {
    "dying": history(Deed(0.0, "operator dies at a write", {"write": 5}), operators=2),
    "overtaken": history(Deed(0.0, "operator is paused in a write", {}), replicas=2, operators=2),
}


@dataclass(frozen=True)
class Ran:
    """What came of all histories."""

    broken: Mapping[str, list[str]]
    log: Sequence[str]

    def of(self, name: str) -> str:
        """What happened to a resource."""
        return "\n".join(line for line in self.log if name in line or " calm " in line)


@pytest.fixture(scope="module")
async def ran(local_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    async def run(name: str, stories: Mapping[str, History], replicas: list[str]) -> Fleet:
        async with (
            a_namespace(local_cluster) as namespace,
            fleet_in(namespace, tmp_path_factory.mktemp(name), stories, replicas) as fleet,
        ):
            await fleet.run()
            return fleet

    fleets = await asyncio.gather(
        run("alone", ALONE, ["alone"]), run("together", TOGETHER, ["first", "second"])
    )
    broken = {name: found for fleet in fleets for name, found in fleet.broken.items()}
    return Ran(broken, [line for fleet in fleets for line in fleet.log])


@pytest.mark.parametrize("name", [*ALONE, *TOGETHER])
def test_whatever_happens_no_invariant_breaks_and_in_the_end_all_is_well(
    ran: Ran, name: str
) -> None:
    print(ran.of(name))
    assert ran.broken.get(name, []) == []


def test_nothing_else_breaks(ran: Ran) -> None:
    assert ran.broken.keys() <= {*ALONE, *TOGETHER}
