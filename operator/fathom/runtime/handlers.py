"""The only place that knows Kopf. It watches resources and wakes; it never writes to an object."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, product, repeat
from pathlib import Path
from typing import Any, Final

import kopf
import structlog
from kubernetes.aio.client import Configuration

from fathom.adapters.ports import EventType, KubeError, KubePort
from fathom.cluster.kinds import Kind, ObjectKey
from fathom.cluster.manifest import place_of
from fathom.runtime.loop_registry import Loops
from fathom.runtime.options import RunOptions
from fathom.times import Backoff

SWEEP_S: Final = 300.0
"""Kopf lists once and then trusts its stream: what was lost never comes again. A loop looks at its
resource by itself, but a resource whose creation was missed has none."""

_ANY_NAME: Final = "any"
LONGEST_BACKOFF_S: Final = 60.0
GIVES_UP_AFTER: Final = 10
"""Failures in a row, some five minutes: then the process ends, for whoever runs it to see."""
LONGEST_RETRY_S: Final = 30.0
"""Between two requests of a watch: so soon a namespace is watched that was forbidden."""
_KOPF: Final = f"{Path(kopf.__file__).parent}/"
_log: Final = structlog.get_logger(__name__)


async def sweep(
    kube: KubePort,
    namespaces: Sequence[str],
    loops: Loops,
    *,
    kinds: Sequence[Kind],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Every few minutes, for ever, list all there is. What fails is told and tried again.

    Args:
        kube: to list from.
        namespaces: to look into; empty: all.
        loops: is told of what is there.
        kinds: of resources.
        sleep: waits so many seconds.
    """
    while True:
        await sleep(SWEEP_S)
        for kind, namespace in product(kinds, namespaces or ("",)):
            with _told(kind, namespace):
                found = await kube.select(kind, namespace, "")
                # Whatever else is wrong with one of them is its own loop's to tell.
                keys = [ObjectKey(*place_of(each), kind) for each in found]
                loops.listed(kind, namespace, keys)


async def tell_what_is_refused(
    kube: KubePort, namespaces: Sequence[str], kinds: Sequence[Kind]
) -> None:
    """Say at once, and not only at the first sweep, which resources may not be listed.

    Args:
        kube: to ask.
        namespaces: to look into; empty: all.
        kinds: of resources.
    """
    for kind, namespace in product(kinds, namespaces or ("",)):
        with _told(kind, namespace):
            try:
                # The cheapest list there is.
                await kube.named(kind, namespace, _ANY_NAME)
            except KubeError as error:
                if error.forbidden:
                    raise


@contextmanager
def _told(kind: Kind, namespace: str) -> Iterator[None]:
    """Tell what fails, and go on: the next sweep may find what this one has missed."""
    try:
        yield
    except KubeError as error:
        # A CRD that is not installed has no resources.
        if not error.gone:
            _tell(kind, namespace, error)
    except Exception:  # noqa: BLE001  # the last resort, logged with its traceback
        _log.exception("resources not listed", kind=kind.kind, namespace=namespace)


def _tell(kind: Kind, namespace: str, error: KubeError) -> None:
    if not error.forbidden:
        _log.warning("resources not listed", namespace=namespace, error=error.message)
        return
    where, otherwise = "any namespace", ""
    if namespace:
        where = f"namespace {namespace}"
        otherwise = ", or take the namespace out of the chart's `namespaces`"
    _log.warning(
        f"new resources in {where} are not seen: this operator may not list {kind.plural} "
        f"there. Let `helm upgrade` make its role again{otherwise}. They are seen once they may be "
        "listed",
        namespace=namespace,
        error=error.message,
    )


