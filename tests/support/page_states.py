"""Every state that the page can be in, as HTML: for tests of its layout, and for people's eyes."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cluster.kinds import ObjectKey
from fathom.measurement.bench_result import AcceptanceLength, BenchRow, DepthBench
from fathom.page.overview import overview_of
from fathom.page.rendering import message_page, overview_page, resource_page
from fathom.page.resource_view import resource_view
from fathom.page.subject import AnySubject
from fathom.replay.command import recorded_page
from fathom.times import rfc3339, unix_seconds
from support.loop_harness import KEY
from support.page_lives import one_of_many, seen, states
from support.tuner_harness import KEY as TUNER
from support.tuner_harness import TunerHarness
from unit.replay.recorded import record, write
from unit.tuning.plant import EASY, START_S, Fleet

NAMES: Final = (
    *("kimi-k2", "glm-4.5-air", "qwen3-235b-a22b-instruct-2507", "deepseek-v3.1", "llama-4-scout"),
    *("gpt-oss-120b", "minimax-m2", "ernie-4.5-300b", "mistral-large-3", "phi-5-mini"),
)
STRIKING: Final = {
    4: "image-unavailable",
    11: "crashing",
    12: "alarm-holds",
    15: "metrics-refused",
    17: "starting",
    20: "paused",
    21: "no-traffic",
    23: "alarm-over",
    24: "canary",
    26: "not-watched",
    27: "static",
    29: "tuned",
}
"""Which of thirty resources are not simply well."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def later(status: SpeculativeDeploymentStatus, seconds: float) -> SpeculativeDeploymentStatus:
    """The same, had all of it been so much later."""

    def moved(found: re.Match[str]) -> str:
        return rfc3339((unix_seconds(found[0]) or 0.0) + seconds)

    text = status.model_dump_json()
    return SpeculativeDeploymentStatus.model_validate_json(_TIME.sub(moved, text))


@cache
def thirty() -> tuple[tuple[tuple[ObjectKey, SpeculativeDeploymentStatus], ...], float]:
    """Resources of three teams, some of which are not well, and the moment (Unix seconds)."""
    every = [
        seen(STRIKING[each]) if each in STRIKING else one_of_many(each % 8) for each in range(30)
    ]
    now_s = max(each.now_s for each in every)
    found = []
    for number, each in enumerate(every):
        team = ("chat", "search-and-ranking", "code")[number % 3]
        key = ObjectKey(team, f"{NAMES[number % 10]}{f'-{number // 10}' if number > 9 else ''}")
        found.append((key, later(each.subject.status, now_s - each.now_s)))
    return tuple(found), now_s


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


async def _stock_tuner() -> tuple[AnySubject, float]:
    scene = TunerHarness(pods=0)
    for number in range(2):
        scene.start(f"qwen-{number}", plugin=False)
    scene.concurrency = 6
    await scene.run_for(600)
    return scene.shown.subject(TUNER), scene.clock.at_s


@cache
def stock_tuner() -> tuple[AnySubject, float]:
    """A SpeculationTuner whose engines run without the plugin, and the moment (Unix seconds)."""
    # In a thread of its own: whoever asks may have a running event loop.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(_stock_tuner())).result()


def page_states(folder: Path) -> dict[str, str]:
    """HTML by state.

    Args:
        folder: where a recording may be written.
    """
    tuned = seen("tuned")
    recording = write(folder / "day.jsonl.gz", record(Fleet(acceptance=EASY), 300))
    reported = replace(tuned.subject, history=None, bench=bench())
    pages = {
        state: resource_page(resource_view(found.subject, found.now_s), home=True)
        for state, found in ((each, seen(each)) for each in states())
    }
    tuner, tuner_s = stock_tuner()
    both = [(tuner.key, tuner.status), (KEY, later(tuned.subject.status, tuner_s - tuned.now_s))]
    return {
        "list": overview_page(overview_of(*thirty()), thirty()[1]),
        "list-of-both": overview_page(overview_of(both, tuner_s), tuner_s),
        "tuner": resource_page(resource_view(tuner, tuner_s), home=True),
        "list-empty": overview_page(overview_of((), tuned.now_s), tuned.now_s),
        **pages,
        "report": resource_page(resource_view(reported, tuned.now_s), home=False),
        "recording": recorded_page(KEY, [recording], None),
        "standby": message_page(
            "This operator stands by",
            "operator-0 has the lease, and its page has the resources. Forward a port to that "
            "one: `kubectl --namespace fathom-system port-forward pod/operator-0 8081`",
        ),
    }
