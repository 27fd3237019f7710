"""`fathom check`: what is known of a resource, and what is wrong with it."""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from fathom.adapters.hub import TIMEOUT_S, HuggingFaceHub
from fathom.api.conditions import Reason
from fathom.api.spec import DEFAULT_MAX_TOKENS, SpeculativeDeploymentSpec
from fathom.cli.arguments import bare_name, names_beginning
from fathom.cli.ask_engine import with_vllm
from fathom.cli.check_report import CheckList, CheckReport, Fact, findings, lines_of, verdict_of
from fathom.cli.documents import AsOutput, Output, written
from fathom.cli.live_check import WAIT_S, live_check, server_answer, with_answer
from fathom.cli.options import Context, Kubeconfig, Namespace, refuse
from fathom.cli.resources import (
    REFUSED,
    Files,
    FilesByFlag,
    Judgement,
    bill,
    judged,
    looked_up,
    named,
    read,
)
from fathom.engine.depth_set import WIDEST_GRID, richer_tokens
from fathom.engine.profile import EngineProfile
from fathom.engine.start import EngineStart
from fathom.model_facts import ModelConfig
from fathom.resource import SpeculativeDeployment
from fathom.rollout.comparison import what_it_has
from fathom.rollout.replicas import arm_of, beside_arm, why_no_arm
from fathom.rollout.revision import revision_of
from fathom.validation.engine_checks import graph_price
from fathom.validation.gpu_memory_checks import (
    GIB,
    GraphCost,
    graph_cost,
    memory_estimate,
    state_cost,
)
from fathom.validation.model_input import PreflightInput, with_deepest

_LONGEST_TIMEOUT_S: Final = 600.0
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def report_of(file: str, resource: SpeculativeDeployment, judgement: Judgement) -> CheckReport:
    """What was found of a resource.

    Args:
        file: where it is from.
        resource: as it was judged.
        judgement: of it.
    """
    unknown = () if judgement.errors else judgement.unknown
    found = findings((*judgement.errors, *unknown, *judgement.warnings))
    return CheckReport(
        file=file,
        name=resource.metadata.name,
        verdict=verdict_of(found),
        revision="" if judgement.errors else revision_of(resource),
        unread=judgement.unread,
        findings=found,
        facts=tuple(Fact(label=label, text=text) for label, text in _facts(resource, judgement)),
        bill=() if judgement.errors else bill(judgement.candidate),
    )


def _facts(resource: SpeculativeDeployment, judgement: Judgement) -> Iterator[tuple[str, str]]:
    """Pairs of a label and what is known."""
    spec, given = resource.spec, judgement.candidate.models
    verdict = judgement.candidate.verdict
    in_full = verdict.reason in {Reason.DOUBTFUL, Reason.NOT_CHECKED}
    yield "draft", f"{verdict.reason}: {'see the finding.' if in_full else verdict.message}"
    yield "depth", _depth(resource.engine) + _states(given)
    live_or_set = resource.engine.live or (resource.engine.sets_graphs and spec.drafts)
    if resource.engine.layout.on_gpus and live_or_set:
        yield "CUDA graphs", _graphs(resource.engine)
    if compared := _compared(resource):
        yield "comparison", compared
    # Of one that was not read there is a finding.
    if given.target.config is not None:
        yield "target model", f"{spec.model.id}: {_shape(given.target.config)}"
    if spec.drafts and given.draft.config is not None:
        yield "draft model", f"{spec.draft.id}: {_shape(given.draft.config)}"
    if spec.drafts:
        yield "family", verdict.family or "unknown"
    if resource.engine.layout.on_gpus and not spec.draft.method.looks_up_ngrams:
        yield "memory of one GPU", _memory(given)


def _compared(resource: SpeculativeDeployment) -> str:
    spec = resource.spec
    arm = arm_of(spec)
    if arm is None or spec.compares is None:
        return ""
    if waits := why_no_arm(spec):
        return f"{waits}."
    what = what_it_has(spec.compares, spec.draft.on_trial)
    revision = revision_of(resource.with_spec(arm))
    return f"one replica {what}, revision {revision}, with {beside_arm(spec)} others."


