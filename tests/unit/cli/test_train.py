"""`fathom train`: what it prints, which annotation it writes, and what it refuses."""

import json
from typing import Any

import pytest
import typer

from fathom.api import names
from fathom.api.training import TrainingPhase
from fathom.cli.train import Asked, answered
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.health import UNWATCHED_S
from fathom.times import rfc3339
from manifest_samples import manifest
from support.fake_kube import FakeKube
from support.loop_harness import START_S

KEY = ObjectKey("llm", "kimi")
RUN = "7f3a90c1"
ADOPT = {"id": "/cache/fathom/drafts/3f9a1c0be2d74a51"}


def cluster(phase: str = "", *, seen_at_s: float = START_S, **training: Any) -> FakeKube:
    """One resource whose training is at this phase; empty: none was proposed."""
    kube, document = FakeKube(), manifest()
    document["status"] = {"lastReconcileTime": rfc3339(seen_at_s)}
    if phase:
        found = {"phase": phase, "run": RUN, "message": "as it is.", **training}
        document["status"]["training"] = found
    kube.put(SPECULATIVE_DEPLOYMENT, document)
    return kube


def annotations(kube: FakeKube) -> dict[str, str]:
    found: dict[str, str] = kube.find(SPECULATIVE_DEPLOYMENT, "kimi")["metadata"].get(
        "annotations", {}
    )
    return found


async def test_without_a_wish_it_says_how_things_are() -> None:
    kube = cluster("Training", gpuHoursThisWeek="6/12")
    text = await answered(kube, KEY, Asked(), START_S)
    assert text is not None
    assert text.startswith(f"llm/kimi: Training, run {RUN}. as it is.")
    assert "at most: 6/12" in text
    assert not annotations(kube)


async def test_approving_names_the_run_and_leaves_the_spec_alone() -> None:
    kube = cluster("Proposed")
    spec = kube.find(SPECULATIVE_DEPLOYMENT, "kimi")["spec"]
    text = await answered(kube, KEY, Asked(approve=RUN), START_S)
    assert text is not None
    assert f"run {RUN} is approved" in text
    assert annotations(kube) == {names.ANNOTATION_APPROVE_TRAINING: RUN}
    assert kube.find(SPECULATIVE_DEPLOYMENT, "kimi")["spec"] == spec


@pytest.mark.parametrize(
    ("phase", "run"), [("Proposed", "00000000"), ("Training", RUN), ("Adopted", RUN)]
)
async def test_what_does_not_wait_for_it_is_not_approved(
    phase: str, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = cluster(phase)
    with pytest.raises(typer.Exit):
        await answered(kube, KEY, Asked(approve=run), START_S)
    assert f"Run {run} does not wait for approval." in capsys.readouterr().err
    assert not annotations(kube)


@pytest.mark.parametrize("phase", list(TrainingPhase))
async def test_what_is_under_way_can_be_dismissed_and_nothing_else(
    phase: TrainingPhase, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = cluster(phase)
    if phase in {TrainingPhase.ADOPTED, TrainingPhase.DISMISSED}:
        with pytest.raises(typer.Exit):
            await answered(kube, KEY, Asked(dismiss=RUN), START_S)
        assert "is not under way" in capsys.readouterr().err
        return
    await answered(kube, KEY, Asked(dismiss=RUN), START_S)
    assert annotations(kube) == {names.ANNOTATION_DISMISS_TRAINING: RUN}


async def test_a_proposal_is_asked_for_once(capsys: pytest.CaptureFixture[str]) -> None:
    kube = cluster()
    await answered(kube, KEY, Asked(propose=True), START_S)
    assert annotations(kube) == {names.ANNOTATION_PROPOSE_TRAINING: f"{START_S:.0f}"}
    with pytest.raises(typer.Exit):
        await answered(cluster("Proposed"), KEY, Asked(propose=True), START_S)
    assert "has one already" in capsys.readouterr().err


async def test_the_patch_is_printed_alone_where_there_is_a_draft_to_adopt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = await answered(cluster("Faster", adopt=ADOPT), KEY, Asked(patch=True), START_S)
    assert text is not None
    assert json.loads(text) == {"spec": {"draft": {**ADOPT, "revision": ""}}}
    with pytest.raises(typer.Exit):
        await answered(cluster("Trial", adopt=ADOPT), KEY, Asked(patch=True), START_S)
    assert "There is no draft of llm/kimi to adopt: Trial." in capsys.readouterr().err


async def test_where_none_was_proposed_it_says_what_allows_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit):
        await answered(cluster(), KEY, Asked(), START_S)
    assert "spec.draft.training allows one" in capsys.readouterr().err
    assert await answered(FakeKube(), KEY, Asked(), START_S) is None


async def test_where_nobody_watches_that_is_said() -> None:
    kube = cluster("Proposed")
    text = await answered(kube, KEY, Asked(approve=RUN), START_S + UNWATCHED_S + 1)
    assert text is not None
    assert "But no operator has watched since" in text
