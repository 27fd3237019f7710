"""How a host's engines are to be started for live depth, and what comes of it. Pure.

Nothing is guessed: what the arguments do not say is left as a placeholder, with which vLLM does not
start, and is listed among what is left to do.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from packaging.version import Version
from pydantic import JsonValue

from fathom.api.methods import METHODS, Method
from fathom.api.spec import MAX_TOKENS_LIMIT, SpeculationSpec
from fathom.attach.evidence import evidence_of, has_own_schedule
from fathom.attach.host import Engine
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.added_graph_sizes import BLACKWELL_CEILING, CEILING, stated_sizes
from fathom.engine.argument_parser import (
    EngineArguments,
    graphs_of_each_kind,
    has_variable,
    performance_mode,
    token_budget,
    whole_number,
)
from fathom.engine.capability_table import LIVE_DEPTH
from fathom.engine.cuda_graphs import GraphMode, Graphs, default_sizes, stated_mode
from fathom.engine.depth import DepthRange, Schedule, depth_at, flat
from fathom.engine.depth_set import named_depths, startup_schedule
from fathom.engine.report import EngineReport
from fathom.engine.start import FRONTEND_VARIABLE, MODEL_RUNNER_VARIABLE, captures_graphs
from fathom.measurement.counters import EngineCounts, PodCounters
from fathom_vllm.bundle import SCHEDULER_CLASS

DRAFTING: Final = "--speculative-config"
SCHEDULER: Final = "--scheduler-cls"
PLACEHOLDER: Final = "REPLACE THIS: "
COMPUTED: Final = (
    f"computed from the arguments, with vLLM's own ceiling of {CEILING} tokens "
    f"({BLACKWELL_CEILING:,} on data-centre Blackwell), and not measured"
)
_BY_BATCH: Final = "num_speculative_tokens_per_batch_size"
_OF_RANGE: Final = 3
"""Numbers: first batch, last batch, depth."""
_DOCUMENT: Final = "document"


class Drafting(NamedTuple):
    """What a host's engine drafts."""

    config: Mapping[str, JsonValue]
    """Its `--speculative-config`."""
    tokens: int
    """Its depth: the first of its schedule, where it has one."""
    by_batch: Schedule
    """Its own schedule; empty: it has one depth."""

    @property
    def method(self) -> str:
        """Empty: vLLM chooses it by the draft."""
        return str(self.config.get("method") or "")

    def schedule(self, most: int) -> Schedule:
        """Over all batches of an engine that takes so many requests at a time."""
        if not self.by_batch:
            return flat(self.tokens, most)
        *parts, last = (each for each in self.by_batch if each.first <= most)
        # The last range carries on beyond its end, as in vLLM.
        return (*parts, replace(last, last=most))


def drafting_of(arguments: EngineArguments) -> Drafting | str:
    """What it drafts by its arguments; or why they do not say, as a sentence's second half."""
    config = arguments.object(DRAFTING)
    if apart := arguments.beginning("--spec-"):
        return f"{apart[0].spelling} says what belongs into {DRAFTING}"
    if not config:
        return _why_unread(arguments)
    tokens, by_batch = config.get("num_speculative_tokens"), config.get(_BY_BATCH)
    schedule = _schedule(by_batch)
    if by_batch is not None and not schedule:
        return f"its {_BY_BATCH} cannot be read"
    depth = schedule[0].depth if schedule else tokens
    if not isinstance(depth, int):
        return f"its {DRAFTING} has no num_speculative_tokens"
    if not 1 <= depth <= MAX_TOKENS_LIMIT:
        return f"{depth} is no depth from 1 to {MAX_TOKENS_LIMIT}"
    return Drafting(config, depth, schedule)


def _why_unread(arguments: EngineArguments) -> str:
    if has_variable(arguments.value(DRAFTING) or ""):
        return f"{DRAFTING} is in a variable whose value is elsewhere"
    if arguments.beginning("--config") and not arguments.has(DRAFTING):
        return "its options are in the file of --config"
    return f"no {DRAFTING} that can be read is among its arguments"


