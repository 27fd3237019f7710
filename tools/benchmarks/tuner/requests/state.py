"""What an engine of whole requests knows, as arrays that compiled functions read and write."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.tuner.requests.world import HardwarePart, RequestWorld
from benchmarks.tuner.worlds.parts import DEEPEST
from fathom.measurement.deltas import bucket_of

Rows = NDArray[Any]
"""Rows of one of the types below."""

DECODE: Final = 0
MIXED: Final = 1
"""First indices of `EngineState.cells`."""

_REQUEST: Final = np.dtype(
    [
        ("born_s", "f8"),
        ("first_s", "f8"),  # when its first token came; negative: it has none yet
        ("prompt", "i8"),  # tokens that are left to prefill
        ("answer", "i8"),  # tokens that are left to emit
        ("whole", "i8"),  # tokens of its whole answer
        ("context", "i8"),  # tokens that are cached
        ("drafts", "i8"),  # made for it in the last step
        ("kind", "i8"),  # its class
        ("ended", "?"),
        ("preempted", "?"),
    ],
    align=True,
)
_NOW: Final = np.dtype(
    [
        ("now_s", "f8"),
        ("running", "i8"),  # of `requests`
        ("head", "i8"),  # of `queue`
        ("waiting", "i8"),
        # Arrivals:
        ("in_flight", "i8"),
        ("next_s", "f8"),
        # What users got:
        ("tokens", "i8"),
        ("finished", "i8"),
        ("finished_tokens", "i8"),
        ("first_tokens", "i8"),  # of `first_token_s`
        ("busy_s", "f8"),
        ("waiting_s", "f8"),
        # What vLLM counts:
        ("verified", "i8"),
        ("drafted_tokens", "i8"),
        ("accepted", "i8"),
        ("prefilled", "i8"),
        ("preemptions", "i8"),
    ],
    align=True,
)
_SETTINGS: Final = np.dtype(
    [
        ("max_batch", "i8"),
        ("token_budget", "i8"),
        ("kv_tokens", "i8"),
        ("chunked_prefill", "?"),
        ("asynchronous", "?"),
        ("open", "?"),
        ("turn_s", "f8"),  # 0: all classes come at any time
    ],
    align=True,
)
_CLASS: Final = np.dtype(
    [
        ("share", "f8"),
        ("prompt", "f8"),
        ("prompt_spread", "f8"),
        ("answer", "f8"),
        ("answer_spread", "f8"),
        # Logarithm of P(all drafts up to a position are accepted), by position.
        ("log_survival", "f8", (DEEPEST,)),
    ],
    align=True,
)
_STALL_WATCH: Final = np.dtype([("usual_s", "f8"), ("seen", "i8"), ("in_a_row", "i8")])
"""The fields of `fathom_vllm.steps.Stalls`."""
_HARDWARE_FIELDS: Final = [name for name in HardwarePart.model_fields if name != "device"]
_HARDWARE: Final = np.dtype([(name, "f8") for name in _HARDWARE_FIELDS])
_COUNTS: Final = np.dtype(
    [("steps", "i8"), ("seconds", "f8"), ("tokens", "i8"), ("requests", "i8"), ("prefill", "i8")]
)


class EngineState(NamedTuple):
    """One engine, its arrivals, and what it counts. Times are seconds since its world began."""

    now: Rows
    """One row: what changes with each step."""
    settings: Rows
    """One row."""
    hardware: Rows
    """One row."""
    classes: Rows
    """Those that come to this engine."""
    loads: NDArray[np.float64]
    """From when on there is which load: two columns, ascending."""
    hits: NDArray[np.float64]
    """Share of a prompt that is cached, by the hour, over and over."""
    requests: Rows
    """Those in the engine, in the order in which they came."""
    chunks: NDArray[np.int64]
    """What this step does for each of them: tokens to prefill …"""
    verifies: NDArray[np.int64]
    """… or drafts to verify; negative: it is no decode of this step."""
    queue: Rows
    """Those that wait: a ring."""
    first_token_s: NDArray[np.float64]
    """From arrival to the first token, of each request."""
    table: NDArray[np.int64]
    """Depth by batch."""
    buckets: NDArray[np.int64]
    """Index of its bucket, by batch."""
    cells: Rows
    """By kind of step, bucket and depth."""
    transitions: Rows
    """One row."""
    drafts: NDArray[np.int64]
    """By bucket and depth: drafts verified, and those accepted by position."""
    stall_watch: Rows
    """One row: how long steps of decodes usually take."""
    stalls_s: NDArray[np.float64]
    """So much longer the next step of decodes at each depth takes."""
    coming: np.random.Generator
    """Draws what arrives."""
    luck: np.random.Generator
    """Draws acceptance and noise."""


def bucket_names(max_batch: int) -> list[int]:
    """The largest batch of each bucket, ascending."""
    return sorted({bucket_of(batch) for batch in range(max_batch + 1)})


def new_state(
    world: RequestWorld,
    *,
    hardware: HardwarePart,
    text: str | None,
    depth: int,
    arrivals_seed: int,
    seed: int,
) -> EngineState:
    """An engine that has served nothing yet.

    Args:
        world: its settings and traffic.
        hardware: how fast it is.
        text: the only class of requests that it gets; None: all.
        depth: at every batch, at first.
        arrivals_seed: of the requests.
        seed: of acceptance and of the noise.
    """
    engine, traffic = world.engine, world.traffic
    settings = (
        engine.max_batch,
        engine.token_budget,
        engine.kv_tokens,
        engine.chunked_prefill,
        engine.asynchronous,
        traffic.mode == "open",
        traffic.turn_seconds or 0.0,
    )
    classes = [
        (
            *(each.share, each.prompt, each.prompt_spread, each.answer, each.answer_spread),
            np.log(each.survival),
        )
        for each in world.classes
        if text in {None, each.name}
    ]
    # Of changes at the same moment the first one counts.
    changes = {60 * each.at_minutes: each.load for each in reversed(traffic.changes)}
    loads = sorted({0.0: traffic.load, **changes}.items())
    stalls_s = np.zeros(DEEPEST + 1)
    for stalled, seconds in world.stalls.items():
        stalls_s[int(stalled)] = seconds
    names = bucket_names(engine.max_batch)
    batches = range(engine.max_batch + 1)
    return EngineState(
        now=np.zeros(1, _NOW),
        settings=np.array([settings], _SETTINGS),
        hardware=np.array([tuple(getattr(hardware, name) for name in _HARDWARE_FIELDS)], _HARDWARE),
        classes=np.array(classes, _CLASS),
        loads=np.array(loads, np.float64),
        hits=np.array(engine.prefix_hits, np.float64),
        requests=np.zeros(engine.max_batch, _REQUEST),
        chunks=np.zeros(engine.max_batch, np.int64),
        verifies=np.zeros(engine.max_batch, np.int64),
        queue=np.zeros(2 * engine.max_batch, _REQUEST),
        first_token_s=np.zeros(2 * engine.max_batch),
        table=np.full(engine.max_batch + 1, depth, np.int64),
        buckets=np.array([names.index(bucket_of(batch)) for batch in batches], np.int64),
        cells=np.zeros((2, len(names), DEEPEST + 1), _COUNTS),
        transitions=np.zeros(1, _COUNTS),
        drafts=np.zeros((len(names), DEEPEST + 1, DEEPEST + 1), np.int64),
        stall_watch=np.zeros(1, _STALL_WATCH),
        stalls_s=stalls_s,
        coming=np.random.default_rng(arrivals_seed),
        luck=np.random.default_rng(seed),
    )


def with_more_room(state: EngineState) -> EngineState:
    """The same with twice the room for requests that wait, and for times to the first token."""
    head, queue = int(state.now["head"][0]), state.queue
    in_order = np.concatenate([queue[head:], queue[:head]])
    state.now["head"] = 0
    return state._replace(
        queue=np.concatenate([in_order, np.zeros_like(queue)]),
        first_token_s=np.concatenate([state.first_token_s, np.zeros_like(state.first_token_s)]),
    )
