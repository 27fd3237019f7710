"""Whether an engine's depth can be changed live, and its steps counted where it cannot. Pure.

The rules over `fathom.engine.capability_table`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from packaging.version import Version

from fathom.api.conditions import Reason
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.capability_table import (
    COUNTED,
    LIVE_DEPTH,
    LIVE_DEPTH_ADAPTIVE,
    LIVE_DEPTH_DATA_PARALLEL,
    SHUTDOWN_TIMEOUT,
)
from fathom.engine.start import EngineStart


class Refusal(NamedTuple):
    """Why the depth of an engine cannot be changed live."""

    reason: Reason
    sentence: str


def live_depth_refusal(spec: SpeculativeDeploymentSpec, start: EngineStart) -> Refusal | None:
    """Why this engine's depth cannot be changed live, if it cannot.

    The pods of a refused spec are the static ones at `tokens`, whatever the tuning mode.
    """
    if not spec.drafts:
        return Refusal(
            Reason.DRAFTING_DISABLED,
            "spec.speculation.drafting is Disabled, so there is no depth to tune: set it to "
            "Enabled to have depth follow the traffic.",
        )
    if start.version is None:
        return Refusal(
            Reason.ENGINE_VERSION_UNKNOWN,
            f"the tag of {spec.engine.image} does not show which vLLM it holds, so "
            f"{_stays(spec)}: set spec.engine.version.",
        )
    first, *others = (*_obstacles(spec, start, start.version), "")
    if not first:
        return None
    # A cure of the first alone would cost a rollout, and cure nothing.
    also = "".join(f" Also, {each.replace(f', so {_stays(spec)}', '')}" for each in others if each)
    return Refusal(Reason.LIVE_DEPTH_UNSUPPORTED, f"{first}{also}")


def _stays(spec: SpeculativeDeploymentSpec) -> str:
    return f"depth stays at tokens ({spec.speculation.tokens})"


def _obstacles(
    spec: SpeculativeDeploymentSpec, start: EngineStart, version: Version
) -> Iterator[str]:
    """What stands against live depth in an engine of a known version, the first thing first."""
    depth = _stays(spec)
    as_stated, release = "", "spec.engine.image"
    if spec.engine.version:
        as_stated, release = " (spec.engine.version)", "spec.engine.image and spec.engine.version"
    if not LIVE_DEPTH.in_version(version):
        yield (
            f"depth can be changed live in vLLM {LIVE_DEPTH.versions}, and this is {version}"
            f"{as_stated}, so {depth}: change {release}.{_no_drain(start)}"
        )
    if spec.engine.data_parallel_size > 1 and not LIVE_DEPTH_DATA_PARALLEL.in_version(version):
        yield (
            f"vLLM drops the depth schedule when dataParallelSize is above 1, so {depth}: use more "
            "replicas instead to have it follow the traffic."
        )
    cause, method = start.model_runner_v1, spec.draft.method
    if method not in LIVE_DEPTH.methods:
        others = (each for each in LIVE_DEPTH.methods if not (cause and each.row.one_depth_on_v1))
        yield (
            f"method {method} is not known to follow the depth schedule, so {depth}: "
            f"choose one of {', '.join(sorted(others))}."
        )
    if cause and start.captures_graphs:
        yield (
            f"{cause} selects vLLM's Model Runner V1, which gives up its full CUDA graphs where "
            f"depth is live, so {depth}: remove it to have depth follow the traffic."
        )
    if cause and method.row.one_depth_on_v1:
        yield (
            f"{cause} selects vLLM's Model Runner V1, which drafts at one depth only with method "
            f"{method}, so {depth}: remove it to have depth follow the traffic."
        )
    if waits := _synchronous_pipeline(spec, start):
        yield (
            f"pipelineParallelSize above 1 needs another scheduler than the plugin with {waits}, "
            f"so {depth}: remove one of the two to have depth follow the traffic."
        )
    if cause := start.rust_frontend:
        yield (
            f"{cause} selects vLLM's Rust frontend, which shows none of the plugin's counters, so "
            f"{depth}: remove it to have depth follow the traffic."
        )
    if spec.verifies_adaptively and not LIVE_DEPTH_ADAPTIVE.in_version(version):
        yield (
            "depth can be changed live with adaptive verification in vLLM "
            f"{LIVE_DEPTH_ADAPTIVE.versions}, and this is {version}{as_stated}, so {depth}: change "
            f"{release}, or set speculation.adaptiveVerification to Disabled."
        )


def _no_drain(start: EngineStart) -> str:
    """Said beside, since nothing else tells of it: such an engine is served anyway."""
    if start.has(SHUTDOWN_TIMEOUT):
        return ""
    return " It has no --shutdown-timeout either: a pod that goes aborts its requests."


def why_not_counted(spec: SpeculativeDeploymentSpec, start: EngineStart) -> str | None:
    """Why the plugin does not count the steps of an engine whose depth is not live, if it does not.

    The second half of a sentence.
    """
    return next(_not_counted(spec, start), None)


def _not_counted(spec: SpeculativeDeploymentSpec, start: EngineStart) -> Iterator[str]:
    method, version = spec.draft.method, start.version
    if version is None or not COUNTED.in_version(version):
        yield f"the plugin counts in vLLM {COUNTED.versions}"
    if spec.drafts and method not in COUNTED.methods:
        yield f"the plugin is not known to count with method {method}"
    if not spec.drafts and (own := _option(start, "--scheduler-cls")):
        yield f"{own} in spec.engine.args is another scheduler than the one that it counts in"
    if cause := _synchronous_pipeline(spec, start):
        yield f"pipelineParallelSize above 1 needs another scheduler with {cause}"
    if cause := start.rust_frontend:
        yield f"{cause} selects vLLM's Rust frontend, which shows none of its counters"
    if unlogged := _option(start, "--disable-log-s"):
        yield f"{unlogged} in spec.engine.args turns off the statistics that it counts by"


def _option(start: EngineStart, beginning: str) -> str:
    """As the user writes it; empty: there is none."""
    found = start.arguments.beginning(beginning)
    return found[0].spelling if found else ""


def _synchronous_pipeline(spec: SpeculativeDeploymentSpec, start: EngineStart) -> str:
    """What makes a pipeline's steps wait for each other, as the user writes it; empty: nothing.

    The plugin's scheduler is vLLM's asynchronous one, which vLLM itself takes for no such pipeline.
    With Model Runner V1 it schedules a request again before its last token is known: what keeps it
    back is there for V2 only (`next_decode_eligible_step` in
    vllm/v1/core/sched/async_scheduler.py, read in 0.32). V2 without asynchronous scheduling was not
    run.
    """
    if spec.engine.pipeline_parallel_size == 1:
        return ""
    return start.model_runner_v1 or start.synchronous
