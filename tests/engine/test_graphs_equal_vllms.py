"""Our model of CUDA graphs against the code that decides in vLLM, asked as on a GPU."""

import os
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fathom.engine.added_graph_sizes import ceiling
from fathom.engine.argument_parser import EngineArguments, graphs_of_each_kind, performance_mode
from fathom.engine.capability_table import LIVE_DEPTH
from fathom.engine.cuda_graphs import Captured, GraphMode, Graphs, default_sizes
from fathom.engine.depth import DepthRange, depth_at
from fathom.engine.flags import speculative_config
from fathom.engine.profile import EngineProfile, profile_of
from fathom.resource import SpeculativeDeployment, parse
from fathom.validation.engine_checks import GraphPrice, graph_price
from golden.rendering import SOURCES
from local_cluster.engine.environment import ensure_engine_environment
from local_cluster.engine.model_pair import ensure_model_pair
from local_cluster.engine.releases import asked_releases, known_as
from local_cluster.paths import cache_dir
from manifest_samples import resource
from support.asked_vllm import AskVllm

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE = Path(__file__).with_name("graph_probe.py")
RELEASES = tuple(
    release for release in asked_releases(os.environ) if LIVE_DEPTH.in_version(known_as(release))
)
"""Elsewhere depth is not live, and graphs are vLLM's own affair."""
CEILINGS = {"H100": 512, "GB200": 1024}
"""Tokens up to which each captures, by default."""
OTHERS = ("A100", "L40S", "RTXPRO6000")
MODES = ("FULL_AND_PIECEWISE", "FULL", "FULL_DECODE_ONLY", "PIECEWISE")
PERFORMANCE_MODES = ("balanced", "throughput", "interactivity")
DRAWN = 400
MOST_OF_STATIC = 4.0
"""How many times the graphs of an engine whose depth is fixed."""


@dataclass(frozen=True)
class Engine:
    """What decides about graphs, as the probe takes it."""

    max_num_seqs: int
    deepest: int
    schedule: tuple[tuple[int, int, int], ...] | None
    batches: tuple[int, ...]
    mode: str = "FULL_AND_PIECEWISE"
    sizes: tuple[int, ...] | None = None
    any_length: bool = False
    options: Mapping[str, str | bool] = field(default_factory=dict, hash=False)
    """More of the speculative config."""
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    dual_batch_overlap: bool = False
    performance_mode: str = "balanced"
    max_num_batched_tokens: int | None = None
    """None: vLLM's own."""
    async_scheduling: bool | None = None
    """As the command says it; None: not at all."""
    adapters: int = 0
    """--max-loras, where LoRA is on."""
    specialized: bool = False
    """As --specialize-active-lora asks."""

    @property
    def arguments(self) -> EngineArguments:
        """Those of LoRA."""
        adapters = ["--enable-lora", f"--max-loras={self.adapters}"] if self.adapters else []
        return EngineArguments.of(
            [*adapters, *(["--specialize-active-lora"] if self.specialized else [])]
        )

    @property
    def depth_at(self) -> list[int]:
        """By batch, from 1 on."""
        batches = range(1, self.max_num_seqs + 1)
        if self.schedule is None:
            return [self.deepest for _ in batches]
        schedule = tuple(DepthRange(*part) for part in self.schedule)
        return [depth_at(schedule, batch) for batch in batches]


def drawn(chance: random.Random) -> Engine:
    """Any engine that vLLM takes."""
    max_num_seqs = chance.choice([1, 2, 3, 8, 16, 24, 31, 64, 100, 128, 200, 256, 512, 1024])
    deepest = chance.randint(1, 7)
    batches = range(1, max_num_seqs + 1)
    sizes = None
    if chance.random() < 0.5:
        sizes = tuple(sorted(chance.sample(range(1, 600), chance.randint(1, 40))))
    budget = chance.choice([None, 2 * max_num_seqs + 65])
    # With adapters vLLM wants a step to hold all drafts.
    fits = budget is None and max_num_seqs <= 200
    return Engine(
        max_num_seqs=max_num_seqs,
        deepest=deepest,
        schedule=_schedule(chance, max_num_seqs, deepest) if max_num_seqs > 1 else None,
        batches=tuple(chance.sample(batches, min(max_num_seqs, 50))),
        mode=chance.choice(MODES),
        sizes=sizes,
        any_length=chance.random() < 0.2,
        performance_mode=chance.choice(PERFORMANCE_MODES),
        max_num_batched_tokens=budget,
        adapters=chance.choice([0, 1, 2, 3, 4, 7, 8]) if fits else 0,
        specialized=chance.random() < 0.5,
    )


def _schedule(
    chance: random.Random, max_num_seqs: int, deepest: int
) -> tuple[tuple[int, int, int], ...]:
    depths = chance.sample(range(deepest + 1), chance.randint(2, deepest + 1))
    depths = depths[:max_num_seqs]
    ends = sorted(chance.sample(range(1, max_num_seqs), len(depths) - 1))
    firsts = [1, *(end + 1 for end in ends)]
    return tuple(zip(firsts, [*ends, max_num_seqs], depths, strict=True))


