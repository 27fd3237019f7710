"""Recordings for tests: a simulated fleet's counters, as they were looked at."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from fathom.adapters.series import Point
from fathom.measurement.counters import PodCounters, StepKind
from fathom.replay.recording import RecordingWriter
from unit.tuning.plant import Fleet


def record(fleet: Fleet, seconds: float, every_s: float = 10.0) -> list[PodCounters]:
    """Let the fleet run, and look at each pod now and then."""
    looks: list[PodCounters] = []
    until_s = fleet.now_s + seconds
    while fleet.now_s < until_s:
        fleet.run(every_s)
        looks += [pod.counters(fleet.now_s) for pod in fleet.pods]
    return looks


def write(file: Path, looks: Iterable[PodCounters]) -> Path:
    """A recording of these looks."""
    writer = RecordingWriter(file)
    for look in looks:
        writer.write(at_s=look.at_s, pod=look.pod, points=points(look))
    writer.close()
    return file


def points(look: PodCounters) -> Iterator[Point]:
    """The samples that an engine with these counters shows."""
    labels = {"engine": "0", "model_name": 'a "model"'}
    yield Point("vllm:generation_tokens_total", labels, look.engine.generation_tokens)
    yield Point("vllm:spec_decode_num_drafts_total", labels, look.engine.drafts)
    yield Point("vllm:spec_decode_num_draft_tokens_total", labels, look.engine.draft_tokens)
    yield Point("vllm:spec_decode_num_accepted_tokens_total", labels, look.engine.accepted_tokens)
    yield Point("process_start_time_seconds", {}, look.started_at_s)
    yield Point("fathom_live_depth", {}, float(look.live_depth))
    yield Point("fathom_depth_generation", {}, look.depth_generation)
    yield Point("fathom_depth_schedule_hash", {}, look.schedule_hash)
    yield Point("fathom_depth_rejections_total", {}, look.depth_rejections)
    yield Point("fathom_hook_errors_total", {}, look.hook_errors)
    yield Point("fathom_transition_steps_total", {}, look.transition_steps)
    yield Point("fathom_transition_step_seconds_total", {}, look.transition_seconds)
    yield Point("fathom_transition_tokens_total", {}, look.transition_tokens)
    yield Point("fathom_transition_prefill_tokens_total", {}, look.transition_prefill)
    yield Point("fathom_token_budget", {}, look.token_budget)
    if look.device:
        yield Point("fathom_engine_info", {"device": look.device}, 1.0)
    for cell, counts in look.cells.items():
        at = {"batch_le": str(cell.batch_le), "depth": str(cell.depth), "step": cell.step.value}
        yield Point("fathom_steps_total", at, counts.steps)
        yield Point("fathom_step_seconds_total", at, counts.step_seconds)
        yield Point("fathom_tokens_total", at, counts.tokens)
        yield Point("fathom_scheduled_requests_total", at, counts.scheduled_requests)
        if cell.step is StepKind.MIXED and look.counts_prompts:
            yield Point("fathom_prefill_tokens_total", at, counts.prefill_tokens)
    for draft, drafted in look.drafts.items():
        at = {"batch_le": str(draft.batch_le), "depth": str(draft.depth)}
        yield Point("fathom_drafts_total", at, drafted.drafts)
        for position, accepted in enumerate(drafted.accepted):
            where = {**at, "position": str(position)}
            yield Point("fathom_accepted_tokens_total", where, accepted)
