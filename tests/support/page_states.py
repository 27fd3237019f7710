"""Every state that the page can be in, as HTML: for tests of its layout, and for people's eyes."""

from dataclasses import replace
from functools import cache
from math import pi, sin
from pathlib import Path
from random import Random

from fathom.api.conditions import AlarmKind, ConditionType
from fathom.api.problem import Problem
from fathom.api.status import (
    ArmState,
    ComparisonStatus,
    DecisionStatus,
    DepthStatus,
    EngineStatus,
    GainedStatus,
    MeasuredStatus,
    QualityStatus,
    RolloutStatus,
    SpeculativeDeploymentStatus,
    TuningStatus,
)
from fathom.cluster.kinds import ObjectKey
from fathom.measurement.bench_result import AcceptanceLength, BenchRow, DepthBench
from fathom.page.history import History
from fathom.page.rendering import message_page, overview_page, resource_page
from fathom.page.resource_view import resource_view
from fathom.page.subject import Subject, overview_of
from fathom.replay.command import recorded_page
from fathom.times import rfc3339
from fathom.tuning.learned_state import TuningState
from manifest_samples import resource
from support.page_subjects import BEGUN, EAGER, KEY, condition, lived, troubled
from unit.replay.recorded import record, write
from unit.tuning.plant import EASY, START_S, Fleet

DAY_S = 24 * 3600
NIGHT = range(6)
IMAGE = (
    "pod kimi-k2-1 cannot pull registry.example/vllm-openai:v0.32.0-cu130: not found. Correct "
    "spec.engine.image, or push the image; the other replica serves meanwhile."
)
CRASH = (
    "ValueError: the target model's hidden size 7168 is not that of the draft, 4096, as "
    "lmsys/EAGLE3-Kimi-K2 says in its config.json. Choose a draft that was trained for "
    "moonshotai/Kimi-K2-Instruct."
)
NAMES = (
    *("kimi-k2", "glm-4.5-air", "qwen3-235b-a22b-instruct-2507", "deepseek-v3.1", "llama-4-scout"),
    *("gpt-oss-120b", "minimax-m2", "ernie-4.5-300b", "mistral-large-3", "phi-5-mini"),
)


def starting() -> SpeculativeDeploymentStatus:
    """A resource whose engines load their weights for the first time."""
    return SpeculativeDeploymentStatus(
        ready="0/2",
        reason="Starting",
        conditions=(
            condition(ConditionType.READY, "ReplicasNotReady", "0 of 2 are ready.", holds=False),
            condition(ConditionType.PROGRESSING, "Starting", "The engines load 554 GiB; 4 min."),
            condition(ConditionType.DEGRADED, "AsExpected", holds=False),
        ),
        engine=EngineStatus(version="0.32.0", actuation="Live"),
        depth=DepthStatus(summary="3", schedule=((1, 16, 3),), since=rfc3339(START_S)),
    )


def ill(kind: int, status: SpeculativeDeploymentStatus) -> SpeculativeDeploymentStatus:
    """One of several things that are wrong with a resource, or nothing."""
    pull = condition(ConditionType.DEGRADED, "ImageUnavailable", IMAGE)
    crash = condition(ConditionType.DEGRADED, "PodFailing", CRASH)
    mismatch = condition(AlarmKind.DRAFT_MISMATCH, "AcceptanceCliff", "Acceptance fell to 1.1.")
    ready = condition(ConditionType.READY, "AllReplicasReady")
    paused = condition(ConditionType.PROGRESSING, "Paused", "paused.", holds=False)
    update: dict[str, object] = {
        1: {"conditions": (pull,), "ready": "1/2"},
        2: {"conditions": (crash, mismatch), "ready": "0/2"},
        3: {"conditions": (ready, mismatch)},
        4: {"conditions": (ready, paused)},
        5: {"last_reconcile_time": rfc3339(START_S)},
    }.get(kind, {})
    return status.model_copy(update=update)


