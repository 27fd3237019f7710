"""Whose processor time is counted: by processor clocks alone, on any machine."""

import subprocess
import sys

import psutil
import pytest

from local_cluster.demo.stepping import stepping_seconds
from support.waiting import GUARD_S

ENGINE = """
import sys, threading, time

def spin(clock, seconds):
    began = clock()
    while clock() < began + seconds:
        pass

with open("/proc/self/comm", "w") as name:
    name.write("VLLM::EngineCore")
other = threading.Thread(target=spin, args=(time.thread_time, 0.5))
other.start()
other.join()
spin(time.thread_time, 0.1)
print(time.thread_time(), time.process_time(), flush=True)
sys.stdin.read()
"""
TICK_SECONDS = 0.02
"""Two of the kernel's: user and system time are rounded each."""


def test_only_the_thread_that_steps_is_counted() -> None:
    # Its name is that of its first argument, as vLLM sets it.
    with subprocess.Popen(
        ["VLLM::EngineCore", "-c", ENGINE],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as engine:
        assert engine.stdout is not None
        main, whole = map(float, engine.stdout.readline().split())
        counted = stepping_seconds(psutil.Process())
        engine.communicate(timeout=GUARD_S)
    assert whole > main + 0.4
    assert counted == pytest.approx(main, abs=TICK_SECONDS)


def test_without_an_engine_of_vllms_it_is_not_known() -> None:
    assert stepping_seconds(psutil.Process()) is None