def live_samples(accelerator: str) -> dict[str, EngineProfile]:
    """Engines of the golden files for such a GPU whose depth is live, on an engine with graphs; and
    one whose static twin has a size for each small step."""
    engines = {}
    for path in SOURCES:
        document = parse(yaml.safe_load(path.read_text(encoding="utf-8")))
        assert isinstance(document, SpeculativeDeployment)
        engine = document.engine
        of_its_kind = ceiling(document.spec.node_pool) == CEILINGS[accelerator]
        if of_its_kind and engine.live and engine.start.captures_graphs:
            engines[path.stem] = engine
    interactive = {"engine.args": ["--performance-mode", "interactivity"]}
    engines["interactive"] = resource({"nodePool.accelerator": accelerator} | interactive).engine
    return engines


def commanded(profile: EngineProfile) -> Engine:
    """The engine that a spec's command starts."""
    speculative: Any = speculative_config(profile)
    return Engine(
        max_num_seqs=profile.max_num_seqs,
        deepest=speculative["num_speculative_tokens"],
        schedule=tuple(map(tuple, speculative["num_speculative_tokens_per_batch_size"])),
        batches=tuple(range(1, min(64, profile.max_num_seqs) + 1)),
        sizes=profile.added_sizes,
        any_length=profile.spec.verifies_adaptively,
        performance_mode=performance_mode(profile.arguments),
    )


def static(profile: EngineProfile) -> Engine:
    """The same at `tokens`, with nothing of ours."""
    tokens = profile.spec.speculation.tokens
    return replace(commanded(profile), deepest=tokens, schedule=None, sizes=None)


LIVE = Engine(64, 7, ((1, 56, 3), (57, 57, 0), (58, 64, 7)), (1,))
VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
RUNNERS = {
    "V2, as it is": LIVE,
    "V2, asked for": replace(LIVE, variables={VARIABLE: "1"}),
    "V1, asked for": replace(LIVE, variables={VARIABLE: "0"}),
    "V1, parallel drafts": replace(LIVE, options={"parallel_drafting": True}),
    "V1, two batches": replace(LIVE, dual_batch_overlap=True),
    "V1 of a static engine": replace(LIVE, schedule=None, variables={VARIABLE: "0"}),
}
SCHEDULED: Mapping[str, tuple[Mapping[str, Any], Engine]] = {
    "as it is": ({}, LIVE),
    "told not to be asynchronous": (
        {"engine.args": ["--no-async-scheduling"]},
        replace(LIVE, async_scheduling=False),
    ),
    "told to be": ({"engine.args": ["--async-scheduling"]}, replace(LIVE, async_scheduling=True)),
    **{
        f"by {method}": ({"draft": {"method": method}}, replace(LIVE, options={"method": method}))
        for method in ("ngram", "ngram_gpu")
    },
    "unpadded": (
        {"draft.options": {"disable_padded_drafter_batch": "true"}},
        replace(LIVE, options={"disable_padded_drafter_batch": True}),
    ),
}
"""What is changed in the spec, and the engine that follows."""


@dataclass(frozen=True)
class Asked:
    """One engine, and what vLLM says of it."""

    engine: Engine
    answer: Mapping[str, Any]

    @property
    def captured(self) -> Captured:
        return Captured(**{part: self.answer[part] for part in Captured.__dataclass_fields__})

    @property
    def modelled(self) -> Graphs:
        return Graphs(
            mode=GraphMode(self.answer["mode"]),
            sizes=tuple(self.answer["sizes"]),
            max_num_seqs=self.engine.max_num_seqs,
            depths=frozenset(self.engine.depth_at),
            deepest=self.engine.deepest,
            any_length=self.engine.any_length,
            of_each_kind=graphs_of_each_kind(self.engine.arguments),
        )


