"""A scheduler whose hook fails on every step; lies on the engine's PYTHONPATH in a test."""

from typing import Any

from fathom_vllm.hook import SchedulerHook
from fathom_vllm.scheduler import LiveDepthScheduler


class FaultyHook(SchedulerHook):
    """Fails where vLLM has changed under it."""

    def _count(self, *arguments: Any, **named: Any) -> None:
        raise AttributeError(f"{len(arguments) + len(named)} arguments, and not one as expected")


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
