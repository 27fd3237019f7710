"""What vLLM makes of a step, as its `update_from_output` does it, request by request."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MOST_DRAFTS = 7
"""The engine's `num_speculative_tokens`: so many positions stand in its statistics."""


@dataclass(frozen=True)
class Cached:
    """Requests that are not new to a step."""

    req_ids: list[str] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class New:
    """A request's first appearance."""

    req_id: str
    num_computed_tokens: int = 0


@dataclass(frozen=True)
class Sampled:
    """What a model runner returns."""

    req_id_to_index: dict[str, int]
    sampled_token_ids: list[list[int]]


@dataclass(frozen=True)
class Output:
    request_id: str
    new_token_ids: list[int]


@dataclass(frozen=True)
class Drafts:
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens_per_pos: list[int]


@dataclass(frozen=True)
class Stats:
    spec_decoding_stats: Drafts | None


@dataclass(frozen=True)
class Outputs:
    outputs: list[Output]
    scheduler_stats: Stats | None


@dataclass(frozen=True)
class Row:
    """One request of a step."""

    drafts: int
    sampled: int
    over: bool = False
    """It ended while the step was in flight: what was sampled is passed over."""
    most: int = MOST_DRAFTS + 1
    """It stops after so many tokens: what is handed on is cut, after it was counted."""
    client: int = 0


def outputs_of(rows: Iterable[Row], *, failed: Sequence[int] = ()) -> dict[int, Outputs]:
    """By client, the first with the statistics; `failed`: clients of requests that failed.

    Requests are called r0, r1 and so on.
    """
    outputs: dict[int, list[Output]] = {}
    verified = tokens = 0
    accepted = [0] * MOST_DRAFTS
    for at, row in enumerate(rows):
        if row.over or not row.sampled:
            continue
        if row.drafts:
            verified += 1
            tokens += row.drafts
            for position in range(row.sampled - 1):
                accepted[position] += 1
        outputs.setdefault(row.client, []).append(
            Output(f"r{at}", [5] * min(row.sampled, row.most))
        )
    for client in failed:
        outputs.setdefault(client, []).append(Output("failed", []))
    stats = Stats(Drafts(verified, tokens, accepted) if verified else None)
    clients = [*outputs] or [0]
    return {
        client: Outputs(outputs.get(client, []), stats if client == clients[0] else None)
        for client in clients
    }
