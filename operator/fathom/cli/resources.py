"""The SpeculativeDeployments in manifests, each with what refuses it."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Final, Literal

import typer
from pydantic import JsonValue

from fathom.adapters.model_files import is_directory, local_facts
from fathom.adapters.ports import ModelHub
from fathom.adapters.yaml_documents import UnreadableManifestError, read_documents
from fathom.api.conditions import Reason
from fathom.api.names import SILENCE_PREFIX
from fathom.api.problem import Problem, Severity, warning
from fathom.api.suggestions import VERY_NEAR, nearest
from fathom.manifests.cache import wanted_fetch
from fathom.manifests.group import MATCHES_LABEL_KEYS
from fathom.model_facts import Absence, ModelFacts
from fathom.model_refs import ModelRef, model_refs
from fathom.resource import (
    SpeculationTuner,
    SpeculativeDeployment,
    is_speculation_tuner,
    is_speculative_deployment,
    parse,
    parse_tuner,
)
from fathom.rollout.replicas import all_replicas
from fathom.text import counted
from fathom.validation.candidate import Candidate, as_sized, candidate_of
from fathom.validation.chain import CHAIN, problems_of
from fathom.validation.gpu_memory_checks import GIB, graph_cost
from fathom.validation.model_input import unknown
from fathom.validation.placement_checks import needed_kinds
from fathom.validation.spec_checks import TRIAL

REFUSED: Final = 2
"""Exit code of a command that refused something."""
_PAIR_RULE: Final = "draft-fits"
_RULE_OF_VLLM: Final = "engine"
"""`fathom.cli.engine_check.RULE`, which costs each command more to import."""
_TO_DO: Final[Mapping[Absence, str]] = MappingProxyType(
    {
        Absence.NOT_LOCAL: "Check it where that directory is",
        Absence.UNREADABLE: "See that it can be read",
        Absence.GATED: "Ask for access",
        Absence.MISSING: "Check the name and the revision",
        Absence.UNREACHABLE: "Try again, or set HTTPS_PROXY or HF_ENDPOINT",
        Absence.OFFLINE: "Leave out --offline and HF_HUB_OFFLINE, or fetch it into the cache "
        "(`hf download {model} config.json`)",
        Absence.NOT_YET: "Try again",
    }
)
"""What brings a config.json that was not read."""

_SOUND_TUNER: Final = (
    "the spec of this SpeculationTuner is sound. Its pods were not read: once it is applied, "
    "`kubectl get spectuner` says what can be done with them."
)
_SAME_NAME: Final = warning(
    "metadata.name",
    "an earlier document of this file has the same name, and this one overwrites it where they are "
    "applied: rename or remove one of them.",
)
ModelRole = Literal["target", "draft"]

Files = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE]...", help="Manifests in YAML; - reads stdin.")
]
FilesByFlag = Annotated[
    list[str] | None,
    typer.Option("-f", "--filename", metavar="FILE", help="The same, as with kubectl."),
]


@dataclass(frozen=True, slots=True)
class Document:
    """One SpeculativeDeployment of a file."""

    where: str
    """The file, and the resource's name where the file holds several."""
    parsed: SpeculativeDeployment | tuple[Problem, ...]
    """The resource, or what is wrong with its schema and rules."""
    doubts: tuple[Problem, ...] = ()
    """What its user should know of it as one document of several."""


def named(files: Sequence[str] | None, by_flag: Sequence[str] | None) -> tuple[str, ...]:
    """The files of a command that takes them with `-f`, without, or both."""
    return (*(files or ()), *(by_flag or ()))


