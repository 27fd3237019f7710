"""The engines: one whose depth is live, as Fathom starts it, and one for each single depth."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.records import DIRECTORY_VARIABLE
from fathom.api.choices import AdaptiveVerification, TuningMode
from fathom.api.models import DraftSpec, ModelSpec
from fathom.api.spec import (
    EngineSpec,
    NodePoolSpec,
    SpeculationSpec,
    SpeculativeDeploymentSpec,
    TuningSpec,
)
from fathom.engine.flags import engine_args
from fathom.engine.profile import profile_of
from local_cluster.engine.environment import ENGINE_ARGS, engine_variables
from local_cluster.engine.language import PairShape
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.process import MODEL_NAME, EngineSetup, Part
from local_cluster.paths import SOURCES

DEPTH: Final = 3
"""What the user asks for."""
_DEEPEST: Final = 7
_CPU_REQUESTS: Final = 16
_GPU_REQUESTS: Final = 256
_GPU_ARGS: Final = ("--dtype", "bfloat16", "--max-model-len", "1024")
_MEMORY_SHARE: Final = 0.8
"""Share of the GPU's memory, for all engines that are up at once."""
GPU_SHAPE: Final = PairShape(
    hidden=2048,
    heads=16,
    intermediate=16384,
    target_layers=16,
    draft_intermediate=8192,
    dtype="bfloat16",
)
"""1.9 billion parameters: a step is the GPU's work rather than Python's."""
_SPECULATION: Final = "--speculative-config"


@dataclass(frozen=True, slots=True)
class RenderedSetup(EngineSetup):
    """An engine with the arguments that the operator would give it, and the probe's scheduler."""

    rendered: tuple[str, ...] = ()

    def arguments(self, port: int) -> list[str]:
        """Everything after the model. vLLM takes the last of what is said twice."""
        scheduler = ("--scheduler-cls", self.scheduler_cls) if self.scheduler_cls else ()
        return [*self.rendered, *("--host", "127.0.0.1", "--port", str(port)), *scheduler]


def live_setup(machine: Machine, pair: ModelPair) -> RenderedSetup:
    """The engine whose depth is live, beside one other."""
    return _with_memory(_setup(machine, pair, DEPTH, TuningMode.AUTO), machine, 2)


def single_setup(machine: Machine, pair: ModelPair, depth: int) -> RenderedSetup:
    """Mode Static's engine of one depth; of depth 0: without speculation at all."""
    setup = _with_memory(_setup(machine, pair, max(depth, 1), TuningMode.STATIC), machine, 2)
    if depth:
        return setup
    return _without_speculation(setup)


def race_setups(machine: Machine, pair: ModelPair) -> Mapping[str, RenderedSetup]:
    """The engines of a race, as the operator starts them and nothing more. The tuned one is first.

    All are up at once, and each gets its part of the GPU's memory.
    """
    tuned = _setup(machine, pair, DEPTH, TuningMode.AUTO)
    shallow, deep = (_setup(machine, pair, each, TuningMode.STATIC) for each in (DEPTH, _DEEPEST))
    adaptive = _setup(machine, pair, _DEEPEST, TuningMode.STATIC, adaptive=True)
    setups = {
        "tuned": tuned,
        f"static {DEPTH}": shallow,
        f"static {_DEEPEST}": deep,
        "no speculation": _without_speculation(shallow),
        "adaptive verification": adaptive,
    }
    return {
        name: _with_memory(replace(setup, scheduler_cls=""), machine, len(setups))
        for name, setup in setups.items()
    }


def _without_speculation(setup: RenderedSetup) -> RenderedSetup:
    at = setup.rendered.index(_SPECULATION)
    return replace(setup, depth=0, rendered=setup.rendered[:at] + setup.rendered[at + 2 :])


def _with_memory(setup: RenderedSetup, machine: Machine, engines: int) -> RenderedSetup:
    share = f"{_MEMORY_SHARE / engines:.2f}"
    memory = ("--gpu-memory-utilization", share) if machine.gpu else ()
    return replace(setup, rendered=(*setup.rendered, *memory))


def depths_of(machine: Machine, pair: ModelPair) -> tuple[int, ...]:
    """The depths that are compared: those that an engine with CUDA graphs has."""
    with_graphs = machine.model_copy(update={"gpu": machine.gpu or "any"})
    return profile_of(_spec(with_graphs, pair, DEPTH, TuningMode.AUTO)).depths


def in_directory(setup: RenderedSetup, directory: Path) -> RenderedSetup:
    """The same, whose probe writes into a directory."""
    return replace(setup, variables={**setup.variables, DIRECTORY_VARIABLE: str(directory)})


def _setup(
    machine: Machine, pair: ModelPair, depth: int, mode: TuningMode, *, adaptive: bool = False
) -> RenderedSetup:
    spec = _spec(machine, pair, depth, mode, adaptive=adaptive)
    live = mode is TuningMode.AUTO
    model, *rendered = engine_args(profile_of(spec))
    return RenderedSetup(
        command=(str(machine.python.with_name("vllm")), "serve", model),
        draft=pair.draft,
        python_path=SOURCES,
        max_depth=_DEEPEST if live else depth,
        depth=depth,
        max_batch=_GPU_REQUESTS if machine.gpu else _CPU_REQUESTS,
        part=Part.LOGGER if live else Part.NOTHING,
        scheduler_cls=f"benchmarks.gpu.probe.{'Live' if live else 'Stock'}",
        variables=_variables(machine),
        rendered=tuple(rendered),
    )


def _variables(machine: Machine) -> Mapping[str, str]:
    if not machine.gpu:
        return engine_variables(machine.python.parents[1])
    # Beside the interpreter's own, since vLLM starts tools that it was installed with.
    path = os.pathsep.join([str(machine.python.parent), os.environ.get("PATH", "")])
    return {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PATH": path}


def _spec(
    machine: Machine, pair: ModelPair, depth: int, mode: TuningMode, *, adaptive: bool = False
) -> SpeculativeDeploymentSpec:
    requests = _GPU_REQUESTS if machine.gpu else _CPU_REQUESTS
    return SpeculativeDeploymentSpec(
        model=ModelSpec(id=str(pair.target), served_name=MODEL_NAME),
        draft=DraftSpec(id=str(pair.draft)),
        speculation=SpeculationSpec(
            tokens=depth,
            max_tokens=_DEEPEST,
            min_tokens=0,
            tuning=TuningSpec(mode=mode),
            adaptive_verification=(
                AdaptiveVerification.ENABLED if adaptive else AdaptiveVerification.DISABLED
            ),
        ),
        engine=EngineSpec(
            image="vllm/vllm-openai",
            version=machine.vllm.partition("+")[0],
            tensor_parallel_size=1,
            drain_seconds=5,
            args=(
                *(_GPU_ARGS if machine.gpu else ENGINE_ARGS),
                *("--max-num-seqs", str(requests)),
            ),
        ),
        node_pool=NodePoolSpec(accelerator=machine.accelerator),
    )
