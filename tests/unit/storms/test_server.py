"""The API server of a history, and what it remembers."""

from fathom.cluster.kinds import POD, SPECULATIVE_DEPLOYMENT
from fathom.cluster.manifest import Seen
from storms.server import Objects, Trouble


async def test_the_past_is_of_its_own_version() -> None:
    now_s = 0.0
    objects = Objects(lambda: now_s)
    named = {"name": "kimi", "namespace": "llm"}
    objects.put(SPECULATIVE_DEPLOYMENT, {"metadata": dict(named), "spec": {}})
    now_s = 10.0
    seen = Seen.of(objects.find(SPECULATIVE_DEPLOYMENT, "kimi"))
    status = {"metadata": named, "status": {"ready": "1/1"}}
    await objects.apply(SPECULATIVE_DEPLOYMENT, status, seen, subresource="status")
    before = objects.as_of(5.0)[SPECULATIVE_DEPLOYMENT, "llm", "kimi"]
    assert "status" not in before
    assert Seen.of(before) == seen
    assert Seen.of(objects.find(SPECULATIVE_DEPLOYMENT, "kimi")) != seen


def test_reads_of_one_kind_can_be_old_alone() -> None:
    trouble = Trouble(stale_s={"operator-0": 60.0})
    assert trouble.ages_s(POD) == {"operator-0": 60.0}
    trouble.stale_kinds = frozenset({SPECULATIVE_DEPLOYMENT})
    assert trouble.ages_s(SPECULATIVE_DEPLOYMENT) == {"operator-0": 60.0}
    assert trouble.ages_s(POD) == {}
