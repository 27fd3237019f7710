"""What is to be measured, as the command that asks hands it to the pod that measures."""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """One engine, started once."""

    command: tuple[str, ...]
    """With all arguments; the first is a program on PATH."""
    depths: tuple[int, ...]
    """To measure, in this order, with each load; empty: it does not speculate at all."""
    depth_file: str = ""
    """The depth document that it reads; empty: its depth is what it was started with."""
    hidden: str = ""
    """A folder on PYTHONPATH that it must not see; empty: none."""


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """One run of `vllm bench serve`, repeated for each depth of each engine."""

    data: str
    """How it is called in the result."""
    concurrency: int
    """Requests in flight."""
    prompts: int
    """Requests of the run."""
    arguments: tuple[str, ...]
    """After `vllm bench serve`, but for where the result goes."""


@dataclass(frozen=True, kw_only=True)
class MeasurePlan:
    """All that one pod measures."""

    engines: tuple[EnginePlan, ...]
    loads: tuple[LoadPlan, ...]
    port: int
    """Where the engines answer."""
    max_batch: int
    """The last batch of every schedule."""
    start_seconds: float
    """That an engine may take until it answers."""
    obey_seconds: float
    """That an engine may take until a depth is in force."""
    load_seconds: float
    """That one run may take."""

    @property
    def runs(self) -> int:
        """How many rows there will be."""
        return sum(map(self.runs_of, self.engines))

    def runs_of(self, engine: EnginePlan) -> int:
        """How many rows one engine gives."""
        return len(self.loads) * (len(engine.depths) or 1)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "MeasurePlan":
        """Read what `to_json` wrote."""
        found: dict[str, Any] = json.loads(text)
        engines = found.pop("engines")
        loads = found.pop("loads")
        return cls(
            engines=tuple(
                EnginePlan(
                    **{**each, "command": tuple(each["command"]), "depths": tuple(each["depths"])}
                )
                for each in engines
            ),
            loads=tuple(
                LoadPlan(**{**each, "arguments": tuple(each["arguments"])}) for each in loads
            ),
            **found,
        )
