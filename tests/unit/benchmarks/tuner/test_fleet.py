"""Our tuner's fleet: documents arrive late, counts are noisy, the truth is not."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.tuner.course.course import WorldCourse
from benchmarks.tuner.fleet.fleet import EPOCH_S, CourseFleet
from benchmarks.tuner.fleet.load import ClosedLoad
from benchmarks.tuner.fleet.settings import settings
from benchmarks.tuner.results.score import scores
from benchmarks.tuner.simulate import LIVE, campaign
from benchmarks.tuner.worlds.files import load
from benchmarks.tuner.worlds.world import SimulatedWorld
from fathom.api.choices import TuningMode
from fathom.api.conditions import AlarmKind, Reason
from fathom.engine.depth import DepthDocument, Schedule, flat
from fathom.measurement.counters import DraftCell, PodCounters
from fathom.measurement.deltas import delta
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.interface import Action, TuningDecision, TuningSnapshot
from unit.benchmarks.tuner.worlds import course, days, world

Documents = Callable[[float], tuple[Schedule, dict[str, Schedule]]]
NOISY = {"step_spread": 0.3, "design_effect": 12, "pod_speed_sd": 0.02}


@dataclass
class Script:
    """A tuner whose documents are known beforehand, and that keeps what it was shown."""

    documents: Documents
    alarm_from_s: float = float("inf")
    wake_s: float = 30.0
    shown: list[TuningSnapshot] = field(default_factory=list)

    def __call__(self, snapshot: TuningSnapshot) -> TuningDecision:
        self.shown.append(snapshot)
        at_s = snapshot.now_s - EPOCH_S
        schedule, pods = self.documents(at_s)
        before = snapshot.document
        document = DepthDocument(
            generation=before.generation + 1 if before else 1, schedule=schedule, pods=pods
        )
        if before is not None and document.same_depths(before):
            document = before
        alarm = Alarm(
            kind=AlarmKind.DRAFT_MISMATCH,
            reason=Reason.MEASURING,
            message="",
            recommendation="",
            since_s=snapshot.now_s,
        )
        return TuningDecision(
            action=Action.HOLD,
            reason=Reason.MEASURING,
            message="",
            document=document,
            state=snapshot.state,
            wake_after_s=self.wake_s,
            measured=None,
            alarms=(alarm,) if at_s >= self.alarm_from_s else (),
        )

    def looks(self, pod: str) -> list[PodCounters | None]:
        return [
            each.counters for snapshot in self.shown for each in snapshot.pods if each.name == pod
        ]


def always(depth: int) -> Documents:
    return lambda _: (flat(depth, 128), {})


def changing(before: int, after: int, at_s: float) -> Documents:
    return lambda now_s: (flat(before if now_s < at_s else after, 128), {})


def live(of: WorldCourse, script: Script) -> CourseFleet:
    wishes = settings(of.world, TuningMode.AUTO, window_s=30)
    return CourseFleet(of, ClosedLoad(of), wishes, "test", script)


EVERYTHING = world(
    noise=NOISY,
    traffic={"concurrency": 12, "kv_tokens": 20_000, "prefill_us_per_token": 5, "skew": 0.3},
    events=(
        {"kind": "decay", "at_minutes": 0, "per_hour": 0.3},
        {"kind": "disobey", "at_minutes": 10, "pod": 1, "depth": 1, "minutes": 20},
        {"kind": "mismatch", "at_minutes": 20, "factor": 0.7},
        {"kind": "pod_restart", "at_minutes": 30, "pod": 2, "minutes": 5},
        {"kind": "slow_pod", "at_minutes": 35, "pod": 3, "factor": 1.3, "minutes": 10},
        {"kind": "context_drift", "at_minutes": 40, "factor": 0.5, "over_minutes": 10},
        {"kind": "scale", "at_minutes": 50, "replicas": 3},
    ),
)


@pytest.mark.parametrize("of", [EVERYTHING, load("replica-churn")], ids=["everything", "churn"])
def test_the_truth_is_the_same_number_by_number_and_as_an_array(of: SimulatedWorld) -> None:
    got = course(of)
    script = Script(always(3))
    outcomes = campaign(got, ["static_3"], {LIVE: lambda each: live(each, script).run()}).outcomes
    assert outcomes[LIVE].tokens == pytest.approx(outcomes["static_3"].tokens)


def test_counts_agree_with_the_truth_in_the_mean() -> None:
    script = Script(always(4))
    got = course(world(noise=NOISY), hours=12)
    outcome = live(got, script).run()
    first, last = script.looks("pod-1-0")[0], script.looks("pod-1-0")[-1]
    assert first is not None
    assert last is not None
    moved = delta(first, last)
    assert moved is not None
    seconds = sum(each.step_seconds for each in moved.cells.values())
    tokens = sum(each.tokens for each in moved.cells.values())
    drafts = moved.drafts[DraftCell(4, 4)]
    made = outcome.tokens[: round(moved.to_s - EPOCH_S) // 10, 1].sum()
    assert tokens == pytest.approx(made, rel=0.01)
    assert moved.engine.generation_tokens == pytest.approx(tokens)
    assert seconds == pytest.approx(moved.seconds, rel=0.02)
    survival = [each / drafts.drafts for each in drafts.accepted]
    assert survival == pytest.approx([0.5, 0.25, 0.125, 0.0625], rel=0.05)
    assert moved.engine.accepted_tokens == pytest.approx(sum(drafts.accepted), rel=0.01)
    assert moved.engine.tpot_seconds_sum / moved.engine.tpot_count == pytest.approx(
        0.014 / 1.9375, rel=0.02
    )


def test_accepted_drafts_vary_by_the_design_effect() -> None:
    script = Script(always(3))
    live(course(world(noise={"design_effect": 12}), hours=12), script).run()
    looks = [each.drafts[DraftCell(4, 3)] for each in script.looks("pod-0-0")[1:] if each]
    windows = [after - before for before, after in pairwise(looks)]
    off = [(each.accepted[0] - 0.5 * each.drafts) / np.sqrt(0.25 * each.drafts) for each in windows]
    assert np.mean(off) == pytest.approx(0, abs=0.3)
    assert np.var(off) == pytest.approx(12, rel=0.15)


def test_a_depth_changes_within_a_tick() -> None:
    of = course(world(fleet={"delivery_seconds": [4, 4]}), hours=0.5)
    tokens = live(of, Script(changing(2, 5, at_s=600))).run().tokens
    assert tokens[60] == pytest.approx(0.4 * tokens[59] + 0.6 * tokens[61])
    assert (tokens[59] != tokens[61]).all()


def test_cells_that_did_not_move_stay_the_same_objects() -> None:
    script = Script(changing(2, 4, at_s=600))
    live(course(world()), script).run()
    before, after = script.looks("pod-0-0")[-2:]
    assert before is not None
    assert after is not None
    at_rest = [cell for cell in after.cells if cell.depth == 2]
    assert at_rest
    assert all(after.cells[cell] is before.cells[cell] for cell in at_rest)


def test_a_document_reaches_each_pod_a_little_later() -> None:
    script = Script(changing(2, 5, at_s=600), wake_s=1.0)
    outcome = live(course(world(fleet={"delivery_seconds": [2, 8]}), hours=0.5), script).run()
    adopted = {
        pod.name: min(
            snapshot.now_s
            for snapshot in script.shown
            for each in snapshot.pods
            if each.name == pod.name and each.counters and each.counters.depth_generation == 2
        )
        - EPOCH_S
        for pod in script.shown[0].pods
    }
    assert all(602 <= each <= 609 for each in adopted.values())
    assert len(set(adopted.values())) > 1
    assert (outcome.depth[59] == 2).all()
    assert (outcome.depth[61] == 5).all()


def test_a_document_for_one_pod_changes_that_pod_alone() -> None:
    script = Script(lambda _: (flat(2, 128), {"pod-3-0": flat(6, 128)}))
    outcome = live(course(world()), script).run()
    assert outcome.depth[-1].tolist() == [2, 2, 2, 6]


def test_a_deaf_pod_adopts_the_newest_document_once_it_hears_again() -> None:
    deaf = {"kind": "deaf_pod", "at_minutes": 5, "pod": 1, "minutes": 20}
    script = Script(changing(2, 5, at_s=600))
    outcome = live(course(world(events=(deaf,))), script).run()
    assert outcome.depth[140].tolist() == [5, 2, 5, 5]
    assert outcome.depth[155].tolist() == [5, 5, 5, 5]


def test_a_restarted_engine_counts_from_zero_and_starts_at_the_newest_document() -> None:
    restart = {"kind": "pod_restart", "at_minutes": 20, "pod": 0, "minutes": 5}
    script = Script(changing(2, 5, at_s=300))
    outcome = live(course(world(events=(restart,))), script).run()
    looks = [each for each in script.looks("pod-0-0") if each is not None]
    tokens = [each.engine.generation_tokens for each in looks]
    assert sum(b < a for a, b in pairwise(tokens)) == 1
    assert len({each.started_at_s for each in looks}) == 2
    assert None in script.looks("pod-0-0")  # while it is not ready
    assert outcome.depth[-1, 0] == 5


def test_metrics_go_missing_and_stand_still_as_told() -> None:
    events = (
        {"kind": "missing_metrics", "at_minutes": 10, "minutes": 10, "pods": [0]},
        {"kind": "frozen_metrics", "at_minutes": 10, "minutes": 10, "pods": [1]},
    )
    script = Script(always(3))
    live(course(world(events=events)), script).run()
    during = slice(21, 39)
    assert set(script.looks("pod-0-0")[during]) == {None}
    assert len({each.at_s for each in script.looks("pod-1-0")[during] if each}) == 1
    assert len({each.at_s for each in script.looks("pod-2-0")[during] if each}) == 18


def test_scrapes_show_values_of_their_own_time() -> None:
    script = Script(always(3), wake_s=10.0)
    live(course(world(noise={"scrape_seconds": 30})), script).run()
    ages = {
        round(snapshot.now_s - each.counters.at_s)
        for snapshot in script.shown
        for each in snapshot.pods
        if each.counters is not None
    }
    assert ages == {0, 10, 20}


@pytest.mark.parametrize(
    ("alarm_minute", "minutes", "false"), [(38, 8.0, 0), (10, None, 1), (2000, None, 0)]
)
def test_an_alarm_is_timed_from_its_mismatch(
    alarm_minute: float, minutes: float | None, false: int
) -> None:
    of = days(world(events=({"kind": "mismatch", "at_minutes": 30},)), 1)
    script = Script(always(3), alarm_from_s=60 * alarm_minute, wake_s=60.0)
    lived = campaign(of, ["static_3"], {LIVE: lambda each: live(each, script).run()})
    (score,) = scores(lived, [LIVE])
    assert score.alarms is not None
    assert score.alarms.minutes == (minutes,)
    assert len(score.alarms.false) == false
