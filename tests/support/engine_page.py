"""A /metrics page as a vLLM with Fathom's plugin shows it."""

from dataclasses import dataclass, field

from fathom.engine.report import NOTHING_TOLD, device_in, report_in
from fathom.measurement.counters import (
    Cell,
    ContextCounts,
    ContextRange,
    DraftCell,
    PodCounters,
    StepKind,
)
from fathom_vllm.buckets import bucket_index, context_range, first_batch, last_context

LABELS = 'engine="{engine}",model_name="m"'


@dataclass
class FakeEngine:
    """Numbers behind one page; change them and read again."""

    started_at_s: float = 1_700_000_000.25
    tokens: float = 100.0
    engines: int = 1
    running: float = 2.0
    generation: int = 3
    live: bool = True
    plugin: bool = True
    told: dict[str, str] = field(
        default_factory=lambda: {"device": "NVIDIA GB200", "max_num_seqs": "256", "depths": "0,3"}
    )
    """What it says of itself; nothing: its plugin is from before it told."""
    by_doublings: bool = False
    """Its plugin is from before each doubling was cut in two."""
    cells: dict[Cell, tuple[float, float, float, float]] = field(
        default_factory=lambda: {
            Cell(4, 3, StepKind.DECODE): (10.0, 0.5, 60.0, 30.0),
            Cell(4, 3, StepKind.MIXED): (2.0, 0.25, 8.0, 6.0),
        }
    )
    drafts: dict[DraftCell, tuple[float, tuple[float, ...]]] = field(
        default_factory=lambda: {DraftCell(4, 3): (30.0, (24.0, 12.0, 6.0))}
    )

    contexts: dict[ContextRange, ContextCounts] = field(
        default_factory=lambda: {
            ContextRange(0): ContextCounts(20.0, 60.0, 34.0, 18.0),
            ContextRange(131072): ContextCounts(10.0, 30.0, 8.0, 6.0),
        }
    )

    def page(self) -> str:
        lines = [
            "# HELP process_start_time_seconds Start time of the process.",
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {self.started_at_s}",
        ]
        for engine in range(self.engines):
            labels = LABELS.format(engine=engine)
            lines += [
                f"vllm:generation_tokens_total{{{labels}}} {self.tokens}",
                f"vllm:prompt_tokens_total{{{labels}}} 50.0",
                f"vllm:num_preemptions_total{{{labels}}} 1.0",
                f"vllm:spec_decode_num_drafts_total{{{labels}}} 30.0",
                f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} 90.0",
                f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} 42.0",
                f'vllm:request_time_per_output_token_seconds_bucket{{le="0.01",{labels}}} 1.0',
                f"vllm:request_time_per_output_token_seconds_sum{{{labels}}} 0.5",
                f"vllm:request_time_per_output_token_seconds_count{{{labels}}} 5.0",
                f"vllm:num_requests_running{{{labels}}} {self.running}",
                f"vllm:num_requests_waiting{{{labels}}} 1.0",
                f"vllm:kv_cache_usage_perc{{{labels}}} 0.25",
            ]
        return "\n".join([*lines, *(self._plugin() if self.plugin else ())]) + "\n"

    def _plugin(self) -> list[str]:
        lines = [
            'fathom_plugin_info{version="0.1.0",content="abc"} 1.0',
            f"fathom_live_depth {float(self.live)}",
            f"fathom_depth_generation {float(self.generation)}",
            "fathom_depth_rejections_total 1.0",
            "fathom_hook_errors_total 0.0",
            "fathom_transition_steps_total 7.0",
        ]
        if self.told:
            labels = ",".join(f'{name}="{value}"' for name, value in self.told.items())
            lines.append(f"fathom_engine_info{{{labels}}} 1.0")
        for cell, (steps, seconds, tokens, requests) in self.cells.items():
            labels = f'{self._batches(cell.batch_le)},depth="{cell.depth}",step="{cell.step}"'
            lines += [
                f"fathom_steps_total{{{labels}}} {steps}",
                f"fathom_step_seconds_total{{{labels}}} {seconds}",
                f"fathom_tokens_total{{{labels}}} {tokens}",
                f"fathom_scheduled_requests_total{{{labels}}} {requests}",
            ]
        for draft, (drafts, accepted) in self.drafts.items():
            labels = f'{self._batches(draft.batch_le)},depth="{draft.depth}"'
            lines.append(f"fathom_drafts_total{{{labels}}} {drafts}")
            lines += [
                f'fathom_accepted_tokens_total{{{labels},position="{i}"}} {count}'
                for i, count in enumerate(accepted)
            ]
        for each, counts in self.contexts.items():
            last = last_context(context_range(each.context_ge))
            labels = f'context_ge="{each.context_ge}",context_le="{last or "+Inf"}"'
            lines += [
                f"fathom_context_drafts_total{{{labels}}} {counts.drafts}",
                f"fathom_context_draft_tokens_total{{{labels}}} {counts.tokens}",
                f"fathom_context_accepted_tokens_total{{{labels}}} {counts.accepted}",
                f"fathom_context_first_accepted_total{{{labels}}} {counts.first_accepted}",
            ]
        return lines

    def _batches(self, largest: int) -> str:
        if self.by_doublings:
            return f'batch_le="{largest}"'
        return f'batch_ge="{first_batch(bucket_index(largest))}",batch_le="{largest}"'

    def is_shown_by(self, counters: PodCounters) -> bool:
        """Whether these counters are exactly this engine's numbers."""
        engine = counters.engine
        return (
            counters.started_at_s == self.started_at_s
            and engine.generation_tokens == self.tokens * self.engines
            and engine.requests_running == self.running * self.engines
            and (engine.tpot_seconds_sum, engine.tpot_count)
            == (0.5 * self.engines, 5.0 * self.engines)
            and engine.kv_cache_usage == 0.25
            and counters.live_depth is (self.live and self.plugin)
            and counters.depth_generation == (self.generation if self.plugin else 0)
            and (counters.device, counters.report)
            == ((device_in(self.told), report_in(self.told)) if self.plugin else ("", NOTHING_TOLD))
            and {
                cell: (c.steps, c.step_seconds, c.tokens, c.scheduled_requests)
                for cell, c in counters.cells.items()
            }
            == (self.cells if self.plugin else {})
            and {cell: (d.drafts, d.accepted) for cell, d in counters.drafts.items()}
            == (self.drafts if self.plugin else {})
            and dict(counters.contexts) == (self.contexts if self.plugin else {})
        )
