"""Asks a real vLLM which CUDA graphs engines capture and replay, on a GPU that is not there.

Run by the Python of an engine's environment, never by that of the tests. The first argument is the
pretended accelerator. Reads JSON, a list of engines; writes one JSON list of answers on the last
line. vLLM makes its whole configuration as on that GPU, and its own managers of graphs say what
they would capture and which graph a step would get: no graph is captured for that.
"""

import json
import logging
import os
import sys
from dataclasses import asdict, dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

# Compiled for a GPU; the wheel for CPUs has neither, and nothing that is asked here runs them.
FLASH_ATTENTION = ModuleType("vllm.vllm_flash_attn")
FLASH_ATTENTION.__path__ = []
FLASH_ATTENTION.flash_attn_varlen_func = FLASH_ATTENTION.get_scheduler_metadata = None
FLASH_ATTENTION.fa_version_unsupported_reason = lambda _version: None
FLASH_ATTENTION.is_fa_version_supported = lambda _version: True
sys.modules["vllm._C_stable_libtorch"] = ModuleType("vllm._C_stable_libtorch")

# Imported while vLLM knows that it is on a CPU: on a GPU some of it looks for CUDA's libraries.
import torch  # noqa: E402
import vllm.config.vllm as vllm_config  # noqa: E402
from vllm import platforms  # noqa: E402
from vllm.config.compilation import CUDAGraphMode  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.platforms.cuda import NonNvmlCudaPlatform  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402
from vllm.usage.usage_lib import UsageContext  # noqa: E402
from vllm.v1.worker.gpu import cudagraph_utils  # noqa: E402
from vllm.v1.worker.gpu.cudagraph_utils import (  # noqa: E402
    CudaGraphManager,
    ModelCudaGraphManager,
)
from vllm.v1.worker.gpu.lora_utils import get_lora_capture_cases  # noqa: E402
from vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils import (  # noqa: E402
    SpeculatorCudaGraphManager,
)

from benchmarks.gpu.probe import GraphWatch  # noqa: E402

sys.modules["vllm.vllm_flash_attn"] = FLASH_ATTENTION
NOWHERE = torch.device("cpu")
FULL = CUDAGraphMode.FULL


@dataclass(frozen=True)
class Accelerator:
    """What vLLM reads of a GPU before it runs anything on it."""

    name: str
    capability: DeviceCapability
    gibibytes: int


ACCELERATORS = {
    "H100": Accelerator("NVIDIA H100 80GB HBM3", DeviceCapability(9, 0), 80),
    "GB200": Accelerator("NVIDIA GB200", DeviceCapability(10, 0), 186),
    "A100": Accelerator("NVIDIA A100-SXM4-80GB", DeviceCapability(8, 0), 80),
    "L40S": Accelerator("NVIDIA L40S", DeviceCapability(8, 9), 44),
    "RTXPRO6000": Accelerator(
        "NVIDIA RTX PRO 6000 Blackwell Server Edition", DeviceCapability(12, 0), 95
    ),
}


@dataclass(frozen=True)
class Answer:
    """What vLLM says of one engine. Numbers of graphs; `replayed` by batch asked, then by depth."""

    runner: str
    asynchronous: bool
    """Whether a step is scheduled while the one before it still runs."""
    mode: str
    sizes: list[int]
    max_num_batched_tokens: int
    default_max_num_seqs: int
    target_full: int
    target_piecewise: int
    draft_full: int
    draft_piecewise: int
    replayed: list[list[str]]
    strays: list[list[bool]]
    """Likewise, whether the draft's first pass replays a full graph where the target does not."""
    counted: list[tuple[int, int, str, int]]
    """The same as the probe of `make bench-gpu` counts it: batch, depth, what, how often."""


def pretend(accelerator: Accelerator) -> None:
    """Let all of vLLM believe in a GPU."""

    class Pretended(NonNvmlCudaPlatform):
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:  # noqa: ARG003
            return accelerator.capability

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:  # noqa: ARG003
            return accelerator.name

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:  # noqa: ARG003
            return accelerator.gibibytes << 30

        device_count = classmethod(lambda _cls: 8)
        is_fully_connected = classmethod(lambda _cls, _ids: True)
        log_warnings = classmethod(lambda _cls: None)
        get_global_graph_pool = lambda _self: None  # noqa: E731 - nothing is captured into it

    if not isinstance(vllm_config.HAS_TRITON, bool):
        raise TypeError("this vLLM decides about Triton elsewhere")
    vllm_config.HAS_TRITON = True
    actual, pretended = platforms.current_platform, Pretended()
    platforms._current_platform = pretended
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("current_platform") is actual:
            module.current_platform = pretended
    group = SimpleNamespace(is_first_rank=True, is_last_rank=True)
    cudagraph_utils.get_pp_group = lambda: group
    # The draft's manager refines what it will capture just before it does.
    CudaGraphManager.capture = lambda _self, _forward, _description: None


