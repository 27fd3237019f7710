"""The loop of one SpeculativeDeployment: gather, decide, plan, apply, report."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from fathom.adapters.ports import KubeError, MetricsPort
from fathom.api import names
from fathom.cluster.kinds import CONFIG_MAP, Kind, ObjectKey
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.engine.flags import HTTP_PORT
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef
from fathom.reconcile.checkpoint import with_kept
from fathom.reconcile.findings import findings_without_spec
from fathom.reconcile.holding import acted_upon
from fathom.reconcile.intent import models_of
from fathom.reconcile.loop_state import LoopState, Memo, TunerFailed
from fathom.reconcile.rollout_step import desired_state
from fathom.reconcile.status import status_of
from fathom.reconcile.status_input import Findings
from fathom.reconcile.step import (
    Intended,
    Observed,
    after_writes,
    begun,
    bench_event,
    concluded,
    found_of,
    intended,
    step,
    with_unread,
)
from fathom.reconcile.training import trained_models, with_trained_draft
from fathom.reconcile.tuning_input import tuned_pods
from fathom.reconcile.writes import Build
from fathom.resource import SpeculativeDeployment
from fathom.runtime.caches import ReadOnce
from fathom.runtime.gather import Doubt, read_metrics, read_objects
from fathom.runtime.loop import RESYNC_S, Loop
from fathom.runtime.ports import SHORTEST_SLEEP_S, World, look_at_fetch
from fathom.runtime.quality_check import QualityChecker
from fathom.validation.candidate import Cluster

LEFT_BEHIND_S: Final = 5.0
"""Until another look whether Kubernetes has removed what an earlier resource left."""
PATIENCE: Final = 3
"""Passes in a row that may find that they have looked too long ago, before people hear of it."""


class DeploymentLoop(Loop):
    """Reconciles one SpeculativeDeployment."""

    def __init__(
        self, key: ObjectKey, world: World, steady_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(key, world, steady_s)
        self._build = Build(bundle=world.bundle, program=world.program, intake=world.intake)
        self._quality = QualityChecker(world.completions, self.wake)
        self._state: LoopState | None = None
        self._metrics: MetricsPort | None = None
        """What read the last look: kept, so that its connections and its login are."""
        self._memo = Memo()
        self._read_once = ReadOnce()

    @property
    def state(self) -> LoopState | None:
        return self._state

    async def stop(self) -> None:
        """No pass comes any more."""
        await self._quality.stop()

    async def _pass(self) -> float | None:
        now_s = self._world.clock.now_s()
        objects = await self._look(now_s)
        if objects is None:
            self._forget()
            self._state = None
            return None
        if objects.metadata.deletion_timestamp is not None:
            # Its children go with it. Whatever was done now would be done against that.
            self._state = self._state and begun(self._state, objects, now_s)
            return RESYNC_S
        state = self._state = begun(self._state, objects, now_s)
        objects = with_trained_draft(objects, state.checkpoint.training)
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
        await self._reporter.emit_losses(objects, lost, names.tuning_config_map(self.key.name))
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
        self._world.telemetry.reference(self.key, decision.state.reference)
        if decided.needs_read:
            self._stale, self._doubt = True, Doubt.PODS
            return 0.0
        events = (*observed.desired.events, *decided.training.events)
        await self._reporter.emit(events, objects)
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
        findings = found_of(conclusion, observed, came, decided)
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
        status = status_of(findings, objects, state.said.written)
        self._reporter.show(
            status,
            objects,
            document=findings.document,
            tuner=state.tuner,
            now_s=findings.now_s,
        )
        self._state, wait_s, events = await self._performer.report(
            state, status, objects, findings.now_s
        )
        await self._reporter.emit(events, objects)
        return wait_s

    async def _observe(
        self, found: Intended, wanted: SpeculativeDeployment, objects: Objects
    ) -> tuple[LoopState, Observed]:
        """Measure what the step goes by."""
        spec, namespace = wanted.spec.metrics, objects.metadata.namespace
        self._metrics = self._world.metrics_for(spec, namespace)
        sample = await read_metrics(self._metrics, objects.leaders, port=HTTP_PORT)
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
            tuner=state.tuner,
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
        if self._trusts(known, now_s):
            return known
        doubt = self._begin_read()
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
            if not self._gone_with_its_role(error):
                raise
            return None

    async def _models(self, objects: Objects, state: LoopState) -> Mapping[ModelRef, ModelFacts]:
        """What is known of all models in use; when that changes, the loop is woken."""
        refs = models_of(objects.resource, state.checkpoint)
        found = {ref: await self._world.models(ref, self.wake) for ref in refs}
        kept = {**trained_models(state.checkpoint.training), **state.checkpoint.models}
        return with_kept(found, kept)
