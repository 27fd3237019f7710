"""The two classes that vLLM itself makes, on a vLLM of two classes, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fathom_vllm
from support.waiting import GUARD_S

VLLM = {
    "vllm/v1/core/sched/async_scheduler.py": """
from types import SimpleNamespace

class AsyncScheduler:
    def __init__(self, **parts):
        self.__dict__ |= parts

    def schedule(self):
        return Step(dict(self.wants), self.dynamic_sd_lookup[len(self.wants)])

    def update_from_output(self, scheduler_output, model_runner_output):
        return self.outputs

    def has_unfinished_requests(self):
        return True


class Step:
    def __init__(self, wants, depth):
        self.num_scheduled_tokens = dict.fromkeys(wants, depth + 1)
        self.total_num_scheduled_tokens = len(wants) * (depth + 1)
        self.scheduled_spec_decode_tokens = {name: [-1] * depth for name in wants}
        self.num_spec_tokens_to_schedule = depth
        self.scheduled_new_reqs = []
        self.num_invalid_spec_tokens = None
        self.scheduled_cached_reqs = SimpleNamespace(
            req_ids=list(wants), num_computed_tokens=[9] * len(wants)
        )
""",
    "vllm/v1/metrics/loggers.py": """
import abc

class StatLoggerBase(abc.ABC):
    @abc.abstractmethod
    def record(self): ...
    @abc.abstractmethod
    def log_engine_initialized(self): ...
    @abc.abstractmethod
    def of_a_later_vllm(self): ...
""",
}

ENGINE = """
import json, logging, os, time
from types import SimpleNamespace as Of
logging.basicConfig(level=logging.WARNING)
from fathom_vllm.counts import read_counts
from fathom_vllm.scheduler import LiveDepthScheduler

def write(generation, depth):
    with open("new", "w") as file:
        json.dump({"generation": generation, "schedule": [[1, 4, depth]]}, file)
    os.replace("new", "depth.json")

drafts = Of(num_drafts=1, num_draft_tokens=3, num_accepted_tokens_per_pos=[1, 0, 0, 0, 0, 0, 0])
stats = Of(spec_decoding_stats=drafts)
sampled = Of(sampled_token_ids=[[1, 1]], req_id_to_index={"a": 0})

def engine(rank=0, **parts):
    parallel = Of(data_parallel_index=rank, data_parallel_rank=0)
    return LiveDepthScheduler(**{
        "vllm_config": Of(parallel_config=parallel), "scheduler_config": Of(max_num_seqs=4),
        "num_spec_tokens": 7, "dynamic_sd_lookup": [0, 3, 3, 3, 3], "wants": {"a": 1},
        "outputs": {0: Of(outputs=[Of(new_token_ids=[1, 1])], scheduler_stats=stats)}, **parts})

def step(engine):
    assert engine.update_from_output(engine.schedule(), sampled) is engine.outputs
    return engine.dynamic_sd_lookup[1]

def shown():
    counts = read_counts("counters")
    return counts and (sum(cell.steps for cell in counts.steps), counts.errors, counts.live)
"""

LOGGER = """
import json, logging, sys
logging.basicConfig(level=logging.WARNING)
from prometheus_client import REGISTRY, CollectorRegistry, Counter, multiprocess
from fathom_vllm.stat_logger import FathomStatLogger

def shown(registry=REGISTRY):
    return registry.get_sample_value("fathom_counters_shown")
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for path, text in VLLM.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def run(directory: Path, code: str, **environ: str) -> tuple[object, str]:
    """What a process prints last, as JSON, and what it logs."""
    sources = str(Path(fathom_vllm.__file__).parents[1])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(directory), sources]),
        "FATHOM_DEPTH_FILE": "depth.json",
        "FATHOM_COUNTERS_FILE": "counters",
        **environ,
    }
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_S,
    )
    assert not process.returncode, process.stderr
    found: object = json.loads(process.stdout)
    return found, process.stderr


def test_depth_follows_the_file_and_every_step_is_counted(directory: Path) -> None:
    code = """
write(1, 5)
one = engine()
depths = [one.dynamic_sd_lookup[1], step(one)]
write(2, 6)
while step(one) != 6:
    time.sleep(0.01)
steps, errors, live = shown()
print(json.dumps([depths, step(one), errors, live, shown()[0] - steps]))
"""
    found, _ = run(directory, ENGINE + code)
    assert found == [[5, 5], 6, 0, True, 1]


