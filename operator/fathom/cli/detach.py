"""`fathom detach`: has a SpeculationTuner give all engines their user's depth back, and waits."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from pydantic import JsonValue

from fathom.adapters import kube_config
from fathom.adapters.http import BadAnswerError
from fathom.adapters.kube import Kube
from fathom.adapters.metrics_page import PageReader
from fathom.adapters.pod_metrics import ForbiddenPageError, ProxiedPages
from fathom.adapters.ports import Clock, KubeError, KubePort, PodEndpoint, SystemClock
from fathom.adapters.series import NotAnEngine
from fathom.api import names
from fathom.api.choices import TuningMode
from fathom.cli.arguments import tuners_beginning
from fathom.cli.attach_report import PageSource
from fathom.cli.cluster import config_map_data
from fathom.cli.options import (
    Context,
    Kubeconfig,
    Namespace,
    chosen_namespace,
    end_when_told,
    refuse,
    refusing,
)
from fathom.cluster.kinds import POD, SPECULATION_TUNER, ObjectKey
from fathom.cluster.manifest import Seen
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.depth import DepthDocument, summary
from fathom.measurement.counters import PodCounters
from fathom.resource import SpeculationTuner, known_part_of_tuner, parse_tuner
from fathom.text import counted
from fathom_vllm.environment import DEPTH_KEY

EVERY_S: Final = 2.0
NOT_BACK: Final = 1
"""Exit code: not all are back in time."""
_PATCH: Final[Mapping[str, JsonValue]] = {"spec": {"tuning": {"mode": TuningMode.ADVISE.value}}}
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class DetachError(Exception):
    """It cannot be done; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detacher:
    """Brings one tuner's engines back."""

    kube: KubePort
    pages: PageSource
    clock: Clock
    pause: Callable[[float], Awaitable[None]]
    tell: Callable[[str], None]
    """Takes a sentence whenever there is another one to say."""
    key: ObjectKey

    async def bring_back(self, wait_s: float) -> tuple[str, ...]:
        """Set mode Advise, and wait; the pods that are not back in time.

        Raises:
            DetachError: there is no such tuner.
            ForbiddenPageError: whoever asks may not read pages.
            KubeError: the cluster cannot be asked.
        """
        namespace, name = self.key.namespace, self.key.name
        tuner = await self._tuner()
        if tuner.spec.tuning.mode is not TuningMode.ADVISE:
            await self.kube.merge(SPECULATION_TUNER, namespace, name, _PATCH, None)
            self.tell("Mode is Advise. If Git or a chart has this tuner, write it there, too.")
        deadline_s, reported = self.clock.now_s() + wait_s, ""
        while True:
            try:
                left, sentence = await self._look(tuner)
            except KubeError as error:
                # What is gone for a moment need not end the waiting.
                if not error.transient or self.clock.now_s() >= deadline_s:
                    raise
            else:
                if sentence != reported:
                    reported = sentence
                    self.tell(sentence)
                if not left or self.clock.now_s() >= deadline_s:
                    return left
            await self.pause(EVERY_S)

    async def _look(self, tuner: SpeculationTuner) -> tuple[tuple[str, ...], str]:
        """The pods that are not back, and how it is, as a sentence."""
        document = await self._document()
        if document is None:
            return (), "It has no depth document: it has changed no depth."
        pods, unready = await self._counters(tuner)
        if left := away(document, pods, unready):
            return left, f"Not yet at your depth: {', '.join(left)}."
        depth = summary(document.tokens)
        if unready:
            unread = f"Not ready, and so not read: {', '.join(unready)}."
            return (), f"Every pod that is ready is at your depth, {depth}. {unread}"
        if not pods:
            return (), "No pod reads its depth document, so none is at a depth of its."
        return (), f"Every pod is at your depth, {depth}."

    async def delete(self) -> None:
        """Delete the tuner alone; its own two ConfigMaps go with it."""
        namespace, name = self.key.namespace, self.key.name
        found = await self.kube.get(SPECULATION_TUNER, namespace, name)
        if found is not None:
            await self.kube.delete(SPECULATION_TUNER, namespace, name, Seen.of(found))

    async def _tuner(self) -> SpeculationTuner:
        namespace, name = self.key.namespace, self.key.name
        found = await self.kube.get(SPECULATION_TUNER, namespace, name)
        if found is None:
            raise DetachError(f"There is no {self.key}.")
        tuner = parse_tuner(known_part_of_tuner(found).known)
        if not isinstance(tuner, SpeculationTuner):
            listed = " ".join(map(str, tuner))
            raise DetachError(f"The spec of {self.key} is refused, so nothing acts on it: {listed}")
        return tuner

    async def _document(self) -> DepthDocument | None:
        """None: it has none.

        Raises:
            DetachError: it has one that cannot be read.
        """
        name = names.tuner_depth_config_map(self.key.name)
        text = (await config_map_data(self.kube, self.key.namespace, name)).get(DEPTH_KEY, "")
        document = DepthDocument.from_json(text)
        if text and document is None:
            raise DetachError(
                f"ConfigMap {self.key.namespace}/{name} holds no depth document that this release "
                "can read, so whether the pods are at your depth is not known. The mode is Advise, "
                "and stays so: use the release of the operator (`kubectl fathom version`)."
            )
        return document

    async def _counters(
        self, tuner: SpeculationTuner
    ) -> tuple[dict[str, PodCounters | None], tuple[str, ...]]:
        """By pod that reads the document, None: its page cannot be read now; and who is unready."""
        selector = str(tuner.spec.selector)
        found = await self.kube.select(POD, self.key.namespace, selector)
        pods = map(ObservedPod.model_validate, found)
        document = names.tuner_depth_config_map(self.key.name)
        ours = [each for each in pods if document in each.spec.config_maps and not each.finished]
        reading = [each for each in ours if each.ready]
        answers = await asyncio.gather(*(self._page(each, tuner) for each in reading))
        unready = sorted(each.name for each in ours if not (each.ready or each.terminating))
        read = {each.name: answer for each, answer in zip(reading, answers, strict=True)}
        return read, tuple(unready)

    async def _page(self, pod: ObservedPod, tuner: SpeculationTuner) -> PodCounters | None:
        endpoint = PodEndpoint(
            namespace=self.key.namespace,
            pod=pod.name,
            ip=pod.status.pod_ip,
            port=tuner.spec.metrics.port,
        )
        try:
            page = await self.pages.page(endpoint)
            return PageReader().read(page.encode(), pod=pod.name, at_s=self.clock.now_s())
        except ForbiddenPageError:
            raise
        except (BadAnswerError, NotAnEngine):
            return None


