from dataclasses import replace
from io import StringIO
from typing import Any, Final

import pytest
from rich.console import Console
from rich.table import Table

from fathom.adapters.ports import KubeError
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.api.training import TrainingPhase, TrainingStatus
from fathom.cli.cluster import Listed, Reported, read_all, read_resource
from fathom.cli.options import kube_sentence, print_whole
from fathom.cli.top import not_shown, top_list, top_table
from fathom.cluster.kinds import CONFIG_MAP, SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.cluster.manifest import Meta
from fathom.health import UNREADABLE, standing
from fathom.resource import SpeculativeDeployment
from fathom.times import unix_seconds
from fathom.tuning.learned_state import TuningState
from manifest_samples import manifest
from support.fake_kube import FakeKube
from support.loop_harness import LoopHarness

NOW_S = unix_seconds("2026-01-01T00:30:00Z") or 0.0


def condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


STATUS = SpeculativeDeploymentStatus.model_validate(
    {
        "ready": "2/2",
        "depth": {"summary": "5 at 1-8, 3 beyond"},
        "measured": {
            "at": "2026-01-01T00:29:00Z",
            "acceptanceLength": "2.91",
            "tokensPerSecond": 4321,
            "tpotMilliseconds": "11.5",
            "gainPercent": "6.2",
        },
        "tuning": {
            "summary": "Advise/Advising",
            "lastDecision": {
                "at": "2026-01-01T00:00:00Z",
                "action": "Hold",
                "reason": "Advising",
                "message": "Would move batch 5-8 from 3 to 5.",
                "expectedGainPercent": "6.1",
                "expectedGainIntervalPercent": "3.1 to 9.0",
            },
        },
        "conditions": [
            condition("Ready", "True", "AllReplicasReady"),
            condition("Degraded", "False", "AsExpected"),
            condition("DraftMismatch", "True", "AcceptanceCliff"),
            condition("AcceptanceDecay", "False", "Cleared"),
        ],
    }
)


def listed(name: str, status: SpeculativeDeploymentStatus = STATUS) -> Reported:
    return Reported(metadata=Meta(name=name, namespace="llm"), status=status)


def shown(table: Table, width: int = 180) -> list[str]:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_a_row_holds_what_the_status_says() -> None:
    header, row, *_ = shown(top_table([listed("kimi")], NOW_S, with_namespace=True), width=200)

    assert header.split()[:4] == ["NAMESPACE", "NAME", "ALARMS", "READY"]
    before, after = row.split("5 at 1-8, 3 beyond")
    assert before.split() == ["llm", "kimi", "DraftMismatch/AcceptanceCliff", "2/2"]
    # The numbers, and when they were measured.
    assert after.split()[:8] == ["2.91", "4321", "11.5", "ms", "6.2%", "1", "min", "ago"]
    assert "Advise/Advising" in row
    assert "Would move batch 5-8 from 3 to 5. Expected over all traffic: 6.1%" in row
    assert "AcceptanceDecay" not in row


@pytest.mark.parametrize(
    ("phase", "waits"),
    [("Proposed", True), ("Failed", True), ("Faster", True), ("Refused", True), ("Trial", False)],
)
def test_a_training_that_waits_for_a_person_is_after_the_alarms(
    phase: TrainingPhase, *, waits: bool
) -> None:
    status = STATUS.model_copy(update={"training": TrainingStatus(phase=TrainingPhase(phase))})
    _, row, *_ = shown(top_table([listed("kimi", status)], NOW_S, with_namespace=False), width=250)

    after = f", Training/{phase}" if waits else ""
    assert row.startswith(f"kimi  DraftMismatch/AcceptanceCliff{after}  ")
    (item,) = top_list([listed("kimi", status)], NOW_S).items
    assert item.training == phase
    # It is no alarm.
    assert item.alarms == ("DraftMismatch/AcceptanceCliff",)


def test_numbers_of_the_past_are_dashes_and_when_they_were_measured_is_told() -> None:
    _, row, *_ = shown(top_table([listed("kimi")], NOW_S + 3600, with_namespace=False), width=200)
    _, after = row.split("5 at 1-8, 3 beyond")
    assert after.split()[:7] == ["–", "–", "–", "–", "1.0", "h", "ago"]


