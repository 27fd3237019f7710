"""Whose pods the tuner judges by while two revisions serve, and what is told of a gain."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace as Of
from typing import Any

import pytest

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.observed_pods import ObservedPod, PodSpec
from fathom.engine.depth import summary
from fathom.engine.flags import engine_args
from fathom.engine.report import EngineReport
from fathom.measurement.counters import EngineCounts, PodCounters
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.desired_state import DesiredState, following_of
from fathom.reconcile.tuning_input import settings_of, tuned_pods, tuning_snapshot
from fathom.reconcile.tuning_report import _interval
from fathom.resource import SpeculativeDeployment
from fathom.rollout.rollout import CanaryWatch, Rollout, Stage
from fathom.tuning.context import pins
from fathom.tuning.learned_state import TuningState
from manifest_samples import resource, started_with
from unit.rollout.inputs import NOW_S, pod

tuned_revision: Any = DesiredState.tuned_revision
most_new: Any = DesiredState.most_new
NOT_ANNOTATED: Any = Of(annotations={})


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
    rollout = Rollout(
        revision="new", stable="old", stage=stage, began_at_s=NOW_S, reason=Reason.SETTLING
    )
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
    rollout = Rollout(
        revision="new", stable="old", stage=stage, began_at_s=NOW_S, reason=Reason.SETTLING
    )
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


OF_SPEC = {"tokens": 5, "minTokens": 3, "maxTokens": 7}
WANTED = resource({"speculation": OF_SPEC})
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
    found = settings_of(WANTED, [_engine(each) for each in engines], live=True)
    assert (found.tokens, found.depths) == (tokens, depths)


def test_depths_within_the_bounds_go_before_nearer_ones() -> None:
    wanted = resource({"speculation": {"tokens": 5, "minTokens": 4}})
    found = settings_of(wanted, [_engine((0, 1, 3, 7))], live=True)
    assert (found.tokens, found.min_tokens, found.depths) == (7, 4, (7,))


def test_nobody_is_taken_to_depth_0_for_want_of_a_common_depth() -> None:
    wanted = resource({"speculation": {"tokens": 2, "depths": [0, 2, 5], "minTokens": 1}})
    found = settings_of(wanted, [*[_engine((0, 1, 3, 7))] * 2, _engine((0, 2, 5))], live=True)
    assert (found.tokens, found.depths) == (1, (1, 3))


def test_what_an_engine_that_does_not_serve_lacks_does_not_matter() -> None:
    found = settings_of(WANTED, [_engine(range(8)), _engine((0, 1), ready=False)], live=True)
    assert found.depths == (3, 4, 5, 6, 7)


def test_a_user_s_own_depths_are_all_that_is_chosen_from() -> None:
    wanted = resource({"speculation": {"tokens": 3, "depths": [1, 3, 7]}})
    assert settings_of(wanted, [_engine(range(8))], live=True).depths == (1, 3, 7)


@pytest.mark.parametrize("tokens", [1, 7])
def test_an_engine_with_fewer_batches_than_depths_runs_what_is_asked(tokens: int) -> None:
    wanted = resource({"speculation": {"tokens": tokens}, "engine.args": ["--max-num-seqs", "2"]})
    started = PodSpec.model_validate({"containers": [{"args": engine_args(wanted.engine)}]})
    found = settings_of(wanted, [_engine(()).model_copy(update={"spec": started})], live=True)
    assert (found.tokens, found.depths) == (tokens, (1, 3, 7))


def _told(pod: ObservedPod, *, live: bool = True, **parts: Any) -> PodCounters:
    return PodCounters(
        pod=pod.name,
        at_s=NOW_S,
        started_at_s=NOW_S,
        engine=EngineCounts(),
        live_depth=live,
        depth_generation=1,
        report=EngineReport(**parts),
    )


def test_what_engines_say_that_they_have_goes_before_what_they_were_started_with() -> None:
    pods = [_engine(range(8), name=name) for name in "ab"]
    told = {each.name: _told(each, depths=(0, 1, 3, 7), max_num_seqs=64) for each in pods}

    found = settings_of(WANTED, pods, live=True, counters=told)

    assert (found.depths, found.max_batch) == ((3, 7), 64)


@pytest.mark.parametrize(
    ("others", "most"),
    [
        ({"max_num_seqs": 128}, 128),
        (
            {},
            WANTED.engine.max_num_seqs,
        ),  # an older plugin, or a Prometheus that drops the series
        (None, 64),  # not read
    ],
)
def test_of_engines_that_differ_the_largest_batch_counts_once_all_tell(
    others: dict[str, Any] | None, most: int
) -> None:
    one, other = pods = [_engine(range(8), name=name) for name in "ab"]
    told = {one.name: _told(one, max_num_seqs=64)}
    if others is not None:
        told[other.name] = _told(other, **others)

    assert settings_of(WANTED, pods, live=True, counters=told).max_batch == most


def test_only_an_engine_whose_depth_is_live_says_which_depths_there_are() -> None:
    """One whose schedule was dropped names the deepest alone, and obeys nothing."""
    one, other = pods = [_engine(range(8), name=name) for name in "ab"]
    told = {
        one.name: _told(one, depths=(0, 1, 3, 7), max_num_seqs=64),
        other.name: _told(other, live=False, depths=(7,), max_num_seqs=64),
    }
    assert settings_of(WANTED, pods, live=True, counters=told).depths == (3, 7)


def test_an_engine_with_no_more_batches_than_depths_is_taken_as_it_was_started() -> None:
    pod = _engine(range(8))
    told = {pod.name: _told(pod, depths=(0, 3), max_num_seqs=2)}
    assert settings_of(WANTED, [pod], live=True, counters=told).depths == (3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("pin", "named", "depth"),
    [("7", (0, 1, 3, 7), 7), ("0", (0, 1, 3, 7), 3), ("2", (0, 1, 3, 7), None), ("5", None, 5)],
)
def test_a_pin_is_held_by_what_its_own_engine_has(
    pin: str, named: tuple[int, ...] | None, depth: int | None
) -> None:
    pinned, other = _engine(named, pin=pin), _engine((0, 3, 6), name="b")
    objects: Any = Of(
        leaders=(pinned, other),
        depth=None,
        workloads=(),
        key=Of(name="kimi"),
        metadata=NOT_ANNOTATED,
    )
    desired = desired_of("m", resource({"speculation": OF_SPEC}), objects)
    view: Any = Of(now_s=NOW_S, counters={}, objects=objects)
    given = tuning_snapshot(
        view,
        desired,
        TuningState(),
        document_written_at_s=0,
        document_before=None,
        pods=(pinned, other),
        draft="",
    )
    assert [each.pinned_depth for each in given.pods] == [depth, None]
    assert [summary(each) for each in pins(given.settings, given.pods).values()] == [str(depth)] * (
        depth is not None
    )


@pytest.mark.parametrize(
    ("ready", "since_s", "compared"),
    [
        ((True,), NOW_S, True),
        ((True, False), NOW_S, True),
        ((True, True), NOW_S, False),
        ((True,), None, False),
    ],
)
def test_the_tuner_knows_when_a_canary_has_one_pod_to_be_compared_with(
    ready: tuple[bool, ...], since_s: float | None, *, compared: bool
) -> None:
    pods = [_engine(range(8), name=f"n-{each}", ready=ready[each]) for each in range(len(ready))]
    objects: Any = Of(
        leaders=pods, depth=None, workloads=(), key=Of(name="kimi"), metadata=NOT_ANNOTATED
    )
    desired = desired_of("m", WANTED, objects, ("n", resource({"speculation.tokens": 2})))
    assert desired.rollout is not None
    rollout = replace(desired.rollout, watch=CanaryWatch(pod="m-0", ready_since_s=since_s))
    desired = replace(desired, checkpoint=replace(desired.checkpoint, rollout=rollout))
    view: Any = Of(now_s=NOW_S, counters={}, objects=objects)
    given = tuning_snapshot(
        view,
        desired,
        TuningState(),
        document_written_at_s=0,
        document_before=None,
        pods=pods,
        draft="",
    )
    assert given.compared is compared


def workload(revision: str, *config_maps: str) -> Any:
    plugin = next((each for each in config_maps if "plugin" in each), "")
    return Of(revision=revision, plugin=plugin, config_maps=frozenset(config_maps))


LIVE = ("kimi-plugin", "kimi-depth")
COUNTS = ("kimi-plugin",)


def desired_of(
    revision: str,
    sd: SpeculativeDeployment,
    objects: Any,
    stable: tuple[str, SpeculativeDeployment] | None = None,
) -> DesiredState:
    """At rest, or while `revision` is on trial beside a stable one."""
    rollout, beside = None, None
    if stable is not None:
        name, beside = stable
        rollout = Rollout(
            revision=revision,
            stable=name,
            stage=Stage.CANARY,
            began_at_s=NOW_S,
            reason=Reason.SETTLING,
        )
    kept = Checkpoint(rollout=rollout)
    return DesiredState(
        sd=sd,
        revision=revision,
        stable=beside,
        checkpoint=kept,
        events=(),
        following=following_of(objects),
    )


def refusal(changes: dict[str, Any], mounted: Sequence[str]) -> tuple[Reason, str] | None:
    """What is said where pods of revision m, started with these ConfigMaps, serve a spec."""
    sd = resource(changes)
    workloads = (workload("n"), workload("m", *mounted))
    objects: Any = Of(
        leaders=(), depth=None, workloads=workloads, key=Of(name="kimi"), metadata=NOT_ANNOTATED
    )
    desired = desired_of("m", sd, objects)
    view: Any = Of(now_s=NOW_S, counters={}, objects=objects)
    given = tuning_snapshot(
        view,
        desired,
        TuningState(),
        document_written_at_s=0,
        document_before=None,
        pods=(),
        draft="",
    )
    return given.live_refusal


@pytest.mark.parametrize("mounted", [(), COUNTS], ids=str)
def test_what_an_earlier_fathom_started_without_depths_is_not_tuned(
    mounted: tuple[str, ...],
) -> None:
    found = refusal({}, mounted)
    assert found is not None
    assert "it is live once a rollout replaces them" in found[1]


@pytest.mark.parametrize(
    ("mounted", "changes"), [(LIVE, {}), ((), {"speculation.tuning.mode": "Static"})], ids=str
)
def test_what_follows_depths_and_what_is_static_is_not_refused(
    mounted: tuple[str, ...], changes: dict[str, Any]
) -> None:
    assert refusal(changes, mounted) is None


@pytest.mark.parametrize(
    ("changes", "mounted", "end"),
    [
        ({"engine.dataParallelSize": 2}, COUNTS, "to have it follow the traffic."),
        (
            {"engine.dataParallelSize": 2},
            (),
            "counted by batch: pods of revision m get the plugin when a rollout replaces them.",
        ),
        (
            {"engine.image": "vllm/vllm-openai:v0.27.0"},
            (),
            " Nothing is counted by batch: the plugin counts in vLLM <0.34,>=0.28.0.",
        ),
        ({"speculation.drafting": "Disabled"}, (), "to have depth follow the traffic."),
        (
            {"speculation.tuning.mode": "Static", "engine.dataParallelSize": 2},
            (),
            "to have it follow the traffic.",
        ),
    ],
    ids=str,
)
def test_where_nothing_is_counted_either_that_is_said_with_its_reason(
    changes: dict[str, Any], mounted: tuple[str, ...], end: str
) -> None:
    found = refusal(changes, mounted)
    assert found is not None
    assert found[1].endswith(end)
    assert found[1].count("counted by batch") == end.count("counted by batch")


@pytest.mark.parametrize("other", ["a", "z"])
def test_it_is_judged_by_the_pods_of_one_revision_or_else_by_all(other: str) -> None:
    mine, theirs = pod("m", "1", ready=True), pod(other, "2", ready=True)
    both: Any = Of(leaders=(mine, theirs), workloads=(), key=Of(name="kimi"))
    assert tuned_pods(both, desired_of("m", resource(), both)) == (mine,)
    alone: Any = Of(leaders=(theirs,), workloads=(), key=Of(name="kimi"))
    assert tuned_pods(alone, desired_of("m", resource(), alone)) == (theirs,)


DP = {"engine.dataParallelSize": 2}


@pytest.mark.parametrize(
    ("stable", "mounted", "canary", "both"),
    [
        (DP, COUNTS, {**DP, "speculation.tokens": 5}, True),
        (DP, COUNTS, {**DP, "speculation.tokens": 5, "engine.tensorParallelSize": 2}, False),
        ({}, LIVE, {"speculation.tokens": 4}, False),  # live: a probe shows it
        (
            DP,
            LIVE,
            {**DP, "speculation.tokens": 5},
            False,
        ),  # an earlier Fathom's: live all the same
        (DP, COUNTS, {**DP, "speculation.drafting": "Disabled"}, False),
    ],
    ids=str,
)
def test_where_depth_is_not_live_a_canary_of_another_depth_shows_what_it_is_worth(
    stable: dict[str, Any],
    mounted: tuple[str, ...],
    canary: dict[str, Any],
    both: bool,  # noqa: FBT001
) -> None:
    old, new = pod("old", "1", ready=True), pod("new", "2", ready=True)
    workloads = (workload("old", *mounted),)
    objects: Any = Of(leaders=(old, new), workloads=workloads, key=Of(name="kimi"))
    desired = desired_of("new", resource(canary), objects, ("old", resource(stable)))
    assert tuned_pods(objects, desired) == ((old, new) if both else (old,))


def test_a_gain_is_told_with_its_interval() -> None:
    decision: Any = Of(expected_gain=0.06, expected_gain_sd=0.015)
    assert _interval(decision) == "3.1 to 8.9"
    unknown: Any = Of(expected_gain=0.06, expected_gain_sd=None)
    assert _interval(unknown) == ""
