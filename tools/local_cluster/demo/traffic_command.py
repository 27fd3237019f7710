"""`fathom local traffic`."""

import asyncio
import time
from enum import StrEnum
from typing import Annotated, Final

import aiohttp
import typer
from kubernetes.aio.client.exceptions import ApiException

from fathom.adapters import kube_config
from fathom.adapters.kube_config import NoClusterError
from local_cluster.daemon import run_until_signal
from local_cluster.demo.fleet import DemoFleet
from local_cluster.engine.language import EASY, HARD, TRAFFIC_CLASSES
from local_cluster.engine.traffic import LoadGenerator, Phase, TrafficSummary
from local_cluster.errors import LocalClusterError, explained
from local_cluster.kube import KubeApi

TOLD_EVERY_SECONDS: Final = 10.0


class TrafficKind(StrEnum):
    """The two kinds of traffic that the constructed pair knows."""

    EASY = EASY.name
    HARD = HARD.name


def traffic_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the SpeculativeDeployment.")],
    *,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="Default: the context's, as with kubectl.")
    ] = "",
    kind: Annotated[TrafficKind, typer.Option(help="Most drafts are accepted, or hardly any.")] = (
        TrafficKind.EASY
    ),
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Requests in flight.")] = 4,
) -> None:
    """Sends requests to the example until Control-C, and checks every token that comes back.

    To what KUBECONFIG names: a cluster of `fathom local` that serves examples/local-eagle3.1.yaml,
    whose every answer is known.
    """
    phase = Phase(TRAFFIC_CLASSES[kind], concurrency)
    with explained():
        try:
            where = namespace or kube_config.namespace(None)
            run_until_signal(_send(where, name, phase))
        except NoClusterError as error:
            raise LocalClusterError(f"{error}") from error
        except ApiException as error:
            raise LocalClusterError(
                f"{where}/{name} cannot be read: {error.reason}. It has to be there, with its "
                "Service, before anything is sent to it."
            ) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise LocalClusterError(f"The API server does not answer: {error}.") from error


async def _send(namespace: str, name: str, phase: Phase) -> None:
    configuration = await kube_config.load(None)
    async with kube_config.client(configuration) as client, aiohttp.ClientSession() as http:
        fleet = DemoFleet(KubeApi(client), http, namespace, name)
        model = (await fleet.resource())["spec"]["model"]["id"]
        async with LoadGenerator(await fleet.service_url(), model) as load:
            load.set_phase(phase)
            told_s = time.monotonic()
            while True:
                await asyncio.sleep(TOLD_EVERY_SECONDS)
                since_s, told_s = told_s, time.monotonic()
                error = next((each.error for each in load.results if not each.ok), "")
                typer.echo(told_line(phase, load.summary(since_s, told_s), error))
                load.results.clear()


def told_line(phase: Phase, told: TrafficSummary, error: str) -> str:
    """What came of some seconds of traffic."""
    failed = f", {told.failed} failed, such as: {error}" if told.failed else ", none failed"
    return (
        f"{phase.traffic.name} × {phase.concurrency}: {told.tokens_per_second:.0f} tokens per "
        f"second, {told.requests} requests{failed}"
    )