async def watch(
    loops: Loops,
    kube: KubePort,
    configuration: Configuration,
    options: RunOptions,
    heed_signals: Callable[[], None],
) -> None:
    """Start and wake loops until it is cancelled. However it ends, no loop acts any more.

    Args:
        loops: what is told.
        kube: what finds resources that the watches missed.
        configuration: how Kopf reaches the API server.
        options: which namespaces and kinds to watch.
        heed_signals: called once Kopf has set handlers of its own. By those it would end too late:
            it lets loops go on until all else has ended.

    Raises:
        Exception: Kopf's, after several in a row; or of the search for what it missed.
    """
    namespaces, kinds = options.namespaces, options.kinds

    async def operate() -> None:
        up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        up.add_done_callback(lambda _: heed_signals())
        tasks = await kopf.spawn_tasks(
            registry=registered(loops, configuration, kinds),
            settings=kopf_settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            ready_flag=up,
        )
        await kopf.run_tasks(tasks, ignored=_NotKopfs())

    async def search() -> None:
        await asyncio.gather(
            tell_what_is_refused(kube, namespaces, kinds),
            sweep(kube, namespaces, loops, kinds=kinds),
        )

    watching = again_and_again(operate, sleep=asyncio.sleep, now_s=time.monotonic)
    # Without either of them nobody would notice that resources are missed.
    tasks = [asyncio.create_task(each) for each in (watching, search())]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # First: Kopf takes its time to end, and tells of resources until then.
        loops.close()
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
    for each in ended:
        each.result()


class _NotKopfs(Collection["asyncio.Task[Any]"]):
    """All tasks that Kopf has not made.

    When one of its runs ends, Kopf waits for whatever has begun since, and cancels it: loops in the
    middle of a pass, too. Its own it has to end so, such as the watches of other namespaces.
    """

    def __contains__(self, task: object) -> bool:
        code = getattr(task.get_coro(), "cr_code", None) if isinstance(task, asyncio.Task) else None
        return code is None or not code.co_filename.startswith(_KOPF)

    def __iter__(self) -> Iterator["asyncio.Task[Any]"]:
        return (each for each in asyncio.all_tasks() if each in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


async def again_and_again(
    operate: Callable[[], Awaitable[None]],
    *,
    sleep: Callable[[float], Awaitable[None]],
    now_s: Callable[[], float],
) -> None:
    """Operate until that ends by itself; what it fails with is waited out.

    For Kopf any error in a watch but 410, such as a 500 of an API server that restarts, is the end.
    Nothing is lost by beginning again: loops go on, and whatever there is, is listed first.

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
            delay_s = Backoff(longest_s=LONGEST_BACKOFF_S).after(failures)
            _log.warning("watches begin again", error=repr(error), delay_s=delay_s)
            await sleep(delay_s)


class _ForEver(Iterable[float]):
    """Seconds between the tries of one request, without end.

    Else one namespace that nobody may read, such as one that was deleted together with its Role,
    would within a minute be the end of the watches of all others.
    """

    def __iter__(self) -> Iterator[float]:
        return chain((1, 1, 2, 3, 5, 8, 13, 21), repeat(LONGEST_RETRY_S))


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
    settings.networking.error_backoffs = _ForEver()
    # Else Kopf kills the process so long after one of its runs, also if another has begun.
    settings.process.ultimate_exiting_timeout = None
    return settings


def registered(
    loops: Loops, configuration: Configuration, kinds: Sequence[Kind]
) -> kopf.OperatorRegistry:
    """The handlers, in a registry of their own: nothing is global."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(id="credentials", registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await _connection(configuration)

    async def resource(
        kind: Kind,
        type: str | None,  # noqa: A002 - Kopf's name for it
        namespace: str | None,
        name: str | None,
        meta: kopf.Meta,
        **_: Any,
    ) -> None:
        key = ObjectKey(namespace or "", name or "", kind)
        if type == EventType.DELETED:
            loops.deleted(key)
            return
        version = meta.get("resourceVersion") or ""
        loops.changed(key, meta.get("generation") or 0, meta.annotations, version)

    for each in kinds:
        on_event = kopf.on.event(*_resource(each), id=each.kind.lower(), registry=registry)
        on_event(partial(resource, each))

    return registry


def _resource(kind: Kind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.plural


async def _connection(configuration: Configuration) -> kopf.ConnectionInfo:
    """The client library's credentials in Kopf's terms; read again, as tokens rotate."""
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
