"""The loop of one SpeculationTuner: read, sample, decide, write, report."""

import asyncio
import time
from collections.abc import Callable
from typing import cast

from fathom.adapters.ports import KubeError, MetricsPort, Sample
from fathom.api import names
from fathom.api.tuner import SpeculationTunerStatus
from fathom.attach.status import status_of, status_of_refused
from fathom.attach.step import (
    Found,
    TunerState,
    after_writes,
    begun,
    found_of,
    step,
)
from fathom.cluster.kinds import CONFIG_MAP, POD, SPECULATION_TUNER, ObjectKey
from fathom.cluster.manifest import Manifest, Meta, place_of
from fathom.cluster.observed import ObservedConfigMap
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.ownership import ours
from fathom.cluster.snapshot import SelectedObjects, status_in
from fathom.engine.depth import DepthDocument
from fathom.reconcile.loop_state import TunerFailed
from fathom.resource import SpeculationTuner, known_part_of_tuner, parse_tuner
from fathom.runtime.caches import ReadOnce
from fathom.runtime.gather import observed, read_metrics
from fathom.runtime.loop import RESYNC_S, Loop
from fathom.runtime.ports import SHORTEST_SLEEP_S, World
from fathom_vllm.environment import DEPTH_KEY


class TunerLoop(Loop):
    """Reconciles one SpeculationTuner."""

    def __init__(
        self, key: ObjectKey, world: World, steady_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(key, world, steady_s)
        self._state: TunerState | None = None
        self._metrics: MetricsPort | None = None
        """What read the last sample: kept, so that its connections and its login are."""
        self._read_once = ReadOnce()

    @property
    def state(self) -> TunerState | None:
        return self._state

    async def stop(self) -> None:
        """No pass comes any more."""

    async def _pass(self) -> float | None:
        now_s = self._world.clock.now_s()
        known = self._state.objects if self._state else None
        objects = await self._read(now_s)
        if objects is None:
            self._forget()
            self._state = None
            return None
        state = self._state = begun(self._state, objects, now_s)
        if objects.metadata.deletion_timestamp is not None:
            # Its document goes with it, and engines go back to the user's own depth.
            return RESYNC_S
        lost, metadata = state.lost, objects.metadata
        state = self._state = state.acting_upon(metadata.generation, metadata.annotations)
        await self._reporter.emit_losses(objects, lost, names.tuner_state_config_map(self.key.name))
        tuner = objects.tuner
        if not isinstance(tuner, SpeculationTuner):
            status = status_of_refused(tuner, objects, state, now_s)
            return min(RESYNC_S, await self._report(state, status, objects, objects.depth))
        metrics = tuner.spec.metrics
        self._metrics = self._world.metrics_for(metrics, metadata.namespace)
        sample = await read_metrics(self._metrics, objects.leaders, port=metrics.port)
        if sample.failures and objects is known:
            # No watch tells which pods are gone.
            self._stale = True
            return 0.0
        return await self._carry_on(state, self._found(state, tuner, objects, sample))

    def _found(
        self, state: TunerState, tuner: SpeculationTuner, objects: SelectedObjects, sample: Sample
    ) -> Found:
        now_s = self._world.clock.now_s()
        before, pods = state.unread, {pod.name for pod in objects.leaders}
        self._state = state.with_unread(sample.failures, pods, now_s)
        self._reporter.log_unread(before, self._state.unread, objects)
        return found_of(tuner, objects, sample.counters, sample.failures, now_s=now_s)

    async def _carry_on(self, state: TunerState, found: Found) -> float:
        objects = found.objects
        decided = step(self._state or state, found, self._world.decide)
        if isinstance(decided, TunerFailed):
            self._state = decided.state
            raise decided.error
        decision = decided.decision
        if decision is not None:
            self._world.telemetry.decided(self.key, decision.action, decision.reason)
            self._world.telemetry.alarms(self.key, [each.kind for each in decision.alarms])
            self._world.telemetry.reference(self.key, decision.state.reference)
        outcome = await self._writer.carry_out(decided.operations.tried)
        self._state, came = after_writes(decided, outcome, found)
        if outcome.raised is not None:
            raise outcome.raised
        await self._performer.nudge(came.nudges)
        if came.document is not None:
            self._world.telemetry.depth(self.key, came.document)
        await self._reporter.emit(came.events, objects)
        status = status_of(found, decided, came, self._state)
        until_report_s = await self._report(self._state, status, objects, came.document)
        if outcome.broke_off is not None:
            return self._failed(RESYNC_S)
        self._failures = 0
        wake_after_s = decision.wake_after_s if decision is not None else RESYNC_S
        wakes_s = min(RESYNC_S, wake_after_s, came.retry_after_s, until_report_s)
        return max(SHORTEST_SLEEP_S, wakes_s)

    async def _report(
        self,
        state: TunerState,
        status: SpeculationTunerStatus,
        objects: SelectedObjects,
        document: DepthDocument | None,
    ) -> float:
        """Seconds after which the status should be written; infinity: it says nothing new."""
        now_s = self._world.clock.now_s()
        self._reporter.show(status, objects, document=document, tuner=state.tuner, now_s=now_s)
        self._state, wait_s, events = await self._performer.report(state, status, objects, now_s)
        await self._reporter.emit(events, objects)
        return wait_s

    async def _read(self, now_s: float) -> SelectedObjects | None:
        known = self._state.objects if self._state else None
        if self._trusts(known, now_s):
            return known
        self._begin_read()
        try:
            with self._read_once.look():
                return await self._read_all(now_s)
        except KubeError as error:
            if not self._gone_with_its_role(error):
                raise
            return None

    async def _read_all(self, now_s: float) -> SelectedObjects | None:
        kube, (namespace, name) = self._world.kube, (self.key.namespace, self.key.name)
        resource = await kube.get(SPECULATION_TUNER, namespace, name)
        if resource is None:
            return None
        cast("Manifest", resource["metadata"]).pop("managedFields", None)
        part = known_part_of_tuner(resource)
        metadata, tuner = Meta.model_validate(part.known["metadata"]), parse_tuner(part.known)
        own_names = (names.tuner_depth_config_map(name), names.tuner_state_config_map(name))
        pods: list[Manifest] = []
        if isinstance(tuner, SpeculationTuner):
            pods += await kube.select(POD, namespace, str(tuner.spec.selector))
        maps = await asyncio.gather(
            *(kube.named(CONFIG_MAP, namespace, each) for each in own_names)
        )
        found = [each for each in maps if each is not None]
        own = [each for each in found if ours(CONFIG_MAP, _metadata(each), metadata)]
        read = observed(self._read_once, ObservedConfigMap, own)
        data = {each.name: each.data for each in read}
        depth = data.get(own_names[0])
        return SelectedObjects(
            read_at_s=now_s,
            resource=part.known,
            unknown=part.unknown,
            metadata=metadata,
            status=status_in(part.known, SpeculationTunerStatus),
            tuner=tuner,
            pods=observed(self._read_once, ObservedPod, pods),
            depth=DepthDocument.from_json(depth.get(DEPTH_KEY, "")) if depth else None,
            tuning=data.get(own_names[1], {}),
            live={
                **{(CONFIG_MAP, place_of(each)[1]): each for each in own},
                **{(POD, place_of(each)[1]): each for each in pods},
            },
            foreign={
                (CONFIG_MAP, place_of(each)[1]): _metadata(each)
                for each in found
                if each not in own
            },
        )


def _metadata(manifest: Manifest) -> Meta:
    return Meta.model_validate(manifest["metadata"])
