"""`python -m benchmarks scale`: one size after the other, each on a control plane of its own."""

import asyncio
import os
import platform
import tempfile
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
from kubernetes.aio.client.exceptions import ApiException
from rich.console import Console

from benchmarks.engine.main import ended_by_sigterm
from benchmarks.engine.view import BenchView
from benchmarks.scale.access import install, write_kubeconfig
from benchmarks.scale.figures import (
    ScaleReport,
    SizeFigures,
)
from benchmarks.scale.one_size import SizeBench
from benchmarks.scale.operator_process import OperatorProcess
from benchmarks.scale.plan import ScaleRequest
from benchmarks.scale.played.cluster import PlayedCluster
from benchmarks.scale.played.page_server import PageServer
from benchmarks.scale.sampling import Profile
from fathom.api import names
from local_cluster.control_plane.api_server import api_server
from local_cluster.control_plane.credentials import KUBELET
from local_cluster.errors import LocalClusterError
from local_cluster.kube import KubeApi, Mirror, connect
from local_cluster.slowness import slowness

_RESOURCES: Final = f"/apis/{names.API_VERSION}/{names.PLURAL}"

_Result = TypeVar("_Result")


def run_bench(console: Console, request: ScaleRequest) -> tuple[ScaleReport, Profile]:
    """Measure all sizes. Leaves no process behind, however it ends.

    Raises:
        LocalClusterError: a part does not start, or does not do as it should.
    """
    seconds = sum(request.timing.size_seconds(size) for size in request.sizes)
    view, profile = BenchView(console, seconds), Profile()
    with ExitStack() as stack:
        stack.enter_context(ended_by_sigterm())
        stack.enter_context(view)
        versions, measured, failure = list[str](), list[SizeFigures](), ""
        for size in request.sizes:
            try:
                version, figures = asyncio.run(_one_size(size, request, view, profile))
            except LocalClusterError as error:
                if not measured:
                    raise
                # What was measured of smaller sizes took minutes, and counts all the same.
                failure = f"{size} resources: {error}"
                break
            versions.append(version)
            measured.append(figures)
    report = ScaleReport(
        kubernetes=versions[0],
        python=platform.python_version(),
        processors=len(os.sched_getaffinity(0)),
        slowness=slowness(),
        pods_each=request.pods_each,
        one_namespace=request.one_namespace,
        quick=request.quick,
        minutes=view.minutes,
        sizes=tuple(measured),
        failure=failure,
    )
    return report, profile


async def _one_size(
    size: int, request: ScaleRequest, view: BenchView, profile: Profile
) -> tuple[str, SizeFigures]:
    """The version of Kubernetes, and what was measured."""
    view.say(f"[bold]{size} resources[/bold]: starting etcd and kube-apiserver")
    view.doing(f"{size}: starting a control plane")
    with tempfile.TemporaryDirectory(prefix="fathom-bench-scale-") as directory:
        async with (
            api_server() as plane,
            connect(plane.kubeconfig) as user,
            connect(plane.credentials.kubeconfig(KUBELET)) as cluster,
        ):
            folder = Path(directory)
            kubeconfig = folder / "operator.kubeconfig"
            write_kubeconfig(kubeconfig, plane.kubeconfig, await install(KubeApi(user)))
            played = PlayedCluster(KubeApi(cluster))
            mirror = Mirror(KubeApi(cluster), _RESOURCES)
            pages = PageServer(played.engines)
            operator, standby = (
                OperatorProcess(kubeconfig, folder / name, profiled=request.profiled)
                for name in ("first", "second")
            )
            # A rolling resource has one more while its new revision starts.
            await pages.listen(size * (request.pods_each + 1))
            bench = SizeBench(
                size=size,
                request=request,
                view=view,
                profile=profile,
                plane=plane,
                user=KubeApi(user),
                resources=mirror,
                played=played,
                pages=pages,
                operator=operator,
                standby=standby,
            )
            try:
                players = (
                    *(played.run(), mirror.run()),
                    *(operator.supervise(), standby.supervise()),
                )
                figures = await _while_playing(players, bench.measure())
            except (ApiException, aiohttp.ClientError, TimeoutError, ExceptionGroup) as error:
                raise LocalClusterError(
                    f"The API server does not do what it is asked, or not in time: {error!r}. "
                    "Where the machine is too small or has much else to do, take fewer resources "
                    "with --sizes."
                ) from error
            finally:
                operator.kill()
                standby.kill()
                await pages.close()
            return plane.version, figures


async def _while_playing(
    playing: Iterable[Coroutine[Any, Any, None]], work: Coroutine[Any, Any, _Result]
) -> _Result:
    """Do some work beside what never ends; what ends all the same, ends it all."""
    players = [asyncio.create_task(each) for each in playing]
    working = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait([*players, working], return_when=asyncio.FIRST_COMPLETED)
        for each in done - {working}:
            await each
        return await working
    finally:
        for each in (*players, working):
            each.cancel()
        await asyncio.gather(*players, working, return_exceptions=True)