def _schedule(found: JsonValue) -> Schedule:
    ranges = found if isinstance(found, list) else []
    made = tuple(
        DepthRange(*numbers)
        for each in ranges
        if isinstance(each, list)
        and len(numbers := [number for number in each if type(number) is int])
        == len(each)
        == _OF_RANGE
    )
    starts = (1, *(each.last + 1 for each in made))
    ascend = all(
        start == each.first <= each.last for start, each in zip(starts, made, strict=False)
    )
    return made if ascend and len(made) == len(ranges) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """How an engine is to be started."""

    engine: Engine
    """As its host has it."""
    drafting: Drafting | None
    """What it drafts now; None: its arguments do not say."""
    schedule: Schedule
    """To start with, over all its batches; empty: it is not known."""
    keeps_own: bool
    """Whether that is the host's own by batch, which stays in force as it is."""
    config: str
    """Value of `--speculative-config`."""
    to_do: tuple[str, ...]
    """What its arguments do not say; empty: nothing is missing."""


def startup_of(engine: Engine) -> Startup:
    """Choose the schedule: the host's own depth comes first."""
    found, most = drafting_of(engine.arguments), engine.max_num_seqs
    if isinstance(found, str):
        return Startup(
            engine=engine,
            drafting=None,
            schedule=(),
            keeps_own=False,
            config=f'{PLACEHOLDER}your own, with a "{_BY_BATCH}" that begins with your depth',
            to_do=(f"Write {DRAFTING}: the depth of these engines is not known, as {found}.",),
        )
    own, captures = found.by_batch, captures_graphs(engine.arguments)
    chosen = named_depths(SpeculationSpec(tokens=found.tokens), live=True, captures_graphs=captures)
    depths = sorted({*chosen, *(each.depth for each in own)})
    keeps_own = has_own_schedule(own, most or own[-1].last) if own else False
    schedule, to_do = Schedule(), tuple[str, ...]()
    if most is None:
        ranges: JsonValue = PLACEHOLDER + _in_words(found, depths, keeps_own=keeps_own)
        why = "no argument says it, and vLLM's own depends on the GPU"
        to_do = (f"Write --max-num-seqs, and {_BY_BATCH} for it: {why}.",)
    else:
        schedule = (
            _with_others(found.schedule(most), depths)
            if keeps_own
            else startup_schedule(depths, most, found.tokens)
        )
        ranges = [[each.first, each.last, each.depth] for each in schedule]
    config = {**found.config, "num_speculative_tokens": depths[-1], _BY_BATCH: ranges}
    return Startup(
        engine=engine,
        drafting=found,
        schedule=schedule,
        keeps_own=keeps_own,
        config=json.dumps(config, separators=(",", ":")),
        to_do=to_do,
    )


def _with_others(own: Schedule, depths: Sequence[int]) -> Schedule:
    """A host's own schedule, and one batch at the top for each depth that it lacks.

    One batch of its last range stays at least.
    """
    *parts, last = own
    lacks = {*depths} - {each.depth for each in own}
    others = sorted(lacks, reverse=True)[: last.last - last.first]
    room = last.last - len(others)
    return (
        *parts,
        replace(last, last=room),
        *(DepthRange(at, at, depth) for at, depth in enumerate(others, start=room + 1)),
    )


def _in_words(found: Drafting, depths: Sequence[int], *, keeps_own: bool) -> str:
    """The schedule of an engine that takes an unknown number of requests at a time, M."""
    if keeps_own:
        lacks = sorted({*depths} - {each.depth for each in found.by_batch}, reverse=True)
        return f"your own, and at its top one batch each for depths {', '.join(map(str, lacks))}"
    most = len(depths) + 1
    batches = {1: "1", most: "M"}
    ranges = ",".join(
        "[{},{},{}]".format(
            *(batches.get(each, f"M-{most - each}") for each in (part.first, part.last)),
            part.depth,
        )
        for part in startup_schedule(depths, most, found.tokens)
    )
    return f"[{ranges}], where M is --max-num-seqs"


# -- what comes of it


def first_problem(startup: Startup, version: Version | None) -> str:
    """What is first to keep the engine from live depth after its restart; empty: nothing known.

    Args:
        startup: how it is to be started.
        version: vLLM's; None: it is not known.
    """
    return next(_problems(startup, version), "")


