"""The program of a bench's pod, started as its pod starts it, with a played engine and load."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from fathom.bench.job import bench_program
from fathom.bench.log import Heard, heard
from fathom_measure.plan import EnginePlan, LoadPlan, MeasurePlan
from local_cluster.engine.process import free_port
from support.waiting import GUARD_S, until

ENGINE = """
import json, os, pathlib, subprocess, sys, http.server
port, depth_file, note = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
if depth_file == "dies":
    print("no kernel for this"); sys.exit(3)
# As vLLM has an engine core: it outlives its parent.
core = subprocess.Popen(["sleep", "3600"])
with note.open("a") as file:
    path = os.environ.get("PYTHONPATH", "")
    file.write(json.dumps({"pid": os.getpid(), "core": core.pid, "path": path}) + "\\n")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        generation = 0
        if os.path.exists(depth_file):
            document = json.loads(pathlib.Path(depth_file).read_text())
            generation = document["generation"]
        body = f"fathom_depth_generation {float(generation)}\\n".encode()
        self.send_response(200); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
LOAD = """#!{python}
import json, pathlib, sys, urllib.request
words = sys.argv[1:]
assert words[:2] == ["bench", "serve"], words
hosts = [each for each in {hosts!r} if urllib.request.proxy_bypass(each)]
pathlib.Path({direct!r}).write_text(json.dumps(hosts))
if "fail" in words:
    print("ValueError: no such file"); sys.exit(1)
depth_file = pathlib.Path({depth_file!r})
schedule = json.loads(depth_file.read_text())["schedule"] if depth_file.exists() else None
result = {{"completed": 4, "failed": 0, "total_input_tokens": 32, "total_output_tokens": 64,
  "duration": 1.0, "output_throughput": 64.0, "mean_tpot_ms": 10.0, "mean_ttft_ms": 5.0,
  "spec_decode_num_drafts": schedule[0][2] if schedule else 0, "generated_texts": ["long"]}}
folder, name = (words[words.index(o) + 1] for o in ("--result-dir", "--result-filename"))
(pathlib.Path(folder) / name).write_text(json.dumps(result))
"""
HOSTS = ("127.0.0.1", "mirror.corp", "hub.example")


