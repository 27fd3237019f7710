"""`fathom run`: puts the parts together, says whether it is healthy, and runs until stopped."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import structlog
import typer
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from fathom import version_and_build
from fathom.adapters import kube_config
from fathom.adapters.completions import EngineCompletions
from fathom.adapters.http import http_session
from fathom.adapters.hub import HuggingFaceHub
from fathom.adapters.kube import Kube
from fathom.adapters.pod_metrics import AT_ONCE, FetchMetrics
from fathom.adapters.ports import SystemClock
from fathom.adapters.prometheus_sources import SourcesError, read_sources
from fathom.engine.plugin import plugin_bundle
from fathom.fetch.state import fetch_program
from fathom.manifests.intake_job import intake_program
from fathom.runtime.caches import ModelCache, NodeCache, ServedCache
from fathom.runtime.child_cache import KINDS, ChildCache
from fathom.runtime.gather import read_nodes
from fathom.runtime.handlers import watch
from fathom.runtime.informer import informed
from fathom.runtime.leadership import LeadershipLostError, lead_from_a_thread
from fathom.runtime.loop_registry import Loops
from fathom.runtime.operator_process import (
    make_room_for_connections,
    make_room_for_deep_json,
    short_collections,
)
from fathom.runtime.options import LogFormat, RunOptions, configure_logs
from fathom.runtime.page_server import PASSED_ON_AT_ONCE, Pages, Standby, asked_at, serve_page
from fathom.runtime.ports import MetricsSources, World
from fathom.runtime.telemetry import Telemetry
from fathom.runtime.tenure import FencedKube, Leader, Tenure, this_operator
from fathom.text import counted
from fathom.tuning.tuner import decide

_WITHOUT_ACCESS: Final = (
    "the operator reads no secrets, so not the one in spec.model.tokenSecretRef either; "
    "`fathom check` reads it with your HF_TOKEN"
)
_POD_CONNECTIONS: Final = 3 * AT_ONCE
"""For pages of pods that answer, of pods that do not, and for all else that is asked of pods."""
_PROMETHEUS_CONNECTIONS: Final = 256
"""A resource asks by one at a time; a source that hangs keeps its own for ten seconds."""
LONGEST_EXIT_S: Final = 10.0
"""Whatever hangs then hangs no longer: who has lost the lease must go."""
_DEFAULTS: Final = RunOptions()
_log: Final = structlog.get_logger(__name__)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


async def serve_health(loops: Loops, is_ready: Callable[[], bool], port: int) -> web.AppRunner:
    """Serve /healthz and /readyz on every interface: 200, or 503 and what is the matter.

    Args:
        loops: what has to live.
        is_ready: whether all children were listed, as far as they can be.
        port: 0 serves nothing.

    Returns:
        What the caller has to `cleanup`.

    Raises:
        OSError: the port is taken.
    """

    async def healthz(_: web.Request) -> web.Response:
        overdue = loops.overdue()
        if overdue:
            stuck = ", ".join(str(key) for key in overdue)
            return web.Response(status=503, text=f"stuck: {stuck}\n")
        return web.Response(text=f"ok, {counted(len(loops), 'resource')}\n")

    async def readyz(_: web.Request) -> web.Response:
        if not is_ready():
            return web.Response(status=503, text="not all children are listed\n")
        return web.Response(text="ok\n")

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    if port:
        await web.TCPSite(runner, port=port).start()
    return runner


def run(options: RunOptions) -> int:
    """Run the operator until SIGTERM or SIGINT; what runs in the cluster is left as it is.

    Returns:
        Exit code: 0 after a signal; 1 if the lease was lost, or there is no cluster to be reached
            or no configuration to be read.
    """
    configure_logs(options.log_format)
    make_room_for_deep_json()
    make_room_for_connections()
    with short_collections():
        return exit_code(_operate(options))


def exit_code(operating: Coroutine[None, None, None]) -> int:
    """Run until it ends; the exit code that says how: see `run`."""
    try:
        asyncio.run(operating)
    except (LeadershipLostError, kube_config.NoClusterError, SourcesError) as error:
        _log.error("stopped", reason=str(error))
        return 1
    except asyncio.CancelledError:
        return 0
    return 0


async def _operate(options: RunOptions) -> None:
    # A proxy to the hub does not know the cluster's own addresses, and NO_PROXY takes no ranges.
    configuration = await kube_config.load(options.kubeconfig, as_operator=True)
    version = await asyncio.to_thread(version_and_build)
    clock, who = SystemClock(), this_operator()
    with_login = read_sources(options.prometheus_sources, clock)
    children = ChildCache(clock, options.namespaces, () if options.tuners_only else KINDS)
    # Each watch keeps a connection for itself.
    configuration.connection_pool_maxsize += len(children)
    telemetry = Telemetry()
    async with (
        ApiClient(configuration) as api,
        http_session(_POD_CONNECTIONS, keeps_them=False) as session,
        http_session(_PROMETHEUS_CONNECTIONS) as prometheus,
        http_session(PASSED_ON_AT_ONCE) as of_leader,
    ):
        tenure = Tenure()

        def leads() -> bool:
            return tenure.holds or not options.leader_elect

        telemetry.leads(leads)
        own = Kube(api)
        kube = FencedKube(own, lambda: tenure.holds) if options.leader_elect else own
        sources = MetricsSources(
            pods=session, prometheus=prometheus, clock=clock, kube=kube, sources=with_login
        )
        models = ModelCache(HuggingFaceHub(without_access=_WITHOUT_ACCESS), clock)
        served = ServedCache(kube, clock)
        world = World(
            kube=kube,
            children=children,
            nodes=NodeCache(lambda: read_nodes(kube), clock).get,
            metrics_for=sources.of,
            completions=EngineCompletions(session),
            fetches=FetchMetrics(session, clock),
            clock=clock,
            decide=decide,
            models=models.facts,
            served=served.get,
            bundle=plugin_bundle(),
            program=fetch_program(),
            intake=intake_program(),
            identity=who,
            telemetry=telemetry,
        )
        if options.metrics_port:
            telemetry.serve(options.metrics_port)
        loops = Loops(world)
        heed_signals = ender(loops)
        heed_signals()
        # Before it leads: who stands by takes over with everything known.
        async with informed(children, kube, served.get, loops.wake) as listed:
            health = await serve_health(loops, listed.done, options.health_port)
            standby = Standby(
                session=of_leader,
                leads=leads,
                leader=lambda: tenure.other,
                namespace=options.lease_namespace,
                port=options.page_port,
            )
            page = await serve_page(Pages(world.shown, clock), standby, options.page_host)
            page_ip = asked_at(os.environ.get("POD_IP", ""), page, options.page_host)

            async def work() -> None:
                await asyncio.wait([listed])
                _log.info("operating", version=version, identity=who)
                await watch(loops, kube, configuration, options, heed_signals)

            try:
                await _when_leading(
                    partial(at_work, loops, work),
                    options,
                    configuration,
                    Leader(who, page_ip),
                    tenure,
                )
            finally:
                _leave_soon()
                await loops.stop()
                await models.stop()
                await health.cleanup()
                await page.cleanup()


def _leave_soon() -> None:
    """Whatever hangs."""
    asyncio.get_running_loop().call_later(LONGEST_EXIT_S, os._exit, 1)


def ender(loops: Loops, leave_soon: Callable[[], None] = _leave_soon) -> Callable[[], None]:
    """What lets signals end this operator: no loop acts any more, then everything else ends.

    Args:
        loops: that act.
        leave_soon: sees to it that the process ends, whatever hangs.
    """
    running, operating = asyncio.get_running_loop(), asyncio.current_task()
    assert operating is not None  # noqa: S101 - called by a coroutine

    def end() -> None:
        if loops.closed:
            # It is leaving: what gives the lease back shall not be cut off.
            return
        loops.close()
        leave_soon()
        operating.cancel()

    def heed_signals() -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            running.add_signal_handler(each, end)

    return heed_signals


async def at_work(
    loops: Loops,
    work: Callable[[], Coroutine[None, None, None]],
    leave_soon: Callable[[], None] = _leave_soon,
) -> None:
    """Work. However that ends, by a lost lease, too, is how this operator ends.

    A signal that comes later changes nothing of it: see `ender`.

    Args:
        loops: that act; none does any more then.
        work: what to do.
        leave_soon: sees to it that the process ends, whatever hangs.
    """
    try:
        await work()
    finally:
        loops.close()
        leave_soon()


async def _when_leading(
    work: Callable[[], Coroutine[None, None, None]],
    options: RunOptions,
    configuration: Configuration,
    who: Leader,
    tenure: Tenure,
) -> None:
    if not options.leader_elect:
        await work()
        return
    await lead_from_a_thread(
        configuration,
        name=options.lease_name,
        namespace=options.lease_namespace,
        who=who,
        work=work,
        tenure=tenure,
    )


@app.command()
def run_command(
    *,
    namespace: Annotated[
        list[str] | None,
        typer.Option("-n", "--namespace", help="Serve this namespace only; may be repeated."),
    ] = None,
    tuners_only: Annotated[
        bool,
        typer.Option(
            "--tuners-only", help="Reconcile SpeculationTuners alone, which needs few rights."
        ),
    ] = False,
    leader_elect: Annotated[
        bool | None,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Hold a lease, so that a second operator may stand by. Default: in a pod.",
        ),
    ] = None,
    lease_name: Annotated[str, typer.Option(help="Name of the lease.")] = _DEFAULTS.lease_name,
    lease_namespace: Annotated[
        str, typer.Option(envvar="POD_NAMESPACE", help="Where the lease is.")
    ] = "",
    health_port: Annotated[
        int, typer.Option(help="Port of /healthz and /readyz; 0: none.")
    ] = _DEFAULTS.health_port,
    metrics_port: Annotated[
        int, typer.Option(help="Port of the operator's own /metrics; 0: none.")
    ] = _DEFAULTS.metrics_port,
    page_port: Annotated[
        int, typer.Option(help="Port of the page for people; 0: none.")
    ] = _DEFAULTS.page_port,
    page_host: Annotated[
        str, typer.Option(help="The address that the page listens on; empty: every one.")
    ] = _DEFAULTS.page_host,
    prometheus_sources: Annotated[
        Path | None, typer.Option(help="JSON: Prometheus servers that ask for a login.")
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="How to log, to stderr.")
    ] = _DEFAULTS.log_format,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            envvar="KUBECONFIG", help="Default: the pod's service account, or ~/.kube/config."
        ),
    ] = None,
) -> None:
    """Run the operator until it is stopped; what runs in the cluster is left as it is.

    Example: fathom run -n llm
    """
    in_a_pod = bool(lease_namespace)
    options = RunOptions(
        namespaces=tuple(namespace or ()),
        tuners_only=tuners_only,
        leader_elect=in_a_pod if leader_elect is None else leader_elect,
        lease_name=lease_name,
        lease_namespace=lease_namespace or _DEFAULTS.lease_namespace,
        health_port=health_port,
        metrics_port=metrics_port,
        page_port=page_port,
        page_host=page_host,
        prometheus_sources=prometheus_sources,
        log_format=log_format,
        kubeconfig=kubeconfig,
    )
    raise typer.Exit(run(options))
