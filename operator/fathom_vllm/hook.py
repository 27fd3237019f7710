"""The scheduler hook without vLLM: swaps the depth table, counts steps, and never raises."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from fathom_vllm.contexts import ContextSampling, CountedStep, SampledTokens, drafts_by_context
from fathom_vllm.counters import CountersWriter, counters_path, rank_path
from fathom_vllm.depth_file import DepthFile, DepthWatch, Ready
from fathom_vllm.environment import OWN_TABLE, STARTUP
from fathom_vllm.steps import (
    ClientOutputs,
    ScheduledStep,
    Stalls,
    StepsInFlight,
    count_step,
    observe_step,
)

MOST_ERRORS = 10
WITHIN_STEPS = 1000
"""So many errors in so many steps: this is not the vLLM the hook was written for, or not now."""
FIRST_REST_SECONDS = 60.0
LONGEST_REST_SECONDS = 3600.0
# A child of vLLM's own logger, so that the sentences appear in its log, in its format.
log = logging.getLogger("vllm.fathom")
_WATCH_CHECK_SECONDS = 1.0


class Fuse:
    """Counts errors against steps. Blown, it rests, and twice as long each time it blows again.

    A few errors in a long life are no reason to stop counting for good; an error in every step
    costs time in every step, and says so in the log each time it is tried again.
    """

    def __init__(self) -> None:
        self.blown = False
        self.rest_s = FIRST_REST_SECONDS
        """How long the last rest was or is."""
        self.steps = 0
        """Steps so far; whoever makes one adds it, without a call for it."""
        self._errors: deque[int] = deque(maxlen=MOST_ERRORS)
        """The steps of the last errors."""
        self._mended_at_step = -WITHIN_STEPS
        self._rests_until_s = 0.0

    @property
    def has_news(self) -> bool:
        """Whether the last error was the first one in a while."""
        return len(self._errors) == 1 or self._errors[-1] - self._errors[-2] >= WITHIN_STEPS

    def error(self, now_s: float) -> bool:
        """Count an error; True when this one blows the fuse."""
        self._errors.append(self.steps)
        many = len(self._errors) == MOST_ERRORS and self.steps - self._errors[0] < WITHIN_STEPS
        if self.blown or not many:
            return False
        again = self.steps - self._mended_at_step < WITHIN_STEPS
        self.rest_s = min(2 * self.rest_s, LONGEST_REST_SECONDS) if again else FIRST_REST_SECONDS
        self._rests_until_s = now_s + self.rest_s
        self.blown = True
        return True

    def mend(self, now_s: float) -> bool:
        """Whether the rest is over; then it is whole again."""
        if now_s < self._rests_until_s:
            return False
        self.blown = False
        self._errors.clear()
        self._mended_at_step = self.steps
        return True


class SchedulerHook:
    """Called around the scheduler's two methods. Every public method swallows its exceptions.

    Not thread-safe: it runs in the scheduler's thread and in no other, so a table never changes
    while a step is being scheduled. It reads no file there: `watch` does, in a thread of its own
    (`from_environment` starts it), or when its `look` is called.
    """

    def __init__(
        self,
        depth_file: DepthFile,
        counters: CountersWriter,
        engine_table: Sequence[int] | None,
        *,
        own_table: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Decide whether depth can be live.

        Args:
            depth_file: where the operator's document appears.
            counters: where steps are counted.
            engine_table: vLLM's own table (index = batch); None when the engine has none.
            own_table: whether that is in force without a document, with all its depths.
            clock: monotonic seconds.
        """
        self.watch: DepthWatch | None = None
        self.now = clock
        """The hook's clock. Not a method: that would be one more call in every step."""
        self._counters = counters
        self._steps = StepsInFlight()
        self._contexts = ContextSampling()
        self._stalls = Stalls()
        self._idle = True
        self._fuse = Fuse()
        self._in_force: Ready | None = None
        self._watch_checked_at_s = clock()
        if engine_table and len(engine_table) == counters.max_batch + 1:
            # Until a document says otherwise, the first depth of the startup schedule at every
            # batch: its later ranges only name depths for the engine to prepare. The user's own
            # depth is in the document, which lies there before the pod starts. A schedule that a
            # user wrote for its own sake is not flattened.
            flat = [engine_table[1]] * counters.max_batch
            startup = Ready(0, (0, *(engine_table[1:] if own_table else flat)))
            self.watch = DepthWatch(depth_file, counters, startup)
        else:
            log.warning(
                "Fathom: this engine has no depth table for batches up to %d (it was started "
                "without num_speculative_tokens_per_batch_size, with data parallelism, or is a "
                "version that builds it otherwise). Depth stays as it is; steps are counted.",
                counters.max_batch,
            )
        counters.set_live(live=self.watch is not None)

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str],
        *,
        max_batch: int,
        max_depth: int,
        engine_table: Sequence[int] | None,
        token_budget: int = 0,
        rank: int = 0,
    ) -> "SchedulerHook":
        """The hook as the pod's environment describes it, its depth file watched.

        Args:
            environ: the environment variables.
            max_batch: the engine's `max_num_seqs`.
            max_depth: the engine's `num_speculative_tokens`.
            engine_table: vLLM's own table, if it has one.
            token_budget: the engine's `max_num_batched_tokens`; 0: not known.
            rank: which of the pod's data-parallel engines this is.
        """
        path = rank_path(counters_path(environ), rank)
        try:
            counters = CountersWriter(
                path, max_batch=max_batch, max_depth=max_depth, token_budget=token_budget
            )
        except OSError as error:
            log.error(  # noqa: TRY400 - a full disk needs no traceback
                "Fathom: the counters' file %s cannot be made: %s. Depth follows the operator's "
                "document, but nothing is shown on /metrics (fathom_counters_shown is 0), so it is "
                "not tuned by this engine. Make space there (the volume shm holds what the engine "
                "shares between its processes), then replace the pod.",
                path,
                error,
            )
            counters = CountersWriter(None, max_batch=max_batch, max_depth=max_depth)
        depth_file = DepthFile.from_environment(environ, max_depth=max_depth)
        own_table = environ.get(STARTUP) == OWN_TABLE
        hook = cls(depth_file, counters, engine_table, own_table=own_table)
        if hook.watch is not None:
            hook.watch.start()
        return hook

    def before_schedule(self) -> Sequence[int] | None:
        """Begin a step.

        Returns:
            A table to put in force before this step is scheduled; None to leave what is there.
        """
        try:
            self._fuse.steps += 1
            watch = self.watch
            if (watch is None or watch.ready is self._in_force) and not self._fuse.blown:
                return None
            return self._begin()
        except Exception as error:  # noqa: BLE001 - nothing of ours may stop the engine
            self.failed(error)
            return None

    def after_schedule(self, step: ScheduledStep, began_at_s: float) -> None:
        """Remember when a step's scheduling began."""
        if self._fuse.blown:
            return
        try:
            self._steps.scheduled(step, began_at_s)
            if self._idle:
                self._set_idle(idle=False)
        except Exception as error:  # noqa: BLE001 - as above
            self.failed(error)

    def before_update(self, step: ScheduledStep, sampled: SampledTokens) -> CountedStep | None:
        """What `after_update` needs, and vLLM's own bookkeeping changes; None: nothing."""
        if self._fuse.blown:
            return None
        try:
            return self._contexts.begin(step, sampled)
        except Exception as error:  # noqa: BLE001 - as above
            self.failed(error)
            return None

    def after_update(
        self,
        step: ScheduledStep,
        outputs: Mapping[int, ClientOutputs],
        *,
        busy: bool,
        by_context: CountedStep | None = None,
    ) -> None:
        """Count a finished step; its time ends here.

        Args:
            step: the object given to `after_schedule`.
            outputs: what vLLM made of it, by client.
            busy: whether requests are left.
            by_context: what `before_update` returned of it.
        """
        if self._fuse.blown:
            return
        try:
            now_s = self.now()
            seconds = self._steps.ended(step, now_s, busy=busy)
            if seconds is not None:
                observed = observe_step(step, outputs)
                if observed is not None:
                    count_step(self._counters, observed, seconds, self._stalls)
            if by_context is not None:
                for index, sums in drafts_by_context(step, by_context, outputs).items():
                    self._counters.context(index, sums, steps=by_context.steps)
            if not busy:
                self._set_idle(idle=True)
            if self.watch is not None and now_s - self._watch_checked_at_s > _WATCH_CHECK_SECONDS:
                self._watch_checked_at_s = now_s
                self.watch.keep_looking()
            self._counters.hook_seconds(self.now() - now_s)
        except Exception as error:  # noqa: BLE001 - as above
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Count an exception of ours; many within few steps switch the hook off for a while."""
        self._counters.hook_error()
        blown = self._fuse.error(self.now())
        if self._fuse.has_news:
            log.error("Fathom: an error in the hook; the engine continues", exc_info=error)
        if not blown:
            return
        self._counters.set_live(live=False)
        log.error(
            "Fathom: too many errors, the hook is off for %.0f s. Depth stays as it is and steps "
            "are not counted meanwhile. The last one: %r",
            self._fuse.rest_s,
            error,
        )

    def _begin(self) -> Sequence[int] | None:
        if self._fuse.blown:
            if not self._fuse.mend(self.now()):
                return None
            self._resume()
        if self.watch is None or self.watch.ready is self._in_force:
            return None
        ready = self.watch.ready
        self._counters.set_generation(ready.generation, ready.schedule_hash)
        self._in_force = ready
        return ready.table

    def _resume(self) -> None:
        # Of the steps that were in flight, and when the last one ended, too little is known.
        self._steps = StepsInFlight()
        self._counters.set_live(live=self.watch is not None)
        log.warning("Fathom: the hook is on again after %.0f s", self._fuse.rest_s)

    def _set_idle(self, *, idle: bool) -> None:
        self._counters.set_idle(idle=idle)
        self._idle = idle
