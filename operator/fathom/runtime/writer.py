"""Carries out operations: the only place from which the cluster is changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from pydantic import JsonValue

from fathom.adapters.ports import KubeError, KubePort
from fathom.api import names
from fathom.core.events import Happening, event
from fathom.core.kinds import EVENT, POD, SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.core.manifest import Manifest
from fathom.core.observed import Meta
from fathom.runtime.apply_guard import ApplyGuard
from fathom.runtime.operations import Apply, Delete, Operation, Patch
from fathom.runtime.telemetry import Telemetry

_log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of some operations."""

    refusals: tuple[str, ...]
    """One sentence for each that failed."""
    left: tuple[Operation, ...]
    """Those that failed or were not tried."""


class Writer:
    """Writes for one SpeculativeDeployment, and counts what it wrote."""

    def __init__(self, kube: KubePort, key: ObjectKey, telemetry: Telemetry) -> None:
        self._kube = kube
        self._key = key
        self._telemetry = telemetry
        self._log = _log.bind(namespace=key.namespace, name=key.name)

    async def carry_out(self, operations: Sequence[Operation], guard: ApplyGuard) -> Outcome:
        """Try each; what the API server refuses for good does not stop the others.

        After a failure that may pass by itself the rest is left for the next pass, since it may
        depend on what failed. Never raises.
        """
        guard.settle(operations)
        refusals: list[str] = []
        left: list[Operation] = []
        for position, operation in enumerate(operations):
            if (refusal := guard.refusal(operation)) is not None:
                refusals.append(refusal)
                left.append(operation)
                continue
            try:
                await self._one(operation)
            except KubeError as error:
                refusals.append(
                    f"{operation.kind.kind} {operation.name} could not be written: "
                    f"{error.message.rstrip('.')}."
                )
                left.append(operation)
                if error.transient:
                    left.extend(operations[position + 1 :])
                    break
        return Outcome(tuple(refusals), tuple(left))

    async def status(self, status: Mapping[str, JsonValue]) -> None:
        """Write the status subresource.

        Raises:
            KubeError: it could not be written; 404 means that the resource is gone.
        """
        manifest: Manifest = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": self._key.name, "namespace": self._key.namespace},
            "status": dict(status),
        }
        await self._kube.apply(SPECULATIVE_DEPLOYMENT, manifest, subresource="status")
        self._count(names.KIND, "status")

    async def restart(self, pod: str, why: str) -> bool:
        """Delete a pod, for its Deployment to replace it; whether the API server took it."""
        try:
            await self._one(Delete(POD, pod, why))
        except KubeError as error:
            self._log.warning("pod not restarted", pod=pod, error=error.message)
            return False
        return True

    async def nudge(self, pods: Sequence[tuple[str, Mapping[str, JsonValue]]]) -> None:
        """Annotate pods; best effort, as their kubelets refresh by themselves in the end."""
        for name, patch in pods:
            try:
                await self._kube.merge(POD, self._key.namespace, name, patch)
                self._count(POD.kind, "patch")
            except KubeError as error:
                self._log.warning("pod not annotated", pod=name, error=error.message)

    async def tell(
        self, happenings: Sequence[Happening], about: Meta, now_s: float, reporter: str
    ) -> None:
        """Post events; one that cannot be posted is logged, and stops nothing."""
        for happening in happenings:
            self._log.info("event", reason=happening.reason, message=happening.message, now_s=now_s)
            try:
                await self._kube.create(EVENT, event(happening, about, now_s, reporter))
                self._count(EVENT.kind, "create")
            except KubeError as error:
                self._log.warning("event not posted", error=error.message)

    async def _one(self, operation: Operation) -> None:
        namespace = self._key.namespace
        self._log.info(
            type(operation).__name__.lower(),
            kind=operation.kind.kind,
            object=operation.name,
            why=operation.why,
        )
        match operation:
            case Apply():
                await self._kube.apply(operation.kind, operation.manifest)
                self._count(operation.kind.kind, "apply")
            case Patch():
                await self._kube.merge(operation.kind, namespace, operation.name, operation.patch)
                self._count(operation.kind.kind, "patch")
            case Delete():
                await self._kube.delete(operation.kind, namespace, operation.name)
                self._count(operation.kind.kind, "delete")

    def _count(self, kind: str, verb: str) -> None:
        self._telemetry.wrote(self._key, kind, verb)
