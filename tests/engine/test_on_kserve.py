"""KServe's script starts a real vLLM, with the patch of `fathom attach`.

It has no asynchronous scheduling: under traffic that is tested here, for the price of one start.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from packaging.version import Version

from fathom.adapters.metrics_page import PageReader
from fathom.attach.evidence import evidence_of
from fathom.attach.startup import expected_report
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.report import differences
from fathom_vllm.bundle import bundle_zip
from local_cluster.engine.environment import DEFAULT_ENGINE_VERSION, ENGINE_ARGS
from local_cluster.engine.language import EASY
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.process import MODEL_NAME, EngineProcess, EngineSetup, Part
from local_cluster.engine.scrape import scrape
from local_cluster.engine.traffic import LoadGenerator, Phase
from support.engine_steps import gained, requests_done, set_depth
from support.platforms import Patched, kserve

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

HOST = f"{' '.join(ENGINE_ARGS)} --max-num-seqs 16 --no-async-scheduling"
VLLM = """\
#!/bin/sh
if [ "$1" = --version ]; then echo {release}; else exec {vllm} "$@"; fi
"""
"""Its script calls vLLM twice; here the first time would cost nine seconds."""


@dataclass(frozen=True, slots=True)
class ByScript(EngineSetup):
    """Its command is a script, and what is behind it are the arguments of its container."""

    def arguments(self, port: int) -> list[str]:
        return ["--host=127.0.0.1", f"--port={port}", f"--served-model-name={MODEL_NAME}"]


@pytest.fixture(scope="module")
def patched(pair: ModelPair, tmp_path_factory: pytest.TempPathFactory) -> Patched:
    drafting = {"method": "eagle3", "model": str(pair.draft), "num_speculative_tokens": 3}
    additional = f"{HOST} --speculative-config '{json.dumps(drafting)}'"
    return kserve(tmp_path_factory.mktemp("kserve"), additional)


@pytest.fixture(scope="module")
def engine(
    patched: Patched,
    pair: ModelPair,
    setup: EngineSetup,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[EngineProcess]:
    """Its container, with folders of this machine in the place of mounts."""
    folder = tmp_path_factory.mktemp("engine")
    (folder / "plugin").mkdir()
    (folder / "plugin/fathom.zip").write_bytes(bundle_zip())
    (folder / "vllm").write_text(VLLM.format(release=DEFAULT_ENGINE_VERSION, vllm=setup.command[0]))
    (folder / "vllm").chmod(0o755)
    env = {each["name"]: each.get("value") for each in patched.after["env"]}
    path = str(env.pop("PYTHONPATH")).replace("/etc/fathom", str(folder))
    shell, flag, script, name = patched.after["command"]
    container = ByScript(
        command=(shell, flag, script.replace("/mnt/models", str(pair.target)), name),
        part=Part.NOTHING,  # the patch brings what there is
        python_path=(Path(path),),
        pod_name="qwen-0",
        variables={
            **setup.variables,
            **{name: value for name, value in env.items() if value is not None},
            "HOME": str(folder),
            "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
        },
    )
    with EngineProcess(container, folder) as process:
        yield process


async def test_it_reports_what_was_meant_and_is_live(
    engine: EngineProcess, patched: Patched
) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{engine.base_url}/metrics") as answer,
    ):
        counters = PageReader().read(await answer.read(), pod="qwen-0", at_s=0.0)
    startup, report = patched.attachment.startup, counters.report

    assert startup.to_do == ()
    # Without CUDA graphs every depth is had for nothing.
    assert (report.depths, report.schedule) == (tuple(range(8)), startup.schedule)
    assert (startup.schedule[0].depth, counters.live_depth) == (3, True)
    assert (report.max_num_seqs, report.asynchronous) == (16, False)
    expected = expected_report(startup, Version(DEFAULT_ENGINE_VERSION))
    assert [*differences(report, expected)] == []
    (info,) = [
        each.labels
        for each in (await scrape(engine.base_url)).samples
        if each.name == "fathom_plugin_info"
    ]
    assert info["pod_name"] == "qwen-0"
    # As the operator judges it, and `attach --check`.
    pod = ObservedPod.model_validate(
        {"metadata": {"name": "qwen-0"}, "spec": {"volumes": patched.volumes}}
    )
    (found,) = evidence_of(
        [pod], {"qwen-0": counters}, (), document="qwen-tuner-depth", tokens_given=False
    )
    assert (found.level, found.missing) == ("Live", None)


async def test_without_asynchronous_scheduling_depth_is_live_all_the_same(
    engine: EngineProcess,
) -> None:
    async with LoadGenerator(engine.base_url, engine.model, seed=12) as load:
        load.set_phase(Phase(EASY, concurrency=5, max_tokens=100))
        for generation, depth in enumerate((5, 0, 7, 2), start=1):
            await set_depth(engine, iter([generation]), depth)
            before = await scrape(engine.base_url)
            await requests_done(load, 6)
            after = await scrape(engine.base_url)
            # The first step still verifies what was drafted before.
            at_depth = gained(before, after, "fathom_steps_total", depth=str(depth))
            assert gained(before, after, "fathom_steps_total") - at_depth <= 1
            assert at_depth > 10
    assert [result.error for result in load.results if not result.ok] == []
    assert after.total("fathom_hook_errors_total") == 0
