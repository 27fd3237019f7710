"""`fathom status`: the verdict, what comes next, and the screen."""

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cli.cluster import Reported
from fathom.cli.status import list_view, status_report, status_view, wellness_of
from fathom.cluster.manifest import Meta
from fathom.health import Headline
from fathom.times import unix_seconds

NOW_S = unix_seconds("2026-01-01T00:30:00Z") or 0.0
WELL: Mapping[str, tuple[str, str, str]] = {
    "Ready": ("True", "AllReplicasReady", "2 of 2 replicas are ready."),
    "Progressing": ("False", "UpToDate", "every replica is of revision r1."),
    "Degraded": ("False", "AsExpected", ""),
    "Tuning": ("True", "AtBest", "The depths in force are the best known."),
}


def reported(
    changes: Mapping[str, tuple[str, str, str]] | None = None,
    *,
    generation: int = 2,
    **fields: Any,
) -> Reported:
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind, (status, reason, message) in {**WELL, **(changes or {})}.items()
    ]
    status = {"observedGeneration": 2, "conditions": conditions, **fields}
    return Reported(
        metadata=Meta(name="kimi", namespace="llm", generation=generation),
        status=SpeculativeDeploymentStatus.model_validate(status),
    )


NEW = Reported(metadata=Meta(name="kimi", namespace="llm", generation=1), status=None)
STARTING = {"Progressing": ("True", "Starting", "the engines are starting.")}
PAUSED = {"Progressing": ("False", "Paused", "annotation fathom.dev/paused holds it.")}
ROLLED_BACK = {"Degraded": ("True", "RolledBack", "revision r2 was rolled back.")}


@pytest.mark.parametrize(
    ("given", "headline", "following"),
    [
        (reported(), Headline.WELL, ""),
        (NEW, Headline.UNKNOWN, "No operator has reported on it yet."),
        (reported(generation=3), Headline.UNKNOWN, "reported on generation 2 and not yet on 3"),
        (
            reported(PAUSED, generation=3, lastReconcileTime="2026-01-01T00:04:59Z"),
            Headline.UNKNOWN,
            "No operator has watched it since 2026-01-01T00:04:59Z, by the clock here, and all",
        ),
        (reported(lastReconcileTime="2026-01-01T00:05:00Z"), Headline.WELL, ""),
        (reported(PAUSED), Headline.PAUSED, ""),
        (
            reported(PAUSED | {"Ready": ("False", "ReplicasNotReady", "0 of 2 are ready.")}),
            *(Headline.NOT_WELL, "0 of 2 are ready."),
        ),
        (
            reported(PAUSED | {"DraftMismatch": ("True", "AcceptanceCliff", "See the draft.")}),
            *(Headline.ALARMED, "See the draft."),
        ),
        (
            reported({"Progressing": ("False", "RolloutBlocked", "a budget holds it.")}),
            *(Headline.NOT_WELL, "RolloutBlocked: a budget holds it."),
        ),
        (
            Reported(
                metadata=Meta(name="kimi", namespace="llm", generation=1),
                status=None,
                unreadable=True,
            ),
            *(Headline.UNKNOWN, "cannot read its status: another release wrote it."),
        ),
        (
            reported(ROLLED_BACK | PAUSED),
            Headline.NOT_WELL,
            "RolledBack: revision r2 was rolled back. Correct the spec; `kubectl fathom retry kim",
        ),
        (
            reported({"Degraded": ("True", "InvalidSpec", "mend spec.replicas.")}),
            Headline.NOT_WELL,
            "InvalidSpec: mend spec.replicas.",
        ),
        (
            reported({"Progressing": ("True", "Starting", "the engines are starting.")}),
            Headline.UNDER_WAY,
            "the engines are starting.",
        ),
        (
            reported({"Ready": ("False", "ReplicasNotReady", "1 of 2 replicas are ready.")}),
            Headline.NOT_WELL,
            "1 of 2 replicas are ready.",
        ),
        (
            reported({"Ready": ("False", "ScaledToZero", "spec.replicas is 0.")}),
            Headline.WELL,
            "",
        ),
        (
            reported({"DraftMismatch": ("True", "AcceptanceCliff", "Look at the draft.")}),
            Headline.ALARMED,
            "Look at the draft.",
        ),
    ],
)
def test_the_verdict_and_its_cause(given: Reported, headline: Headline, following: str) -> None:
    found = wellness_of(given, NOW_S)

    assert found.headline is headline
    assert bool(found.cause) is bool(following)
    assert following in found.cause


TRAINED = {"run": "7f3a90c1", "since": "2026-01-01T00:18:00Z"}
PROPOSED = "Another draft may fit better: it fell to 0.41."
TO_APPROVE = "To have one trained, approve this run: `kubectl fathom train kimi --approve 7f3a90c1`"
BUSY = {"at": "2026-01-01T00:29:00Z", "tokensPerSecond": 4000, "gainPercent": "6.2"}
CHECKED = {"requestId": "1", "at": "2026-01-01T00:05:00Z"}


