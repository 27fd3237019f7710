"""Whose pods the tuner judges by while two revisions serve, and what is told of a gain."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace as Of
from typing import Any

import pytest

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.core.cluster.observed_pods import ObservedPod, PodSpec
from fathom.core.depth import summary
from fathom.manifests.engine_command.engine_args import engine_args
from fathom.reconcile.desired_state import DesiredState
from fathom.reconcile.tuning_input import settings_of, tuned_pods, tuning_snapshot
from fathom.reconcile.tuning_report import _interval
from fathom.rollout.rollout import Rollout, Stage
from fathom.tuning.situation import pins
from fathom.tuning.state import TuningState
from manifest_samples import resource, started_with
from unit.rollout.inputs import NOW_S, pod

tuned_revision: Any = DesiredState.tuned_revision
most_new: Any = DesiredState.most_new


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


def _engine(
    named: Iterable[int] | None, *, ready: bool = True, pin: str | None = None, name: str = "a"
) -> ObservedPod:
    """A pod whose engine was started with a schedule that names these depths."""
    return ObservedPod.model_validate(
        {
            "metadata": {
                "name": name,
                "labels": {names.LABEL_ROLE: names.ROLE_LEADER},
                "annotations": {} if pin is None else {names.ANNOTATION_PIN_DEPTH: pin},
            },
            "spec": {"containers": [{"args": started_with(named or ())}]},
            "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
        }
    )


SPEC = resource({"speculation": {"tokens": 5, "minTokens": 3, "maxTokens": 7}}).spec
OF_THE_SPEC = (0, 1, 2, 3, 5, 7)


@pytest.mark.parametrize(
    ("engines", "tokens", "depths"),
    [
        ([], 5, (3, 5, 7)),
        ([OF_THE_SPEC], 5, (3, 5, 7)),
        ([range(8)], 5, (3, 4, 5, 6, 7)),
        ([range(8), range(8)], 5, (3, 4, 5, 6, 7)),
        ([range(8), OF_THE_SPEC], 5, (3, 5, 7)),
        ([range(4)], 3, (3,)),
        # None that the user allows is common to all: what most have, and then what all can run.
        ([(0, 1, 3, 7), (0, 1, 3, 7), (0, 5)], 3, (3,)),
        ([(0, 2, 6), (0, 2, 6), (0, 5)], 5, (3, 4, 5)),
        ([range(2)], 1, (1,)),
        ([(0, 1, 3, 7)], 3, (3, 7)),
        ([range(16)], 5, (3, 4, 5, 6, 7)),
        ([None, range(8)], 5, (3, 4, 5, 6, 7)),
        ([None], 5, (3, 5, 7)),
    ],
    ids=str,
)
def test_only_depths_that_all_engines_have_are_chosen(
    engines: Sequence[Iterable[int] | None], tokens: int, depths: tuple[int, ...]
) -> None:
    found = settings_of(SPEC, [_engine(each) for each in engines])
    assert (found.tokens, found.depths) == (tokens, depths)


def test_depths_within_the_bounds_go_before_nearer_ones() -> None:
    spec = resource({"speculation": {"tokens": 5, "minTokens": 4}}).spec
    found = settings_of(spec, [_engine((0, 1, 3, 7))])
    assert (found.tokens, found.min_tokens, found.depths) == (7, 4, (7,))


def test_nobody_is_taken_to_depth_0_for_want_of_a_common_depth() -> None:
    spec = resource({"speculation": {"tokens": 2, "depths": [0, 2, 5], "minTokens": 1}}).spec
    found = settings_of(spec, [*[_engine((0, 1, 3, 7))] * 2, _engine((0, 2, 5))])
    assert (found.tokens, found.depths) == (1, (1, 3))


def test_what_an_engine_that_does_not_serve_lacks_does_not_matter() -> None:
    found = settings_of(SPEC, [_engine(range(8)), _engine((0, 1), ready=False)])
    assert found.depths == (3, 4, 5, 6, 7)


def test_a_user_s_own_depths_are_all_that_is_chosen_from() -> None:
    spec = resource({"speculation": {"tokens": 3, "depths": [1, 3, 7]}}).spec
    assert settings_of(spec, [_engine(range(8))]).depths == (1, 3, 7)


@pytest.mark.parametrize("tokens", [1, 7])
def test_an_engine_with_fewer_batches_than_depths_runs_what_is_asked(tokens: int) -> None:
    spec = resource(
        {"speculation": {"tokens": tokens}, "engine.args": ["--max-num-seqs", "2"]}
    ).spec
    started = PodSpec.model_validate({"containers": [{"args": engine_args(spec)}]})
    found = settings_of(spec, [_engine(()).model_copy(update={"spec": started})])
    assert (found.tokens, found.depths) == (tokens, (1, 3, 7))


@pytest.mark.parametrize(
    ("pin", "named", "depth"),
    [("7", (0, 1, 3, 7), 7), ("0", (0, 1, 3, 7), 3), ("2", (0, 1, 3, 7), None), ("5", None, 5)],
)
def test_a_pin_is_held_by_what_its_own_engine_has(
    pin: str, named: tuple[int, ...] | None, depth: int | None
) -> None:
    pinned, other = _engine(named, pin=pin), _engine((0, 3, 6), name="b")
    desired: Any = Of(tuned_spec=SPEC, held={}, tuned_revision="m")
    objects = Of(leaders=(pinned, other), depth=None, workloads=())
    view: Any = Of(now_s=NOW_S, counters={}, objects=objects)
    given = tuning_snapshot(
        view, desired, TuningState(), document_written_at_s=0, pods=(pinned, other)
    )
    assert [each.pinned_depth for each in given.pods] == [depth, None]
    assert [summary(each) for each in pins(given).values()] == [str(depth)] * (depth is not None)


@pytest.mark.parametrize(
    ("plugin", "changes", "refused"),
    [
        ("", {}, True),
        ("kimi-plugin", {}, False),
        ("", {"speculation.tuning.mode": "Static"}, False),
    ],
)
def test_what_an_earlier_fathom_started_without_the_plugin_is_not_tuned(
    plugin: str,
    changes: dict[str, Any],
    refused: bool,  # noqa: FBT001
) -> None:
    desired: Any = Of(tuned_spec=resource(changes).spec, held={}, tuned_revision="m")
    workloads = (Of(revision="n", plugin=""), Of(revision="m", plugin=plugin))
    objects = Of(leaders=(), depth=None, workloads=workloads)
    view: Any = Of(now_s=NOW_S, counters={}, objects=objects)
    given = tuning_snapshot(view, desired, TuningState(), document_written_at_s=0, pods=())
    assert (given.live_refusal is not None) == refused


@pytest.mark.parametrize("other", ["a", "z"])
def test_it_is_judged_by_the_pods_of_one_revision_or_else_by_all(other: str) -> None:
    mine, theirs = pod("m", "1", ready=True), pod(other, "2", ready=True)
    desired: Any = Of(tuned_revision="m", revision="m", sd=resource())
    both: Any = Of(leaders=(mine, theirs), workloads=())
    assert tuned_pods(both, desired) == (mine,)
    alone: Any = Of(leaders=(theirs,), workloads=())
    assert tuned_pods(alone, desired) == (theirs,)


def test_a_gain_is_told_with_its_interval() -> None:
    decision: Any = Of(expected_gain=0.06, expected_gain_sd=0.015)
    assert _interval(decision) == "3.1 to 8.9"
    unknown: Any = Of(expected_gain=0.06, expected_gain_sd=None)
    assert _interval(unknown) == ""
