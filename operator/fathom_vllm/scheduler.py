"""The scheduler for `--scheduler-cls`: vLLM's own, with the hook around its two methods."""

import os
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from fathom_vllm.hook import SchedulerHook, log


class LiveDepthScheduler(AsyncScheduler):  # type: ignore[misc] # vLLM is not installed where mypy runs
    """vLLM's asynchronous scheduler, whose depth table follows a file between two steps.

    A subclass of AsyncScheduler, since any other turns asynchronous scheduling off. Serving never
    depends on the hook: where it cannot be built or fails, this is AsyncScheduler.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fathom: SchedulerHook | None = None
        try:
            self._fathom = self._build_hook()
            table = self._fathom.before_schedule()
            if table is not None:
                self.dynamic_sd_lookup = table
        except Exception:  # noqa: BLE001 - an engine without the hook still serves
            log.exception("Fathom: the hook cannot be built; depth stays as it is")

    def _build_hook(self) -> SchedulerHook:
        # Several engines in one pod (data parallelism) count into a file each. The index, since
        # engines of a model without experts are told that each of them is the only one.
        rank = getattr(self.vllm_config.parallel_config, "data_parallel_index", 0)
        return SchedulerHook.from_environment(
            os.environ,
            rank=rank,
            max_batch=self.scheduler_config.max_num_seqs,
            max_depth=self.num_spec_tokens,
            token_budget=getattr(self.scheduler_config, "max_num_batched_tokens", 0) or 0,
            engine_table=getattr(self, "dynamic_sd_lookup", None),
        )

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Put a new depth table in force, if there is one, and schedule the step with it."""
        hook = self._fathom
        if hook is None:
            return super().schedule(*args, **kwargs)
        began_at = hook.now()
        table = hook.before_schedule()
        if table is not None:
            self.dynamic_sd_lookup = table
        output = super().schedule(*args, **kwargs)
        hook.after_schedule(output, began_at)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Count the step by what vLLM's own bookkeeping found."""
        hook = self._fathom
        if hook is None:
            return super().update_from_output(scheduler_output, model_runner_output)
        by_context = hook.before_update(scheduler_output, model_runner_output)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        try:
            busy = self.has_unfinished_requests()
            hook.after_update(scheduler_output, outputs, busy=busy, by_context=by_context)
        except Exception as error:  # noqa: BLE001 - a version without this method
            hook.failed(error)
        return outputs
