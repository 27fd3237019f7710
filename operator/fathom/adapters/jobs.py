"""Jobs that a command makes with the rights of whoever asks: made, seen, their logs, removed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from pydantic import JsonValue

from fathom.adapters.kube_answers import no_answer
from fathom.adapters.ports import Clock, KubeError, KubePort, PodLogPort
from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.kinds import CONFIG_MAP, JOB, POD, ObjectKey
from fathom.cluster.manifest import Manifest, Meta, Seen, owned_by, place_of
from fathom.cluster.observed import ObservedJob
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.pod_failures import Trouble, trouble_with_pod

LONGEST_BYTES: Final = 4 << 20
"""Limit of one read; what the pods that are read this way say fits a hundred times."""
_NOTHING_YET: Final = frozenset(
    {HTTPStatus.NO_CONTENT, HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}
)
"""The pod has no node, the container waits to start, or the pod is not there."""
_REMOVALS: Final = 5
_AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCluster:
    """What making and watching a Job needs of the world."""

    kube: KubePort
    logs: PodLogPort
    clock: Clock
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """A Job at one moment."""

    job: ObservedJob
    log: str
    """What its engine container has written; empty: nothing yet."""
    trouble: Trouble | None
    """Why its pod does not run, if it is more than not there yet."""


@dataclass(slots=True, kw_only=True)
class Room:
    """How long the pod of a Job may have trouble to start, such as to find a node."""

    seconds: float
    clock: Clock
    _since_s: float | None = None

    def is_over(self, *, in_trouble: bool) -> bool:
        """Whether it has had trouble for that long without a break."""
        now_s = self.clock.now_s()
        if not in_trouble or self._since_s is None:
            self._since_s = now_s if in_trouble else None
        return self._since_s is not None and now_s - self._since_s >= self.seconds


async def make(
    cluster: JobCluster,
    job: Manifest,
    code: Callable[[list[JsonValue]], Manifest],
    remove: Callable[[], Awaitable[object]],
) -> None:
    """Make a Job, and the ConfigMap that its pod mounts.

    Args:
        cluster: where.
        job: the Job.
        code: the ConfigMap, of its owner.
        remove: takes the Job away again.

    Raises:
        KubeError: one cannot be made; nothing is left then.
    """
    made: Manifest | None = None
    try:
        made = await cluster.kube.create(JOB, job)
        uid = Meta.model_validate(made["metadata"]).uid
        owner = owned_by(JOB.api_version, JOB.kind, place_of(job)[1], uid)
        await cluster.kube.create(CONFIG_MAP, code(owner))
    except BaseException as error:
        # Also when nobody waits any longer, or no answer came: the Job may be there anyway,
        # and without its code the pod would wait for ever.
        refused = made is None and isinstance(error, KubeError) and error.forbidden
        if not refused:
            await remove()
        raise


async def look(
    cluster: JobCluster, key: ObjectKey, is_it: Callable[[Manifest], bool]
) -> JobSeen | None:
    """See how far a Job is; None: it is gone, or another one has its name.

    Args:
        cluster: where.
        key: the Job.
        is_it: whether a Job of that name is the one.

    Raises:
        KubeError: it cannot be seen.
    """
    job = await cluster.kube.get(JOB, key.namespace, key.name)
    if job is None or not is_it(job):
        return None
    observed = ObservedJob.model_validate(job)
    pods = await cluster.kube.select(POD, key.namespace, f"controller-uid={observed.metadata.uid}")
    if not pods:
        return JobSeen(job=observed, log="", trouble=_no_pod(key.name))
    pod = ObservedPod.model_validate(pods[0])
    log = await cluster.logs.read(key.namespace, pod.name, names.ENGINE_CONTAINER)
    return JobSeen(job=observed, log=log, trouble=trouble_with_pod(pod))


def _no_pod(job: str) -> Trouble:
    """A quota or an admission webhook may stand against it."""
    message = f"Job {job} has no pod: `kubectl describe job {job}` says why."
    return Trouble(Reason.CHILD_REFUSED, message)


async def remove_job(
    cluster: JobCluster, key: ObjectKey, is_it: Callable[[Manifest], bool], *, holds: str
) -> str:
    """Delete a Job, and with it its pod and code.

    Args:
        cluster: where.
        key: the Job.
        is_it: whether a Job of that name is the one.
        holds: what it holds while it is there.

    Returns:
        Why it may still be there, as a sentence; empty: it is not. It goes by itself in the end.
    """
    why = ""
    for _ in range(_REMOVALS):
        try:
            job = await cluster.kube.get(JOB, key.namespace, key.name)
            if job is None or not is_it(job):
                return ""
            await cluster.kube.delete(JOB, key.namespace, key.name, Seen.of(job))
        except KubeError as error:
            # Its controller may have written to it in between.
            why = (
                f"Job {key} may still hold {holds}: {error.message}. "
                f"`kubectl delete job {key.name} --namespace {key.namespace}` ends it."
            )
            await cluster.pause(_AGAIN_S)
        else:
            return ""
    return why


class PodLog:
    """`PodLogPort` against a real API server."""

    def __init__(self, api: ApiClient, timeout_s: float = 15.0) -> None:
        """Borrow a client; the caller closes it.

        Args:
            api: of the API server.
            timeout_s: seconds that a read may take.
        """
        self._api = api
        self._timeout_s = timeout_s

    async def read(self, namespace: str, pod: str, container: str) -> str:
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/log"
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await self._api.param_serialize(
                    "GET",
                    path,
                    query_params=[("container", container), ("limitBytes", str(LONGEST_BYTES))],
                    auth_settings=["BearerToken"],
                )
                response = (await self._api.call_api(*request)).response
                payload: bytes = await response.read()
        except (aiohttp.ClientError, ApiException, OSError) as error:
            server = str(self._api.configuration.host)
            raise no_answer(server, "GET", path, timeout_s=self._timeout_s, error=error) from error
        text = payload.decode(errors="replace")
        if response.status in _NOTHING_YET:
            return ""
        if response.status != HTTPStatus.OK:
            raise KubeError(response.status, f"GET {path}: {text[:400] or response.reason}")
        return text
