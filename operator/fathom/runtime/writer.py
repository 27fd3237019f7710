"""Carries out operations: the only place from which the cluster is changed."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from pydantic import JsonValue

from fathom.adapters.ports import KubeError, KubePort
from fathom.cluster.events import Event, event_manifest
from fathom.cluster.kinds import EVENT, ObjectKey
from fathom.cluster.manifest import Manifest, Meta, Seen
from fathom.reconcile.operations import Apply, Create, Delete, Operation, Patch
from fathom.reconcile.write_retries import Outcome
from fathom.runtime.child_cache import ChildCache
from fathom.runtime.telemetry import Telemetry

ATTEMPTS_AT_ONCE: Final = 16
"""Attempts for one resource."""

_log: Final = structlog.get_logger(__name__)


class Writer:
    """Writes for one resource, and counts what it wrote."""

    def __init__(
        self, kube: KubePort, children: ChildCache, key: ObjectKey, telemetry: Telemetry
    ) -> None:
        self._kube = kube
        self._children = children
        self._key = key
        self._telemetry = telemetry
        self._log = _log.bind(namespace=key.namespace, name=key.name)

    async def carry_out(self, operations: Sequence[Operation]) -> Outcome:
        """Try each; what the API server refuses for good does not stop the others.

        After a failure that may pass by itself the rest is left for the next pass, since it may
        depend on what failed; after one that shows that the cluster was looked at too long ago,
        since it was decided on that look. Never raises: an error of our own is in what it returns.
        """
        written: list[Operation] = []
        refused: list[tuple[Operation, str]] = []
        for operation in operations:
            try:
                await self._one(operation)
            except KubeError as error:
                sentence = (
                    f"{operation.kind.kind} {operation.name} could not be written: "
                    f"{error.message.rstrip('.')}."
                )
                if error.transient:
                    return Outcome(
                        written=tuple(written),
                        refused=tuple(refused),
                        broke_off=(operation, sentence),
                        outdated=error.outdated,
                    )
                refused.append((operation, sentence))
            except Exception as error:  # noqa: BLE001 - it is raised again, once the rest is known
                return Outcome(written=tuple(written), refused=tuple(refused), raised=error)
            else:
                written.append(operation)
        return Outcome(written=tuple(written), refused=tuple(refused))

    async def status(self, status: Mapping[str, JsonValue], seen: Seen) -> Manifest:
        """Write the status subresource.

        Args:
            status: all of it.
            seen: the resource, as the status is about it.

        Returns:
            The resource as it is then.

        Raises:
            KubeError: it could not be written; 404 means that the resource is gone.
        """
        kind = self._key.kind
        manifest: Manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": self._key.name, "namespace": self._key.namespace},
            "status": dict(status),
        }
        after = await self._kube.apply(kind, manifest, seen, subresource="status")
        self._count(kind.kind, "status")
        return after

    async def attempt(self, operation: Operation) -> bool:
        """Try one that nothing depends on; whether the API server took it. Never raises."""
        try:
            await self._one(operation)
        except KubeError as error:
            self._log.warning(
                "not written",
                kind=operation.kind.kind,
                object=operation.name,
                why=operation.why,
                error=error.message,
            )
            return False
        return True

    async def attempt_all(self, operations: Sequence[Operation], within_s: float) -> None:
        """Try some that neither anything nor each other depends on, at the same time. Never raises.

        Args:
            operations: what to do.
            within_s: seconds for all of them; those that are not done then are given up.
        """
        turns = asyncio.Semaphore(ATTEMPTS_AT_ONCE)
        done = 0

        async def in_turn(operation: Operation) -> None:
            nonlocal done
            async with turns:
                await self.attempt(operation)
            done += 1

        try:
            async with asyncio.timeout(within_s):
                await asyncio.gather(*map(in_turn, operations))
        except TimeoutError:
            self._log.warning("given up", done=done, of=len(operations), within_s=within_s)

    async def emit(self, events: Sequence[Event], about: Meta, now_s: float, reporter: str) -> None:
        """Post events; one that cannot be posted is logged, and stops nothing."""
        for event in events:
            self._log.info("event", reason=event.reason, message=event.message, now_s=now_s)
            try:
                await self._kube.create(
                    EVENT,
                    event_manifest(event, self._key.kind, about, now_s=now_s, reporter=reporter),
                )
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
            case Create(kind, manifest):
                self._children.note(kind, await self._kube.create(kind, manifest))
                self._count(kind.kind, "create")
            case Apply(kind=kind, manifest=manifest, seen=seen):
                self._children.note(kind, await self._kube.apply(kind, manifest, seen))
                self._count(kind.kind, "apply")
            case Patch(kind=kind, name=name, patch=patch, seen=seen):
                left = await self._kube.merge(kind, namespace, name, patch, seen)
                if left is not None:
                    self._children.note(kind, left)
                self._count(kind.kind, "patch")
            case Delete(kind=kind, name=name, seen=seen):
                await self._kube.delete(kind, namespace, name, seen)
                self._count(kind.kind, "delete")

    def _count(self, kind: str, verb: str) -> None:
        self._telemetry.wrote(self._key, kind, verb)
