"""Whose pods the tuner judges by while two revisions serve, and what is told of a gain."""

from types import SimpleNamespace as Of
from typing import Any

import pytest

from fathom.api.conditions import Reason
from fathom.rollout.rollout import Rollout, Stage
from fathom.runtime.course import Course
from fathom.runtime.tuning_input import settings_of, tuned_pods, within
from fathom.runtime.tuning_report import _interval
from manifest_samples import resource
from unit.rollout.looks import NOW_S, pod

tuned_revision: Any = Course.tuned_revision
most_new: Any = Course.most_new


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


@pytest.mark.parametrize(
    ("stage", "revision", "most"),
    [
        (Stage.CANARY, "new", 1),
        (Stage.ROLLED_BACK, "old", None),
        (Stage.ROLLED_BACK, "new", 0),  # a Fathom that cannot read the stable spec
    ],
)
def test_what_was_rolled_back_gets_no_replicas(
    stage: Stage, revision: str, most: int | None
) -> None:
    rollout = Rollout("new", "old", stage, NOW_S, Reason.SETTLING)
    assert most_new.fget(Of(rollout=rollout, revision=revision)) == most


@pytest.mark.parametrize("most", [2, 4, 9])
def test_beside_shallower_engines_no_depth_is_beyond_theirs(most: int) -> None:
    settings = settings_of(
        resource({"speculation": {"tokens": 5, "minTokens": 3, "maxTokens": 7}}).spec
    )
    found = within(settings, most)
    assert (found.min_tokens, found.tokens, found.max_tokens) == (
        min(3, most),
        min(5, most),
        min(7, most),
    )


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