@cache
def thirty() -> tuple[tuple[ObjectKey, SpeculativeDeploymentStatus], ...]:
    """Resources of three teams, some of which are not well."""
    draw = Random(3)
    status = lived()[0].status
    found = []
    for number in range(30):
        speed, gain = draw.randrange(90, 99_999), f"{draw.uniform(-2, 60):.1f}"
        measured = status.measured.model_copy(
            update={"tokens_per_second": speed, "gain_percent": gain}
        )
        of_one = status.model_copy(update={"measured": measured})
        if number == 17:
            of_one = starting()
        team = ("chat", "search-and-ranking", "code")[number % 3]
        key = ObjectKey(team, f"{NAMES[number % 10]}{f'-{number // 10}' if number > 9 else ''}")
        found.append((key, ill({4: 1, 11: 2, 12: 3, 20: 4, 26: 5}.get(number, 0), of_one)))
    return tuple(found)


def _of_day(hour: float, begin_s: float, draw: Random) -> dict[str, object]:
    """What a resource reports at an hour: idle at night, busiest in the afternoon."""
    load = max(0.0, sin((hour - 6) / 18 * pi)) * 24
    deep, middle, low = (7, 5, 3) if load < 8 else (7, 3, 1) if load < 16 else (3, 1, 0)
    acceptance = 3.2 + 1.2 * sin(hour / 3)
    gain = 4 + 22 * max(0.0, 1 - load / 24) + draw.gauss(0, 1.5)
    kept = max(0.3, 9 - hour / 3)
    return {
        "measured": MeasuredStatus(
            at=rfc3339(begin_s + hour * 3600),
            window_seconds=240,
            tokens_per_second=round(400 * load + draw.gauss(0, 90)) + 200,
            mean_batch=f"{load + 0.5:.1f}",
            acceptance_length=f"{acceptance + draw.gauss(0, 0.06):.2f}",
            gain_percent=f"{gain:.1f}",
        ),
        "depth": DepthStatus(
            summary=f"{deep} at 1-4, {middle} at 5-16, {low} beyond",
            schedule=((1, 2, deep), (3, 4, deep), (5, 8, middle), (9, 16, low), (17, 64, low)),
            since=rfc3339(begin_s + int(hour) * 3600),
        ),
        "gained": GainedStatus(
            since=rfc3339(begin_s + 6 * 3600),
            percent=f"{14 + hour / 5:.1f}",
            error_percent=f"{kept:.1f}",
            gpu_hours="21.40",
            error_gpu_hours="2.10",
            measured_gpu_hours="134.20",
            unmeasured_gpu_hours="3.10",
        ),
    }


@cache
def day() -> tuple[Subject, float]:
    """A resource of which a day is known, and the moment (Unix seconds)."""
    subject, now_s = lived()
    begin_s = now_s - DAY_S
    draw, history = Random(5), History(begin_s)
    tuning = TuningStatus(summary="Auto/AtBest")
    status = subject.status.model_copy(update={"tuning": tuning, "measured": MeasuredStatus()})
    told: tuple[DecisionStatus, ...] = ()
    for minute in range(0, 24 * 60, 4):
        at_s = begin_s + 60 * minute
        hour = minute / 60
        if int(hour) in NIGHT:
            history.saw(status, at_s)
            continue
        if minute % 100 == 0:
            message = f"Moves batch 5-8 from 3 to 5 (+{draw.uniform(2, 20):.1f}% ± 1.9%)."
            told = (DecisionStatus(at=rfc3339(at_s), action="Move", reason="Moved", message=message), *told)[:10]  # fmt: skip # noqa: E501
        update = {**_of_day(hour, begin_s, draw), "tuning": TuningStatus(summary="Auto/AtBest", history=told)}  # fmt: skip # noqa: E501
        if minute == 15 * 60:
            fell = condition(AlarmKind.DRAFT_MISMATCH, "AcceptanceCliff", "It fell from 3.9 to 1.4.")  # fmt: skip # noqa: E501
            alarm = fell.model_copy(update={"last_transition_time": rfc3339(at_s)})
            status = status.model_copy(update={"conditions": (*BEGUN.conditions, alarm)})
        status = status.model_copy(update=update)
        history.saw(status, at_s)
    quality = QualityStatus(
        request_id="1", at=rfc3339(begin_s + 9.1 * 3600), result="Lossless", message="64 prompts."
    )
    compared = ComparisonStatus(
        state=ArmState.COMPARING, pod="kimi-k2-7", message="3,100 of some 20,000 steps."
    )
    rollout = RolloutStatus(
        revision="0a1b2c3d", stable="9f8e7d6c", stage="Canary", since=rfc3339(begin_s + 22 * 3600),
        reason="CanaryStarted", message="one replica of two is compared.", why="spec.engine.image",
    )  # fmt: skip
    status = status.model_copy(
        update={"rollout": rollout, "quality": quality, "adaptive_verification": compared}
    )
    history.saw(status, now_s)
    return replace(subject, status=status, history=history), now_s