def read(files: Sequence[str]) -> Iterator[Document]:
    """Every SpeculativeDeployment in the files; other kinds are passed over.

    Of a SpeculationTuner only what is wrong with its spec comes out: it is nothing to be rendered.

    Args:
        files: paths; `-` is stdin.

    Raises:
        typer.Exit: a file cannot be read; stderr says why. Or, after all others were read, one
            holds none: what is to be checked and is not must not look well.
    """
    missed = False
    for file in files:
        where = "stdin" if file == "-" else file
        try:
            found = list(read_documents(file))
        except UnreadableManifestError as error:
            typer.echo(f"{where}: {error}", err=True)
            raise typer.Exit(REFUSED) from error
        documents = [each for each in found if is_speculative_deployment(each)]
        tuners = [each for each in found if is_speculation_tuner(each)]
        if not (documents or tuners):
            typer.echo(
                f"{where}: holds no SpeculativeDeployment and no SpeculationTuner.", err=True
            )
            missed = True
        for each in tuners:
            one, tuner = f"{where}: {_name(each)}", parse_tuner(each)
            if isinstance(tuner, SpeculationTuner):
                typer.echo(f"{one}: {_SOUND_TUNER}", err=True)
            else:
                yield Document(one, tuner)
        keys = [_key(each) for each in documents]
        for index, document in enumerate(documents):
            one = where if len(documents) == 1 else f"{where}: {_name(document)}"
            again = keys[index] in keys[:index]
            yield Document(one, parse(document), (_SAME_NAME,) if again else ())
    if missed:
        raise typer.Exit(REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is known of a resource that parses."""

    candidate: Candidate
    errors: tuple[Problem, ...]
    """Why it is refused; empty: it is not."""
    unread: tuple[ModelRole, ...]
    """Models of which no config.json was read."""
    unknown: tuple[Problem, ...]
    """All that could not be checked."""
    warnings: tuple[Problem, ...]
    """What its user should know of one that is not refused."""


def judged(
    resource: SpeculativeDeployment,
    models: Mapping[ModelRef, ModelFacts],
    doubts: Iterable[Problem] = (),
) -> Judgement:
    """Judge a resource as a new one, for no cluster in particular.

    Args:
        resource: that `parse` accepted.
        models: what is known of the models that it names.
        doubts: what was found of its document.
    """
    candidate = candidate_of(as_sized(resource, models), models)
    found, verdict, unread = problems_of(candidate), candidate.verdict, dict(_unread(candidate))
    doubt = [warning(verdict.field, verdict.message)] if verdict.reason is Reason.DOUBTFUL else []
    not_known = list(unread.values())
    of_engine = verdict.field.startswith("spec.engine")
    if verdict.reason is Reason.NOT_CHECKED and (of_engine or not unread):
        not_known.append(unknown(verdict.message, verdict.field))
    silenced = candidate.silenced(_PAIR_RULE)
    trial = candidate.trial.verdict if candidate.trial is not None else None
    tried = [] if trial is None or trial.reason is not Reason.NOT_CHECKED else [trial]
    if trial is not None and trial.refused:
        # What serves would go on without it; whoever writes it wants to know that it cannot work.
        found = tuple(
            replace(each, severity=Severity.ERROR) if each.field == TRIAL else each
            for each in found
        )
    return Judgement(
        candidate=candidate,
        errors=tuple(each for each in found if each.severity is Severity.ERROR),
        unread=tuple(unread),
        unknown=(
            *_of_pair(not_known, silenced),
            *_of_pair((unknown(each.message, TRIAL) for each in tried), silenced),
        ),
        warnings=(
            *doubts,
            *_silences(candidate),
            *_of_pair(doubt, silenced),
            *(each for each in found if each.severity is Severity.WARNING),
        ),
    )


def _silences(candidate: Candidate) -> Iterator[Problem]:
    """Annotations that silence nothing: of no rule, or without a reason."""
    known = {_RULE_OF_VLLM, *(rule.id for link in CHAIN for rule in link)}
    for name in candidate.resource.metadata.annotations or {}:
        rule = name.removeprefix(SILENCE_PREFIX)
        if rule == name or (candidate.silenced(rule) and rule in known):
            continue
        near = nearest(rule, known, VERY_NEAR)
        why = ", and has no reason: write why as its value."
        if rule not in known:
            why = (
                f": no rule is called {rule}.{f' Did you mean {near}?' if near else ' Remove it.'}"
            )
        yield warning("metadata.annotations", f"{name} silences nothing{why}")


def _of_pair(found: Iterable[Problem], silenced: str) -> Iterator[Problem]:
    """What the condition DraftCompatible says of a pair, too."""
    return (replace(each, rule=_PAIR_RULE, silenced=silenced) for each in found)


def _unread(candidate: Candidate) -> Iterator[tuple[ModelRole, Problem]]:
    """Models that were not read, and need not even exist."""
    spec, given = candidate.spec, candidate.models
    if given.target.config is None:
        yield "target", unknown(_not_read(spec.model.id, given.target), "spec.model.id")
    if spec.draft.id and spec.drafts and given.draft.config is None:
        yield "draft", unknown(_not_read(spec.draft.id, given.draft), "spec.draft.id")


def _not_read(model: str, facts: ModelFacts) -> str:
    to_do = _TO_DO[facts.absence or Absence.NOT_YET].format(model=model)
    why = f" ({facts.explanation})" if facts.explanation else ""
    return (
        f"the config.json of {model} was not read{why}. {to_do}, or apply it: vLLM says at start "
        "whether it fits."
    )


async def looked_up(
    resource: SpeculativeDeployment, hub: ModelHub
) -> Mapping[ModelRef, ModelFacts]:
    """What is known of the models that a resource names."""
    refs = model_refs(resource.spec)
    facts = await asyncio.gather(*(_look_up(ref, hub) for ref in refs))
    return dict(zip(refs, facts, strict=True))


async def _look_up(ref: ModelRef, hub: ModelHub) -> ModelFacts:
    if is_directory(ref):
        return await asyncio.to_thread(local_facts, ref)
    return await hub.look_up(ref)


def bill(candidate: Candidate) -> tuple[str, ...]:
    """What a resource takes: GPUs, APIs of the cluster, and time until it serves.

    Args:
        candidate: a resource that is not refused.
    """
    spec, layout = candidate.spec, candidate.engine.layout
    replicas = all_replicas(spec)
    if not layout.on_gpus:
        return (f"GPUs: none ({spec.node_pool.accelerator}, for trying).", *_start(candidate))
    nodes = f"{layout.nodes} nodes × " if layout.spans_nodes else ""
    each = counted(layout.gpus_per_pod, "GPU")
    gpus = (
        f"GPUs: {counted(replicas, 'replica')} × {nodes}{each} ({spec.node_pool.accelerator}) = "
        f"{replicas * layout.gpus}"
    )
    if more := spec.rollout.max_surge * layout.gpus:
        gpus += f"; a rollout takes up to {more} more"
    if spec.draft.training is not None and spec.draft.training.gpus:
        gpus += f"; a training, once a person approves it, takes {spec.draft.training.gpus}"
    apis = [f"{kind.kind} {kind.version}" for kind in needed_kinds(layout)]
    if layout.domain_key:
        apis.append(f"Kubernetes {'.'.join(map(str, MATCHES_LABEL_KEYS))}")
    needs = (f"needs in the cluster: {', '.join(apis)}.",) if apis else ()
    return (f"{gpus}.", *needs, *_start(candidate))


def _start(candidate: Candidate) -> Iterator[str]:
    spec, given = candidate.spec, candidate.models
    if wanted_fetch(candidate.resource) is not None:
        sizes = [facts.weights.total_bytes for facts in (given.target, given.draft)]
        known = f", {sum(filter(None, sizes)) / GIB:.0f} GiB" if any(sizes) else ""
        yield f"once: a Job fetches the weights{known}, and no pod starts before."
    start = (
        f"start: at most {counted(spec.engine.startup_minutes, 'minute')} (engine.startupMinutes)"
    )
    if given.captured is not None and candidate.engine.start.captures_graphs:
        least, most = graph_cost(given.captured).minutes
        share = f"{least} to {most}" if most > least else f"{least}"
        start += f", about {share} of them for CUDA graphs"
    yield f"{start}."


def tell(where: str, problems: Sequence[Problem]) -> None:
    """Say on stderr what is wrong."""
    for problem in problems:
        typer.echo(f"{where}: {problem}", err=True)


def _name(document: Mapping[str, JsonValue]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _key(document: Mapping[str, JsonValue]) -> tuple[str, str]:
    """By which an API server tells it from others of its kind."""
    metadata = document.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    return str(namespace or ""), _name(document)
