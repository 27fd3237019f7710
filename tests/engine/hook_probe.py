"""Puts the plugin into a real vLLM, without a model: its tables, its scheduler, its logger.

Run by the Python of an engine's environment, never by that of the tests. Reads the paths of target
and draft, the depths to go through, how many steps to make at each, and the user's own depth, at
which as many are made once the document is gone; writes one JSON object on the last line. Every
step is scheduled by vLLM's own scheduler under the hook, its tokens are drawn, and vLLM takes them
back. The recorder of `make bench-gpu` writes the steps down.
"""

import json
import os
import random
import sys
import tempfile
from pathlib import Path

import vllm
from vllm.platforms import current_platform
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.metrics.loggers import load_stat_logger_plugin_factories
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

from benchmarks.gpu.probe import Live
from benchmarks.gpu.records import DIRECTORY_VARIABLE, read_steps
from benchmarks.hook.schedulers import BusyScheduler, Stand
from fathom_vllm.bundle import bundle_files
from fathom_vllm.counts import Counts, read_counts
from fathom_vllm.depth_document import depth_table
from fathom_vllm.depth_file import GONE_SECONDS
from fathom_vllm.engine_report import device_name, engine_report
from fathom_vllm.scheduler import LiveDepthScheduler

BATCH = 4
ENDLESS = 1_000_000
SHORT = 8
PROMPTS = (1, 40)
"""Tokens of answers and of prompts, where requests come and go."""


def unequal_tables() -> list[object]:
    """Schedules that our function and vLLM's expand differently."""
    chance = random.Random(1)
    unequal = []
    for _ in range(3000):
        schedule, last = [], 0
        for number in range(chance.randint(1, 6)):
            first = 1 if number == 0 else last + chance.randint(1, 6)
            last = first + chance.randint(0, 40)
            schedule.append((first, last, chance.randint(0, 7)))
        max_batch = chance.randint(1, 128)
        ours = depth_table(tuple(schedule), max_batch)
        theirs = build_dynamic_sd_schedule_lookup(schedule, max_batch, 7)
        if ours != theirs:
            unequal.append([schedule, max_batch, ours, theirs])
    return unequal


def go_through(
    stand: Stand, depth_file: Path, depths: list[int], *, steps: int, tokens: int
) -> None:
    """Put each depth in force between two steps, and make some; then take the document away."""
    scheduler = stand.scheduler(Live)
    watch = scheduler._fathom.watch
    watch.stop()  # it looks between two steps instead, so that nothing waits
    engine = BusyScheduler(scheduler, BATCH, tokens=ENDLESS)
    engine.step()
    for generation, depth in enumerate(depths, start=1):
        document = {
            "generation": generation,
            "schedule": [[1, BATCH, depth]],
            "tokens": [[1, BATCH, tokens]],
        }
        depth_file.write_text(json.dumps(document))
        watch.look()
        for _ in range(steps):
            engine.step()
    depth_file.unlink()
    watch.look()
    now_s = watch._clock
    watch._clock = lambda: now_s() + GONE_SECONDS
    watch.look()
    for _ in range(steps):
        engine.step()
    scheduler._recorder.flush()


def without_drafts(target: str, steps: int) -> None:
    """Make some steps of an engine without speculation."""
    engine = BusyScheduler(Stand(target, None).scheduler(LiveDepthScheduler), BATCH, tokens=ENDLESS)
    for _ in range(steps):
        engine.step()


def come_and_go(target: str, draft: str, counters: Path, steps: int) -> dict[str, list[float]]:
    """Make some steps while requests come and go.

    Returns:
        Steps with prompts, and tokens of prompts: as vLLM scheduled them, and as they were counted.
    """
    os.environ["FATHOM_COUNTERS_FILE"] = str(counters)
    scheduler = Stand(target, draft).scheduler(LiveDepthScheduler)
    engine = BusyScheduler(scheduler, BATCH, tokens=SHORT, prompts=PROMPTS)
    prompts = []
    for _ in range(steps):
        engine.step()
        new = engine._in_flight.scheduled_new_reqs
        prompts.append(sum(len(each.prompt_token_ids) for each in new))
    prompts.pop()  # of the step that is still in flight
    counts = read_counts(str(counters))
    assert counts is not None
    mixed = [cell for cell in counts.steps if cell.kind == "mixed"]
    return {
        "scheduled": [sum(map(bool, prompts)), sum(prompts)],
        "counted": [sum(cell.steps for cell in mixed), sum(cell.prefill for cell in mixed)],
    }


def counted(counts: Counts | None) -> dict[str, object]:
    assert counts is not None
    return {
        "live": counts.live,
        "generation": counts.generation,
        "gone": counts.gone,
        "rejections": counts.rejections,
        "errors": counts.errors,
        "transitions": counts.transitions,
        "steps": sum(cell.steps for cell in counts.steps),
        "depths": sorted({cell.depth for cell in counts.steps}),
    }


def told(stand: Stand) -> dict[str, str]:
    """What the plugin makes of a configuration, and of the machine."""
    config = stand.scheduler(AsyncScheduler).vllm_config
    device = device_name(current_platform)
    return {**engine_report(config, device=device, version=vllm.__version__)}


def loggers(directory: Path) -> list[str]:
    """What vLLM finds where the plugin lies as in a pod, and what each is once it is made."""
    for path, text in bundle_files().items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    sys.path.append(str(directory))
    made = [factory(None, 0) for factory in load_stat_logger_plugin_factories()]
    for logger in made:
        logger.record(scheduler_stats=None, iteration_stats=None)
        logger.log_engine_initialized()
    return [type(logger).__name__ for logger in made]


def main() -> None:
    asked = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        depth_file, counters = directory / "depth.json", directory / "counters"
        os.environ["FATHOM_DEPTH_FILE"] = str(depth_file)
        os.environ["FATHOM_COUNTERS_FILE"] = str(counters)
        os.environ[DIRECTORY_VARIABLE] = name
        stand = Stand(asked["target"], asked["draft"])
        go_through(stand, depth_file, asked["depths"], steps=asked["steps"], tokens=asked["tokens"])
        answer = {
            "unequal_tables": unequal_tables(),
            "steps": [[step.drafting, step.least, step.most] for step in read_steps(directory)],
            "told": told(stand),
            "counted": counted(read_counts(str(counters))),
            "loggers": loggers(directory / "plugin"),
        }
        plain = os.environ["FATHOM_COUNTERS_FILE"] = str(directory / "without")
        without_drafts(asked["target"], asked["steps"])
        answer["without_drafts"] = counted(read_counts(plain))
        answer["prompts"] = come_and_go(
            asked["target"], asked["draft"], directory / "prompts", asked["steps_with_prompts"]
        )
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
