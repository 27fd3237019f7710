"""The loop of one SpeculativeDeployment: gather, decide, plan, apply, report, sleep.

Level-triggered: a pass looks at what is there and moves it toward what should be there. What woke
it does not matter, and a pass that is cut off anywhere is continued by the next.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from fathom.adapters.ports import KubeError, MetricsPort
from fathom.api import names
from fathom.cluster.kinds import CONFIG_MAP, Kind, ObjectKey
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.model_facts import ModelFacts, ModelRef
from fathom.reconcile.checkpoint import with_kept
from fathom.reconcile.findings import findings_without_spec
from fathom.reconcile.holding import acted_upon
from fathom.reconcile.intent import models_of
from fathom.reconcile.loop_state import LoopState, Memo
from fathom.reconcile.rollout_step import desired_state
from fathom.reconcile.status_input import Findings
from fathom.reconcile.step import (
    Intended,
    Observed,
    TunerFailed,
    after_writes,
    begun,
    bench_event,
    concluded,
    found_of,
    intended,
    step,
    with_unread,
)
from fathom.reconcile.tuning_input import tuned_pods
from fathom.reconcile.writes import Build
from fathom.resource import SpeculativeDeployment
from fathom.runtime.caches import ReadOnce
from fathom.runtime.gather import Doubt, read_metrics, read_objects
from fathom.runtime.ports import SHORTEST_SLEEP_S, Pace, World, look_at_fetch
from fathom.runtime.quality_check import QualityChecker
from fathom.runtime.reporter import Performer, Reporter
from fathom.runtime.writer import Writer
from fathom.times import Backoff, is_over
from fathom.validation.candidate import Cluster

RESYNC_S: Final = 60.0
"""The longest sleep, and the longest that a look at the cluster is trusted without a sign."""
LONGEST_BACKOFF_S: Final = 300.0
LEFT_BEHIND_S: Final = 5.0
"""Until another look whether Kubernetes has removed what an earlier resource left."""
PATIENCE: Final = 3
"""Passes in a row that may find that they have looked too long ago, before people hear of it."""

_log: Final = structlog.get_logger(__name__)


class Loop:
    """Reconciles one SpeculativeDeployment. One pass at a time; nothing else writes for it."""

    def __init__(
        self, key: ObjectKey, world: World, steady_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.key = key
        self._world = world
        self._writer = Writer(world.kube, world.children, key, world.telemetry)
        self._reporter = Reporter(world, self._writer)
        self._performer = Performer(world, self._writer, self._reporter)
        self._build = Build(bundle=world.bundle, program=world.program)
        self._quality = QualityChecker(world.completions, self.wake)
        self._state: LoopState | None = None
        self._metrics: MetricsPort | None = None
        """What read the last look: kept, so that its connections and its login are."""
        self._memo = Memo()
        self._read_once = ReadOnce()
        self._failures = 0
        self._woken = asyncio.Event()
        self._stale = True
        self._doubt = Doubt.NOTHING
        """What of what watches have told will not do for the next look."""
        self._deleted = False
        """Whether the resource is gone, by the last that was heard of it."""
        self.edited = False
        """Whether somebody waits for the next pass."""
        self._log = _log.bind(namespace=key.namespace, name=key.name)
        self._steady_s = steady_s
        self.due_s = steady_s()
        """When the next pass should have begun, for the liveness probe; by the clock that sleeps go
        by: one that is set would make all overdue at once."""

    @property
    def failing(self) -> bool:
        """Whether the last pass could not be finished."""
        return self._failures > 0

    @property
    def stale(self) -> bool:
        """Whether it was woken since it last looked at the cluster, or could not look."""
        return self._stale

    def wake(self) -> None:
        """Something may have moved: look again, soon."""
        self._stale = True
        self._woken.set()

    def told(self, generation: int, annotations: Mapping[str, str], version: str) -> bool:
        """The resource is there: look again, soon, unless our own status brought this version.

        Returns:
            Whether somebody waits: it was edited since it was acted upon, or asks for something
            else than at the last look.
        """
        state, self._deleted = self._state, False
        if state is not None:
            if version == state.said.version:
                return self.edited
            self.edited |= state.is_edit(generation, annotations)
            # It will be followed by writes, which are not decided on what watches have told.
            if self.edited and self._doubt is Doubt.NOTHING:
                self._doubt = Doubt.PODS
        self.wake()
        return self.edited

    def told_deleted(self) -> None:
        """The resource was deleted: look whether it is gone, soon."""
        self._deleted = True
        self.wake()

    async def sleep(self, delay_s: float, pace: Pace) -> None:
        """Until the next pass is due.

        Args:
            delay_s: in seconds, unless it is woken.
            pace: of passes, where it is woken.
        """
        loop = asyncio.get_running_loop()
        soonest_s = loop.time() + pace.apart_s
        try:
            # Not `wait_for`: before Python 3.12 it may swallow a cancellation that comes together
            # with what wakes it, and the loop would never end.
            async with asyncio.timeout(delay_s):
                await self._woken.wait()
            await asyncio.sleep(max(pace.settle_s, soonest_s - loop.time()))
        except TimeoutError:
            pass

    async def stop(self) -> None:
        """No pass comes any more."""
        await self._quality.stop()

    async def tick(self) -> float | None:
        """One pass; whatever goes wrong in it stays in it.

        Returns:
            Seconds until the next one; None: the resource is gone.
        """
        try:
            with self._world.telemetry.timed():
                delay = await self._pass()
        except KubeError as error:
            self._log.warning("pass not finished", error=error.message, status=error.status)
            # Where reads are old, no watch tells when they are current again.
            delay = self._failed(RESYNC_S if error.outdated else LONGEST_BACKOFF_S)
        except Exception as error:  # noqa: BLE001  # the last resort, logged with its traceback
            # One resource's bug must neither stop the others nor spin.
            self._log.exception("pass failed")
            objects = self._state.objects if self._state else None
            if self._failures == 0 and objects is not None:
                await self._reporter.emit_crash(error, objects)
            delay = self._failed()
        self.due_s = self._steady_s() + (delay or 0)
        return delay

    async def _pass(self) -> float | None:
        now_s = self._world.clock.now_s()
        objects = await self._look(now_s)
        if objects is None:
            self._world.telemetry.forget(self.key)
            self._world.shown.forget(self.key)
            self._state = None
            return None
        if objects.metadata.deletion_timestamp is not None:
            # Its children go with it. Whatever was done now would be done against that.
            self._state = self._state and begun(self._state, objects, now_s)
            return RESYNC_S
        state = self._state = begun(self._state, objects, now_s)
        generation = objects.metadata.generation
        newest = acted_upon(objects, state.checkpoint, state.generation)
        if generation < newest:
            self._log.warning("older than what was acted upon", read=generation, acted_upon=newest)
            if self._failures == PATIENCE:
                await self._reporter.emit_old_read(generation, newest, objects)
            # No watch tells that reads are current again, and until then nothing is looked after.
            return self._failed(RESYNC_S)
        lost = state.checkpoint.lost
        state = self._state = state.acting_upon(generation, objects.metadata.annotations)
        await self._reporter.emit_losses(objects, lost)
        models = await self._models(objects, state)
        cluster = Cluster(served=await self._world.served(), usable=objects.optional)
        found = intended(state, objects, models, cluster, memo=self._memo, now_s=now_s)
        self._state = found.state
        if found.intent.wanted is not None:
            return await self._carry_on(found, found.intent.wanted, objects)
        self._state = await self._performer.keep(found.state, objects, now_s)
        findings = findings_without_spec(found.intent, objects, self._state, now_s)
        return min(RESYNC_S, await self._report(self._state, findings, objects))

    async def _carry_on(
        self, found: Intended, wanted: SpeculativeDeployment, objects: Objects
    ) -> float:
        state, observed = await self._observe(found, wanted, objects)
        decided = step(state, observed, self._world.decide, build=self._build, memo=self._memo)
        if isinstance(decided, TunerFailed):
            self._state = decided.state
            raise decided.error
        decision, now_s = decided.decision, observed.snapshot.now_s
        self._world.telemetry.decided(self.key, decision.action, decision.reason)
        self._world.telemetry.alarms(self.key, [each.kind for each in decision.alarms])
        if decided.needs_read:
            self._stale, self._doubt = True, Doubt.PODS
            return 0.0
        await self._reporter.emit(observed.desired.events, objects)
        outcome = await self._writer.carry_out(decided.operations.tried)
        self._state, came = after_writes(decided, outcome, objects, now_s)
        if outcome.raised is not None:
            raise outcome.raised
        await self._reporter.emit(bench_event(came), objects)
        self._state = await self._performer.follow(self._state, came, objects)
        fetch = await look_at_fetch(
            self._world.fetches, observed.desired.weights, objects, self._state.fetch
        )
        conclusion = concluded(self._state, observed, decision, came, fetch)
        self._state = conclusion.state
        await self._reporter.emit(conclusion.events, objects)
        if came.outcome.outdated and self._failures < PATIENCE:
            # What could be said now is about a cluster that is another one already.
            self._log.info("reconciles again", refusals=came.refusals)
            return self._failed()
        findings = found_of(conclusion, observed, came, decision)
        until_report_s = await self._report(conclusion.state, findings, objects)
        if came.outcome.broke_off is not None:
            # The API server answers, so what it does not take shall not keep the tuner waiting.
            return self._failed(RESYNC_S)
        self._failures = 0
        if came.goes_on:
            # No watch wakes it for what it has made or changed itself.
            return SHORTEST_SLEEP_S
        if any(each.left_behind for each in came.writes.taken):
            return LEFT_BEHIND_S
        wakes_s = min(RESYNC_S, conclusion.wake_after_s, until_report_s)
        return max(SHORTEST_SLEEP_S, wakes_s)

    async def _report(self, state: LoopState, findings: Findings, objects: Objects) -> float:
        """Seconds after which the status should be written; infinity: it says nothing new."""
        self._state, wait_s, events = await self._performer.report(state, findings, objects)
        await self._reporter.emit(events, objects)
        return wait_s

    async def _observe(
        self, found: Intended, wanted: SpeculativeDeployment, objects: Objects
    ) -> tuple[LoopState, Observed]:
        """Measure what the step goes by."""
        spec, namespace = wanted.spec.metrics, objects.metadata.namespace
        self._metrics = self._world.metrics_for(spec, namespace)
        sample = await read_metrics(self._metrics, objects.leaders)
        snapshot = Snapshot(
            now_s=self._world.clock.now_s(),
            objects=objects,
            counters={each.pod: each for each in sample.counters},
            metrics_failures=sample.failures,
            served=await self._world.served(),
        )
        state = self._state = with_unread(found.state, snapshot)
        self._reporter.log_unread(found.state.unread, state.unread, objects)
        desired = desired_state(
            found.intent,
            wanted,
            snapshot,
            checkpoint=state.checkpoint,
            hold=found.hold,
            windows=state.windows,
            document_written_at_s=state.document_written_at_s,
            bundle=self._world.bundle,
            renderings=self._memo.renderings,
        )
        pods = tuned_pods(objects, desired)
        checked = desired.stable or desired.sd
        quality = await self._quality.advance(snapshot, pods, checked, live=desired.live)
        return state, Observed(
            intent=found.intent,
            desired=desired.with_quality(quality),
            snapshot=snapshot,
            pods=pods,
            quality=quality.status,
        )

    async def _look(self, now_s: float) -> Objects | None:
        known = self._state.objects if self._state else None
        if known and not self._stale and not is_over(known.read_at_s, RESYNC_S, now_s):
            return known
        # Before the read: what wakes it while it runs, it may have missed.
        doubt, self._doubt = self._doubt, Doubt.NOTHING
        self._stale = self.edited = False
        self._woken.clear()
        also = self._state.unlisted if self._state else frozenset[tuple[Kind, str]]()
        if self._state is None or doubt is Doubt.PODS:
            # What was decided, by a former operator, too, of which a watch may have missed the last
            # word. And a server that shows pods as they were long ago shows this as it was then, so
            # that the record of a step, which comes first, is refused, and the step with it.
            also |= {(CONFIG_MAP, names.tuning_config_map(self.key.name))}
        try:
            return await read_objects(
                self._world,
                self.key,
                also=also,
                doubt=doubt,
                read_once=self._read_once,
                before=known,
            )
        except KubeError as error:
            # As when the operator's Role goes together with the namespace. By itself a 403 may be
            # that of a server that is being upgraded.
            if not (self._deleted and error.forbidden):
                raise
            return None

    async def _models(self, objects: Objects, state: LoopState) -> Mapping[ModelRef, ModelFacts]:
        """What is known of all models in use; when that changes, the loop is woken."""
        refs = models_of(objects.resource, state.checkpoint)
        found = {ref: await self._world.models(ref, self.wake) for ref in refs}
        return with_kept(found, state.checkpoint.models)

    def _failed(self, longest_s: float = LONGEST_BACKOFF_S) -> float:
        """Count a failure; seconds until the next try, doubling up to the longest."""
        self._world.telemetry.failed(self.key)
        self._stale, self._doubt = True, Doubt.ALL
        self._failures += 1
        return Backoff(longest_s=longest_s).after(self._failures)
