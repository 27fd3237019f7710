"""The only place that knows Kopf. It watches resources and wakes; it never writes to an object."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import kopf
import structlog
from kubernetes.aio.client import Configuration

from fathom.adapters.ports import KubePort
from fathom.core.cluster.kinds import SPECULATIVE_DEPLOYMENT, Kind, ObjectKey
from fathom.runtime.loops import Loops
from fathom.runtime.sweep import sweep

LONGEST_BACKOFF_S: Final = 60.0
GIVES_UP_AFTER: Final = 10
"""Failures in a row, some five minutes: then the process ends, for whoever runs it to see."""

_log: Final = structlog.get_logger(__name__)


async def watch(
    loops: Loops,
    kube: KubePort,
    configuration: Configuration,
    namespaces: Sequence[str],
    heed_signals: Callable[[], None],
) -> None:
    """Start and wake loops until it is cancelled.

    Args:
        loops: what is told.
        kube: what finds resources that the watches missed.
        configuration: how Kopf reaches the API server.
        namespaces: to watch; empty: all.
        heed_signals: called once Kopf has set handlers of its own. By those it would end too late:
            it lets loops go on until all else has ended, and waits 5 s for any task begun since.

    Raises:
        Exception: Kopf's, after several in a row.
    """

    async def operate() -> None:
        up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        up.add_done_callback(lambda _: heed_signals())
        await kopf.operator(
            registry=registered(loops, configuration),
            settings=kopf_settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            ready_flag=up,
        )

    sweeping = asyncio.create_task(sweep(kube, namespaces, loops))
    try:
        await again_and_again(operate, sleep=asyncio.sleep, now_s=time.monotonic)
    finally:
        sweeping.cancel()


async def again_and_again(
    operate: Callable[[], Awaitable[None]],
    *,
    sleep: Callable[[float], Awaitable[None]],
    now_s: Callable[[], float],
) -> None:
    """Operate until that ends by itself; what it fails with is waited out.

    For Kopf any error in a watch but 410, such as a 500 of an API server that restarts, is the end.
    Nothing is lost by beginning anew: whatever there is, is listed first.

    Args:
        operate: one run.
        sleep: waits so many seconds.
        now_s: seconds of a clock that never goes back.

    Raises:
        Exception: of the last of several failures in a row.
    """
    failures = 0
    while True:
        began_s = now_s()
        try:
            return await operate()
        except Exception as error:
            if now_s() - began_s > LONGEST_BACKOFF_S:
                failures = 0
            failures += 1
            if failures >= GIVES_UP_AFTER:
                raise
            delay_s = min(LONGEST_BACKOFF_S, 2.0 ** (failures - 1))
            _log.warning("watches begin anew", error=repr(error), delay_s=delay_s)
            await sleep(delay_s)


def kopf_settings() -> kopf.OperatorSettings:
    """Settings under which Kopf needs few rights and writes nothing."""
    settings = kopf.OperatorSettings()
    # No watching of CRDs and namespaces: fewer rules, and no 403 where they are not granted.
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.queueing.worker_limit = None
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    # Else Kopf kills the process so long after one of its runs, also if another has begun.
    settings.process.ultimate_exiting_timeout = None
    return settings


def registered(loops: Loops, configuration: Configuration) -> kopf.OperatorRegistry:
    """The handlers, in a registry of their own: nothing is global."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(id="credentials", registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await _connection(configuration)

    @kopf.on.event(*_resource(SPECULATIVE_DEPLOYMENT), id="resource", registry=registry)
    async def resource(namespace: str | None, name: str | None, meta: kopf.Meta, **_: Any) -> None:
        # A loop whose resource is gone finds that out, and ends by itself.
        key = ObjectKey(namespace or "", name or "")
        version = meta.get("resourceVersion") or ""
        loops.changed(key, meta.get("generation") or 0, meta.annotations, version)

    @kopf.on.cleanup(id="stop-loops", registry=registry)
    async def stop(**_: Any) -> None:
        await loops.stop()

    return registry


def _resource(kind: Kind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.plural


async def _connection(configuration: Configuration) -> kopf.ConnectionInfo:
    """The client library's credentials in Kopf's terms; read anew, as tokens rotate."""
    header = await configuration.get_api_key_with_prefix("BearerToken")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        username=configuration.username or None,
        password=configuration.password or None,
        scheme="Bearer" if header else None,
        token=header.split(" ", 1)[-1] if header else None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )
