"""Checks of what a spec asks of its engine: whether it would start, and whether it runs well."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from packaging.version import Version

from fathom.api.accelerators import NVIDIA, preset_for
from fathom.api.bounded_json import BeyondBoundsError, UnreadableJsonError, is_true, parsed_json
from fathom.api.choices import Compares
from fathom.api.methods import Method
from fathom.api.problem import Problem, warning
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.added_graph_sizes import ceiling, sets_graphs, stated_sizes
from fathom.engine.argument_parser import whole_number
from fathom.engine.capability_table import (
    ADAPTIVE_BACKENDS,
    ADAPTIVE_FLAGS,
    ADAPTIVE_PIPELINE_PARALLEL,
    ATTENTION_BACKENDS,
    FLASHINFER_MLA_ADAPTIVE,
    SEVERAL_NODES,
    has_release,
)
from fathom.engine.cuda_graphs import Graphs, Replayed
from fathom.engine.depth_set import WIDEST_GRID, capture_sizes
from fathom.engine.flags import KEYS
from fathom.engine.profile import EngineProfile
from fathom.engine.start import is_release_image
from fathom.validation.candidate import Candidate
from fathom.validation.gpu_memory_checks import state_cost
from fathom.validation.model_input import with_deepest

_HOPPER: Final = 9
"""The `compute_capability` of H100 and H200."""
_PLAN_NOTHING: Final = frozenset(
    {"flashinfer", "flashinfer_mla", "tokenspeed_mla", "triton_attn", "triton_mla"}
)
"""Attention backends that plan nothing by request, or read rows that vLLM has set to zero."""
_TOLD: Final = 3
"""Batches that a refusal names."""
_RANGES: Final = 3
"""Ranges of batches that a sentence lists."""
_AT_ONE_DEPTH: Final = "with tuning.mode Static there is one depth, and nothing to fit"
_ADAPTIVE_FIELD: Final = "spec.speculation.adaptiveVerification"


@dataclass(frozen=True, slots=True)
class GraphPrice:
    """What live depth costs in graphs."""

    live: Graphs
    static: Graphs
    """Graphs of the same engine without live depth, at `tokens`."""
    counts_draft: bool
    """Whether the draft's graphs are known: those of EAGLE and MTP drafts."""

    @property
    def captured(self) -> tuple[int, int]:
        """How many graphs live depth captures, and how many the engine would have without."""
        live, static = self.live.captured, self.static.captured
        return (live.total, static.total) if self.counts_draft else (live.target, static.target)


def graph_price(engine: EngineProfile) -> GraphPrice | str:
    """What an engine captures and replays; or why that is not known.

    Args:
        engine: whose depth is live.
    """
    if not engine.start.captures_graphs:
        return "none, as --enforce-eager asks"
    if sets_graphs(engine.arguments):
        return f"as engine.args set them, {_of_stated_sizes(engine)}"
    return GraphPrice(
        live=engine.graphs,
        static=engine.static_graphs,
        counts_draft=engine.spec.draft.method.row.graphs_known,
    )


def _of_stated_sizes(engine: EngineProfile) -> str:
    """Which batches run without a full graph, where the user says which sizes are captured."""
    if not stated_sizes(engine.arguments):
        return "which may leave depths without full ones"
    graphs, depths = engine.graphs, [engine.spec.speculation.tokens]
    if engine.live:
        depths = [depth for depth in engine.depths if depth]
    batches = range(1, graphs.max_num_seqs + 1)
    without = {
        depth: [each for each in batches if graphs.replayed(each, depth) is not Replayed.FULL]
        for depth in depths
    }
    missing = [f"depth {depth} at {_ranges(found)}" for depth, found in without.items() if found]
    if not missing:
        return "with a full one for each batch and depth"
    deepest = max(depths)
    return (
        f"in tokens, of which a request at depth k takes k + 1. Without a full graph: "
        f"{'; '.join(missing)}. "
        f"{'Remove the sizes, and Fathom adds those that fit, or have' if engine.live else 'Have'} "
        f"them reach {graphs.max_num_seqs * (deepest + 1)}"
    )


def _ranges(batches: Sequence[int]) -> str:
    """Such as `batches 2 to 6`; at most three ranges, and how many batches there are beyond."""
    ranges: list[tuple[int, int]] = []
    for each in batches:
        if ranges and ranges[-1][1] == each - 1:
            ranges[-1] = (ranges[-1][0], each)
        else:
            ranges.append((each, each))
    shown = [f"{a} to {b}" if b > a else f"{a}" for a, b in ranges[:_RANGES]]
    more = sum(b - a + 1 for a, b in ranges[_RANGES:])
    listed = ", ".join(shown) + (f" and {more} more" if more else "")
    return f"batch{'es' if len(batches) > 1 else ''} {listed}"


