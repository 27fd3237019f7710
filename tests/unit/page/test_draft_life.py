"""The life of a draft on the page: which step is the present one, and whom it waits for."""

import re
from dataclasses import replace
from html import unescape

import pytest

from fathom.api.status import ArmState, Compared, ComparisonStatus, SpeculativeDeploymentStatus
from fathom.api.training import TrainingPhase, TrainingStatus
from fathom.api.tuner import SpeculationTunerStatus
from fathom.page.draft_life import DraftLife, Mood, Place, lives_in
from fathom.page.overview import overview_of, under_way
from fathom.page.rendering import overview_page, resource_page
from fathom.page.resource_view import resource_view
from fathom.times import rfc3339
from support.page_subjects import lived

SUBJECT, NOW_S = lived()
HELD = "Another draft may fit better: it fell to 0.41."
ASKS = "To have one trained for at most 90 minutes, approve this run: `kubectl fathom train x`."
COMPARING = ComparisonStatus(
    state=ArmState.COMPARING, pod="kimi-9", message="10 of 300 steps.", reason="Comparing"
)


def training(phase: TrainingPhase = TrainingPhase.PROPOSED, **fields: str) -> TrainingStatus:
    return TrainingStatus.model_validate(
        {
            "phase": phase,
            "run": "7f3a90c1",
            "since": rfc3339(NOW_S - 720),
            "message": f"{HELD} {ASKS}",
            **fields,
        }
    )


def status(**fields: object) -> SpeculativeDeploymentStatus:
    return SUBJECT.status.model_copy(update=fields)


def life(**fields: object) -> DraftLife:
    (found,) = lives_in(status(**fields))
    return found


def present(found: DraftLife) -> tuple[str, str]:
    (step,) = (each for each in found.steps if each.place is Place.NOW)
    return step.name, step.who


def page(*, home: bool = True, **fields: object) -> str:
    shown = replace(SUBJECT, status=status(**fields))
    return resource_page(resource_view(shown, NOW_S), home=home)


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


@pytest.mark.parametrize(
    ("phase", "step", "who", "mood"),
    [
        (TrainingPhase.PROPOSED, "Proposed", "operator", Mood.WAITS),
        (TrainingPhase.APPROVED, "Approved", "a person", Mood.UNDER_WAY),
        (TrainingPhase.TRAINING, "Training", "trainer's Job", Mood.UNDER_WAY),
        (TrainingPhase.FAILED, "Failed", "trainer's Job", Mood.WAITS),
        (TrainingPhase.INTAKE, "Intake", "operator's Job", Mood.UNDER_WAY),
        (TrainingPhase.REFUSED, "Refused", "operator's Job", Mood.WAITS),
        (TrainingPhase.TRIAL, "Trial", "operator", Mood.UNDER_WAY),
        (TrainingPhase.FASTER, "Faster", "operator", Mood.WAITS),
        (TrainingPhase.ADOPTED, "Adopted", "a person", Mood.OVER),
        (TrainingPhase.DISMISSED, "In use", "operator", Mood.OVER),
    ],
)
def test_a_phase_is_one_step_and_says_whether_it_waits_for_a_person(
    phase: TrainingPhase, step: str, who: str, mood: Mood
) -> None:
    found = life(training=training(phase))
    assert present(found) == (step, who)
    assert found.mood is mood
    assert ("waits for a person" in found.title) is (mood is Mood.WAITS)
    assert found.code == f"Training/{phase}"


def test_every_phase_has_a_step() -> None:
    assert len({life(training=training(each)).title for each in TrainingPhase}) == len(
        TrainingPhase
    )


def test_steps_before_are_done_and_those_after_are_to_come() -> None:
    found = life(training=training(TrainingPhase.TRAINING))
    assert [(each.name, each.place.value) for each in found.steps] == [
        *(("In use", "done"), ("Proposed", "done"), ("Approved", "done"), ("Training", "now")),
        *(("Intake", "next"), ("Trial", "next"), ("Adopted", "next")),
    ]