def bench() -> DepthBench:
    row = BenchRow(
        data="chats", concurrency=4, depth=3, requests=32, failed=0, input_tokens=1024,
        tokens_per_second=1181.8, tokens_per_second_per_user=300.0, first_token_seconds=0.1,
        acceptance=AcceptanceLength(mean=3.881, low=3.849, high=3.913, drafts=900),
        over_depth_0=4.34, over_true_off=None,
    )  # fmt: skip
    return DepthBench(
        name="kimi", image="vllm/vllm-openai:v0.32.0", at=rfc3339(START_S),
        rows=(row, row.model_copy(update={"concurrency": 16, "tokens_per_second": 2901.2})),
        not_measured=("chats at 4, true off: the engine did not start.",),
    )  # fmt: skip


def page_states(folder: Path) -> dict[str, str]:
    """HTML by state.

    Args:
        folder: where a recording may be written.
    """
    subject, now_s = lived()
    unknown = replace(subject, history=None, state=TuningState(), document=None)
    young, none_yet = History(now_s - 20), History(now_s)
    young.saw(starting(), now_s - 15)
    begun = replace(unknown, status=starting(), history=young)
    static = resource({**EAGER, "speculation.tuning.mode": "Static"})
    still = subject.status.model_copy(
        update={
            "engine": EngineStatus(version="0.32.0", actuation="None", reason="mode is Static."),
            "depth": DepthStatus(summary="3"),
            "tuning": TuningStatus(summary="Static"),
        }
    )
    fixed_history = History(START_S)
    for minute in range(40):
        measured = still.measured.model_copy(
            update={"at": rfc3339(START_S + 60 * minute), "gain_percent": ""}
        )
        fixed_history.saw(still.model_copy(update={"measured": measured}), START_S + 60 * minute)
    problem = Problem(field="spec.model", message="is missing. Name a model of Hugging Face.")
    invalid = condition(ConditionType.DEGRADED, "InvalidSpec", f"{problem}")
    refused = SpeculativeDeploymentStatus(reason="InvalidSpec", conditions=(invalid,))
    of_day, evening_s = day()
    recording = write(folder / "day.jsonl.gz", record(Fleet(acceptance=EASY), 300))

    def page(of: Subject, at_s: float = now_s, *, home: bool = True) -> str:
        return resource_page(resource_view(of, at_s), home=home)

    return {
        "list": overview_page(overview_of(thirty(), now_s), now_s),
        "list-empty": overview_page(overview_of((), now_s), now_s),
        "well": page(subject),
        "troubled": page(troubled(subject)),
        "day": page(of_day, evening_s),
        "new": page(begun),
        "static": page(
            replace(unknown, resource=static, status=still, history=fixed_history), START_S + 2400
        ),
        "refused": page(replace(unknown, resource=(problem,), status=refused, history=none_yet)),
        "report": page(replace(subject, history=None, bench=bench()), home=False),
        "recording": recorded_page(KEY, [recording], None),
        "standby": message_page(
            "This operator stands by",
            "operator-0 has the lease, and its page has the resources. Forward a port to that "
            "one: `kubectl --namespace fathom-system port-forward pod/operator-0 8081`",
        ),
    }
