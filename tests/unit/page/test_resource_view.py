"""One resource: what is shown is what its status, its tuner and its history say."""

from dataclasses import replace

import pytest

from fathom.api.problem import Problem
from fathom.api.status import (
    ArmState,
    ComparisonStatus,
    EngineStatus,
    QualityStatus,
    SpeculativeDeploymentStatus,
)
from fathom.cluster.kinds import SPECULATION_TUNER, SPECULATIVE_DEPLOYMENT, Kind, ObjectKey
from fathom.cluster.snapshot import status_in
from fathom.health import UNWATCHED_S
from fathom.page.history import MomentKind
from fathom.page.resource_view import SHADES, ResourceView, resource_view
from fathom.page.subject import subject_in
from fathom.times import rfc3339
from fathom.tuning.explanation import explain
from fathom.tuning.learned_state import TuningState
from manifest_samples import manifest, resource
from support.page_subjects import EAGER, lived, troubled
from unit.tuning.plant import SETTINGS

SUBJECT, NOW_S = lived()


def facts(view: ResourceView) -> dict[str, dict[str, str]]:
    return {group.title: {each.name: each.value for each in group.facts} for group in view.groups}


def test_facts_are_the_status_and_each_group_says_of_which_time() -> None:
    status = SUBJECT.status
    assert status.gained is not None
    found = facts(resource_view(SUBJECT, NOW_S))
    now, measured, gained = found.values()

    assert [*found][1:] == [
        f"Measured in the 10 s until {status.measured.at}",
        f"In all since {status.gained.since}",
    ]
    assert now["Replicas ready"] == "2/2"
    assert now["Depth"] == status.depth.summary
    assert now["Engine"] == "vLLM 0.32.0"
    assert measured["Tokens per second"] == f"{status.measured.tokens_per_second:,}"
    assert measured["Acceptance length"] == status.measured.acceptance_length
    assert measured["Time per output token"] == "not measured"
    assert gained["Gain over depth 3"] == f"+{status.gained.percent} % ± 2.8"
    assert gained["GPU hours gained"].startswith(f"+{status.gained.gpu_hours} ± ")


def test_engines_without_gpus_have_no_gpu_hours() -> None:
    assert SUBJECT.status.gained is not None
    hours = dict.fromkeys(("gpu_hours", "measured_gpu_hours", "unmeasured_gpu_hours"), "")
    gained = SUBJECT.status.gained.model_copy(update=hours)
    status = SUBJECT.status.model_copy(update={"gained": gained})
    *_, found = facts(resource_view(replace(SUBJECT, status=status), NOW_S)).values()
    assert [*found] == ["Gain over depth 3"]


def test_what_was_measured_long_ago_is_said_to_be_of_the_past() -> None:
    now, late = (resource_view(SUBJECT, NOW_S + after_s) for after_s in (0, 3600))
    assert (now.groups[1].past, late.groups[1].past) == (False, True)
    assert late.groups[1].title.startswith("Nothing is measured now. Last measured in the 10 s ")


def test_what_the_spec_is_warned_of_is_told_after_the_rest() -> None:
    status = troubled(SUBJECT).status.model_copy(update={"warnings": ("spec.engine: slow.",)})
    last = resource_view(replace(SUBJECT, status=status), NOW_S).notices[-1]
    assert (last.code, last.cause, last.since) == ("SpecWarned", "spec.engine: slow.", "")


def test_what_was_never_measured_has_no_facts() -> None:
    bare = replace(SUBJECT, status=type(SUBJECT.status)(), history=None)
    assert [*facts(resource_view(bare, NOW_S))] == [""]


