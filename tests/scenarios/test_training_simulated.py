"""From a proposal to adoption: only the trainer is a stub, and the engines are simulated.

The real intake takes in what the stub left, and the real tuner judges it, each draft at the depth
that is best for it.
"""

import pytest

from fathom.api import names
from fathom.engine.depth import depth_at
from fathom.model_refs import STORED_DRAFTS
from scenarios.test_arm import pass_minutes
from scenarios.test_draft_trial import OLD, pods_with
from scenarios.test_draft_trial_simulated import BATCH, FLEET, Accepted, Drafting, document, serving
from support.loop_harness import LoopHarness
from support.played_training import ALLOWED, annotate, approve, end_job, training_of
from support.trained_drafts import new_intake


async def tried(old: Accepted, new: Accepted) -> tuple[LoopHarness, Drafting, str]:
    """A fleet that has found its depth, and has had a draft trained and compared.

    Args:
        old: how often drafts of the draft that serves are accepted.
        new: the same of what the stub leaves.
    """
    with new_intake() as intake:
        taken = intake.run()
        (stored,) = intake.stored
    folder = f"{STORED_DRAFTS}/{stored}"
    fits = {"engine.tensorParallelSize": 2}
    harness, metrics = await serving({OLD: old, folder: new}, **{**FLEET, **ALLOWED, **fits})
    annotate(harness, names.ANNOTATION_PROPOSE_TRAINING, "1")
    await harness.tick()
    approve(harness)
    await pass_minutes(harness, 1)
    end_job(harness, "training")
    await pass_minutes(harness, 1)
    end_job(harness, "intake", message=taken.text)
    await pass_minutes(harness, 22)
    return harness, metrics, folder


@pytest.mark.parametrize(("old", "depth"), [(0.02, 0), (0.2, 1), (0.45, 3)])
async def test_a_trained_draft_is_found_faster_from_whatever_depth_and_adopted(
    old: float, depth: int
) -> None:
    harness, _, folder = await tried(old, 0.85)
    assert depth_at(document(harness).schedule, BATCH) == depth
    found = training_of(harness)
    assert found["phase"] == "Faster", found["message"]
    assert pods_with(harness, folder) != pods_with(harness, OLD)
    harness.edit({"draft.id": found["adopt"]["id"], "draft.revision": ""})
    await pass_minutes(harness, 6)
    assert training_of(harness)["phase"] == "Adopted"
    assert not pods_with(harness, OLD)
    assert len(pods_with(harness, folder)) == 3
    assert depth_at(document(harness).schedule, BATCH) == 7


@pytest.mark.parametrize(
    ("old", "new", "phase"),
    [
        (0.75, 0.4, "Dismissed"),
        # Half of the traffic is new: what is lost on the other half counts as much.
        (((0.5, 0.8), (0.5, 0.05)), ((0.5, 0.65), (0.5, 0.8)), "Faster"),
        (((0.9, 0.8), (0.1, 0.05)), ((0.9, 0.45), (0.1, 0.8)), "Dismissed"),
    ],
    ids=["worse", "better on the mix", "worse on the mix"],
)
async def test_it_is_judged_by_the_traffic_as_it_is(
    old: Accepted, new: Accepted, phase: str
) -> None:
    harness, metrics, folder = await tried(old, new)
    gains = metrics.most(folder) > metrics.most(OLD)
    assert gains == (phase == "Faster")
    found = training_of(harness)
    assert found["phase"] == phase, found["message"]
    assert OLD in str(harness.resource["spec"]["draft"])
    assert len(pods_with(harness, folder)) == (1 if gains else 0)