@pytest.mark.parametrize(
    ("given", "subject", "state", "text", "hint"),
    [
        (reported(PAUSED), "rollout", "unknown", "Paused", "`kubectl fathom resume kimi` ends it"),
        (
            reported({"Tuning": ("False", "NoMetrics", "no metrics can be read.")}),
            *("tuning", "warning", "NoMetrics: no metrics can be read."),
            "Check that the operator reaches the pods, or a Prometheus that does.",
        ),
        (
            reported({"Tuning": ("False", "Static", "depth stays.")}),
            *("tuning", "ok", "Static: depth stays.", ""),
        ),
        (
            reported({"Tuning": ("False", "DraftingDisabled", "as asked.")}),
            *("tuning", "ok", "DraftingDisabled: as asked.", ""),
        ),
        (
            reported(tuning={"summary": "Advise/Advising"}),
            *("tuning", "ok", "Advise/Advising: The depths"),
            "`kubectl fathom advise kimi -n llm` says which depth to write.",
        ),
        (reported(warnings=["spec.x: is odd."]), "spec", "warning", "spec.x: is odd.", ""),
        (
            reported({"DraftCompatible": ("Unknown", "Doubtful", "another model's.")}),
            *("draft", "warning", "Doubtful: another model's.", "Watch the acceptance length"),
        ),
        (
            reported({"DraftCompatible": ("False", "Incompatible", "hidden sizes differ.")}),
            *("draft", "failed", "Incompatible: hidden sizes differ.", "Choose a draft that was"),
        ),
        (reported(weights={"summary": "1 GiB of 5"}), "weights", "warning", "1 GiB of 5", ""),
        (
            reported({"Ready": ("False", "ReplicasNotReady", "1 of 2.")}, ready="1/2"),
            *("replicas", "failed", "1/2 ready", ""),
        ),
        (
            reported({"Ready": ("False", "ReplicasNotReady", "1 of 2.")} | STARTING, ready="1/2"),
            *("replicas", "warning", "1/2 ready", ""),
        ),
        (
            reported(rollout={"stage": "Offered", "message": "image: a became b."}),
            *("upgrade", "unknown", "a rollout is offered: image: a became b."),
            "`kubectl fathom rollout kimi -n llm` begins it.",
        ),
        (
            reported(
                readyReplicas=2, depth={"summary": "5", "generation": 4, "appliedReplicas": 1}
            ),
            *("depth", "warning", "5, in force on 1 of 2 ready replicas", ""),
        ),
        (
            reported({"DraftMismatch": ("True", "AcceptanceCliff", "See the draft.")}),
            *("alarm", "warning", "DraftMismatch/AcceptanceCliff", ""),
        ),
        (
            reported({"Degraded": ("True", "NameTaken", "the Service is another's.")}),
            *("degraded", "failed", "NameTaken", ""),
        ),
        (
            reported({"Progressing": ("False", "RolloutBlocked", "a PDB holds it.")}),
            *("rollout", "warning", "RolloutBlocked", "Take one of the two ways"),
        ),
        (
            reported({"Progressing": ("False", "RolloutPaused", "rollout.paused.")}),
            *("rollout", "unknown", "RolloutPaused: rollout.paused."),
            "Set spec.rollout.paused to false",
        ),
        (reported(), "alarms", "unknown", "nothing is measured that could raise one", ""),
        (reported(measured=BUSY), "alarms", "ok", "none is active", ""),
        (
            reported({"Tuning": ("False", "Static", "depth stays.")}, measured=BUSY),
            *("alarms", "unknown", "nothing is measured", ""),
        ),
        (reported(measured=BUSY), "traffic", "ok", "4000 tokens per second", ""),
        (
            reported({"Tuning": ("False", "NoTraffic", "no step.")}, measured=BUSY),
            *("traffic", "unknown", "not known now; last: 4000 tokens per second, 1 min ago", ""),
        ),
        (
            reported({"Ready": ("False", "ScaledToZero", "0 replicas.")}, measured=BUSY),
            *("gain", "unknown", "+6.2 %", ""),
        ),
        (
            reported(measured={"at": "2026-01-01T00:05:00Z"}),
            *("traffic", "unknown", "not measured", ""),
        ),
        (
            reported(quality={**CHECKED, "result": "Differs", "message": "prompt 3."}),
            *("quality", "warning", "Differs 25 min ago: prompt 3.", ""),
        ),
        (
            reported(drafting={"state": "Compared", "result": "Slower", "message": "-38 %."}),
            *("compared", "warning", "Slower: -38 %.", ""),
        ),
        (
            reported(
                training={**TRAINED, "phase": "Proposed", "message": f"{PROPOSED} {TO_APPROVE}"}
            ),
            *("training", "warning", f"Proposed, run 7f3a90c1, for 12 min: {PROPOSED}"),
            TO_APPROVE,
        ),
        (
            reported(training={**TRAINED, "phase": "Refused", "message": "It was not taken."}),
            *("training", "warning", "Refused, run 7f3a90c1, for 12 min: It was not taken."),
            "`kubectl fathom train kimi -n llm` says what ",
        ),
        (
            reported(training={**TRAINED, "phase": "Approved", "message": "It has not begun."}),
            *("training", "unknown", "Approved, run 7f3a90c1, for 12 min: It has not begun.", ""),
        ),
        (
            reported(training={**TRAINED, "phase": "Training", "message": "Job x trains."}),
            *("training", "ok", "Training, run 7f3a90c1, for 12 min: Job x trains.", ""),
        ),
        (
            reported(rollout={"stage": "Offered", "message": "begins.", "why": "image: a, b."}),
            *("upgrade", "unknown", "a rollout is offered: image: a, b."),
            "`kubectl fathom rollout kimi -n llm` begins it.",
        ),
        (
            Reported(
                metadata=Meta(name="kimi", namespace="llm", generation=1),
                status=None,
                unreadable=True,
            ),
            *("operator", "failed", "has written a status that cannot be read here", ""),
        ),
        (reported(generation=3), "operator", "warning", "reported, generation 2 of 3", ""),
        (NEW, "operator", "failed", "has not reported", ""),
    ],
)
def test_a_check_says_how_its_subject_is_and_what_to_do(
    given: Reported, subject: str, state: str, text: str, hint: str
) -> None:
    found = [each for each in status_report(given, NOW_S).checks if each.subject == subject]

    (check,) = found
    assert check.state == state
    assert check.text.startswith(text)
    assert hint.removesuffix("it") in check.hint
    assert bool(check.hint) is bool(hint)