@pytest.mark.parametrize("of_a_terminal", [False, True])
def test_what_is_no_terminal_cuts_nothing_off(*, of_a_terminal: bool) -> None:
    """Somebody searches it for an alarm."""
    name = "kimi-k2-instruct-of-the-other-region-eu-west"
    console = Console(file=StringIO(), width=80, force_terminal=of_a_terminal, color_system=None)
    width = console.width if of_a_terminal else None
    print_whole(console, top_table([listed(name)], NOW_S, with_namespace=True, width=width))
    assert isinstance(console.file, StringIO)
    header, *rows = console.file.getvalue().splitlines()
    assert {"ALARMS", "NAME"} <= set(header.split())
    assert "DraftMismatch/AcceptanceCliff" in rows[0]
    assert ("LAST DECISION" in header) is not of_a_terminal
    assert (name in rows[0]) is not of_a_terminal


LONG: Final = {
    "namespace": "team-search-inference-production",
    "name": "llama-3.3-70b-instruct-of-the-other-region",
}


@pytest.mark.parametrize("width", [30, 40, 50, 60, 80])
@pytest.mark.parametrize("with_namespace", [True, False])
def test_where_it_is_narrowest_names_and_alarms_are_folded_and_whole(
    width: int, *, with_namespace: bool
) -> None:
    one = Reported(metadata=Meta(**LONG), status=STATUS)
    table = top_table([one], NOW_S, with_namespace=with_namespace, width=width)
    header, *rows = shown(table, width)
    assert {len(each) for each in (header, *rows)} <= {*range(width + 1)}
    columns = [LONG["namespace"]] * with_namespace + [LONG["name"], "DraftMismatch/AcceptanceCliff"]
    columns += ["2/2"] if "READY" in header else []
    # Characters of a cell are in several lines, and none is lost.
    assert sorted("".join(rows).replace(" ", "")) == sorted("".join(columns))
    assert "NAME" in header
    assert "…" not in "".join(rows)


def test_a_status_of_another_release_is_no_status_without_alarms() -> None:
    document = manifest() | {"status": {"training": {"phase": "Rehearsed"}}}
    one = replace(listed("kimi"), resource=document)
    other = replace(listed("odd"), status=None, unreadable=True)
    table = top_table([one, other], NOW_S, with_namespace=False)
    _, *rows = shown(table)
    assert "DraftMismatch/AcceptanceCliff, Training/Unreadable" in rows[0]
    (row,) = (each for each in rows if each.startswith("odd"))
    assert row.split()[1] == "Unreadable"
    assert [each.unreadable for each in top_list([one, other], NOW_S).items] == [True, True]
    assert [each.unreadable for each in top_list([listed("kimi")], NOW_S).items] == [False]
    assert not_shown(Listed((one, other))) == not_shown(Listed((other,))) == (UNREADABLE,)
    assert not_shown(Listed((listed("kimi"),))) == ()


@pytest.mark.parametrize(
    ("width", "last"),
    [(60, "READY"), (80, "DEPTH"), (100, "GAIN"), (120, "MEASURED"), (160, "LAST DECISION")],
)
def test_a_narrow_window_leaves_columns_out_and_no_alarm(width: int, last: str) -> None:
    training = TrainingStatus(phase=TrainingPhase.PROPOSED)
    status = STATUS.model_copy(update={"training": training})
    table = top_table([listed("kimi", status)], NOW_S, with_namespace=True, width=width)
    header, *rows = shown(table, width)
    text = "\n".join(rows)

    assert header.rstrip().endswith(last)
    assert {"DraftMismatch/AcceptanceCliff", "Training/Proposed"} <= {
        *text.replace(",", "").split()
    }
    assert "…" not in text
    # Nothing is cut off at the right, either.
    ends = {"READY": "2/2", "DEPTH": "3 beyond", "GAIN": "6.2%", "MEASURED": "1 min ago"}
    assert rows[0].rstrip().endswith(ends.get(last, "batch 5-8 from"))


def test_brackets_are_text_and_a_schedule_that_is_none_of_ranges_is_not_known() -> None:
    status = SpeculativeDeploymentStatus.model_validate(
        {"ready": "[/x]2/2", "depth": {"summary": "[red]5", "schedule": [[1, 2]]}}
    )
    _, row, *_ = shown(top_table([listed("kimi", status)], NOW_S, with_namespace=False))

    assert row.split()[:4] == ["kimi", "–", "[/x]2/2", "[red]5"]
    assert top_list([listed("kimi", status)], NOW_S).items[0].schedule is None


def test_what_is_unknown_is_a_dash_and_not_zero() -> None:
    _, row, *_ = shown(
        top_table(
            [listed("new", SpeculativeDeploymentStatus())],
            NOW_S,
            with_namespace=False,
        )
    )

    assert row.split() == ["new", *["–"] * 10]