def test_drafts_are_counted_by_context_before_vllm_cuts_an_answer(directory: Path) -> None:
    code = """
class Cutting(type(engine()).__mro__[1]):
    def update_from_output(self, scheduler_output, model_runner_output):
        for row in model_runner_output.sampled_token_ids:
            del row[1:]
        return super().update_from_output(scheduler_output, model_runner_output)

LiveDepthScheduler.__bases__ = (Cutting,)
two = {"a": 1, "b": 1}
drafts.num_drafts, drafts.num_draft_tokens = 2, 6
drafts.num_accepted_tokens_per_pos[:2] = [2, 1]
one = engine(wants=two, outputs={0: Of(scheduler_stats=stats, outputs=[
    Of(request_id="a", new_token_ids=[1]), Of(request_id="b", new_token_ids=[1])])})
sampled = Of(sampled_token_ids=[[1, 1], [1, 1, 1]], req_id_to_index={"b": 0, "a": 1})
planned = one.schedule()
planned.scheduled_cached_reqs.num_computed_tokens[:] = [9, 5000]
one.update_from_output(planned, sampled)
from dataclasses import astuple
print(json.dumps([astuple(each) for each in read_counts("counters").contexts]))
"""
    found, _ = run(directory, ENGINE + code)
    assert found == [[0, 2047, 1, 3, 2, 1], [4096, 8191, 1, 3, 1, 1]]


def test_where_the_hook_cannot_be_built_it_is_vllms_own_scheduler(directory: Path) -> None:
    code = """
one = engine(num_spec_tokens="not a number")
print(json.dumps([step(one), step(one), shown()]))
"""
    found, log = run(directory, ENGINE + code)
    assert found == [3, 3, None]
    assert "the hook cannot be built; depth stays as it is" in log


def test_what_another_version_lacks_is_counted_and_stops_nothing(directory: Path) -> None:
    code = """
write(1, 5)
one = engine()
errors = []
one.outputs = "of another shape"
step(one)
errors.append(shown()[1])
one.has_unfinished_requests = None
step(one)
errors.append(shown()[1])
print(json.dumps(errors))
"""
    found, _ = run(directory, ENGINE + code)
    assert found == [1, 2]


def test_several_engines_count_together(directory: Path) -> None:
    code = """
ranks = [engine(rank) for rank in range(3)]
for one in ranks:
    step(one)
print(json.dumps(shown()))
"""
    found, _ = run(directory, ENGINE + code)
    assert found == [3, 0, True]


def test_an_engine_that_knows_no_ranks_is_the_only_one(directory: Path) -> None:
    code = "engine(vllm_config=Of(parallel_config=Of())); print(json.dumps(shown()))"
    found, _ = run(directory, ENGINE + code)
    assert found == [0, 0, True]


def test_the_counters_are_shown_once_however_many_loggers_there_are(directory: Path) -> None:
    code = """
for index in range(2):
    logger = FathomStatLogger(None, index)
    logger.record(1, two=2)
    logger.log_engine_initialized()
    logger.of_a_later_vllm(1, two=2)
print(shown())
"""
    found, log = run(directory, LOGGER + code)
    assert found == 0.0
    assert not log


@pytest.mark.parametrize("page", ["before", "after"])
def test_of_several_servers_each_shows_them_beside_what_all_have_merged(
    directory: Path, page: str
) -> None:
    code = f"""
def make_page():
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    return registry

early = make_page()
FathomStatLogger(None)
registry = {{"before": early, "after": make_page()}}[{page!r}]
Counter("of_vllm", "").inc(5)
print([shown(registry), registry.get_sample_value("of_vllm_total")])
"""
    (directory / "prometheus").mkdir()
    found, log = run(directory, LOGGER + code, PROMETHEUS_MULTIPROC_DIR="prometheus")
    assert found == [0.0, 5.0]
    assert not log


def test_the_device_is_named_as_vllms_platform_does(directory: Path) -> None:
    (directory / "vllm/platforms.py").write_text("""
class CpuPlatform:
    def get_device_name(self, device_id=0):
        return "cpu"

current_platform = CpuPlatform()
""")
    code = """
FathomStatLogger(None)
(shown,) = [each for each in REGISTRY.collect() if each.name == "fathom_engine_info"]
print(json.dumps([each.labels["device"] for each in shown.samples]))
"""
    assert run(directory, LOGGER + code) == (["cpu"], "")


def test_a_registry_that_refuses_them_stops_no_server(directory: Path) -> None:
    code = """
REGISTRY.register = None
FathomStatLogger(None)
print('null' if shown() is None else 1)
"""
    found, log = run(directory, LOGGER + code)
    assert found is None
    assert "the counters cannot be shown on /metrics; serving continues" in log