def test_of_a_training_what_is_not_known_leaves_no_hole() -> None:
    checks = status_report(reported(training={"phase": "Intake"}), NOW_S).checks
    assert [each.text for each in checks if each.subject == "training"] == ["Intake"]


def test_a_training_of_another_release_is_not_known() -> None:
    document = {"status": {"training": {"phase": "Rehearsed"}}}
    checks = status_report(replace(reported(), resource=document), NOW_S).checks
    (found,) = (each for each in checks if each.subject == "training")
    assert (found.state, found.text[:24]) == ("unknown", "not known. This fathom (")


def test_the_headline_s_cause_is_said_once() -> None:
    text = shown(reported({"DraftMismatch": ("True", "AcceptanceCliff", "See the draft.")}))

    assert text.count("See the draft.") == 1


def shown(given: Reported) -> str:
    console = Console(file=StringIO(), width=110, color_system=None)
    console.print(status_view(status_report(given, NOW_S)))
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_one_screen() -> None:
    given = reported(
        ready="2/2",
        readyReplicas=2,
        engine={"version": "0.32.0"},
        draft={"family": "EAGLE-3.1"},
        depth={
            "summary": "5 at 1, 3 beyond",
            "generation": 4,
            "appliedReplicas": 2,
            "since": "2026-01-01T00:00:00Z",
        },
        measured={
            "at": "2026-01-01T00:29Z",
            "tokensPerSecond": 4321,
            "meanBatch": "7.9",
            "acceptanceLength": "2.91",
            "gainPercent": "6.2",
        },
        tuning={"summary": "Auto/AtBest"},
    )

    assert shown(given).splitlines() == [
        "llm/kimi is well.",
        "✔ operator reported, generation 2",
        "✔ spec     no warning",
        "✔ replicas 2/2 ready, vLLM 0.32.0",
        "✔ rollout  UpToDate: every replica is of revision r1.",
        "✔ depth    5 at 1, 3 beyond, in force on 2 of 2 ready replicas, for 30 min",
        "✔ tuning   Auto/AtBest: The depths in force are the best known.",
        "✔ alarms   none is active",
        "✔ traffic  4321 tokens per second, batch 7.9, acceptance length 2.91, 1 min ago",
        "✔ gain     +6.2 % tokens per second, compared with your depth, tokens",
    ]


