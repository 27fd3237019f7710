"""`fathom train`: what it prints, which annotation it writes, and what it refuses."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.api.training import TrainingPhase
from fathom.cli.main import app
from fathom.cli.train import Asked, answered
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT, Kind, ObjectKey
from fathom.health import UNWATCHED_S
from fathom.times import rfc3339
from manifest_samples import manifest
from support.fake_kube import FakeKube
from support.loop_harness import START_S
from support.played_training import ALLOWED

KEY = ObjectKey("llm", "kimi")
RUN = "7f3a90c1"
SEEN = {"lastReconcileTime": rfc3339(START_S), "observedGeneration": 1}
LATE_S = START_S + UNWATCHED_S + 1
ADOPT = {"id": "/cache/fathom/drafts/3f9a1c0be2d74a51"}


def cluster(
    phase: str = "",
    *,
    changes: Mapping[str, Any] = ALLOWED,
    status: Mapping[str, Any] = SEEN,
    said: Mapping[str, str] | None = None,
    **training: Any,
) -> FakeKube:
    """One resource whose training is at this phase; empty: none was proposed."""
    kube, document = FakeKube(), manifest(changes)
    document["metadata"]["annotations"] = {**(said or {})}
    document["status"] = {**status}
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
    refused = f"There is no draft of llm/kimi to adopt. llm/kimi: Trial, run {RUN}. as it is.\n"
    assert capsys.readouterr().err == refused


async def test_where_none_was_proposed_it_says_what_allows_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit):
        await answered(cluster(), KEY, Asked(), START_S)
    said = capsys.readouterr().err
    assert "spec.draft.training allows one" in said
    assert "`kubectl fathom train kimi -n llm --propose` asks for it" in said
    assert await answered(FakeKube(), KEY, Asked(), START_S) is None


async def test_where_nobody_watches_that_is_said() -> None:
    text = await answered(cluster("Proposed"), KEY, Asked(approve=RUN), LATE_S)
    assert text is not None
    assert "But no operator has watched since" in text
    # Whose clock is wrong, it cannot know.
    assert "by the clock here: nothing happens until one runs." in text


async def test_what_is_shown_or_refused_of_the_past_is_said_to_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    since = f"No operator has watched it since {rfc3339(START_S)}, by the clock here, and all that"
    text = await answered(cluster("Approved"), KEY, Asked(), LATE_S)
    assert text is not None
    assert since in text
    with pytest.raises(typer.Exit):
        await answered(cluster("Training"), KEY, Asked(approve=RUN), LATE_S)
    assert since in capsys.readouterr().err
    patch = await answered(cluster("Faster", adopt=ADOPT), KEY, Asked(patch=True), LATE_S)
    assert patch is not None
    assert json.loads(patch)
    assert since in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "Its spec allows none: write spec.draft.training first"),
        ({**ALLOWED, "cache.claimName": None}, "set cache.claimName or cache.size"),
        ({**ALLOWED, "speculation.drafting": "Disabled"}, "set spec.speculation.drafting to"),
    ],
)
@pytest.mark.parametrize(
    ("phase", "asked"),
    [("", Asked(propose=True)), ("", Asked()), ("Proposed", Asked(approve=RUN))],
)
async def test_what_the_operator_would_pass_over_is_not_promised(
    changes: Mapping[str, Any],
    why: str,
    phase: str,
    asked: Asked,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kube = cluster(phase, changes=changes)
    with pytest.raises(typer.Exit):
        await answered(kube, KEY, asked, START_S)
    said = capsys.readouterr().err
    assert why in said
    assert "--propose" not in said
    assert not annotations(kube)


async def test_where_no_operator_has_reported_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kube = cluster(status={})
    text = await answered(kube, KEY, Asked(propose=True), START_S)
    assert text is not None
    assert "But no operator has reported on it yet: nothing happens until one runs." in text
    # It is asked for by now: to ask once more would change nothing.
    with pytest.raises(typer.Exit):
        await answered(kube, KEY, Asked(), START_S)
    said = capsys.readouterr().err
    assert "yet, and one is asked for. No operator has reported on it yet." in said
    assert "--propose" not in said


@pytest.mark.parametrize(
    "status",
    [
        {**SEEN, "training": {"phase": "Rehearsed", "run": RUN}},
        {**SEEN, "training": {"phase": "Training", "run": {"of": RUN}}},
        {"conditions": "many"},
    ],
)
@pytest.mark.parametrize(
    "asked",
    [Asked(), Asked(propose=True), Asked(approve=RUN), Asked(dismiss=RUN), Asked(patch=True)],
)
async def test_of_a_status_of_another_release_nothing_is_concluded(
    status: Mapping[str, Any], asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = cluster(status=status)
    with pytest.raises(typer.Exit):
        await answered(kube, KEY, asked, START_S)
    assert "cannot read its status: another release wrote it." in capsys.readouterr().err
    assert not annotations(kube)


@pytest.mark.parametrize("option", ["--approve", "--dismiss"])
@pytest.mark.parametrize("run", ["", " "])
def test_an_empty_run_is_refused(option: str, run: str) -> None:
    """As of a script whose variable is not set."""
    refused = CliRunner().invoke(app, ["train", "kimi", option, run])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"{option} names no run: ")
    both = CliRunner().invoke(app, ["train", "kimi", "--approve", "", "--dismiss", RUN])
    assert both.exit_code == 2
    assert both.stderr.startswith("Give one of ")


async def test_an_edit_that_is_not_in_the_status_may_void_an_approval() -> None:
    kube = cluster("Proposed", status={**SEEN, "observedGeneration": 0})
    unseen = "reported on generation 0 and not yet on 1, the newest."
    for asked in (Asked(), Asked(approve=RUN)):
        text = await answered(kube, KEY, asked, START_S)
        assert text is not None
        assert unseen in text
    assert text.endswith("If that edit makes it another run, this approval is void.")


async def test_what_is_dismissed_already_is_not_approved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = {names.ANNOTATION_DISMISS_TRAINING: RUN}
    kube = cluster("Proposed", said=said)
    with pytest.raises(typer.Exit):
        await answered(kube, KEY, Asked(approve=RUN), START_S)
    assert f"Run {RUN} is dismissed already" in capsys.readouterr().err
    assert annotations(kube) == said


WISHES = [
    ("", Asked(propose=True)),
    ("Proposed", Asked(approve=RUN)),
    ("Trial", Asked(dismiss=RUN)),
]


@pytest.mark.parametrize(("phase", "asked"), WISHES)
async def test_one_that_is_deleted_meanwhile_is_not_there(phase: str, asked: Asked) -> None:
    kube = cluster(phase)

    def delete(verb: str, _: Kind) -> KubeError | None:
        if verb == "patch":
            kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
        return None

    kube.fail = delete
    assert await answered(kube, KEY, asked, START_S) is None


@pytest.mark.parametrize(("phase", "asked"), WISHES)
@pytest.mark.parametrize("status", [0, 504])
async def test_without_an_answer_a_wish_may_have_been_taken(
    phase: str, asked: Asked, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = cluster(phase)
    kube.fail = lambda verb, _: KubeError(status, "no answer.") if verb == "patch" else None
    with pytest.raises(typer.Exit):
        await answered(kube, KEY, asked, START_S)
    assert capsys.readouterr().err == (
        "The API server cannot be asked: no answer. It may have been taken: `kubectl fathom train "
        "kimi -n llm` shows it.\n"
    )
    kube.fail = lambda verb, _: KubeError(403, "no") if verb == "patch" else None
    with pytest.raises(KubeError, match="no"):
        await answered(kube, KEY, asked, START_S)


async def test_what_a_status_leaves_out_leaves_no_hole() -> None:
    text = await answered(cluster("Proposed", run="", message=""), KEY, Asked(), START_S)
    assert text == "llm/kimi: Proposed."
