"""vLLM's own scheduler, with and without the hook, and no model. Runs in the engine's environment.

Each step is scheduled by vLLM, "sampled" at random, and given back to vLLM one step later, as under
asynchronous scheduling. What is timed is the scheduler's part, in processor time of its thread:
what else the machine does is not in it. Both schedulers step in turn through the same rounds, and
of each step two times are taken: the whole, and what vLLM's own methods took of it. What lies
between is the hook, with the hook, and the clock's own time, without it. Steps of two schedulers
differ by more than the hook takes, so their difference alone would tell nothing.

Run as `python -m benchmarks.hook.schedulers TARGET DRAFT FILE`.
"""

import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from benchmarks.hook.figures import BATCHES, STAT_SECONDS, Figures, Rounds, SlowStat
from fathom_vllm.counters import CountersWriter
from fathom_vllm.depth_file import Adopted, DepthFile, Missing, Rejected
from fathom_vllm.environment import COUNTERS_FILE, DEPTH_FILE, DEPTH_KEY
from fathom_vllm.hook import SchedulerHook
from fathom_vllm.scheduler import LiveDepthScheduler

_DEPTH: Final = 3
_ROUNDS: Final = 24
_MEASURE_S: Final = 2.0
"""Processor time that goes into one batch and kind, for each scheduler."""
_FEWEST_STEPS: Final = 8
_BLOCK: Final = 16
_BLOCKS: Final = 400_000
_ENDLESS: Final = 1_000_000
_SHORT: Final = 64
"""Tokens of a request where requests come and go: 1 in 26 steps or so ends one."""
_PROMPTS: Final = (8,)
_PROMPTS_APART: Final = (8, 3000)
"""Tokens of prompts where contexts lie in more than one range."""


class Inner:
    """Times vLLM's own method, however it is called."""

    seconds = 0.0

    @classmethod
    def timed(cls, name: str) -> None:
        """Put a stopwatch around one of vLLM's methods, for every scheduler of this process."""
        method = getattr(AsyncScheduler, name)

        def timed(scheduler: Any, *arguments: Any) -> Any:
            began_at = time.thread_time()
            result = method(scheduler, *arguments)
            cls.seconds += time.thread_time() - began_at
            return result

        setattr(AsyncScheduler, name, timed)


@dataclass(frozen=True, slots=True)
class Took:
    """Processor seconds of one step."""

    whole_s: float
    inner_s: float

    @property
    def between_s(self) -> float:
        """Neither vLLM's nor the caller's."""
        return self.whole_s - self.inner_s


class BusyScheduler:
    """A scheduler under a steady number of requests."""

    def __init__(
        self, scheduler: Any, batch: int, *, tokens: int, prompts: Sequence[int] = _PROMPTS
    ) -> None:
        self._scheduler = scheduler
        self._tokens = tokens
        self._prompts = prompts
        self._chance = random.Random(batch)  # noqa: S311 - both schedulers get the same
        self._in_flight: Any = None
        self._arrived = 0
        for _ in range(batch):
            self._arrive(1 + self._chance.randrange(tokens))

    def step(self) -> Took:
        """Schedule a step, and finish the one before it."""
        Inner.seconds = 0.0
        began_at = time.thread_time()
        scheduled = self._scheduler.schedule()
        took_s = time.thread_time() - began_at
        before, self._in_flight = self._in_flight, scheduled
        if before is not None:
            output = self._sample(before)
            began_at = time.thread_time()
            self._scheduler.update_from_output(before, output)
            took_s += time.thread_time() - began_at
            for _ in range(len(self._scheduler.finished_req_ids)):
                self._arrive(self._tokens)
        return Took(took_s, Inner.seconds)

    def all_decode(self) -> bool:
        """Whether every request of the step in flight brings drafts."""
        step = self._in_flight
        return len(step.scheduled_spec_decode_tokens) == len(step.num_scheduled_tokens)

    def _arrive(self, tokens: int) -> None:
        prompt = [1] * self._prompts[self._arrived % len(self._prompts)]
        self._arrived += 1
        parameters = SamplingParams(max_tokens=tokens, ignore_eos=True)
        name = f"cmpl-{self._arrived:032x}-0"
        self._scheduler.add_request(Request(name, prompt, parameters, None))

    def _sample(self, step: Any) -> ModelRunnerOutput:
        names = list(step.num_scheduled_tokens)
        drafted = step.scheduled_spec_decode_tokens
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: row for row, name in enumerate(names)},
            sampled_token_ids=[
                [5] * self._chance.randint(1, 1 + len(drafted.get(name, ()))) for name in names
            ],
        )