def draft_options(candidate: Candidate) -> tuple[Problem, ...]:
    """Keys of `draft.options` that have a field of their own, or make a measurement of nothing.

    And values that are not read.
    """
    spec = candidate.spec
    problems = [
        Problem(
            field=f"spec.draft.options.{key.name}",
            message=f"this has a field: set spec.{key.field} instead.",
        )
        for key in KEYS
        if key.name in spec.draft.options
    ]
    for key, text in spec.draft.options.items():
        try:
            parsed_json(text)
        except BeyondBoundsError as error:
            problems.append(
                Problem(field=f"spec.draft.options.{key}", message=f"{error}: write less of it.")
            )
        except UnreadableJsonError:
            continue
    least, most = (
        whole_number(spec.draft.options.get(f"prompt_lookup_{each}", "")) for each in ("min", "max")
    )
    looks_up = spec.drafts and spec.draft.method.looks_up_ngrams
    if looks_up and least is not None and most is not None and least > most:
        problems.append(
            Problem(
                field="spec.draft.options.prompt_lookup_max",
                message=f"vLLM stops at start where it ({most}) is below prompt_lookup_min "
                f"({least}): raise it, or lower that.",
            )
        )
    if spec.draft.options.get("rejection_sample_method") == "synthetic" and spec.tunable:
        problems.append(
            Problem(
                field="spec.draft.options.rejection_sample_method",
                message="with synthetic acceptance what is measured says nothing about the draft: "
                "it is for benchmarks, so use tuning mode Static.",
            )
        )
    return tuple(problems)


def capabilities(candidate: Candidate) -> Iterator[Problem]:
    """What this spec asks for and its engine would not start with.

    What a draft would need is no matter where none is loaded. Of an engine whose version is not
    known, only what needs a known one is refused.
    """
    spec, engine = candidate.spec, candidate.engine
    if engine.version is not None:
        yield from _missing(spec, engine.version)
        if engine.layout.spans_nodes and not SEVERAL_NODES.in_version(engine.version):
            yield Problem(
                field="spec.engine.image",
                message=f"vLLM {engine.version} cannot have a replica over several nodes without "
                f"Ray, which needs {SEVERAL_NODES.versions}: change it, or keep a replica within "
                "one node.",
            )
    if spec.drafts and spec.draft.method is Method.SUFFIX and is_release_image(spec.engine.image):
        yield warning(
            "spec.engine.image",
            "method suffix needs the Python package arctic-inference, which vLLM does not require: "
            "without it in the image the engine ends at start. Name an image that has it.",
        )
    asks = spec.verifies_adaptively or spec.compares is Compares.ADAPTIVE_VERIFICATION
    if asks and (refusal := _adaptive_verification_refusal(engine)):
        yield Problem(field=_ADAPTIVE_FIELD, message=refusal)


def _missing(spec: SpeculativeDeploymentSpec, version: Version) -> Iterator[Problem]:
    engine, method = spec.engine, spec.draft.method
    if spec.drafts and not has_release(method.row.since, version):
        yield Problem(
            field="spec.draft.method",
            message=f"vLLM {version} does not know method {method}, which needs "
            f"{method.row.since}: change spec.engine.image, or choose another method.",
        )
    backend = ATTENTION_BACKENDS.get(engine.attention_backend.lower())
    if backend is not None and not backend.in_version(version):
        yield Problem(
            field="spec.engine.attentionBackend",
            message=f"vLLM {version} does not know {engine.attention_backend}, which needs "
            f"{backend.versions}: change spec.engine.image, or choose another attentionBackend.",
        )
    whole = method.row.draft_stays_whole
    split = engine.pipeline_parallel_size > 1 and not has_release(whole, version)
    if spec.drafts and split:
        yield Problem(
            field="spec.engine.pipelineParallelSize",
            message=f"vLLM {version} would split the draft of method {method} into stages too, "
            f"which none of them can be; {whole} does not: change spec.engine.image, or set it to "
            "1.",
        )


def _adaptive_verification_refusal(profile: EngineProfile) -> str | None:
    engine, method = profile.spec.engine, profile.spec.draft.method
    offered = method.row.adaptive
    if offered is None:
        return f"vLLM has no adaptive verification for method {method}: set it to Disabled."
    version = profile.version
    if version is None:
        return f"it is not known if the vLLM in {engine.image} has it: set spec.engine.version."
    if not has_release(offered, version):
        return (
            f"vLLM {version} has none for method {method}; it needs {offered}: "
            "change spec.engine.image, or set it to Disabled."
        )
    if engine.pipeline_parallel_size > 1 and not ADAPTIVE_PIPELINE_PARALLEL.in_version(version):
        return "vLLM cannot combine it with pipelineParallelSize above 1: set it to Disabled."
    backend = ADAPTIVE_BACKENDS.get(engine.attention_backend.lower())
    if backend is not None and not backend.in_version(version):
        return (
            f"{engine.attention_backend} cannot do it in vLLM {version}: choose another "
            f"attentionBackend (with MLA: flashinfer_mla, vLLM {FLASHINFER_MLA_ADAPTIVE.versions}),"
            " or set it to Disabled."
        )
    conflict = next(_conflicts(profile, version), None)
    return f"{conflict}, or set this to Disabled." if conflict else None