@pytest.fixture(scope="module", params=sorted(CEILINGS))
def accelerator(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def asked(accelerator: str, release: str, ask_vllm: AskVllm) -> Mapping[str, Asked]:
    chance = random.Random(accelerator)
    engines = live_samples(accelerator)
    engines = {
        **{f"drawn {number}": drawn(chance) for number in range(DRAWN)},
        **{f"live {name}": commanded(engine) for name, engine in engines.items()},
        **{f"static {name}": static(engine) for name, engine in engines.items()},
        **RUNNERS,
        **{f"scheduled {name}": engine for name, (_, engine) in SCHEDULED.items()},
    }
    pair = ensure_model_pair(cache_dir(), ensure_engine_environment() / "bin" / "python")
    models = {"target": str(pair.target), "draft": str(pair.draft)}
    question = [asdict(engine) | models for engine in engines.values()]
    answers = ask_vllm(PROBE, question, accelerator, release=release)
    return {
        name: Asked(engine, answer)
        for (name, engine), answer in zip(engines.items(), answers, strict=True)
    }


def test_what_is_captured_and_replayed_is_what_vllm_says(
    accelerator: str, asked: Mapping[str, Asked]
) -> None:
    for each in (asked[f"drawn {number}"] for number in range(DRAWN)):
        engine, answer, graphs = each.engine, each.answer, each.modelled
        assert answer["runner"] == "V2"
        assert graphs.captured == each.captured, engine
        for batch, replayed in zip(engine.batches, answer["replayed"], strict=True):
            ours = [graphs.replayed(batch, depth) for depth in range(engine.deepest + 1)]
            assert ours == replayed, (engine, batch)
        strays = [graphs.strays.get(depth, ()) for depth in range(engine.deepest + 1)]
        for batch, row in zip(engine.batches, answer["strays"], strict=True):
            assert [batch in each for each in strays] == row, (engine, batch)
        most = answer["max_num_batched_tokens"]
        sizes = engine.sizes or default_sizes(
            engine.depth_at,
            engine.deepest,
            ceiling=CEILINGS[accelerator],
            max_num_batched_tokens=most,
            interactive=engine.performance_mode == "interactivity",
        )
        assert answer["sizes"] == [size for size in sizes if size <= most], engine


def test_the_probe_of_the_benchmark_counts_what_each_step_gets(
    asked: Mapping[str, Asked],
) -> None:
    """On a GPU it is all that says so."""
    for each in asked.values():
        if each.engine.any_length:  # steps of any lengths are not of one depth
            assert each.answer["counted"] == []
            continue
        rows = zip(each.engine.batches, each.answer["replayed"], strict=True)
        replayed = [[batch, depth, got, 1] for batch, row in rows for depth, got in enumerate(row)]
        assert sorted(each.answer["counted"]) == sorted(replayed)


def test_the_largest_batch_is_the_one_that_vllm_would_choose(
    accelerator: str, asked: Mapping[str, Asked]
) -> None:
    spec = resource({"nodePool.accelerator": accelerator}).spec
    assert profile_of(spec).max_num_seqs == asked["V2, as it is"].answer["default_max_num_seqs"]


def test_other_accelerators_have_vllms_own_batches_and_sizes(ask_vllm: AskVllm) -> None:
    pair = ensure_model_pair(cache_dir(), ensure_engine_environment() / "bin" / "python")
    engine = replace(LIVE, max_num_seqs=512)
    question = asdict(engine) | {"target": str(pair.target), "draft": str(pair.draft)}
    for name, answer in zip(OTHERS, ask_vllm(PROBE, [question], *OTHERS), strict=True):
        spec = resource({"nodePool.accelerator": name}).spec
        assert profile_of(spec).max_num_seqs == answer["default_max_num_seqs"], name
        sizes = default_sizes(
            engine.depth_at,
            engine.deepest,
            ceiling=ceiling(spec.node_pool),
            max_num_batched_tokens=answer["max_num_batched_tokens"],
        )
        assert tuple(answer["sizes"]) == sizes, name


def test_model_runner_v1_and_what_it_costs_are_known(asked: Mapping[str, Asked]) -> None:
    """As `fathom.engine.start` says. Without a schedule V1 keeps its full graphs."""
    runners = {name: asked[name].answer["runner"] for name in RUNNERS}
    modes = {name: asked[name].answer["mode"] for name in RUNNERS}

    assert runners == {name: name[:2] for name in RUNNERS}
    full = {name for name, mode in modes.items() if mode == "FULL_AND_PIECEWISE"}
    assert full == {"V2, as it is", "V2, asked for", "V1 of a static engine"}
    assert set(modes.values()) == {"FULL_AND_PIECEWISE", "PIECEWISE"}


@pytest.mark.parametrize("name", SCHEDULED)
def test_what_turns_asynchronous_scheduling_off_is_known(
    asked: Mapping[str, Asked], release: str, name: str
) -> None:
    changes, _ = SCHEDULED[name]
    of_it = {**changes, "engine.version": release}
    asynchronous = not resource(of_it).engine.start.synchronous
    assert asked[f"scheduled {name}"].answer["asynchronous"] is asynchronous


def test_each_depth_of_the_examples_has_its_full_graphs(
    accelerator: str, asked: Mapping[str, Asked]
) -> None:
    engines = live_samples(accelerator)
    assert engines
    for name, engine in engines.items():
        live, fixed = asked[f"live {name}"], asked[f"static {name}"]
        for batch, replayed in enumerate(live.answer["replayed"], start=1):
            for depth in set(live.engine.depth_at):
                if batch * (depth + 1) <= live.answer["sizes"][-1]:
                    assert replayed[depth] == "FULL", (name, batch, depth)
        assert not any(any(row) for row in live.answer["strays"]), name
        price = graph_price(engine)
        assert isinstance(price, GraphPrice)
        assert price.live.captured == live.captured
        assert price.static.captured == fixed.captured
        assert live.captured.total <= MOST_OF_STATIC * fixed.captured.total, name