class Pod:
    """What a pod has: the program as its ConfigMap lays it out, an engine, a `vllm` on PATH."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "program"
        for path, text in bench_program().files.items():
            (self.program / path).parent.mkdir(parents=True, exist_ok=True)
            (self.program / path).write_text(text)
        self.depth_file = folder / "depth" / "depth.json"
        self.depth_file.parent.mkdir()
        self.note = folder / "engines"
        self.engine = folder / "engine.py"
        self.engine.write_text(ENGINE)
        self.bin = folder / "bin"
        self.bin.mkdir()
        vllm = self.bin / "vllm"
        self.direct = folder / "direct"
        """Which of `HOSTS` the load asks without a proxy."""
        vllm.write_text(
            LOAD.format(
                python=sys.executable,
                depth_file=str(self.depth_file),
                hosts=HOSTS,
                direct=str(self.direct),
            )
        )
        vllm.chmod(0o755)
        self.port = free_port()

    def speculating(self, *depths: int, depth_file: str | None = None) -> EnginePlan:
        file = str(self.depth_file) if depth_file is None else depth_file
        return EnginePlan(command=self._command(file), depths=depths, depth_file=file)

    def off(self, hidden: str = "") -> EnginePlan:
        return EnginePlan(command=self._command(""), depths=(), hidden=hidden)

    def dying(self) -> EnginePlan:
        return EnginePlan(command=self._command("dies"), depths=(3,))

    def plan(
        self,
        *engines: EnginePlan,
        loads: tuple[LoadPlan, ...] = (),
        obey_seconds: float = GUARD_S,
    ) -> MeasurePlan:
        return MeasurePlan(
            engines=engines,
            loads=loads or (load("chats", 1),),
            port=self.port,
            max_batch=16,
            start_seconds=GUARD_S,
            obey_seconds=obey_seconds,
            load_seconds=GUARD_S,
        )

    def start(self, plan: MeasurePlan, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(self.program), plan.to_json()],
            env={**without_proxies(), "PATH": f"{self.bin}:{os.environ['PATH']}", **variables},
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, plan: MeasurePlan, **variables: str) -> Heard:
        process = self.start(plan, **variables)
        output, _ = process.communicate(timeout=GUARD_S)
        assert process.returncode == 0
        return heard(output)

    def engines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.note.read_text().splitlines()]

    def _command(self, depth_file: str) -> tuple[str, ...]:
        return (sys.executable, str(self.engine), str(self.port), depth_file, str(self.note))


def without_proxies() -> dict[str, str]:
    return {name: each for name, each in os.environ.items() if "proxy" not in name.lower()}


def load(data: str, concurrency: int, *arguments: str) -> LoadPlan:
    return LoadPlan(data=data, concurrency=concurrency, prompts=4, arguments=arguments)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_a_plan_survives_the_way_to_its_pod(pod: Pod) -> None:
    plan = pod.plan(pod.speculating(0, 3), pod.off("/hidden"))

    assert MeasurePlan.from_json(plan.to_json()) == plan
    assert plan.runs == 3


def test_each_depth_is_in_force_before_it_is_measured_and_true_off_comes_last(pod: Pod) -> None:
    told = pod.run(pod.plan(pod.speculating(0, 1, 3), loads=(load("a", 1), load("b", 4))))

    found = [(each.data, each.depth, each.result.spec_decode_num_drafts) for each in told.results]
    # The played load reports the depth in the document as its number of drafts.
    assert found == [("a", 0, 0), ("a", 1, 1), ("a", 3, 3), ("b", 0, 0), ("b", 1, 1), ("b", 3, 3)]
    assert (told.runs, told.ended, told.failures) == (6, True, ())
    assert told.to_come is not None
    assert (told.done, len(told.to_come.runs_s), len(told.to_come.starts_s)) == (6, 6, 1)


def test_true_off_is_another_engine_that_does_not_see_the_plugin(pod: Pod) -> None:
    told = pod.run(
        pod.plan(pod.speculating(3), pod.off("/etc/plugin")), PYTHONPATH="/etc/plugin:/mine"
    )

    assert [each.depth for each in told.results] == [3, None]
    on, off = pod.engines()
    assert (on["path"], off["path"]) == ("/etc/plugin:/mine", "/mine")
    # What the first started, too, is gone before the second needs its GPUs.
    assert not runs(on["pid"])
    assert not runs(on["core"])


@pytest.mark.parametrize(
    ("variables", "direct"),
    [
        ({}, HOSTS[:1]),
        ({"NO_PROXY": "mirror.corp"}, HOSTS[:2]),
        ({"no_proxy": "mirror.corp"}, HOSTS[:2]),
        # As everybody reads them who knows both.
        ({"NO_PROXY": "hub.example", "no_proxy": "mirror.corp"}, HOSTS[:2]),
        ({"NO_PROXY": "*"}, HOSTS),
    ],
)
def test_a_proxy_is_no_way_to_the_engine_beside(
    pod: Pod, variables: dict[str, str], direct: tuple[str, ...]
) -> None:
    """It leads to the hub, for the engine and for the load's data."""
    proxy = f"http://127.0.0.1:{free_port()}"
    proxies = {"HTTP_PROXY": proxy, "http_proxy": proxy, "HTTPS_PROXY": proxy}

    told = pod.run(pod.plan(pod.speculating(3)), **proxies, **variables)

    assert ([each.depth for each in told.results], told.failures) == ([3], ())
    assert tuple(json.loads(pod.direct.read_text())) == direct


def test_what_fails_is_said_and_the_rest_is_measured(pod: Pod) -> None:
    told = pod.run(
        pod.plan(pod.dying(), pod.off(), loads=(load("gone", 1, "fail"), load("chats", 2)))
    )

    assert [(each.data, each.depth) for each in told.results] == [("chats", None)]
    died, failed = told.failures
    assert "ended with 3" in died
    assert "no kernel for this" in died
    assert failed.startswith("gone, 1 at a time, true off: vllm bench serve ended with 1.")
    assert "ValueError: no such file" in failed
    assert told.ended
    assert told.done == told.runs == 4


def test_an_engine_that_does_not_obey_is_not_measured(pod: Pod) -> None:
    engine = replace(pod.speculating(3), command=pod.off().command)

    told = pod.run(pod.plan(engine, obey_seconds=0.5))

    assert told.results == ()
    assert "depth 3 was not in force" in told.failures[0]


def test_no_load_is_put_on_an_engine_that_is_not_its_own(pod: Pod) -> None:
    """On the host's network another pod's may answer on the same port."""
    other = subprocess.Popen(pod.off().command)
    try:
        up = until(lambda: pod.note.exists() and answers(pod.port), "the other engine to answer")
        asyncio.run(up)
        told = pod.run(pod.plan(pod.speculating(3)))
    finally:
        other.kill()
        other.wait()
        psutil.Process(pod.engines()[0]["core"]).kill()

    assert told.results == ()
    assert told.failures == (f"another engine answers on port {pod.port} already",)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_pod_that_is_told_to_go_takes_its_engine_along(pod: Pod) -> None:
    process = pod.start(pod.plan(pod.speculating(3), loads=(load("chats", 1),) * 1000))
    assert process.stdout is not None
    while "running" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=GUARD_S)

    assert process.returncode == 128 + signal.SIGTERM
    (engine,) = pod.engines()
    gone = until(lambda: not (runs(engine["pid"]) or runs(engine["core"])), "all of it to end")
    asyncio.run(gone)


def runs(pid: int) -> bool:
    """Whether a process does; nobody may be there to take note of its end."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
