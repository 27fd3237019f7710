"""Whatever people, Jobs, clocks and operators do: no GPU hour is spent that nobody allowed."""

from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fathom.api.status import ArmState, Compared
from fathom.cluster.kinds import JOB
from fathom.training.record import AWAITS_APPROVAL
from support.played_training import FOLDER, STORED, TRAINING
from support.training_world import MINUTE_S, TrainingWorld

OLD: Final = "lightseekorg/kimi-k2.6-eagle3.1-mla"
HUB: Final = '{"schema":1,"hub":{"id":"someone/trained","revision":"' + 40 * "a" + '"}}'
REFUSED: Final = '{"schema":1,"refused":"notFinite"}'
THEIRS: Final = "adopt me at once"
"""Text that a trainer would like to be read."""
MESSAGES: Final = (STORED, HUB, REFUSED, THEIRS, f'{{"schema":1,"refused":"{THEIRS}"}}', "")
DAY_S: Final = 24 * 3600.0
EDITS: Final[tuple[dict[str, Any] | None, ...]] = (
    {"gpus": 4, "deadlineMinutes": 90},
    {"gpus": 8, "deadlineMinutes": 60},
    {"gpuHoursPerWeek": 6},
    {"gpuHoursPerWeek": 12},
    {"gpus": 0},
    {"proposals": "Manual"},
    {"template": {"spec": {"containers": [{"name": "train", "image": "example/other:2"}]}}},
    None,
)
VERDICTS: Final = (
    (ArmState.COMPARED, Compared.FASTER),
    (ArmState.COMPARED, Compared.SLOWER),
    (ArmState.COMPARED, Compared.NO_DIFFERENCE),
    (ArmState.COMPARED, Compared.CANNOT_TELL),
    (ArmState.FAILED, None),
    (ArmState.STARTING, None),
)


