"""Whose pods the tuner judges by while two revisions serve, and what is told of a gain."""

from types import SimpleNamespace as Of
from typing import Any

import pytest

from fathom.api.conditions import Reason
from fathom.rollout.rollout import Rollout, Stage
from fathom.runtime.course import Course
from fathom.runtime.tuning_input import tuned_pods
from fathom.runtime.tuning_report import _interval
from manifest_samples import resource
from unit.rollout.looks import NOW_S, pod

tuned_revision: Any = Course.tuned_revision


@pytest.mark.parametrize(
    ("stage", "revision"),
    [
        (Stage.SETTLING, "old"),
        (Stage.CANARY, "old"),
        (Stage.PROMOTED, "carried"),
        (Stage.ROLLED_BACK, "carried"),
    ],
)
def test_while_a_revision_is_on_trial_the_stable_one_is_tuned(stage: Stage, revision: str) -> None:
    rollout = Rollout("new", "old", stage, NOW_S, Reason.SETTLING)
    assert tuned_revision.fget(Of(rollout=rollout, revision="carried")) == revision


def test_without_a_rollout_what_serves_is_tuned() -> None:
    assert tuned_revision.fget(Of(rollout=None, revision="carried")) == "carried"


@pytest.mark.parametrize("other", ["a", "z"])
def test_it_is_judged_by_the_pods_of_one_revision_or_else_by_all(other: str) -> None:
    mine, theirs = pod("m", "1", ready=True), pod(other, "2", ready=True)
    course: Any = Of(tuned_revision="m", revision="m", sd=resource())
    both: Any = Of(leaders=(mine, theirs), workloads=())
    assert tuned_pods(both, course) == (mine,)
    alone: Any = Of(leaders=(theirs,), workloads=())
    assert tuned_pods(alone, course) == (theirs,)


def test_a_gain_is_told_with_its_interval() -> None:
    decision: Any = Of(expected_gain=0.06, expected_gain_sd=0.015)
    assert _interval(decision) == "3.1 to 8.9"
    unknown: Any = Of(expected_gain=0.06, expected_gain_sd=None)
    assert _interval(unknown) == ""