def _depth(engine: EngineProfile) -> str:
    spec, refusal = engine.spec, engine.not_live
    if not spec.drafts:
        return "none: speculation.drafting is Disabled."
    if not spec.tunable:
        return f"Static: {spec.speculation.tokens}, as tuning.mode asks."
    if refusal is not None:
        return f"{refusal.reason}: {refusal.sentence}"
    speculation = spec.speculation
    chosen = [each for each in engine.depths if each >= speculation.min_tokens]
    richer = richer_tokens(speculation) if engine.start.captures_graphs else None
    more = f" With tokens {richer} there would be more between them." if richer else ""
    more += _synchronous(engine.start)
    return f"Live: one of {', '.join(map(str, chosen))}, starting at {speculation.tokens}.{more}"


def _states(given: PreflightInput) -> str:
    """What depth costs a hybrid target, where there is no space for more than `tokens`."""
    engine, tokens = given.engine, given.spec.speculation.tokens
    cost = state_cost(given)
    if cost is None or not engine.live or engine.deepest > tokens:
        return ""
    if tokens >= DEFAULT_MAX_TOKENS:
        return f" Depth cannot rise above {tokens}."
    deeper = with_deepest(given, DEFAULT_MAX_TOKENS)
    would, graphs = state_cost(deeper), ""
    if given.captured is not None and deeper.captured is not None:
        most, least = (graph_cost(each.captured) for each in (deeper, given) if each.captured)
        graphs = f"; CUDA graphs {_gib(most.memory_bytes)}, for {_gib(least.memory_bytes)}"
    return (
        f" Depth cannot rise above {tokens}: the target keeps a state for each token that a "
        f"request may draft, and {would.compared(cost) if would else ''}{graphs} "
        f"(`maxTokens: {DEFAULT_MAX_TOKENS}`)."
    )


def _synchronous(start: EngineStart) -> str:
    if not (why := start.synchronous):
        return ""
    live = f" Without asynchronous scheduling ({why}) it is live"
    if grammars := start.grammars:
        return (
            f"{live}, but most steps with a grammar, as {grammars} lets requests have, mix depths "
            "and count for nothing (0 to 18 % counted where it was run), so the tuner learns "
            f"little: {start.remedy_of_synchronous}."
        )
    return (
        f"{live} too, but of steps with a grammar (structured output) most mix depths "
        "and count for nothing."
    )


def _graphs(engine: EngineProfile) -> str:
    price = graph_price(engine)
    if isinstance(price, str):
        return f"{price}."
    depth, (live, static) = engine.spec.speculation.tokens, price.captured
    whose = "" if price.counts_draft else " of the target"
    reach, missed = price.live.reach(depth), price.live.missed(depth)
    if engine.start.graph_mode.without_full:
        # None are full, as the user asks.
        missed = 0
    reaches_all = reach == price.live.max_num_seqs
    beyond = "" if reaches_all else f"; none for batches above {reach} at depth {depth}"
    with_live, without = graph_cost(price.live.captured), graph_cost(price.static.captured)
    return (
        f"{live}{whose} to capture, {static} if depth were not live{beyond} (by vLLM's own "
        f"rules). Estimated: {_gib(with_live.memory_bytes)} of each GPU, "
        f"{_gib(without.memory_bytes)} if depth were not live, and {_minutes(with_live)} of the "
        f"start.{_missed(engine.spec, missed) if missed else ''}"
    )


def _minutes(cost: GraphCost) -> str:
    least, most = cost.minutes
    return f"{least} to {most} minutes" if most > least else "about a minute"


def _missed(spec: SpeculativeDeploymentSpec, batches: int) -> str:
    why = (
        "--max-num-seqs leaves no place in the startup schedule for each depth: raise it."
        if spec.speculation.depths is None
        else "other depths take it: leave out speculation.depths, or name depths of which each, "
        f"plus one, divides one number up to {WIDEST_GRID}."
    )
    return f" Without a full graph at depth {spec.speculation.tokens}, batches: {batches}; {why}"


def _memory(given: PreflightInput) -> str:
    estimate, draft = memory_estimate(given), given.spec.draft
    accelerator, size = given.spec.node_pool.accelerator, estimate.memory_bytes
    with_target = draft.method.takes_no_draft or not draft.id
    of_drafts = [
        "draft in the target's files" if with_target else f"draft {_gib(estimate.draft_bytes)}",
        f"KV cache of drafts {_gib(estimate.lookahead_bytes)}",
    ]
    parts = [
        f"target {_gib(estimate.target_bytes)}",
        *(of_drafts if given.spec.drafts else []),
        *([f"CUDA graphs about {_gib(estimate.graphs_bytes)}"] if estimate.graphs_bytes else []),
        f"{accelerator} has {_gib(size) if size else 'an unknown size'}",
    ]
    return ", ".join(parts)