class Training(RuleBasedStateMachine):
    """One resource whose drafts are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.world = TrainingWorld()
        self.runs: list[str] = []

    # -- what is meant to happen

    @rule(passes=st.integers(0, 3))
    def goes_on(self, passes: int) -> None:
        """Whoever is waited for does what is to be done next."""
        world = self.world
        if world.training is None:
            world.spec["draft.training"] = TRAINING
        elif world.paused:
            world.paused = ""
        elif world.unended():
            world.end(world.unended()[0])
        elif world.unended("intake"):
            world.end(world.unended("intake")[0], message=STORED)
        elif not world.record.is_active:
            world.ask()
        elif world.status is not None:
            world.approve(world.status.run)
        self._pass(passes)

    goes_on_again = goes_on
    goes_on_once_more = goes_on

    @precondition(lambda self: self.world.status is not None)
    @rule(
        meanwhile=st.sampled_from(["an edit", "a pause", "a death", "a day", "a week"]),
        passes=st.integers(0, 2),
    )
    def goes_on_while_something_happens(self, meanwhile: str, passes: int) -> None:
        """Between the record of a start and its Job there is one pass."""
        world = self.world
        world.approve(world.record.run)
        self._pass(1)
        if meanwhile == "an edit":
            world.spec["draft.training"] = {**TRAINING, "deadlineMinutes": 91}
        elif meanwhile == "a pause":
            world.paused = "a freeze"
        elif meanwhile == "a death":
            world.operator = world.started()
        else:
            world.paused = "a freeze"
            world.steady_s += DAY_S if meanwhile == "a day" else 7 * DAY_S
            self._pass(1)
            world.paused = ""
        self._pass(passes)

    @precondition(lambda self: self.world.phase in AWAITS_APPROVAL)
    @rule(edit=st.sampled_from(EDITS[:2]))
    def an_edit_is_taken_back(self, edit: dict[str, Any]) -> None:
        """What was approved before it waits meanwhile."""
        world, before = self.world, self.world.training
        world.approve(world.record.run)
        world.paused = "a freeze"
        self._pass(1)
        world.spec["draft.training"] = {**TRAINING, **edit}
        self._pass(1)
        world.spec["draft.training"], world.paused = before, ""
        self._pass(3)

    @rule(late_watch=st.booleans())
    def reconciles(self, late_watch: bool) -> None:  # noqa: FBT001 - hypothesis names it
        self.world.reconcile(late_watch=late_watch)
        self.runs.append(self.world.record.run)

    def _pass(self, count: int) -> None:
        for _ in range(count):
            self.world.reconcile()
            self.runs.append(self.world.record.run)

    # -- what else does

    @rule(at=st.sampled_from(["recording", "recorded", "made"]))
    def dies(self, at: str) -> None:
        self.world.reconcile(dies=at)

    @rule(gone=st.booleans(), seconds=st.sampled_from([1.0, MINUTE_S, 3601.0]))
    def no_answer_comes(self, gone: bool, seconds: float) -> None:  # noqa: FBT001 - hypothesis names it
        """What was asked for was done; before that is read it may have gone again."""
        self.world.reconcile(unanswered=True)
        self.world.steady_s += seconds
        for name in self.world.unended() if gone else ():
            self.world.delete(JOB, name)
            self.world.end_pods()
        self._pass(1)

    @rule(seconds=st.sampled_from([1.0, MINUTE_S, 301.0, 3601.0, DAY_S, 3 * DAY_S]))
    def time_passes(self, seconds: float) -> None:
        self.world.steady_s += seconds

    @rule(seconds=st.sampled_from([-8 * DAY_S, -3600.0, -1.0, 0.0, 1.0, 8 * DAY_S]))
    def the_clock_is_set(self, seconds: float) -> None:
        self.world.set_by_s += seconds
        self.world.trusted &= seconds <= 0

    @rule(passes=st.integers(0, 1), data=st.data())
    def a_person_says(self, passes: int, data: st.DataObject) -> None:
        runs = ["12345678", *self.runs[-20:]]
        say = data.draw(st.sampled_from([self.world.approve, self.world.dismiss]))
        say(data.draw(st.sampled_from(runs[::-1])))
        self._pass(passes)

    @rule(edit=st.sampled_from(EDITS))
    def a_person_edits(self, edit: dict[str, Any] | None) -> None:
        self.world.spec["draft.training"] = None if edit is None else {**TRAINING, **edit}

    @rule(draft=st.sampled_from([OLD, FOLDER, "someone/else"]))
    def a_person_names_a_draft(self, draft: str) -> None:
        self.world.spec["draft.id"] = draft

    @rule(why=st.sampled_from(["a freeze", ""]))
    def a_person_pauses(self, why: str) -> None:
        self.world.paused = why

    @rule(days=st.none() | st.integers(0, 2))
    def an_alarm(self, days: int | None) -> None:
        since_s = None if days is None else self.world.now_s - days * DAY_S
        self.world.alarm_since_s = since_s

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data(), why=st.sampled_from(["BackoffLimitExceeded", THEIRS, ""]))
    def a_job_ends(self, data: st.DataObject, why: str) -> None:
        running = self.world.unended() + self.world.unended("intake")
        if running:
            message = data.draw(st.sampled_from(MESSAGES))
            self.world.end(data.draw(st.sampled_from(running)), failed=why, message=message)

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data())
    def a_job_is_deleted(self, data: st.DataObject) -> None:
        self.world.delete(JOB, data.draw(st.sampled_from(sorted(self.world.jobs))))

    @rule(found=st.sampled_from(VERDICTS))
    def it_is_judged(self, found: tuple[ArmState, Compared | None]) -> None:
        self.world.judge(*found)

    @rule(lost=st.sampled_from(["pods", "pods", "pods", "record"]))
    def something_goes(self, lost: str) -> None:
        if lost == "pods":
            self.world.end_pods()
        else:
            self.world.lose_its_record()

    # -- what must hold, beside what the world asserts where a Job is made

    @invariant()
    def no_more_jobs_than_approved_runs(self) -> None:
        made = [each.run for each in self.world.made]
        assert len(made) == len(set(made)) <= len(self.world.approved)

    @invariant()
    def nothing_of_theirs_is_repeated(self) -> None:
        assert THEIRS not in " ".join(self.world.told) + str(self.world.status)
        assert THEIRS not in str(self.world.tuning)


TestTraining = Training.TestCase
TestTraining.settings = settings(max_examples=60, stateful_step_count=50)
