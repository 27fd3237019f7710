"""The engines: one whose depth is live, as Fathom starts it, and one for each single depth."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fathom.api.choices import TuningMode
from fathom.api.spec import (
    DraftSpec,
    EngineSpec,
    ModelSpec,
    NodePoolSpec,
    SpeculationSpec,
    SpeculativeDeploymentSpec,
    TuningSpec,
)
from fathom.core.engine.depth_set import named_depths
from fathom.manifests.engine_command.engine_args import engine_args
from fathom_bench.gpu.machine import Machine
from fathom_bench.gpu.records import DIRECTORY_VARIABLE
from fathom_local.engine.environment import ENGINE_ARGS, engine_variables
from fathom_local.engine.model_pair import ModelPair, PairShape
from fathom_local.engine.process import MODEL_NAME, EngineSetup, Part

DEPTH: Final = 3
"""What the user asks for."""
_DEEPEST: Final = 7
_CPU_REQUESTS: Final = 16
_GPU_REQUESTS: Final = 256
_GPU_ARGS: Final = (
    *("--dtype", "bfloat16", "--max-model-len", "1024"),
    # Two engines share the GPU: the live one, and one of a single depth after the other.
    *("--gpu-memory-utilization", "0.4"),
)
GPU_SHAPE: Final = PairShape(
    hidden=2048,
    heads=16,
    intermediate=16384,
    target_layers=16,
    draft_intermediate=8192,
    dtype="bfloat16",
)
"""1.9 billion parameters: a step is the GPU's work rather than Python's."""
_OPERATOR: Final = Path(__file__).parents[2]
_SPECULATION: Final = "--speculative-config"


@dataclass(frozen=True, slots=True)
class RenderedSetup(EngineSetup):
    """An engine with the arguments that the operator would give it, and the probe's scheduler."""

    rendered: tuple[str, ...] = ()

    def arguments(self, port: int) -> list[str]:
        """Everything after the model. vLLM takes the last of what is said twice."""
        return [
            *self.rendered,
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--scheduler-cls", self.scheduler_cls),
        ]


def live_setup(machine: Machine, pair: ModelPair) -> RenderedSetup:
    """The engine whose depth is live."""
    return _setup(machine, pair, DEPTH, TuningMode.AUTO)


def single_setup(machine: Machine, pair: ModelPair, depth: int) -> RenderedSetup:
    """Mode Static's engine of one depth; of depth 0: without speculation at all."""
    setup = _setup(machine, pair, max(depth, 1), TuningMode.STATIC)
    if depth:
        return setup
    at = setup.rendered.index(_SPECULATION)
    return replace(setup, depth=0, rendered=setup.rendered[:at] + setup.rendered[at + 2 :])


def depths_of(machine: Machine, pair: ModelPair) -> tuple[int, ...]:
    """The depths that are compared: those that an engine with CUDA graphs has."""
    with_graphs = machine.model_copy(update={"gpu": machine.gpu or "any"})
    return named_depths(_spec(with_graphs, pair, DEPTH, TuningMode.AUTO))


def in_directory(setup: RenderedSetup, directory: Path) -> RenderedSetup:
    """The same, whose probe writes into a directory."""
    return replace(setup, variables={**setup.variables, DIRECTORY_VARIABLE: str(directory)})


def _setup(machine: Machine, pair: ModelPair, depth: int, mode: TuningMode) -> RenderedSetup:
    spec = _spec(machine, pair, depth, mode)
    live = mode is TuningMode.AUTO
    model, *rendered = engine_args(spec)
    return RenderedSetup(
        command=(str(machine.python.with_name("vllm")), "serve", model),
        draft=pair.draft,
        python_path=(_OPERATOR,),
        max_depth=_DEEPEST if live else depth,
        depth=depth,
        max_batch=_GPU_REQUESTS if machine.gpu else _CPU_REQUESTS,
        part=Part.LOGGER if live else Part.NOTHING,
        scheduler_cls=f"fathom_bench.gpu.probe.{'Live' if live else 'Stock'}",
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
    machine: Machine, pair: ModelPair, depth: int, mode: TuningMode
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