def test_the_heat_map_marks_what_is_in_force_measured_and_predicted() -> None:
    view = resource_view(SUBJECT, NOW_S)
    assert SUBJECT.document is not None
    cells = {(row.batches, cell.depth): cell for row in view.heat for cell in row.cells}

    assert view.depths == (1, 2, 3, 4, 5, 6, 7)
    in_force = {at[0]: at[1] for at, cell in cells.items() if cell.in_force}
    assert in_force["4"] == SUBJECT.document.schedule[0].depth
    assert len(in_force) == len(view.heat)
    assert {cell.measured for cell in cells.values()} == {True, False}
    for row in view.heat:
        best = max(row.cells, key=lambda cell: int(cell.speed.replace(",", "")))
        assert best.shade == SHADES - 1
    own = next(cell for cell in view.heat[0].cells if cell.depth == 3)
    assert own.gain == ""


def test_why_is_told_as_the_tuner_tells_it() -> None:
    view = resource_view(SUBJECT, NOW_S)
    settings = replace(SETTINGS, min_tokens=0)
    told = explain(SUBJECT.state, replace(settings, window_seconds=30.0), SUBJECT.document, NOW_S)
    assert view.explanation.buckets[0].depth == told.buckets[0].depth
    assert view.explanation.next_step


def test_where_depth_is_not_live_nothing_is_predicted_and_nothing_in_force() -> None:
    status = SUBJECT.status.model_copy(update={"engine": EngineStatus(actuation="None")})
    view = resource_view(replace(SUBJECT, status=status), NOW_S)
    cells = [cell for row in view.heat for cell in row.cells]

    assert {cell.measured for cell in cells if cell.speed} == {True}
    assert any(not cell.speed for cell in cells)
    assert not any(cell.in_force for cell in cells)
    assert view.explanation.next_step.startswith("Nothing by itself.")


def test_the_history_becomes_charts_and_moments() -> None:
    view = resource_view(SUBJECT, NOW_S)

    assert len(view.charts.at_s) == len(view.charts.tokens_per_second) > 100
    assert max(each for each in view.charts.tokens_per_second if each is not None) > 100
    assert len(view.charts.depths) > 1
    kinds = {each.kind for each in view.moments}
    assert {MomentKind.DECISION, MomentKind.ROLLOUT, MomentKind.CONDITION} <= kinds
    assert len(view.moments) > len(SUBJECT.status.tuning.history)


def test_without_a_history_the_status_tells_of_its_own_moments() -> None:
    view = resource_view(replace(SUBJECT, history=None), NOW_S)

    assert (view.since, view.charts.at_s) == ("", ())
    decisions = [each for each in view.moments if each.kind is MomentKind.DECISION]
    assert [each.message for each in decisions] == [
        each.message for each in SUBJECT.status.tuning.history
    ]


def test_alarms_are_told_in_full() -> None:
    view = resource_view(troubled(SUBJECT), NOW_S)
    assert [(each.code, each.cause) for each in view.notices] == [
        ("Degraded/ImageUnavailable", "pod kimi-1: no such image."),
        ("DraftMismatch/AcceptanceCliff", "acceptance fell to 1.1."),
    ]


def test_one_that_nobody_watches_says_so_first() -> None:
    since = rfc3339(NOW_S)
    subject = troubled(SUBJECT)
    status = subject.status.model_copy(update={"last_reconcile_time": since})
    view = resource_view(replace(subject, status=status), NOW_S + UNWATCHED_S + 1)
    unwatched = next(each for each in view.notices if each.code == "Unwatched")
    assert unwatched.cause == f"All that is shown is from {since}."
    assert "Check that an operator runs" in unwatched.advice


def test_an_edit_that_no_operator_saw_is_not_known_to_be_well() -> None:
    seen = SUBJECT.status.observed_generation
    status = {**SUBJECT.status.model_dump(mode="json", by_alias=True), "observedGeneration": 8}
    document = {**manifest(), "status": status}
    document["metadata"]["generation"] = 9
    told = status_in(document, SpeculativeDeploymentStatus)
    read = subject_in(SUBJECT.key, document, told, document=None, state=SUBJECT.state)
    same = replace(SUBJECT, newest=seen)

    assert resource_view(same, NOW_S).headline == "is well"
    view = resource_view(read, NOW_S)
    assert view.headline == "is not known to be well"
    assert "reported on generation 8 and not yet on 9" in view.cause


