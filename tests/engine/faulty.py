"""A scheduler whose hook fails on every step; lies on the engine's PYTHONPATH in a test."""

from typing import Any

from fathom_vllm.hook import SchedulerHook
from fathom_vllm.scheduler import LiveDepthScheduler


class FaultyHook(SchedulerHook):
    """Fails where vLLM has changed under it."""

    @property
    def _steps(self) -> Any:
        raise AttributeError("not one of the arguments is as expected")


class FaultyScheduler(LiveDepthScheduler):
    """The scheduler with that hook."""

    def _build_hook(self) -> SchedulerHook:
        hook = super()._build_hook()
        hook.__class__ = FaultyHook
        return hook


class HooklessScheduler(LiveDepthScheduler):
    """The scheduler on a vLLM for which no hook can be built."""

    def _build_hook(self) -> SchedulerHook:
        raise AttributeError("max_num_seqs")