def away(
    document: DepthDocument, pods: Mapping[str, PodCounters | None], unready: Sequence[str]
) -> tuple[str, ...]:
    """Pods that are not at their user's depth, or are not known to be; at first all are.

    Args:
        document: that they read.
        pods: those that are ready, by name; None: what it runs is not known.
        unready: those that are not. They serve nothing, and come back to what the document says.
    """
    back = document.schedule == document.tokens and not document.pods
    left = [
        name
        for name, counters in pods.items()
        if counters is None or (counters.live_depth and not (back and counters.runs(document)))
    ]
    return tuple(sorted([*left, *(() if back else unready)]))


@app.command(no_args_is_help=True)
def detach_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="The SpeculationTuner.", autocompletion=tuners_beginning
        ),
    ],
    *,
    wait: Annotated[
        float, typer.Option(min=0, max=3600, help="Seconds until all pods have to be back.")
    ] = 300.0,
    delete: Annotated[
        bool, typer.Option("--delete", help="Then delete the SpeculationTuner, and nothing else.")
    ] = False,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Have a SpeculationTuner give the user's depth back, and say what to remove from the host.

    It sets spec.tuning.mode to Advise, which is all that it writes, and waits until every pod shows
    the user's depth. It reads them through the API server: you need the right to get pods/proxy.

    Exit codes: 0, all are back; 1, not in time, and nothing was deleted; 2, refused.

    Example: fathom detach qwen -n llm
    """
    where = chosen_namespace(namespace, context=context, kubeconfig=kubeconfig)
    key = ObjectKey(where, name.rpartition("/")[2], SPECULATION_TUNER)

    async def run() -> Sequence[str]:
        end_when_told()
        configuration = await kube_config.load(kubeconfig, context)
        async with kube_config.client(configuration, redirected=False) as api:
            detacher = Detacher(
                kube=Kube(api),
                pages=ProxiedPages(api),
                clock=SystemClock(),
                pause=asyncio.sleep,
                tell=lambda sentence: typer.echo(sentence, err=True),
                key=key,
            )
            left = await detacher.bring_back(wait)
            if delete and not left:
                await detacher.delete()
            return left

    with refusing():
        try:
            left = asyncio.run(run())
        except DetachError as error:
            refuse(str(error))
        except ForbiddenPageError as error:
            refuse(f"The pods cannot be read: {error}. The mode is Advise, and stays so.")
    if left:
        typer.echo(
            f"{counted(len(left), 'pod')} not at your depth within {wait:g} s: {', '.join(left)}. "
            "Does the operator run, and does it watch this namespace?",
            err=True,
        )
        raise typer.Exit(NOT_BACK)
    for line in what_to_remove(key.name, deleted=delete):
        typer.echo(line)


def what_to_remove(name: str, *, deleted: bool) -> tuple[str, ...]:
    """What is left in the host, in an order in which its pods start at each step.

    Args:
        name: of the tuner.
        deleted: whether the tuner is.
    """
    steps = (
        "its arguments: --scheduler-cls and, in --speculative-config, the schedule",
        "variables FATHOM_* and PYTHONPATH, volumes fathom-plugin and fathom-depth, their mounts",
        *(() if deleted else (f"SpeculationTuner {name}",)),
        "at last, when no pod mounts it, ConfigMap fathom-plugin-…",
    )
    numbered = (f"{number}. {step}" for number, step in enumerate(steps, start=1))
    return ("Remove, in this order; the first two with one restart:", *numbered)
