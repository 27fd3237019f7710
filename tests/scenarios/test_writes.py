"""What the operator decides on an old look at the cluster is never written."""

import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fathom.adapters.ports import KubeError, PodEndpoint, Sample
from fathom.cluster.kinds import DEPLOYMENT, SPECULATIVE_DEPLOYMENT, Kind
from fathom.runtime.loop import LONGEST_BACKOFF_S, RESYNC_S
from fathom.runtime.ports import SHORTEST_SLEEP_S
from support.loop_harness import LoopHarness


class Interrupted:
    """Metrics whose first reading takes as long as it takes something else to happen.

    They are read after the cluster was looked at, and before anything is written.
    """

    def __init__(self, harness: LoopHarness, happens: Callable[[], Awaitable[object]]) -> None:
        self._usual = harness.metrics
        self._happens = [happens]

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        if self._happens:
            await self._happens.pop()()
        return await self._usual.sample(pods)


def interrupt(harness: LoopHarness, happens: Callable[[], Awaitable[object]]) -> None:
    harness.metrics = Interrupted(harness, happens)  # type: ignore[assignment]  # a structural port


def only_deployment(harness: LoopHarness) -> dict[str, Any]:
    (found,) = harness.kube.all_of(DEPLOYMENT)
    return found


async def test_a_former_leader_that_wakes_changes_nothing_after_the_new_one(
    harness: LoopHarness,
) -> None:
    former = harness.loop

    async def the_new_one_scales() -> None:
        harness.restart()
        harness.edit({"replicas": 5})
        await harness.until_ready()

    harness.edit({"replicas": 1})
    interrupt(harness, the_new_one_scales)
    before = len(harness.kube.writes)
    former.wake()

    assert await former.tick() == 1  # it looks again

    assert only_deployment(harness)["spec"]["replicas"] == 5
    replicas = [each.body for each in harness.kube.writes[before:] if each.kind == "Deployment"]
    assert len(replicas) == 1  # the new one's
    assert harness.status["ready"] == "5/5"


async def test_what_moved_while_it_looked_is_looked_at_again(harness: LoopHarness) -> None:
    async def somebody_annotates() -> None:
        found = copy.deepcopy(only_deployment(harness))
        found["metadata"]["annotations"]["somebody"] = "was here"
        harness.kube.put(DEPLOYMENT, found)

    harness.edit({"replicas": 3})
    interrupt(harness, somebody_annotates)

    assert await harness.tick() == 1
    assert only_deployment(harness)["spec"]["replicas"] == 2
    assert harness.condition("Degraded")["reason"] == "AsExpected"  # no trouble, only another look
    assert await harness.loop.tick() == SHORTEST_SLEEP_S
    assert only_deployment(harness)["spec"]["replicas"] == 3


async def test_no_status_is_written_about_a_spec_that_was_edited_meanwhile(
    harness: LoopHarness,
) -> None:
    async def the_user_edits() -> None:
        harness.edit({"speculation.tokens": 7})

    before = copy.deepcopy(harness.status)
    harness.edit({"replicas": 0})
    interrupt(harness, the_user_edits)
    await harness.tick()
    assert harness.status == before


async def test_who_changes_it_under_every_look_is_told(harness: LoopHarness) -> None:
    """A view that is outdated three times in a row is no accident any more."""

    def always(verb: str, kind: Kind) -> KubeError | None:
        return (
            KubeError(409, "has been modified") if (verb, kind) == ("patch", DEPLOYMENT) else None
        )

    harness.kube.fail = always
    harness.edit({"replicas": 3})
    found = only_deployment(harness)
    found["metadata"]["annotations"]["fathom.dev/rendered-by"] = "0.0.9"
    delays = [await harness.tick() for _ in range(4)]
    assert delays == [1, 2, 4, 8]
    assert "has been modified" in harness.condition("Degraded")["message"]


async def test_what_conflicts_with_what_is_there_is_tried_again_within_a_minute(
    harness: LoopHarness,
) -> None:
    """As after reads that are old for minutes. No watch tells when they are current again."""

    def status_conflicts(verb: str, kind: Kind) -> KubeError | None:
        is_status = (verb, kind) == ("apply", SPECULATIVE_DEPLOYMENT)
        return KubeError(409, "has been modified") if is_status else None

    harness.kube.fail = status_conflicts
    harness.edit({"replicas": 0})
    assert max([await harness.tick() or 0 for _ in range(10)]) == RESYNC_S
    harness.kube.fail = lambda _verb, _kind: KubeError(503, "try again later")
    assert max([await harness.tick() or 0 for _ in range(10)]) == LONGEST_BACKOFF_S


async def test_a_write_that_failed_is_not_counted_as_changed_back(harness: LoopHarness) -> None:
    def webhook_is_down(verb: str, _kind: Kind) -> KubeError | None:
        return KubeError(500, "failed calling webhook") if verb == "apply" else None

    harness.kube.fail = lambda verb, kind: (
        None if kind == SPECULATIVE_DEPLOYMENT else webhook_is_down(verb, kind)
    )
    harness.edit({"replicas": 3})
    for _ in range(5):
        await harness.tick()
    said = harness.condition("Degraded")["message"]
    assert "failed calling webhook" in said
    assert "changed back" not in said

    harness.kube.fail = lambda _verb, _kind: None
    assert await harness.tick() == SHORTEST_SLEEP_S
    assert only_deployment(harness)["spec"]["replicas"] == 3
