"""What a user asks of a bench, and what cannot be asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from fathom.resource import SpeculativeDeployment


class BenchRefusedError(Exception):
    """It cannot be measured; the message is a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """As it stands on the command line."""

    concurrency: tuple[int, ...] = (1, 4, 16)
    depths: tuple[int, ...] | None = None
    """None: all that the engine has."""
    prompts: tuple[str, ...] = ("random",)
    """Sources: see `fathom.bench.data`."""
    input_tokens: tuple[int, ...] = (1024,)
    """Of random prompts; a series for each."""
    output_tokens: int = 256
    num_prompts: int | None = None
    """Of each run; None: 8 for each request in flight."""
    subset: str = "qualitative"
    """Of SPEED-Bench."""
    categories: tuple[str, ...] = ()
    """Of SPEED-Bench, a series for each; empty: all as one."""
    temperature: float = 0.0
    true_off: bool = True
    deadline_minutes: int = 240
    """After which the Job is ended, whatever it is at."""

    def prompts_at(self, concurrency: int) -> int:
        """How many requests a run has."""
        return self.num_prompts or 8 * concurrency


def asked_depths(sd: SpeculativeDeployment, asked: Sequence[int] | None) -> tuple[int, ...]:
    """The depths to measure, ascending.

    Args:
        sd: whose engine.
        asked: by the user; None: all that the engine has.

    Raises:
        BenchRefusedError: the engine cannot be held at them, or in one pod.
    """
    spec = sd.spec
    nodes = sd.engine.layout.nodes
    if nodes > 1:
        raise BenchRefusedError(
            f"A bench is one pod, and a replica of {sd.metadata.name} is {nodes}: measure a spec "
            "whose replica fits one node."
        )
    if not spec.drafts:
        raise BenchRefusedError(
            "spec.speculation.drafting is Disabled, so there is no depth to measure: set it to "
            "Enabled."
        )
    has = _depths_of(sd)
    missing = sorted(set(asked or ()) - set(has))
    if missing:
        refusal = sd.engine.not_live
        why = f" {refusal.sentence}" if refusal else ""
        raise BenchRefusedError(
            f"The engine has no depth {', '.join(map(str, missing))}, only "
            f"{', '.join(map(str, has))}.{why}"
        )
    return tuple(sorted(set(asked if asked is not None else has)))


def _depths_of(sd: SpeculativeDeployment) -> tuple[int, ...]:
    return sd.engine.depths if sd.engine.live else (sd.spec.speculation.tokens,)