def _conflicts(engine: EngineProfile, version: Version) -> Iterator[str]:
    """Sentences without an end: what vLLM refuses beside adaptive verification, and what to remove.

    Source: `_validate_adaptive_verification` and what else asks for it in vllm/config/vllm.py and
    vllm/config/speculative.py. tests/engine/test_parser_matrix.py asks vLLM.
    """
    spec, start = engine.spec, engine.start
    cause = start.graph_mode.without_full if start.captures_graphs else "--enforce-eager"
    if cause:
        yield f"it needs full CUDA graphs, and {cause} in spec.engine.args has none: remove it"
    if cause := start.model_runner_v1:
        yield f"{cause} selects vLLM's Model Runner V1, which does not have it: remove it"
    for flag, combines in ADAPTIVE_FLAGS.items():
        if start.arguments.has(flag) and not combines.in_version(version):
            yield f"vLLM cannot combine it with {flag} in spec.engine.args: remove that"
    by_argmax = is_true(spec.draft.options.get("use_local_argmax_reduction", ""))
    if by_argmax and spec.draft.method is not Method.DSPARK:
        yield (
            "spec.draft.options.use_local_argmax_reduction leaves it without the draft's logits, "
            "by which it predicts what will be accepted: remove it"
        )


def fitting_graphs(candidate: Candidate) -> Iterator[Problem]:
    """Graphs of depths that would make an engine's steps take seconds (`Graphs.strays`)."""
    engine = candidate.engine
    spec, start = engine.spec, engine.start
    if not (engine.live and start.captures_graphs and _drafts_over_the_targets(spec)):
        return
    strays = engine.graphs.strays
    if not strays:
        return
    tokens = spec.speculation.tokens
    depth = tokens if tokens in strays else max(strays)
    batches = strays[depth]
    what = (
        f"vLLM's CUDA graphs of these depths do not fit together: at depth {depth} and batch "
        f"{_some(batches)}, drafts replay a graph of more requests than the step has, and such "
        "steps took seconds on an H100"
    )
    if capture_sizes(engine.depths, engine.max_num_seqs, ceiling(spec.node_pool)):
        yield Problem(
            field="spec.engine.args",
            message=f"{what}: take out the sizes of graphs, or write --compilation-config as one "
            f"object of JSON, and Fathom adds sizes that fit; {_AT_ONE_DEPTH}.",
        )
    else:
        yield Problem(
            field="spec.speculation.depths",
            message=f"{what}: leave them out, or name depths of which each, plus one, divides one "
            f"number up to {WIDEST_GRID}; {_AT_ONE_DEPTH}.",
        )


def _some(batches: Sequence[int]) -> str:
    some = ", ".join(map(str, batches[:_TOLD]))
    return f"{some}, …" if len(batches) > _TOLD else some


def _drafts_over_the_targets(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether a draft's first pass may go by a plan that attention made for the target's step.

    Of NVIDIA's GPUs that is Hopper's, where FlashAttention 3 and FlashMLA keep a plan by request
    for their graphs. Read in vllm/v1/attention/backends, 0.32. Custom may be Hopper.
    """
    preset = preset_for(spec.node_pool)
    may_be_hopper = preset.vendor is NVIDIA and preset.compute_capability in {0, _HOPPER}
    plans = spec.engine.attention_backend.lower() not in _PLAN_NOTHING
    return may_be_hopper and plans and spec.draft.method.row.graphs_known


def memory_of_states(candidate: Candidate) -> Iterator[Problem]:
    """What a hybrid target's states cost where there is space for deeper drafts, or for too few."""
    given, engine = candidate.models, candidate.engine
    cost, tokens = state_cost(given), candidate.spec.speculation.tokens
    if cost is None or not candidate.spec.drafts:
        return
    if engine.live and engine.deepest > tokens:
        least = state_cost(with_deepest(given, tokens))
        yield warning(
            "spec.speculation.maxTokens",
            "the target keeps a state for each token that a request may draft, whatever it drafts: "
            f"{cost.compared(least)}. Set it to {tokens}, unless "
            "deeper drafts are worth that.",
        )
    graphs = engine.start.captures_graphs
    if graphs and cost.blocks is not None and cost.blocks < engine.max_num_seqs:
        yield warning(
            "spec.engine.args",
            f"memory is left for some {cost.blocks} states of the target's layers, and vLLM does "
            f"not start with fewer than --max-num-seqs ({engine.max_num_seqs}): set that to "
            f"{max(1, cost.requests or 0)}, as many requests as fit at depth {engine.deepest}.",
        )