@pytest.mark.parametrize("kind", [SPECULATIVE_DEPLOYMENT, SPECULATION_TUNER])
def test_a_status_of_another_release_is_said_to_be_one(kind: Kind) -> None:
    document = {**manifest(), "status": {"conditions": "many"}}
    if kind == SPECULATION_TUNER:
        document["spec"] = {"selector": {"matchLabels": {"app": "qwen"}}}
    key = ObjectKey("llm", "kimi", kind)
    view = resource_view(subject_in(key, document, None, document=None, state=TuningState()), NOW_S)

    assert view.headline == "is not known to be well"
    assert "cannot read its status: another release wrote it." in view.cause
    assert "No operator has reported" not in f"{view.explanation.nothing}{view.cause}"


def test_what_is_over_is_a_moment_with_all_that_was_found() -> None:
    compared = ComparisonStatus(
        state=ArmState.COMPARED, pod="kimi-9", result="Faster", percent="+3.1",
        interval_percent="+1.1 to +5.1", since=rfc3339(NOW_S), message="set it Enabled.",
    )  # fmt: skip
    quality = QualityStatus(
        request_id="1", at="2027-01-15T08:00:00Z", result="Lossless", message="64 prompts."
    )
    update = {"adaptive_verification": compared, "quality": quality}
    status = SUBJECT.status.model_copy(update=update)
    view = resource_view(replace(SUBJECT, status=status, history=None), NOW_S)
    told = {each.kind: each for each in view.moments}

    assert view.judgements == ()
    rollout, comparison = told[MomentKind.ROLLOUT], told[MomentKind.COMPARISON]
    assert rollout.message.endswith("equal batch and depth. First difference: spec.engine.image.")
    assert comparison.message == "+3.1 % (+1.1 to +5.1). set it Enabled."
    assert told[MomentKind.QUALITY].message == "64 prompts."


def test_what_is_not_over_is_said_once() -> None:
    assert SUBJECT.status.rollout is not None
    rollout = SUBJECT.status.rollout.model_copy(update={"stage": "Canary"})
    comparing = ComparisonStatus(state=ArmState.COMPARING, pod="kimi-9", message="10 of 300 steps.")
    status = troubled(SUBJECT).status.model_copy(
        update={"rollout": rollout, "adaptive_verification": comparing}
    )
    view = resource_view(replace(SUBJECT, status=status, history=None), NOW_S)

    assert [(each.name, each.note) for each in view.judgements] == [
        ("Rollout to 0a1b2c3d: Canary", rollout.since),
        ("Adaptive verification on kimi-9: Comparing", ""),
    ]
    above = {each.cause for each in view.notices} | {each.value for each in view.judgements}
    assert above.isdisjoint(each.message for each in view.moments)
    assert {"Canary", "DraftMismatch"} <= {each.what for each in view.moments}
    # The headline has no cause that an alarm has.
    assert (view.headline, view.cause) == ("is not well", "")


def test_batches_with_the_same_depth_and_reason_are_one_sentence() -> None:
    view = resource_view(SUBJECT, NOW_S)
    idle = [each for each in view.whys if "little or no load" in each]
    assert len(idle) == 1
    assert idle[0].startswith("batch 3, 4, 5, 11-12, 13-14 at depth 3: ")


def test_a_refused_spec_and_a_static_one_say_why_there_is_no_surface() -> None:
    refused = replace(SUBJECT, resource=(Problem(field="spec.model", message="is missing."),))
    static = replace(SUBJECT, resource=resource({**EAGER, "speculation.tuning.mode": "Static"}))
    fresh = replace(SUBJECT, state=TuningState())

    assert "the spec is refused" in resource_view(refused, NOW_S).explanation.nothing
    assert "depth stays at 3" in resource_view(static, NOW_S).explanation.nothing
    assert "Nothing was measured yet" in resource_view(fresh, NOW_S).explanation.nothing
    assert resource_view(refused, NOW_S).heat == resource_view(static, NOW_S).heat == ()
