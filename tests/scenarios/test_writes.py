"""What the operator decides on an old look at the cluster is never written."""

import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fathom.adapters.ports import KubeError, PodEndpoint, Sample
from fathom.core.cluster.kinds import DEPLOYMENT, SPECULATIVE_DEPLOYMENT, Kind
from fathom.runtime.loop import LONGEST_BACKOFF_S, RESYNC_S, SHORTEST_SLEEP_S
from support.bench import Bench


class Interrupted:
    """Metrics whose first reading takes as long as it takes something else to happen.

    They are read after the cluster was looked at, and before anything is written.
    """

    def __init__(self, bench: Bench, happens: Callable[[], Awaitable[object]]) -> None:
        self._usual = bench.metrics
        self._happens = [happens]

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        if self._happens:
            await self._happens.pop()()
        return await self._usual.sample(pods)


def interrupt(bench: Bench, happens: Callable[[], Awaitable[object]]) -> None:
    bench.metrics = Interrupted(bench, happens)  # type: ignore[assignment]  # a structural port


def only_deployment(bench: Bench) -> dict[str, Any]:
    (found,) = bench.kube.all_of(DEPLOYMENT)
    return found


async def test_a_former_leader_that_wakes_changes_nothing_after_the_new_one(bench: Bench) -> None:
    former = bench.loop

    async def the_new_one_scales() -> None:
        bench.restart()
        bench.edit({"replicas": 5})
        await bench.until_ready()

    bench.edit({"replicas": 1})
    interrupt(bench, the_new_one_scales)
    before = len(bench.kube.writes)
    former.wake()

    assert await former.tick() == 1  # it looks again

    assert only_deployment(bench)["spec"]["replicas"] == 5
    replicas = [each.body for each in bench.kube.writes[before:] if each.kind == "Deployment"]
    assert len(replicas) == 1  # the new one's
    assert bench.status["ready"] == "5/5"


async def test_what_moved_while_it_looked_is_looked_at_again(bench: Bench) -> None:
    async def somebody_annotates() -> None:
        found = copy.deepcopy(only_deployment(bench))
        found["metadata"]["annotations"]["somebody"] = "was here"
        bench.kube.put(DEPLOYMENT, found)

    bench.edit({"replicas": 3})
    interrupt(bench, somebody_annotates)

    assert await bench.tick() == 1
    assert only_deployment(bench)["spec"]["replicas"] == 2
    assert bench.condition("Degraded")["reason"] == "AsExpected"  # no trouble, only another look
    assert await bench.loop.tick() == SHORTEST_SLEEP_S
    assert only_deployment(bench)["spec"]["replicas"] == 3


async def test_no_status_is_written_about_a_spec_that_was_edited_meanwhile(bench: Bench) -> None:
    async def the_user_edits() -> None:
        bench.edit({"speculation.tokens": 7})

    before = copy.deepcopy(bench.status)
    bench.edit({"replicas": 0})
    interrupt(bench, the_user_edits)
    await bench.tick()
    assert bench.status == before


async def test_who_changes_it_under_every_look_is_told(bench: Bench) -> None:
    """A view that is outdated three times in a row is no accident any more."""

    def always(verb: str, kind: Kind) -> KubeError | None:
        return (
            KubeError(409, "has been modified") if (verb, kind) == ("patch", DEPLOYMENT) else None
        )

    bench.kube.fail = always
    bench.edit({"replicas": 3})
    found = only_deployment(bench)
    found["metadata"]["annotations"]["fathom.dev/rendered-by"] = "0.0.9"
    delays = [await bench.tick() for _ in range(4)]
    assert delays == [1, 2, 4, 8]
    assert "has been modified" in bench.condition("Degraded")["message"]


async def test_what_conflicts_with_what_is_there_is_tried_again_within_a_minute(
    bench: Bench,
) -> None:
    """As after reads that are old for minutes. No watch tells when they are current again."""

    def status_conflicts(verb: str, kind: Kind) -> KubeError | None:
        is_status = (verb, kind) == ("apply", SPECULATIVE_DEPLOYMENT)
        return KubeError(409, "has been modified") if is_status else None

    bench.kube.fail = status_conflicts
    bench.edit({"replicas": 0})
    assert max([await bench.tick() or 0 for _ in range(10)]) == RESYNC_S
    bench.kube.fail = lambda _verb, _kind: KubeError(503, "try again later")
    assert max([await bench.tick() or 0 for _ in range(10)]) == LONGEST_BACKOFF_S


async def test_a_write_that_failed_is_not_counted_as_changed_back(bench: Bench) -> None:
    def webhook_is_down(verb: str, _kind: Kind) -> KubeError | None:
        return KubeError(500, "failed calling webhook") if verb == "apply" else None

    bench.kube.fail = lambda verb, kind: (
        None if kind == SPECULATIVE_DEPLOYMENT else webhook_is_down(verb, kind)
    )
    bench.edit({"replicas": 3})
    for _ in range(5):
        await bench.tick()
    said = bench.condition("Degraded")["message"]
    assert "failed calling webhook" in said
    assert "changed back" not in said

    bench.kube.fail = lambda _verb, _kind: None
    assert await bench.tick() == SHORTEST_SLEEP_S
    assert only_deployment(bench)["spec"]["replicas"] == 3
