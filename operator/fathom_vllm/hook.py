"""The scheduler hook without vLLM: swaps the depth table, counts steps, and never raises."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from fathom_vllm.counters import CountersWriter, counters_path
from fathom_vllm.depth_file import Adopted, DepthFile
from fathom_vllm.schedule import depth_table
from fathom_vllm.steps import (
    RequestState,
    ScheduledStep,
    Step,
    StepClock,
    count_step,
    observe_step,
)

# A child of vLLM's own logger, so that the sentences appear in its log, in its format.
log = logging.getLogger("vllm.fathom")

POLL_SECONDS = 0.25
MOST_ERRORS = 10
"""So many exceptions switch the hook off: this is not the vLLM it was written for."""


class SchedulerHook:
    """Called around the scheduler's two methods. Every public method swallows its exceptions.

    Not thread-safe: it runs in the scheduler's thread and in no other, so a table never changes
    while a step is being scheduled.
    """

    def __init__(
        self,
        depth_file: DepthFile,
        counters: CountersWriter,
        engine_table: Sequence[int] | None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Decide whether depth can be live.

        Args:
            depth_file: where the operator's document appears.
            counters: where steps are counted.
            engine_table: vLLM's own table (index = batch); None when the engine has none.
            clock: monotonic seconds.
        """
        self._file = depth_file
        self._counters = counters
        self._clock = clock
        self._steps = StepClock()
        self._observed: Step | None = None
        self._errors = 0
        self._counting = True
        self._poll_at = 0.0
        self._pending: list[int] | None = None
        self._live = bool(engine_table) and len(engine_table or ()) == counters.max_batch + 1
        counters.set_live(live=self._live)
        if not self._live or engine_table is None:
            log.warning(
                "Fathom: this engine has no depth table for %d requests (it was started without "
                "num_speculative_tokens_per_batch_size, with data parallelism, or is a version "
                "that builds it otherwise). Depth stays as it is; steps are counted.",
                counters.max_batch,
            )
            return
        # Until a document says otherwise, the startup schedule's first range: it is the user's own
        # depth, while its later ranges only name depths for the engine to prepare.
        self._pending = [0] + [engine_table[1]] * counters.max_batch
        self._guard(self._poll)

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str],
        *,
        max_batch: int,
        max_depth: int,
        engine_table: Sequence[int] | None,
        shown: bool = True,
    ) -> "SchedulerHook":
        """The hook as the pod's environment describes it.

        Args:
            environ: the environment variables.
            max_batch: the engine's `max_num_seqs`.
            max_depth: the engine's `num_speculative_tokens`.
            engine_table: vLLM's own table, if it has one.
            shown: whether this engine's counters go to the file that `/metrics` shows.
        """
        path = counters_path(environ) if shown else None
        try:
            counters = CountersWriter(path, max_batch=max_batch, max_depth=max_depth)
        except OSError as error:
            log.warning("Fathom: nothing will be shown on /metrics, %s: %s", path, error)
            counters = CountersWriter(None, max_batch=max_batch, max_depth=max_depth)
        depth_file = DepthFile.from_environment(environ, max_depth=max_depth)
        return cls(depth_file, counters, engine_table)

    def before_schedule(self) -> list[int] | None:
        """Look at the depth file now and then.

        Returns:
            A table to put in force before this step is scheduled; None to leave what is there.
        """
        if not self._live:
            return None
        self._guard(self._poll_now_and_then)
        table, self._pending = self._pending, None
        return table

    def after_schedule(self, step: ScheduledStep, began_at: float) -> None:
        """Remember when a step's scheduling began."""
        if self._counting:
            self._guard(self._remember, step, began_at)

    def before_update(
        self,
        step: ScheduledStep,
        sampled: Sequence[Sequence[int]],
        index: Mapping[str, int],
        requests: Mapping[str, RequestState],
    ) -> None:
        """Observe a finished step, before vLLM cuts and frees what it is made of."""
        if self._counting:
            self._guard(self._observe, step, sampled, index, requests)

    def after_update(self, step: ScheduledStep, *, busy: bool) -> None:
        """Count the observed step; its time ends here."""
        if self._counting:
            self._guard(self._count, step, busy)

    def now(self) -> float:
        """The hook's clock, in seconds."""
        return self._clock()

    def failed(self, error: Exception) -> None:
        """Count an exception of ours; say it once, and stop at `MOST_ERRORS`."""
        self._errors += 1
        self._counters.hook_error()
        if self._errors == 1:
            log.error("Fathom: an error in the hook; the engine goes on", exc_info=error)
        if self._errors == MOST_ERRORS:
            self._live = self._counting = False
            self._counters.set_live(live=False)
            log.error(
                "Fathom: %d errors, the hook is off until the engine restarts. Depth stays as it "
                "is and steps are no longer counted. The last one: %r",
                MOST_ERRORS,
                error,
            )

    def _guard(self, act: Callable[..., None], *arguments: object) -> None:
        try:
            act(*arguments)
        except Exception as error:  # noqa: BLE001 - nothing of ours may stop the engine
            self.failed(error)

    def _poll_now_and_then(self) -> None:
        now = self._clock()
        if now >= self._poll_at:
            self._poll()
        self._counters.hook_seconds(self._clock() - now)

    def _poll(self) -> None:
        self._poll_at = self._clock() + POLL_SECONDS
        found = self._file.poll()
        if found is None:
            return
        if not isinstance(found, Adopted):
            self._counters.reject_document()
            log.warning("Fathom: %s. The depth table in force stays.", found.sentence)
            return
        self._pending = depth_table(found.document.schedule, self._counters.max_batch)
        self._counters.set_generation(found.document.generation)
        log.info(
            "Fathom: generation %d in force, schedule %s",
            found.document.generation,
            [list(entry) for entry in found.document.schedule],
        )

    def _remember(self, step: ScheduledStep, began_at: float) -> None:
        self._steps.scheduled(step, began_at)
        self._counters.set_idle(idle=False)

    def _observe(
        self,
        step: ScheduledStep,
        sampled: Sequence[Sequence[int]],
        index: Mapping[str, int],
        requests: Mapping[str, RequestState],
    ) -> None:
        began_at = self._clock()
        self._observed = None
        self._observed = observe_step(step, sampled, index, requests, self._counters.max_depth)
        self._counters.hook_seconds(self._clock() - began_at)

    def _count(self, step: ScheduledStep, busy: bool) -> None:  # noqa: FBT001 - called through the guard
        now = self._clock()
        seconds = self._steps.ended(step, now, busy=busy)
        observed, self._observed = self._observed, None
        if observed is not None:
            count_step(self._counters, observed, seconds)
        if not busy:
            # The next step is scheduled only after a look at the file, however soon it comes: the
            # other process relies on that when it shows the generation of an idle engine.
            self._poll_at = 0.0
            self._counters.set_idle(idle=True)
        self._counters.hook_seconds(self._clock() - now)