class Stand:
    """Makes schedulers of one configuration."""

    def __init__(self, target: str, draft: str | None) -> None:
        """Without a draft: an engine without speculation."""
        batch = BATCHES[-1]
        speculative = {
            "method": "eagle3",
            "model": draft,
            "num_speculative_tokens": 7,
            "num_speculative_tokens_per_batch_size": [[1, batch, _DEPTH]],
        }
        self._config = EngineArgs(
            model=target,
            dtype="float32",
            enforce_eager=True,
            enable_prefix_caching=False,
            max_num_seqs=batch,
            max_num_batched_tokens=16 * batch,
            speculative_config=speculative if draft else None,
        ).create_engine_config()
        self._config.cache_config.num_gpu_blocks = _BLOCKS
        # No model runs, so none is too short for requests that never end.
        self._config.model_config.max_model_len = 2 * _ENDLESS

    def scheduler(self, kind: type[AsyncScheduler]) -> Any:
        """A scheduler with room for all that is asked of it."""
        layer = FullAttentionSpec(
            block_size=_BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32
        )
        return kind(
            vllm_config=self._config,
            kv_cache_config=KVCacheConfig(
                num_blocks=_BLOCKS,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["layer"], layer)],
            ),
            structured_output_manager=StructuredOutputManager(self._config),
            block_size=_BLOCK,
            log_stats=True,
        )

    def rounds(self, batch: int, kind: str, *, tokens: int, prompts: Sequence[int]) -> Rounds:
        """Both schedulers in turn, each first in every other round."""
        arms = [
            BusyScheduler(self.scheduler(scheduler), batch, tokens=tokens, prompts=prompts)
            for scheduler in (AsyncScheduler, LiveDepthScheduler)
        ]
        for arm in arms:  # the prompts, the change of depth, and what is slow at first
            for _ in range(_FEWEST_STEPS):
                arm.step()
            while tokens == _ENDLESS and not arm.all_decode():
                arm.step()
        one_s = median(arms[0].step().whole_s for _ in range(_FEWEST_STEPS))
        steps = max(_FEWEST_STEPS, int(_MEASURE_S / _ROUNDS / one_s))
        without_us, added_us = [], []
        for number in range(_ROUNDS):
            round_of: dict[int, list[Took]] = {}
            for at in (0, 1) if number % 2 else (1, 0):
                round_of[at] = [arms[at].step() for _ in range(steps)]
            between_s = [median(each.between_s for each in round_of[at]) for at in (0, 1)]
            without_us.append(median(each.whole_s for each in round_of[0]) * 1e6)
            added_us.append((between_s[1] - between_s[0]) * 1e6)
        return Rounds(batch, kind, without_us, added_us)

    def slow_stat(self, batch: int) -> SlowStat:
        """Steps, by the clock on the wall, while the depth file answers late."""
        engine = BusyScheduler(self.scheduler(_SlowScheduler), batch, tokens=_ENDLESS)
        engine.step()
        SlowFile.seconds = STAT_SECONDS
        SlowFile.stats = 0
        took = []
        while SlowFile.stats < 6:  # noqa: PLR2004 - three seconds of it
            began_at = time.perf_counter()
            engine.step()
            took.append(time.perf_counter() - began_at)
        return SlowStat(len(took), SlowFile.stats, max(took) * 1000)


class SlowFile(DepthFile):
    """A depth file on a slow disk."""

    seconds = 0.0
    stats = 0

    def poll(self) -> Adopted | Rejected | Missing | None:
        """Look at the file, late."""
        time.sleep(self.seconds)
        SlowFile.stats += 1
        return super().poll()


class _SlowScheduler(LiveDepthScheduler):
    def _build_hook(self) -> SchedulerHook:
        batch, depth = self.scheduler_config.max_num_seqs, self.num_spec_tokens
        hook = SchedulerHook(
            SlowFile.from_environment(os.environ, max_depth=depth),
            CountersWriter(None, max_batch=batch, max_depth=depth),
            self.dynamic_sd_lookup,
        )
        if hook.watch is not None:
            hook.watch.start()
        return hook


def main() -> None:
    """Measure, and leave the figures in a file."""
    target, draft, file = sys.argv[1:]
    for name in ("schedule", "update_from_output"):
        Inner.timed(name)
    with tempfile.TemporaryDirectory() as directory:
        depth = Path(directory) / DEPTH_KEY
        depth.write_text(f'{{"generation": 1, "schedule": [[1, 1024, {_DEPTH}]]}}')
        os.environ[DEPTH_FILE] = str(depth)
        os.environ[COUNTERS_FILE] = str(Path(directory) / "counters")
        stand = Stand(target, draft)
        rounds = []
        for batch in BATCHES:
            for kind, tokens, prompts in (
                ("decode", _ENDLESS, _PROMPTS),
                ("mixed", _SHORT, _PROMPTS),
                ("contexts apart", _ENDLESS, _PROMPTS_APART),
            ):
                rounds.append(stand.rounds(batch, kind, tokens=tokens, prompts=prompts))
                print(f"measured: batch {batch}, {kind}", flush=True)  # noqa: T201 - its progress
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        figures = Figures(rounds, stand.slow_stat(batch=64), load)
    Path(file).write_text(figures.to_json())


if __name__ == "__main__":
    main()