def answer(engine: dict[str, Any]) -> Answer:
    """What vLLM says of one engine; its keys are the fields of `Engine` in the test."""
    os.environ.update(engine["variables"])
    try:
        return answer_in_its_environment(engine)
    finally:
        for name in engine["variables"]:
            del os.environ[name]


def answer_in_its_environment(engine: dict[str, Any]) -> Answer:
    deepest, any_length = engine["deepest"], engine["any_length"]
    speculative = {
        "method": "eagle3",
        "model": engine["draft"],
        "num_speculative_tokens": deepest,
        **engine["options"],
    }
    if speculative["method"] in {"ngram", "ngram_gpu"}:
        del speculative["model"]
    if engine["schedule"]:
        speculative["num_speculative_tokens_per_batch_size"] = engine["schedule"]
    compilation = {"cudagraph_mode": engine["mode"]}
    if engine["sizes"]:
        compilation["cudagraph_capture_sizes"] = engine["sizes"]
    config = EngineArgs(
        model=engine["target"],
        dtype="bfloat16",
        max_model_len=640,
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        performance_mode=engine["performance_mode"],
        speculative_config=speculative,
        compilation_config=compilation,
        async_scheduling=engine["async_scheduling"],
        enable_lora=engine["adapters"] > 0,
        max_loras=max(1, engine["adapters"]),
        specialize_active_lora=engine["specialized"],
        enable_dbo=engine["dual_batch_overlap"],
        # The one that overlap needs; nothing is sent.
        all2all_backend="deepep_low_latency",
    ).create_engine_config()
    mode = config.compilation_config.cudagraph_mode
    target = ModelCudaGraphManager(
        config,
        NOWHERE,
        mode,
        deepest + 1,
        varlen_decode=any_length,
        lora_capture_cases=get_lora_capture_cases(config.lora_config, config.compilation_config),
    )
    target._graphs_captured = True
    draft_first = SpeculatorCudaGraphManager(config, NOWHERE, mode, deepest + 1)
    draft_first._graphs_captured = True
    further_mode = CUDAGraphMode.FULL_DECODE_ONLY
    if mode.decode_mode() != FULL or deepest == 1:
        further_mode = CUDAGraphMode.NONE
    draft_further = SpeculatorCudaGraphManager(config, NOWHERE, further_mode, 1)
    draft_further.capture(*(None,) * 6, specialize_spec_tokens=bool(engine["schedule"]))
    GraphWatch.dispatched.clear()
    steps = [
        [
            Replay(target, draft_first, batch, depth, any_length=any_length)
            for depth in range(deepest + 1)
        ]
        for batch in engine["batches"]
    ]
    return Answer(
        runner="V2" if config.use_v2_model_runner else "V1",
        asynchronous=config.scheduler_config.async_scheduling,
        mode=mode.name,
        sizes=sorted(config.compilation_config.cudagraph_capture_sizes),
        max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
        default_max_num_seqs=EngineArgs.get_batch_defaults(1)[1][UsageContext.OPENAI_API_SERVER],
        target_full=count(target, FULL),
        target_piecewise=count(target, CUDAGraphMode.PIECEWISE),
        draft_full=count(draft_first, FULL) + count(draft_further, FULL),
        draft_piecewise=count(draft_first, CUDAGraphMode.PIECEWISE),
        replayed=[[step.of_target for step in row] for row in steps],
        strays=[[step.stray for step in row] for row in steps],
        counted=[(*each, times) for each, times in GraphWatch.dispatched.items()],
    )


def count(manager: CudaGraphManager, mode: CUDAGraphMode) -> int:
    return len(manager._capture_descs.get(mode, ()))


class Replay:
    """What one step gets, of target and draft."""

    def __init__(
        self,
        target: CudaGraphManager,
        draft: CudaGraphManager,
        batch: int,
        depth: int,
        *,
        any_length: bool,
    ) -> None:
        length = depth + 1
        uniform, longest = (None, length) if any_length else (length, None)
        graph = target.dispatch(batch, batch * length, uniform, 0, longest)
        self.of_target = str(graph.cg_mode.name)
        # As `propose` in spec_decode/target_dependent_ar/speculator.py asks: with padding.
        drafts = draft.dispatch(batch, graph.num_tokens, length, 0)
        self.stray = graph.cg_mode == CUDAGraphMode.PIECEWISE and drafts.cg_mode == FULL


def main() -> None:
    logging.disable(logging.CRITICAL)
    engines, answers = json.load(sys.stdin), []
    GraphWatch.watch()
    for accelerator in sys.argv[1:]:
        pretend(ACCELERATORS[accelerator])
        answers += [asdict(answer(engine)) for engine in engines]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
