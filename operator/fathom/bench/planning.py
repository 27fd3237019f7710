"""From a resource and what is asked of it to what its pod measures. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from fathom.api import names
from fathom.api.choices import Drafting, TuningMode
from fathom.api.conditions import ConditionStatus, ConditionType
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.bench.request import BenchData, BenchRefusedError, BenchRequest, asked_depths, data_of
from fathom.engine.flags import HTTP_PORT
from fathom.engine.plugin import PluginBundle
from fathom.fetch.state import Fetched, pinned
from fathom.manifests.engine_env import PLUGIN_DIRECTORY
from fathom.manifests.pod_template import pod_template
from fathom.manifests.template_parts import Part, by, parts, texts
from fathom.resource import SpeculativeDeployment
from fathom.rollout.revision import revision_of
from fathom.rollout.rollout import Stage
from fathom_fetch.metrics import DRAFT, MODEL
from fathom_measure.plan import EnginePlan, LoadPlan, MeasurePlan
from fathom_vllm.environment import DEFAULT_DEPTH_FILE

OBEY_SECONDS: Final = 60.0
"""An engine looks at its depth file four times a second."""
LOAD_SECONDS: Final = 3600.0
"""That one run may take: 128 prompts of 32k tokens at depth 0 on a large model take minutes."""
_NO_PREFIX_CACHE: Final = "--no-enable-prefix-caching"
"""Each depth is asked the same prompts, and the second would find what the first computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBench:
    """All that the pod needs."""

    measure: MeasurePlan
    data: tuple[BenchData, ...]
    template: Part
    """Template of the fleet's own pods, as this spec starts them."""
    bundle: PluginBundle


def planned(sd: SpeculativeDeployment, request: BenchRequest, bundle: PluginBundle) -> PlannedBench:
    """Plan a bench of a resource against which nothing stands.

    Raises:
        BenchRefusedError: it cannot be measured so.
    """
    depths = asked_depths(sd, request.depths)
    data = data_of(request)
    template = pod_template(sd, revision=revision_of(sd), bundle=bundle)
    engines = [
        EnginePlan(
            command=_command(template),
            depths=depths,
            depth_file=DEFAULT_DEPTH_FILE if sd.engine.live else "",
        )
    ]
    if request.true_off:
        off = _without_drafting(sd)
        bare = pod_template(off, revision=revision_of(off), bundle=bundle)
        engines.append(EnginePlan(command=_command(bare), depths=(), hidden=PLUGIN_DIRECTORY))
    measure = MeasurePlan(
        engines=tuple(engines),
        loads=tuple(
            LoadPlan(
                data=each.label,
                concurrency=concurrency,
                prompts=request.prompts_at(concurrency),
                arguments=load_arguments(sd, request, each, concurrency),
            )
            for each in data
            for concurrency in request.concurrency
        ),
        port=HTTP_PORT,
        max_batch=sd.engine.max_num_seqs,
        start_seconds=sd.spec.engine.startup_minutes * 60.0,
        obey_seconds=OBEY_SECONDS,
        load_seconds=LOAD_SECONDS,
    )
    return PlannedBench(measure=measure, data=data, template=template, bundle=bundle)


def as_fetched(
    sd: SpeculativeDeployment, status: SpeculativeDeploymentStatus
) -> SpeculativeDeployment:
    """The resource as its pods are rendered: with the commits that lie in the cache.

    Raises:
        BenchRefusedError: they are not there yet. Nothing else is downloaded beside them.
    """
    if status.weights is None:
        return sd
    commits = {each.id: each.commit for each in status.weights.models}
    if not commits:
        raise BenchRefusedError(
            f"The weights of {sd.metadata.name} are not fetched yet: {status.weights.summary}."
        )
    by_role = ((MODEL, sd.spec.model.id), (DRAFT, sd.spec.draft.id))
    found = tuple(sorted((role, commits[name]) for role, name in by_role if name in commits))
    return pinned(sd, Fetched(found))


def require_all_placed(sd: SpeculativeDeployment, status: SpeculativeDeploymentStatus) -> None:
    """Let a bench start only where no replica may need the place that it would take.

    Args:
        sd: whose bench.
        status: what its operator has said last.

    Raises:
        BenchRefusedError: a replica is missing, or may be in the next minutes.
    """
    name, wanted, rollout = sd.metadata.name, sd.spec.replicas, status.rollout
    moving = (
        each.message
        for each in status.conditions
        if each.type is ConditionType.PROGRESSING and each.status is ConditionStatus.TRUE
    )
    if status.observed_generation < sd.metadata.generation:
        why = f"its operator has not acted upon the newest edit of {name} yet."
    elif status.ready_replicas < wanted:
        why = f"{status.ready_replicas} of {wanted} replicas of {name} are ready."
    elif rollout is not None and rollout.stage in {Stage.SETTLING, Stage.CANARY, Stage.PROMOTED}:
        why = f"{name} rolls out revision {rollout.revision}: {rollout.message}"
    else:
        why = next(moving, "")
    if why:
        raise BenchRefusedError(
            f"A bench would take a place that a replica may need: {why} `kubectl fathom status "
            f"{name}` says when every replica serves; then ask again."
        )


def load_arguments(
    sd: SpeculativeDeployment, request: BenchRequest, data: BenchData, concurrency: int
) -> tuple[str, ...]:
    """After `vllm bench serve`, but for where its result goes."""
    trust = ("--trust-remote-code",) if sd.spec.model.trust_remote_code else ()
    return (
        *("--host", "127.0.0.1", "--port", str(HTTP_PORT)),
        *data.arguments,
        *("--max-concurrency", str(concurrency)),
        *("--num-prompts", str(request.prompts_at(concurrency))),
        *("--num-warmups", str(concurrency)),
        *("--temperature", f"{request.temperature:g}", "--seed", "0"),
        *("--disable-tqdm", "--save-result"),
        *trust,
    )


def engine_container(template: Part) -> Part:
    """The one in which the engine runs."""
    return by("name", parts(template, "spec", "containers"))[names.ENGINE_CONTAINER]


def _command(template: Part) -> tuple[str, ...]:
    container = engine_container(template)
    command = texts(container, "command")
    if not command:
        raise BenchRefusedError(
            "The image's own entrypoint starts the engine, and a bench starts it itself: write its "
            "command into podTemplate."
        )
    return (*command, *texts(container, "args"), _NO_PREFIX_CACHE)


def _without_drafting(sd: SpeculativeDeployment) -> SpeculativeDeployment:
    """As vLLM starts by itself: it does not count either."""
    tuning = sd.spec.speculation.tuning.model_copy(update={"mode": TuningMode.STATIC})
    without = {"drafting": Drafting.DISABLED, "tuning": tuning}
    speculation = sd.spec.speculation.model_copy(update=without)
    return replace(sd, spec=sd.spec.model_copy(update={"speculation": speculation}))
