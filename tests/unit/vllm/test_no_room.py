"""An engine whose /dev/shm is full: on a real small tmpfs, since only that ends a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fathom_vllm
from support.waiting import GUARD_S

BATCH, DEPTH = 12, 7
"""Three pages of counters."""

ENGINE = f"""
import json, logging, os, sys
from dataclasses import dataclass
from types import SimpleNamespace as Of
from fathom_vllm.exposition import FathomCollector
from fathom_vllm.hook import SchedulerHook

logging.basicConfig(stream=sys.stderr)


@dataclass
class Step:
    num_scheduled_tokens: dict
    scheduled_spec_decode_tokens: dict
    total_num_scheduled_tokens: int
    num_spec_tokens_to_schedule: int
    scheduled_new_reqs: tuple = ()


def engine(after_start=lambda: None, max_batch={BATCH}):
    hook = SchedulerHook.from_environment(
        os.environ, max_batch=max_batch, max_depth={DEPTH}, engine_table=[3] * (max_batch + 1)
    )
    after_start()
    table = hook.before_schedule()
    # Every batch and so every page of the counters.
    for batch in (*range(1, 10), {BATCH}):
        if batch > max_batch:
            break
        names = [str(at) for at in range(batch)]
        step = Step(dict.fromkeys(names, 4), dict.fromkeys(names, [-1] * 3), 4 * batch, 3)
        hook.after_schedule(step, hook.now())
        drafts = Of(num_drafts=batch, num_accepted_tokens_per_pos=[batch, 0, 0])
        emitted = [Of(new_token_ids=[1, 2])] * batch
        outputs = {{0: Of(outputs=emitted, scheduler_stats=Of(spec_decoding_stats=drafts))}}
        hook.after_update(step, outputs, busy=True)
    return table


def smaller_engine():
    # One that ran before, in one page.
    if os.fork() == 0:
        engine(max_batch=3)
        os._exit(0)
    os.wait()


def fill():
    with open("filler", "ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass


def shown():
    samples = [
        sample for family in FathomCollector(os.environ).collect() for sample in family.samples
    ]
    return {{
        name: sum(sample.value for sample in samples if sample.name == name)
        for name in ("fathom_counters_shown", "fathom_steps_total", "fathom_hook_errors_total")
    }}
"""


def run(directory: Path, code: str) -> tuple[dict[str, object], str]:
    """Run an engine on a tmpfs of four pages; what it printed, and its log."""
    depth = directory / "depth.json"
    depth.write_text('{"generation": 3, "schedule": [[1, 256, 5]]}')
    mounted = directory / "shm"
    mounted.mkdir()
    process = subprocess.run(
        [
            *("unshare", "--mount", "--map-root-user", "sh", "-c"),
            'mount -t tmpfs -o size=16k tmpfs "$0" && cd "$0" && exec "$@"',
            *(str(mounted), sys.executable, "-c", ENGINE + code),
        ],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(fathom_vllm.__file__).parents[1]),
            "FATHOM_COUNTERS_FILE": str(mounted / "counters"),
            "FATHOM_DEPTH_FILE": str(depth),
        },
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )
    assert process.returncode == 0, f"exit {process.returncode}: {process.stderr[-2000:]}"
    found: dict[str, object] = json.loads(process.stdout)
    return found, process.stderr


@pytest.mark.parametrize("left", [0, 1, 2], ids=lambda left: f"{left} of 3 pages left")
def test_without_room_an_engine_counts_for_itself_and_says_so(tmp_path: Path, left: int) -> None:
    found, log = run(
        tmp_path,
        f"""
open("spare", "wb").write(bytes({left} * 4096))
fill()
os.unlink("spare")
table = engine()
print(json.dumps({{**shown(), "depth": table[1], "files": sorted(os.listdir())}}))
""",
    )
    assert found == {
        "fathom_counters_shown": 0,
        "fathom_steps_total": 0,
        "fathom_hook_errors_total": 0,
        "depth": 5,
        "files": ["filler"],
    }
    assert "No space left on device" in log
    assert "nothing is shown on /metrics (fathom_counters_shown is 0)" in log


def test_what_fills_up_later_takes_nothing_from_an_engine(tmp_path: Path) -> None:
    found, _ = run(
        tmp_path,
        """
engine(after_start=fill)
print(json.dumps(shown()))
""",
    )
    assert found["fathom_counters_shown"] == 1
    assert found["fathom_steps_total"] == 10


def test_a_restarted_engine_takes_the_room_of_the_one_before_it(tmp_path: Path) -> None:
    found, _ = run(
        tmp_path,
        """
open("spare", "wb").write(bytes(2 * 4096))
smaller_engine()
fill()
os.unlink("spare")
engine()
print(json.dumps(shown()))
""",
    )
    assert found["fathom_counters_shown"] == 1
    assert found["fathom_steps_total"] == 10


def test_the_counts_of_an_engine_that_ended_are_not_shown_as_the_next_ones(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "smaller_engine()\nfill()\nengine()\nprint(json.dumps(shown()))")
    assert found["fathom_counters_shown"] == 0
