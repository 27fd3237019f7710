"""Checks of --max-num-batched-tokens, which bounds how much a step drafts. Pure.

vLLM schedules at most so many tokens in a step, and a request with k drafts takes k + 1 of them
(`schedule` in vllm/v1/core/sched/scheduler.py, 0.32): at least, since with methods draft_model and
dflash it takes more (`max_num_new_slots_for_drafting`). Where `engine.args` do not say how many,
it is the engine's own number, which is not known here.
"""

from collections.abc import Iterator
from math import ceil
from typing import Final

from fathom.api.problem import Problem, warning
from fathom.core.counted import counted
from fathom.engine.depth import BUDGET_SHARE
from fathom.validation.candidate import Candidate
from fathom_vllm.buckets import bucket_index, first_batch, last_batch

_OPTION: Final = "--max-num-batched-tokens"


def token_budget_warnings(candidate: Candidate) -> Iterator[Problem]:
    """What the tokens of a step leave too little room for: `tokens` itself, and deeper depths."""
    spec, engine = candidate.spec, candidate.engine
    budget = engine.start.token_budget
    if budget is None or budget < 1 or not spec.drafts:
        return
    most, tokens = engine.max_num_seqs, spec.speculation.tokens
    holds = f"{_OPTION} lets a step hold {counted(budget, 'token')}, and"
    needed = tokens + 1
    if most * needed > budget:
        # Of the last one vLLM takes fewer drafts rather than none.
        scheduled = max(1, budget // needed)
        yield warning(
            "spec.engine.args",
            f"{holds} at speculation.tokens ({tokens}) a request takes {needed} of them: vLLM "
            f"schedules {counted(scheduled, 'request')} in a step at most, and the "
            f"others of up to {most} wait: raise it to {most * needed} or more.",
        )
    deeper = [depth for depth in engine.depths if depth > tokens] if engine.live else []
    reach = {depth: _whole_buckets(int(BUDGET_SHARE * budget) // (depth + 1)) for depth in deeper}
    restricted = {depth: batch for depth, batch in reach.items() if batch < most}
    if restricted:
        used = (f"depth {depth} is used {_up_to(batch)}" for depth, batch in restricted.items())
        # The tuner decides by buckets of batches, and for each by its largest.
        enough = ceil(last_batch(bucket_index(most)) * (max(restricted) + 1) / BUDGET_SHARE)
        yield warning(
            "spec.engine.args",
            f"{holds} a request with k drafts takes k + 1 of them. Fathom leaves half of them to "
            f"prompts, so that of batches up to {most} {', '.join(used)}: raise it to {enough} to "
            "have all of them at every batch.",
        )


def _whole_buckets(batch: int) -> int:
    """The largest batch up to which no bucket goes beyond this one; 0: the first one does."""
    return first_batch(bucket_index(batch + 1)) - 1


def _up_to(batch: int) -> str:
    return f"up to {batch}" if batch else "at none"
