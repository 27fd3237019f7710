"""`fathom history`: what several sources tell of the past, in order, and each thing once."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from fathom.adapters.ports import KubeError
from fathom.cli.history import Happened, Source, history_table, read_past
from fathom.cluster.kinds import CONFIG_MAP, EVENT, SPECULATIVE_DEPLOYMENT, Kind, ObjectKey
from fathom.rollout.refresh import PastRefresh, RefreshLog
from fathom.training.record import Start, TrainingRecord
from manifest_samples import manifest
from support.fake_kube import FakeKube

KEY = ObjectKey("llm", "kimi")
STATUS: dict[str, Any] = {
    "tuning": {
        "history": [
            {
                "at": "2026-01-01T00:03:00Z",
                "action": "Move",
                "reason": "Moved",
                "message": "Moves batch 4 from 3 to 5.",
                "expectedGainPercent": "6.1",
                "measuredGainPercent": "5.8",
            }
        ]
    },
    "rollout": {
        "stage": "Complete",
        "since": "2026-01-01T00:01:00Z",
        "message": "all follow.",
        "why": "image: a became b",
    },
    "quality": {
        "requestId": "1",
        "at": "2026-01-01T00:04:00Z",
        "result": "Lossless",
        "message": "The same tokens.",
    },
}


EXPECTED = "Expected over all traffic: +6.1 %."
MEASURED = "Measured over all traffic: +5.8 %."


def event(
    name: str, at: str, reason: str, message: str, kind: str = "SpeculativeDeployment"
) -> Any:
    return {
        "metadata": {"name": name, "namespace": "llm"},
        "involvedObject": {"kind": kind, "name": "kimi"},
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
    }


def cluster() -> FakeKube:
    kube = FakeKube()
    kube.put(SPECULATIVE_DEPLOYMENT, manifest() | {"status": STATUS})
    log = RefreshLog((PastRefresh("kimi-r1-x", 1_767_225_720.0),))
    data = {"refreshes.json": log.to_json()}
    kube.put(CONFIG_MAP, {"metadata": {"name": "kimi-tuning", "namespace": "llm"}, "data": data})
    told = (
        event("kimi.1", "2026-01-01T00:05:00Z", "Paused", "annotation fathom.dev/paused holds it."),
        event("kimi.2", "2026-01-01T00:03:00Z", "DepthMove", "Moves batch 4 from 3 to 5."),
        event("kimi.4", "2026-01-01T00:04:00Z", "QualityChecked", "Lossless: The same tokens."),
        event("kimi.5", "2026-01-01T00:01:00Z", "RolledOut", "all follow."),
        event("kimi.3", "2026-01-01T00:06:00Z", "Other", "Of the Service.", "Service"),
    )
    for each in told:
        kube.put(EVENT, each)
    return kube


async def test_all_that_is_known_newest_first_and_once() -> None:
    past = await read_past(cluster(), KEY)

    assert past is not None
    assert past.missing == ()
    assert [(each.at[11:16], each.what, each.why) for each in past.happened] == [
        ("00:05", "Paused", "annotation fathom.dev/paused holds it."),
        ("00:04", "Lossless", "The same tokens."),
        ("00:03", "Move", f"Moves batch 4 from 3 to 5. {EXPECTED} {MEASURED}"),
        ("00:02", "Refreshing", "kimi-r1-x was restarted for its age."),
        ("00:01", "Complete", "all follow. image: a became b"),
    ]


WHOSE = "the fathom of the operator's release, which `fathom version` shows."
DENIED = "The API server does not let you do this: no."


async def test_what_may_not_be_read_is_left_out_and_said() -> None:
    kube = cluster()

    def fail(_: str, kind: Kind) -> KubeError | None:
        return KubeError(403, "no.") if kind in {EVENT, CONFIG_MAP} else None

    kube.fail = fail
    past = await read_past(kube, KEY)

    assert past is not None
    assert {each.what for each in past.happened} == {"Move", "Complete", "Lossless"}
    assert sorted(past.missing) == [
        f"Events are left out. {DENIED}",
        f"Restarts for age and trainings that began are left out. {DENIED}",
    ]


RUNS = ("aaaa1111", "bbbb2222")
BEGUN = [f"Run {run} began, for at most 6 GPU hours." for run in RUNS]
FAILED = f"Run {RUNS[1]} failed: its Job failed."


def trained(phase: str, *events: Any) -> FakeKube:
    """One that had two trainings, of which the second came to this phase an hour later."""
    kube, at_s = FakeKube(), 1_767_225_600.0
    training = {"phase": phase, "since": "2026-01-01T02:00:00Z", "message": FAILED}
    kube.put(SPECULATIVE_DEPLOYMENT, manifest() | {"status": {"training": training}})
    starts = tuple(
        Start(run=run, at_s=at_s + 3600 * hour, gpu_minutes=360) for hour, run in enumerate(RUNS)
    )
    data = {"training.json": TrainingRecord(starts=starts).to_json()}
    kube.put(CONFIG_MAP, {"metadata": {"name": "kimi-tuning", "namespace": "llm"}, "data": data})
    for each in events:
        kube.put(EVENT, each)
    return kube


async def past_of(kube: FakeKube) -> list[tuple[str, str, str]]:
    past = await read_past(kube, KEY)
    assert past is not None
    return [(each.at[11:16], each.source, each.why) for each in past.happened]


async def test_a_training_is_told_when_its_events_are_gone() -> None:
    assert await past_of(trained("Failed")) == [
        ("02:00", "training", FAILED),
        ("01:00", "training", BEGUN[1]),
        ("00:00", "training", BEGUN[0]),
    ]


async def test_of_a_training_events_come_first_and_nothing_is_told_twice() -> None:
    started = f"Job kimi-train-{RUNS[1]} is to be made: it begins now."
    events = (
        event("kimi.1", "2026-01-01T01:00:00Z", "TrainingStarted", started),
        event("kimi.2", "2026-01-01T02:00:01Z", "TrainingFailed", "As it was put then."),
    )
    assert await past_of(trained("Failed", *events)) == [
        ("02:00", "event", "As it was put then."),
        ("01:00", "event", started),
        ("00:00", "training", BEGUN[0]),
    ]


async def test_one_that_trains_is_told_by_its_beginning() -> None:
    assert [why for _, _, why in await past_of(trained("Training"))] == BEGUN[::-1]


async def test_of_one_that_is_not_there_nothing_is_known() -> None:
    assert await read_past(FakeKube(), KEY) is None


@pytest.mark.parametrize(
    ("status", "left_out", "known"),
    [
        ({"conditions": "many"}, "Its status is left out. This fathom (", 0),
        (STATUS | {"training": {"phase": "Rehearsed"}}, "Its training is left out. ", 3),
    ],
)
async def test_a_status_of_another_release_is_left_out_and_that_is_said(
    status: dict[str, Any], left_out: str, known: int
) -> None:
    kube = FakeKube()
    kube.put(SPECULATIVE_DEPLOYMENT, manifest() | {"status": status})
    past = await read_past(kube, KEY)

    assert past is not None
    assert len(past.happened) == known
    (missing,) = past.missing
    assert missing.startswith(left_out)
    assert missing.endswith("another release wrote it. Use " + WHOSE)


def test_what_has_no_blank_is_folded_and_not_cut() -> None:
    token = "/".join(f"{each:03}" for each in range(40))
    why = f"It reads {token}."
    happened = Happened(at="2026-01-01T00:00:00Z", source=Source.EVENT, what="Read", why=why)
    console = Console(file=StringIO(), width=80, color_system=None)
    console.print(history_table([happened], 1_767_225_600.0))
    assert isinstance(console.file, StringIO)

    assert token in "".join(console.file.getvalue().split())
