"""What is left of a pass's writes when one of them fails."""

from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.core.cluster.kinds import CONFIG_MAP, SERVICE
from fathom.reconcile.writing.apply_guard import ApplyGuard
from fathom.reconcile.writing.operations import Create
from fathom.runtime.child_cache import ChildCache
from fathom.runtime.telemetry import Telemetry
from fathom.runtime.writer import Outcome, Writer
from support.bench import KEY, START_S, ManualClock
from support.fake_kube import FakeKube


def creation(name: str) -> Create:
    kind = SERVICE if name == "bad" else CONFIG_MAP
    metadata: Any = {"name": name, "namespace": "llm"}
    return Create(kind, {"metadata": metadata}, "it does not exist")


OPERATIONS = tuple(map(creation, ("first", "second", "bad", "last")))


async def carried_out(status: int) -> tuple[FakeKube, Outcome]:
    kube = FakeKube()
    kube.fail = lambda _verb, kind: KubeError(status, "no.") if kind == SERVICE else None
    writer = Writer(kube, ChildCache(ManualClock()), KEY, Telemetry())
    return kube, await writer.carry_out(OPERATIONS, ApplyGuard(), START_S)


@pytest.mark.parametrize("status", [0, 409, 429, 503])
async def test_what_may_pass_by_itself_leaves_it_and_the_rest_for_later(status: int) -> None:
    kube, outcome = await carried_out(status)
    assert kube.names(CONFIG_MAP) == ["first", "second"]
    assert outcome.left == OPERATIONS[2:]
    assert outcome.refusals == ("Service bad could not be written: no.",)
    assert (outcome.outdated is OPERATIONS[2]) == (status == 409)


async def test_what_is_refused_for_good_stops_nothing_else() -> None:
    kube, outcome = await carried_out(403)
    assert kube.names(CONFIG_MAP) == ["first", "last", "second"]
    assert outcome.left == OPERATIONS[2:3]
    assert outcome.outdated is None
