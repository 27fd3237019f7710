"""An engine that serves requests one by one, as vLLM does, and counts as Fathom's plugin does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.tuner.requests.arrivals import begin
from benchmarks.tuner.requests.state import (
    MIXED,
    EngineState,
    Rows,
    bucket_names,
    new_state,
    with_more_room,
)
from benchmarks.tuner.requests.steps import advance
from benchmarks.tuner.requests.world import HardwarePart, RequestWorld
from fathom.measurement.counters import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    PodCounters,
    StepKind,
)

EPOCH_S: Final = 1_750_032_000.0
"""Unix seconds at the world's beginning."""


@dataclass(frozen=True, slots=True)
class Served:
    """What users got of one engine, in truth."""

    tokens: int
    """Emitted, whether or not their requests have ended."""
    finished: int
    finished_tokens: int
    busy_s: float
    first_token_s: NDArray[np.float64]
    """From arrival to the first token, of each request."""
    waiting_s: float
    """Sum over time of the requests that wait."""


class RequestEngine:
    """One pod's engine. Times are seconds since the world began."""

    def __init__(
        self,
        world: RequestWorld,
        *,
        name: str,
        hardware: HardwarePart,
        text: str | None,
        depth: int,
        arrivals_seed: int,
        seed: int,
    ) -> None:
        """Start one.

        Args:
            world: its settings and traffic.
            name: of its pod.
            hardware: how fast it is.
            text: the only class of requests that it gets; None: all.
            depth: at every batch, at first.
            arrivals_seed: of the requests.
            seed: of acceptance and of the noise.
        """
        self.name = name
        self.generation = 0
        self._token_budget = world.engine.token_budget
        self._device = hardware.device
        self._buckets = bucket_names(world.engine.max_batch)
        self._state: EngineState = new_state(
            world,
            hardware=hardware,
            text=text,
            depth=depth,
            arrivals_seed=arrivals_seed,
            seed=seed,
        )
        begin(self._state)

    @property
    def now_s(self) -> float:
        """Its clock: when its last step ended."""
        return float(self._state.now["now_s"][0])

    @property
    def waiting(self) -> int:
        """Requests that no step has had yet."""
        return int(self._state.now["waiting"][0])

    @property
    def table(self) -> Sequence[int]:
        """Depth by batch."""
        return [int(depth) for depth in self._state.table]

    @table.setter
    def table(self, depths: Sequence[int]) -> None:
        self._state.table[:] = depths

    @property
    def served(self) -> Served:
        """What users have got so far."""
        now = self._state.now[0]
        return Served(
            tokens=int(now["tokens"]),
            finished=int(now["finished"]),
            finished_tokens=int(now["finished_tokens"]),
            busy_s=float(now["busy_s"]),
            first_token_s=self._state.first_token_s[: now["first_tokens"]].copy(),
            waiting_s=float(now["waiting_s"]),
        )

    def advance(self, until_s: float) -> None:
        """Serve until then, or until the step that is running then has ended."""
        while not advance(self._state, until_s):
            self._state = with_more_room(self._state)

    def counters(self) -> PodCounters:
        """What a scrape shows now."""
        now, transitions = self._state.now[0], _counts(self._state.transitions[0])
        return PodCounters(
            pod=self.name,
            at_s=EPOCH_S + self.now_s,
            started_at_s=EPOCH_S,
            engine=EngineCounts(
                generation_tokens=float(now["tokens"]),
                prompt_tokens=float(now["prefilled"]),
                preemptions=float(now["preemptions"]),
                drafts=float(now["verified"]),
                draft_tokens=float(now["drafted_tokens"]),
                accepted_tokens=float(now["accepted"]),
                finished_requests=float(now["finished"]),
                requests_running=float(now["running"]),
                requests_waiting=float(now["waiting"]),
            ),
            live_depth=True,
            depth_generation=self.generation,
            token_budget=self._token_budget,
            device=self._device,
            transition_steps=transitions.steps,
            transition_seconds=transitions.step_seconds,
            transition_tokens=transitions.tokens,
            transition_prefill=transitions.prefill_tokens,
            cells=self._cells(),
            drafts=self._drafts(),
        )

    def _cells(self) -> dict[Cell, CellCounts]:
        found = {}
        for kind, at, depth in np.argwhere(self._state.cells["steps"]):
            step = StepKind.MIXED if kind == MIXED else StepKind.DECODE
            cell = Cell(self._buckets[at], int(depth), step)
            found[cell] = _counts(self._state.cells[kind, at, depth])
        return found

    def _drafts(self) -> dict[DraftCell, DraftCounts]:
        found = {}
        for at, depth in np.argwhere(self._state.drafts[:, :, 0]):
            drafts, *accepted = self._state.drafts[at, depth, : depth + 1].astype(float).tolist()
            found[DraftCell(self._buckets[at], int(depth))] = DraftCounts(drafts, tuple(accepted))
        return found


def _counts(row: Rows) -> CellCounts:
    return CellCounts(
        float(row["steps"]),
        float(row["seconds"]),
        float(row["tokens"]),
        float(row["requests"]),
        float(row["prefill"]),
    )