def _problems(startup: Startup, version: Version | None) -> Iterator[str]:
    engine, drafting = startup.engine, startup.drafting
    arguments = engine.arguments
    if drafting and drafting.method and drafting.method not in LIVE_DEPTH.methods:
        yield f"method {drafting.method} is not known to follow a depth schedule."
    scheduler = [each.value for each in arguments.beginning(SCHEDULER)]
    if scheduler and scheduler[-1] != SCHEDULER_CLASS:
        yield f"the engine's scheduler is {scheduler[-1]}, and Fathom's would take its place."
    if unlogged := arguments.beginning("--disable-log-s"):
        yield f"{unlogged[0].spelling} turns off the statistics by which the plugin counts."
    if engine.value_of(FRONTEND_VARIABLE) not in {"", "0"}:
        yield f"{FRONTEND_VARIABLE} selects vLLM's Rust frontend, which shows no counters of it."
    # The rest as the operator judges it, by the report that is to be expected.
    mounted: JsonValue = {"volumes": [{"configMap": {"name": _DOCUMENT}}]}
    pod = ObservedPod.model_validate({"metadata": {"name": ""}, "spec": mounted})
    counters = PodCounters(
        pod="",
        at_s=0.0,
        started_at_s=0.0,
        engine=EngineCounts(),
        live_depth=True,
        depth_generation=0,
        report=expected_report(startup, version),
    )
    (found,) = evidence_of([pod], {"": counters}, (), document=_DOCUMENT, tokens_given=False)
    if found.missing is not None:
        yield found.missing.sentence


def expected_report(startup: Startup, version: Version | None) -> EngineReport:
    """What the engine is to say of itself after its restart, as far as its arguments tell."""
    engine, schedule = startup.engine, startup.schedule
    graphs = graphs_of(startup, schedule) if schedule else None
    names = {"--data-parallel-size", "-dp"}
    parallel = [each.value or "" for each in engine.arguments.options if each.name in names]
    return EngineReport(
        version=str(version or ""),
        runner="V1" if engine.value_of(MODEL_RUNNER_VARIABLE) == "0" else "",
        graph_mode=graphs.mode if graphs else GraphMode.NONE,
        capture_sizes=graphs.sizes if graphs else (),
        depths=tuple(sorted({each.depth for each in schedule})),
        schedule=schedule,
        max_num_seqs=engine.max_num_seqs,
        data_parallel=whole_number(parallel[-1]) if parallel else None,
    )


def graphs_of(startup: Startup, schedule: Schedule) -> Graphs | None:
    """The CUDA graphs of an engine with a schedule, on Model Runner V2; None: it captures none.

    Args:
        startup: whose other arguments it has.
        schedule: over all its batches.
    """
    arguments = startup.engine.arguments
    if not captures_graphs(arguments):
        return None
    deepest, most = max(each.depth for each in schedule), schedule[-1].last
    config = startup.drafting.config if startup.drafting else {}
    return Graphs(
        mode=stated_mode(arguments).mode,
        sizes=stated_sizes(arguments)
        or default_sizes(
            [depth_at(schedule, batch) for batch in range(1, min(most, CEILING) + 1)],
            deepest,
            ceiling=CEILING,
            max_num_batched_tokens=token_budget(arguments),
            interactive=performance_mode(arguments) == "interactivity",
        ),
        max_num_seqs=most,
        depths=frozenset(each.depth for each in schedule),
        deepest=deepest,
        any_length=config.get("enable_adaptive_verification") is True,
        of_each_kind=graphs_of_each_kind(arguments),
    )


def graphs_before_and_after(startup: Startup) -> tuple[int, int] | None:
    """How many CUDA graphs it captures; None: not known, or of a draft whose graphs are not."""
    drafting, schedule = startup.drafting, startup.schedule
    if drafting is None or not schedule or drafting.method not in METHODS:
        return None
    if not METHODS[Method(drafting.method)].graphs_known:
        return None
    both = (drafting.schedule(schedule[-1].last), schedule)
    before, after = (graphs_of(startup, each) for each in both)
    return (before.captured.total, after.captured.total) if before and after else (0, 0)
