"""What commands show of a training that waits for a person, as the operator reports it."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from fathom.api import names
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.api.training import TrainingPhase
from fathom.cli.cluster import read_deployment
from fathom.cli.status import status_report
from fathom.cli.status_checks import StatusCheck
from fathom.page.draft_life import lives_in
from scenarios.test_arm import pass_minutes
from scenarios.test_draft_trial import Counting
from scenarios.test_training import asked, ready_to_take_in, taken_in
from support.loop_harness import KEY, LoopHarness
from support.played_training import FOLDER, annotate, approve, end_job, training_of

REFUSED: Final = '{"schema":1,"refused":"notFinite"}'
ALONE: Final = {"replicas": 1, "rollout.maxSurge": 0}


async def _failed() -> LoopHarness:
    harness = await asked()
    approve(harness)
    await pass_minutes(harness, 2)
    end_job(harness, "training", exit_code=1)
    await pass_minutes(harness, 1)
    return harness


async def _refused() -> LoopHarness:
    harness = await ready_to_take_in()
    end_job(harness, "intake", message=REFUSED, exit_code=1)
    await pass_minutes(harness, 1)
    return harness


async def _faster() -> LoopHarness:
    harness = await taken_in()
    harness.metrics = Counting(harness, faster=0.1, draft=FOLDER)
    await pass_minutes(harness, 60)
    return harness


async def training_line(harness: LoopHarness) -> StatusCheck:
    """The line of `fathom status` on the training of a fleet that is well."""
    reported = await read_deployment(harness.kube, KEY)
    assert reported is not None
    report = status_report(reported, harness.clock.now_s())
    assert report.well, report.cause
    (line,) = (each for each in report.checks if each.subject == "training")
    return line


@pytest.mark.parametrize(
    ("life", "phase", "commands"),
    [
        (asked, TrainingPhase.PROPOSED, ("--approve {run}", "--dismiss {run}")),
        (_failed, TrainingPhase.FAILED, ("--approve {run}", "--dismiss {run}")),
        (_refused, TrainingPhase.REFUSED, ("delete Job kimi-intake-", "--dismiss {run}")),
        (_faster, TrainingPhase.FASTER, ("kubectl patch", f'"id":"{FOLDER}"', "--dismiss {run}")),
    ],
)
async def test_what_a_person_may_do_is_apart_from_how_it_is(
    life: Callable[[], Awaitable[LoopHarness]], phase: TrainingPhase, commands: tuple[str, ...]
) -> None:
    harness = await life()
    line, run = await training_line(harness), training_of(harness)["run"]
    assert line.state == "warning"
    assert line.text.startswith(f"{phase}, run {run}, for ")
    assert "`" not in line.text
    assert [each for each in commands if each.replace("{run}", run) not in line.hint] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (ALONE, "set spec.replicas to 2 or more"),
        ({"rollout.canaryMinutes": 0}, "spec.rollout.canaryMinutes is 0"),
    ],
)
async def test_that_no_replica_can_try_it_is_there_before_it_is_paid_for(
    changes: dict[str, Any], words: str
) -> None:
    harness = await asked(**changes)
    message = training_of(harness)["message"]
    assert words in message.partition("To have one trained")[0]
    annotate(harness, names.ANNOTATION_PAUSED, "a freeze")
    approve(harness)
    await pass_minutes(harness, 1)
    assert training_of(harness)["phase"] == "Approved"
    assert words in training_of(harness)["message"]
    annotate(harness, names.ANNOTATION_PAUSED, "false")
    await pass_minutes(harness, 2)
    end_job(harness, "training", exit_code=1)
    await pass_minutes(harness, 1)
    assert training_of(harness)["phase"] == "Failed"
    assert words in training_of(harness)["message"]


async def test_where_a_replica_can_try_it_the_proposal_says_nothing_of_that() -> None:
    assert "can try" not in training_of(await asked())["message"]


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({}, "One replica tries the trained draft"),
        (ALONE, "The trained draft is to be tried in one replica"),
        (
            {"draft.trial": {"id": "someone/third"}},
            "The trained draft is to be tried in one replica",
        ),
    ],
)
async def test_the_page_says_that_it_is_tried_once_it_is(
    changes: dict[str, Any], title: str
) -> None:
    harness = await taken_in(**changes)
    await pass_minutes(harness, 5)
    status = SpeculativeDeploymentStatus.model_validate(harness.status)
    assert lives_in(status)[0].title == title