def test_what_may_be_done_is_apart_from_how_it_is() -> None:
    found = life(training=training())
    assert (found.cause, found.advice) == (HELD, ASKS)


@pytest.mark.parametrize(
    ("trial", "step", "title"),
    [
        (COMPARING, "Trial", "Another draft is on trial in kimi-9"),
        (
            ComparisonStatus(state=ArmState.WAITING, message="10 of 300 steps."),
            *("Trial", "Another draft is to be tried in one replica"),
        ),
        (
            COMPARING.model_copy(
                update={"state": ArmState.COMPARED, "result": Compared.FASTER, "percent": "+9.4"}
            ),
            *("Faster", "The draft on trial is faster"),
        ),
        (
            COMPARING.model_copy(update={"state": ArmState.FAILED}),
            *("Failed", "The replica with another draft was given up"),
        ),
    ],
)
def test_a_trial_that_the_spec_asks_for_has_no_training(
    trial: ComparisonStatus, step: str, title: str
) -> None:
    found = life(draft_trial=trial)
    assert [each.who for each in found.steps] == ["operator", "operator", "a person"]
    assert present(found)[0] == step
    assert found.title == title
    assert found.cause.endswith("10 of 300 steps.")
    # Its part is its own: it is not under way a second time.
    assert not list(under_way(status(draft_trial=trial)))


def test_a_trained_draft_on_trial_is_one_life_and_another_trial_is_a_second() -> None:
    repeated = training(TrainingPhase.TRIAL, message="One replica is to have d: 10 of 300 steps.")
    tries = life(training=repeated, draft_trial=COMPARING)
    assert tries.title == "One replica tries the trained draft"
    waiting = ComparisonStatus(state=ArmState.WAITING, message=COMPARING.message)
    waits = life(training=repeated, draft_trial=waiting)
    assert waits.title == "The trained draft is to be tried in one replica"
    assert len(lives_in(status(training=training(), draft_trial=COMPARING))) == 2


def test_where_nothing_is_trained_or_tried_there_is_no_such_part() -> None:
    assert lives_in(SUBJECT.status) == ()
    assert lives_in(SpeculationTunerStatus()) == ()
    assert 'id="life"' not in page()


@pytest.mark.parametrize("home", [True, False])
def test_the_page_and_the_report_mark_the_present_step_and_have_the_commands(*, home: bool) -> None:
    html = page(home=home, training=training(gpuHoursThisWeek="0/12"))
    part = html.partition('id="life"')[2].partition("</section>")[0]
    (now,) = re.findall(r'<li class="now" aria-current="step">(.*?)</li>', part)
    assert text_of(now) == "now: Proposed operator"
    # By ear as by eye: what is done, and what is to come.
    assert len(re.findall(r"to come: </span><b>", part)) == 5
    assert f"{HELD} What to do: {ASKS.replace('`', '')}"[:-1] in text_of(part).replace(" .", "")
    assert "<code>kubectl fathom train x</code>" in part
    assert "Training/Proposed, run 7f3a90c1" in text_of(part)
    assert "at most: 0/12." in text_of(part)
    assert ("12 min ago" in part) is home


def test_its_job_is_named_while_there_is_one() -> None:
    under = training(TrainingPhase.TRAINING, job="kimi-train-7f3a90c1", message="It trains.")
    assert "Job kimi-train-7f3a90c1." in page(training=under)
    assert "Job kimi" not in page(training=training())


@pytest.mark.parametrize(
    ("phase", "waits"), [(TrainingPhase.PROPOSED, True), (TrainingPhase.TRAINING, False)]
)
def test_the_list_says_what_waits_for_a_person_of_one_that_is_well(
    phase: TrainingPhase, *, waits: bool
) -> None:
    listed = overview_of([(SUBJECT.key, status(training=training(phase)))], NOW_S)
    (row,) = listed.rows
    assert row.health == "Well"
    assert listed.troubled == 0
    assert [each.code for each in row.notices] == (["Training/Proposed"] if waits else [])
    assert ("What to do:" in overview_page(listed, NOW_S)) is waits
