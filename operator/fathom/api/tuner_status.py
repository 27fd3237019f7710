"""What the operator reports of a SpeculationTuner."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from fathom.api.base import ApiModel
from fathom.api.status import ReportedStatus


class Level(StrEnum):
    """What can be known of an engine, and done with it; each has all that the one before has."""

    METRICS = "Metrics"
    """A stock engine: acceptance, its alarms, and the break-even of a decode step."""
    COUNTED = "Counted"
    """With the plugin: steps and acceptance by batch, at the depths that run."""
    LIVE = "Live"
    """Depth can be changed while it runs: advice on depths, and mode Auto."""


class EnginesStatus(ApiModel):
    """Pods whose engines are alike, as they say themselves."""

    pods: int
    """How many of them there are."""
    level: Level | None = None
    """What can be done with them; absent: their metrics cannot be read."""
    reason: str = ""
    """What is missing first for more, in one word."""
    version: str = ""
    """vLLM's."""
    runner: str = ""
    """vLLM's model runner, V1 or V2."""
    depths: str = ""
    """That they were started with, such as 0,1,3,7."""
    max_num_seqs: int | None = None
    """Requests at a time."""


class BreakEven(ApiModel):
    """What a shallower depth keeps of the tokens of a decode step."""

    depth: int
    """In place of the depth that runs."""
    keeps_percent: str
    """Tokens per request and step over those at the depth that runs, percent."""
    pays_if_shorter_by_percent: str
    """It gives more tokens per second if a step gets shorter by more than this, percent."""


class SpeculationTunerStatus(ReportedStatus):
    """What the operator reports."""

    pods: int = 0
    """Pods that the selector finds."""
    readable_pods: int = 0
    """Those of them whose metrics could be read."""
    readable: str = ""
    """Readable pods and all, such as 3/3."""
    level: Level | None = None
    """What can be done with the engines that are judged."""
    tuned_pods: int = 0
    """Pods of these engines."""
    engines: Annotated[tuple[EnginesStatus, ...], Field(max_length=16)] = ()
    """By kind of engine, the judged ones first."""
    break_even: Annotated[tuple[BreakEven, ...], Field(max_length=64)] = ()
    """For decode steps alone, from acceptance; what it means for whole requests is not known."""