def test_what_it_brought_and_what_it_could_still_serve() -> None:
    gained = {
        "since": "2026-01-01T00:00:00Z",
        "percent": "6.1",
        "errorPercent": "0.8",
        "gpuHours": "41.20",
        "errorGpuHours": "5.40",
        "measuredGpuHours": "675.41",
        "unmeasuredGpuHours": "3.10",
    }
    measured = {
        "at": "2026-01-01T00:05:00Z",
        "tokensPerSecond": 4321,
        "headroomTokensPerSecond": 1450,
    }
    text = " ".join(shown(reported(gained=gained, measured=measured)).split())

    assert (
        "gained +6.1 % ± 0.8, +41.20 ± 5.40 GPU hours since 2026-01-01T00:00:00Z (675.41 busy GPU "
        "hours measured, 3.10 not)" in text
    )
    assert "4321 tokens per second, capacity for at least 1450 more, 25 min ago" in text
    unknown = {key: gained[key] for key in ("since", "unmeasuredGpuHours")}
    unknown["measuredGpuHours"] = "0.00"
    text = " ".join(shown(reported(gained=unknown)).split())
    assert "gained not measured since 2026-01-01T00:00:00Z (0.00 busy GPU hours" in text


def test_what_is_not_measured_is_not_zero() -> None:
    lines = shown(reported(ready="2/2", readyReplicas=2)).splitlines()

    assert "· depth    not known" in lines
    assert "· traffic  not measured" in lines
    assert "· gain     not measured" in lines


def test_of_one_that_nobody_has_looked_at_nothing_is_made_up() -> None:
    assert " ".join(shown(NEW).split()) == (
        "llm/kimi is not known to be well: No operator has reported on it yet. Check that an "
        "operator runs, and that it watches this namespace. ✘ operator has not reported"
    )


def test_the_cause_is_in_the_first_line_and_what_is_not_made_in_the_last() -> None:
    failing = {"Degraded": ("True", "ImageUnavailable", "no such image."), **STARTING}
    text = shown(reported(failing, leftOut=["No PodMonitor."]))
    first, *rest, last = text.splitlines()

    assert first.startswith("llm/kimi is not well: ImageUnavailable: no such image. Correct spec.")
    # What to do about it is there once, and nobody is asked to wait meanwhile.
    assert text.count("Correct spec.engine.image") == 1
    assert not [line for line in rest if "→" in line]
    assert last == "· not made No PodMonitor."


def test_a_rollout_and_a_loss_are_told() -> None:
    given = reported(
        measured={"at": "2026-01-01T00:29:00Z", "gainPercent": "-1.0"},
        rollout={
            "stage": "RolledBack",
            "since": "2026-01-01T00:00:00Z",
            "message": "it was slower.",
        },
    )
    lines = shown(given).splitlines()

    assert "! revision RolledBack 30 min ago, it was slower." in lines
    assert "! gain     -1.0 % tokens per second, compared with your depth, tokens" in lines


def test_what_was_fine_when_it_was_last_watched_is_not_said_to_be_fine() -> None:
    report = status_report(reported(measured=BUSY, lastReconcileTime="2026-01-01T00:01:00Z"), NOW_S)

    assert {each.state for each in report.checks if each.subject != "operator"} == {"unknown"}


def test_without_a_name_it_is_a_line_for_each() -> None:
    failing = reported({"Degraded": ("True", "ImageUnavailable", "no such image.")})
    found = [status_report(each, NOW_S) for each in (reported(), failing, NEW)]
    console = Console(file=StringIO(), width=110, color_system=None)
    console.print(list_view(found))
    assert isinstance(console.file, StringIO)
    well, failed, _, unknown, *_ = (line.rstrip() for line in console.file.getvalue().splitlines())

    assert well == "✔ llm/kimi is well."
    assert failed.startswith("✘ llm/kimi is not well: ImageUnavailable: no such image. Correct ")
    assert unknown.startswith("! llm/kimi is not known to be well: No operator has reported on it")


@pytest.mark.parametrize("phase", ["Proposed", "Failed", "Refused", "Faster"])
def test_one_whose_training_waits_for_a_person_is_well_and_says_so(phase: str) -> None:
    given = reported(training={**TRAINED, "phase": phase, "message": f"{PROPOSED} {TO_APPROVE}"})
    report = status_report(given, NOW_S)

    assert report.well
    lines = shown(given).splitlines()
    assert lines[0] == "llm/kimi is well."
    assert f"! training {phase}, run 7f3a90c1, for 12 min: {PROPOSED}" in lines
    assert "--approve 7f3a90c1`" in "".join(lines)
    assert "→ To have one trained" in "\n".join(lines)


@pytest.mark.parametrize(("phase", "waits"), [("Faster", True), ("Training", False)])
def test_the_list_says_that_a_training_waits_for_a_person(phase: str, *, waits: bool) -> None:
    given = reported(training={**TRAINED, "phase": phase, "message": "It is."})
    console = Console(file=StringIO(), width=110, color_system=None)
    console.print(list_view([status_report(given, NOW_S)]))
    assert isinstance(console.file, StringIO)
    first, *rest = (line.strip() for line in console.file.getvalue().splitlines())

    assert first == "✔ llm/kimi is well."
    says = "→ A training waits for a person: `fathom status kimi -n llm` says for what."
    assert rest == ([says] if waits else [])