def _gib(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "unknown"
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB / 10 else "under 0.1 GiB"


def _shape(config: ModelConfig) -> str:
    """A model's shape in words, such as `LlamaForCausalLM, hidden 8192, vocabulary 128256`."""
    parts = [config.architecture or "unnamed architecture"]
    if config.hidden_size is not None:
        parts.append(f"hidden {config.hidden_size}")
    if config.vocab_size is not None:
        parts.append(f"vocabulary {config.vocab_size}")
    if config.draft_vocab_size not in {None, config.vocab_size}:
        parts.append(f"of which it drafts {config.draft_vocab_size}")
    return ", ".join(parts)


def _refuse_both(*, files: bool, live: bool, engine: bool, image: bool) -> None:
    if files == live:
        refuse("Name either files (-f FILE) or a running SpeculativeDeployment (--live NAME).")
    if engine and image:
        refuse("Give either --engine PYTHON or --image.")


@app.command()
def check_command(
    files: Files = None,
    *,
    filename: FilesByFlag = None,
    live: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=names_beginning,
            callback=bare_name,
            help="Instead of files: have the operator compare what a running one says with and "
            "without speculation.",
        ),
    ] = "",
    wait: Annotated[
        float, typer.Option(min=1, help="With --live: seconds to wait for the operator's answer.")
    ] = WAIT_S,
    server: Annotated[
        bool,
        typer.Option(
            "--server", help="Have the cluster's API server judge the objects too, by dry runs."
        ),
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            metavar="PYTHON",
            help="Have the vLLM of this Python judge the arguments too, such as python3.",
        ),
    ] = "",
    image: Annotated[
        bool,
        typer.Option("--image", help="The same, of the engine's image, in a Job without a GPU."),
    ] = False,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline", help="Ask no hub; read its cache. HF_HUB_OFFLINE=1 does the same."
        ),
    ] = False,
    output: AsOutput = Output.TEXT,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Everything, however many lines it takes.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse warnings and what is not known, too.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1, max=_LONGEST_TIMEOUT_S, help="Seconds that one request to the hub may take."
        ),
    ] = TIMEOUT_S,
) -> None:
    """Say what is wrong with a SpeculativeDeployment, or what is known of its models and depth.

    Reads the config.json of target and draft, from an absolute directory or from the Hugging Face
    Hub (HF_TOKEN, HF_ENDPOINT), and no weights. Of a SpeculationTuner it judges the spec. Each
    error and warning has the id of its rule (docs/rules.md). Exit code 2: something is refused or,
    with --strict, warned of or not known.

    With --live NAME, no file is read: a few prompts are asked of replicas in the cluster, at depth
    0 and at the deepest depth in force. Exit codes: 0, the same tokens; 1, not so; 2, not checked.

    Example: fathom check -f kimi.yaml --offline

    Example: fathom check --live kimi-k2 -n llm
    """
    manifests = named(files, filename)
    _refuse_both(files=bool(manifests), live=bool(live), engine=bool(engine), image=image)
    if live:
        raise typer.Exit(
            live_check(
                live, namespace=namespace, context=context, kubeconfig=kubeconfig, wait_s=wait
            )
        )
    hub = HuggingFaceHub(offline=offline, timeout_s=timeout)
    reports = []
    for document in read(manifests):
        if isinstance(document.parsed, SpeculativeDeployment):
            models = asyncio.run(looked_up(document.parsed, hub))
            judgement = judged(document.parsed, models, document.doubts)
            resource = judgement.candidate.resource
            report = report_of(document.where, resource, judgement)
            if server and not judgement.errors:
                answer = server_answer(
                    judgement, namespace=namespace, context=context, kubeconfig=kubeconfig
                )
                report = with_answer(report, answer)
            if (engine or image) and not judgement.errors:
                report = with_vllm(
                    *(report, judgement.candidate),
                    python=engine,
                    offline=offline,
                    namespace=namespace,
                    context=context,
                    kubeconfig=kubeconfig,
                )
        else:
            refusals = findings(document.parsed)
            report = CheckReport(file=document.where, verdict="refused", findings=refusals)
        reports.append(report)
        if output is Output.TEXT:
            for line in lines_of(report, in_full=verbose):
                typer.echo(line)
    if output is not Output.TEXT:
        typer.echo(written(CheckList(items=tuple(reports)), output))
    refused = any(each.verdict == "refused" or (strict and each.doubts) for each in reports)
    raise typer.Exit(REFUSED if refused else 0)