def test_the_document_has_numbers_and_null_for_what_is_unknown() -> None:
    known, unknown = top_list(
        [listed("kimi"), listed("new", SpeculativeDeploymentStatus())], NOW_S
    ).items

    assert (known.acceptance_length, known.gain_percent, known.tpot_milliseconds) == (
        2.91,
        6.2,
        11.5,
    )
    assert (known.tokens_per_second, known.measured_at) == (4321, "2026-01-01T00:29:00Z")
    assert known.alarms == ("DraftMismatch/AcceptanceCliff",)
    assert {
        (unknown.acceptance_length, unknown.tokens_per_second),
        (unknown.gain_percent, unknown.measured_at),
        (unknown.last_decision, unknown.unwatched_since),
    } == {(None, None)}


@pytest.mark.parametrize("text", ["", "much", "nan", "inf"])
def test_what_is_no_number_of_json_is_null(text: str) -> None:
    status = SpeculativeDeploymentStatus.model_validate({"measured": {"gainPercent": text}})
    (row,) = top_list([listed("kimi", status)], NOW_S).items
    assert row.gain_percent is None


def test_a_degraded_resource_is_an_alarm() -> None:
    status = SpeculativeDeploymentStatus.model_validate(
        {"conditions": [condition("Degraded", "True", "PodFailing")]}
    )

    assert standing(status, NOW_S) == ("Degraded/PodFailing",)


@pytest.mark.parametrize(
    ("last", "alarms"),
    [
        ("2026-01-01T00:05:00Z", "–"),
        ("2026-01-01T00:04:59Z", "Unwatched since 2026-01-01T00:04:59Z"),
        # By an operator of before the field.
        ("", "–"),
    ],
)
def test_one_that_nobody_watches_is_told(last: str, alarms: str) -> None:
    status = SpeculativeDeploymentStatus.model_validate({"lastReconcileTime": last})
    _, row, *_ = shown(top_table([listed("kimi", status)], NOW_S, with_namespace=False))
    assert row.split() == ["kimi", *alarms.split(), *["–"] * 9]


async def test_resources_are_listed_by_name_in_one_namespace_or_in_all() -> None:
    kube = FakeKube()
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        document = manifest()
        document["metadata"] |= {"namespace": namespace, "name": name}
        kube.put(SPECULATIVE_DEPLOYMENT, document)

    assert [str(each.key) for each in (await read_all(kube, "a")).found] == ["a/y", "a/z"]
    assert [str(each.key) for each in (await read_all(kube, "")).found] == ["a/y", "a/z", "b/x"]


async def test_what_the_operator_keeps_is_read() -> None:
    harness = LoopHarness({"replicas": 1})
    await harness.until_ready()

    live = await read_resource(harness.kube, ObjectKey("llm", "kimi"))

    assert live is not None
    assert live.document is not None
    assert live.document.generation == 1
    assert live.status.depth.summary == "3"
    assert live.state == TuningState.from_json(
        harness.kube.find(CONFIG_MAP, "kimi-tuning")["data"]["state.json"]
    )


async def test_a_field_of_a_newer_crd_does_not_keep_it_from_being_read() -> None:
    harness = LoopHarness({"engine.laterField": 3})

    live = await read_resource(harness.kube, ObjectKey("llm", "kimi"))

    assert live is not None
    assert isinstance(live.resource, SpeculativeDeployment)


async def test_a_resource_that_is_not_there_is_none() -> None:
    assert await read_resource(FakeKube(), ObjectKey("llm", "kimi")) is None


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KubeError(403, "no."), "The API server does not let you do this: no."),
        (KubeError(0, "refused"), "The API server cannot be asked: refused"),
        (KubeError(503, "etcd is away"), "The API server cannot be asked: etcd is away"),
        (KubeError(422, "Invalid value."), "The API server refuses it: Invalid value."),
        (
            KubeError(401, "Unauthorized"),
            (
                "The API server does not accept your login: Unauthorized. Log in again, or choose "
                "another one with KUBECONFIG or --context."
            ),
        ),
        (
            KubeError(409, "conflict."),
            (
                "The API server refuses it, since something else was written meanwhile: conflict. "
                "Run it again."
            ),
        ),
        (
            KubeError(404, "404 page not found\n"),
            (
                "The cluster does not know SpeculativeDeployments (404 page not found): install "
                "Fathom's chart, or choose another cluster with KUBECONFIG or --context."
            ),
        ),
    ],
)
def test_what_the_cluster_refuses_is_a_sentence(error: KubeError, sentence: str) -> None:
    assert kube_sentence(error) == sentence
