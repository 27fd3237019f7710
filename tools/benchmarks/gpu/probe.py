"""Schedulers that write down every step, and which CUDA graph it got. Loaded by vLLM.

`Live` is Fathom's scheduler and `Stock` is vLLM's own; both carry the same recorder, so that its
cost is on both sides of a comparison. With one GPU the model runner lives in the scheduler's
process, where its graph managers can be watched. Nothing is replaced, only counted. What is read of
vLLM here is 0.32's and 0.33's.
"""

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, Final

from vllm.compilation.counter import compilation_counter
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager, ModelCudaGraphManager

from benchmarks.gpu.records import (
    DIRECTORY_VARIABLE,
    GRAPHS_FILE,
    STEPS_FILE,
    Dispatched,
    GraphUse,
    RecordedStep,
)
from fathom_vllm.scheduler import LiveDepthScheduler

_WRITE_SECONDS: Final = 0.1
"""Between two looks at what was counted that others may take."""
_MOST_IN_FLIGHT: Final = 64


class GraphWatch:
    """What the target's graph manager was asked and replayed, in this process."""

    dispatched: ClassVar[Counter[Dispatched]] = Counter()
    replays = 0
    _watching = False

    @classmethod
    def watch(cls) -> None:
        """Count from now on. Idempotent."""
        if cls._watching:
            return
        cls._watching = True
        dispatch, replay = CudaGraphManager.dispatch, ModelCudaGraphManager.run_fullgraph

        def dispatch_counted(
            manager: Any, requests: int, tokens: int, length: int | None, *more: Any, **named: Any
        ) -> Any:
            found = dispatch(manager, requests, tokens, length, *more, **named)
            if length is not None and isinstance(manager, ModelCudaGraphManager):
                cls.dispatched[Dispatched(requests, length - 1, found.cg_mode.name)] += 1
            return found

        def replay_counted(manager: Any, graph: Any) -> Any:
            cls.replays += 1
            return replay(manager, graph)

        CudaGraphManager.dispatch = dispatch_counted
        ModelCudaGraphManager.run_fullgraph = replay_counted

    @classmethod
    def use(cls, config: Any) -> GraphUse:
        """So far."""
        compilation = config.compilation_config
        return GraphUse(
            runner="V2" if config.use_v2_model_runner else "V1",
            mode=compilation.cudagraph_mode.name,
            sizes=tuple(sorted(compilation.cudagraph_capture_sizes or ())),
            captured=compilation_counter.num_cudagraph_captured,
            dispatched=dict(cls.dispatched),
            replays=cls.replays,
        )


class StepRecorder:
    """Writes steps into the directory that the environment names."""

    def __init__(self, config: Any) -> None:
        """Begin an empty file.

        Args:
            config: vLLM's, whole.
        """
        GraphWatch.watch()
        self._config = config
        self._directory = Path(os.environ[DIRECTORY_VARIABLE])
        self._file = (self._directory / STEPS_FILE).open("wb")
        self._scheduled_at_s: dict[int, float] = {}
        self._written_at_s = 0.0

    def scheduled(self, step: Any) -> None:
        """Remember when a step was scheduled."""
        if len(self._scheduled_at_s) > _MOST_IN_FLIGHT:
            self._scheduled_at_s.clear()
        self._scheduled_at_s[id(step)] = time.perf_counter()

    def ended(self, step: Any, *, idle: bool) -> None:
        """Write down a step that has ended."""
        now_s = time.perf_counter()
        scheduled_at_s = self._scheduled_at_s.pop(id(step), now_s)
        if step.num_scheduled_tokens:
            self._file.write(described(step, scheduled_at_s, now_s).packed())
        if idle or now_s - self._written_at_s > _WRITE_SECONDS:
            self._written_at_s = now_s
            self.flush()

    def flush(self) -> None:
        """Let others read what there is."""
        self._file.flush()
        new = self._directory / f"{GRAPHS_FILE}.new"
        new.write_text(GraphWatch.use(self._config).to_json(), encoding="utf-8")
        new.replace(self._directory / GRAPHS_FILE)


def described(step: Any, scheduled_at_s: float, ended_at_s: float) -> RecordedStep:
    """A step that vLLM scheduled."""
    drafted = step.scheduled_spec_decode_tokens
    new = {request.req_id for request in step.scheduled_new_reqs}
    verified = [
        drafts
        for request, tokens in step.num_scheduled_tokens.items()
        if tokens == (drafts := len(drafted.get(request, ()))) + 1 and request not in new
    ]
    return RecordedStep(
        scheduled_at_s=scheduled_at_s,
        ended_at_s=ended_at_s,
        batch=len(step.num_scheduled_tokens),
        drafting=step.num_spec_tokens_to_schedule,
        least=min(verified, default=-1),
        most=max(verified, default=-1),
        plain=len(verified) == len(step.num_scheduled_tokens),
    )


class _Recording(AsyncScheduler):  # type: ignore[misc] # vLLM is not installed where mypy runs
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._recorder = StepRecorder(self.vllm_config)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        step = super().schedule(*args, **kwargs)
        self._recorder.scheduled(step)
        return step

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        idle = not self.has_unfinished_requests()
        self._recorder.ended(scheduler_output, idle=idle)
        return outputs


class Live(_Recording, LiveDepthScheduler):
    """Fathom's, recorded."""


class Stock(_Recording):
    """vLLM's own, recorded."""
