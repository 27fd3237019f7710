"""The depth document: what the operator writes and an engine obeys. Pure."""

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from reprlib import repr as shortened

LAST_GENERATION = 1 << 53
"""Beyond it a metric, which is a double, no longer tells one generation from the next."""

LONGEST_END_S = 86_400
"""Seconds of a pod's own entry: what is to last for longer has no end."""

Schedule = tuple[tuple[int, int, int], ...]
"""Inclusive batch ranges and their depth: `(first, last, depth)`, ascending."""


class DepthDocumentError(ValueError):
    """A depth document that must not reach the engine; the message says which part and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDepths:
    """A validated document, reduced to what one pod has to obey."""

    generation: int
    schedule: Schedule
    """What is in force first: this pod's own entry, or else the common schedule."""
    ends_s: int | None = None
    """Seconds after which its own entry ends; None: it does not, or there is none."""
    common: Schedule = ()
    """What follows its own entry."""
    tokens: Schedule = ()
    """The user's own depth, for when no document is there any more; empty: it is not told."""


def parse_depth_document(text: str, *, pod: str, max_depth: int) -> PodDepths:
    """Read a document for one pod: its entry in `pods` replaces the common schedule.

    Where `ends` has this pod, that is for so many seconds. A batch between two ranges, or beyond
    the last, has the depth of the range before it (`depth_table`).

    Keys this version does not know are passed over, so that a newer operator can still steer the
    pods that an older one started. Entries for other pods are theirs to judge.

    Args:
        text: the JSON document.
        pod: this pod's name; empty when unknown.
        max_depth: the engine's `num_speculative_tokens`. A depth above it is refused, not
            clamped: whoever wrote it believes the engine is sized for it.

    Raises:
        DepthDocumentError: with a sentence naming what is wrong.
    """
    try:
        # Deep nesting ends in RecursionError, and integers beyond 4300 digits in ValueError.
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DepthDocumentError(f"the depth document is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise DepthDocumentError("the depth document must be a JSON object")
    generation = document.get("generation")
    if not isinstance(generation, int) or not _is_int(generation) or generation < 1:
        raise DepthDocumentError(
            f"generation must be a positive integer, not {shortened(generation)}"
        )
    if generation > LAST_GENERATION:
        # It would be obeyed and could not be reported: whoever wrote it would wait for ever.
        raise DepthDocumentError(
            f"generation must be at most {LAST_GENERATION}, not {shortened(generation)}"
        )
    common = _parse_schedule(document.get("schedule"), where="schedule", max_depth=max_depth)
    tokens: Schedule = ()
    if "tokens" in document:
        tokens = _parse_schedule(document["tokens"], where="tokens", max_depth=max_depth)
    pods, ends = (_by_pod(document, key) for key in ("pods", "ends"))
    if not pod or pod not in pods:
        return PodDepths(generation=generation, schedule=common, tokens=tokens)
    return PodDepths(
        generation=generation,
        schedule=_parse_schedule(pods[pod], where=f"pods[{pod!r}]", max_depth=max_depth),
        ends_s=_seconds(ends[pod], where=f"ends[{pod!r}]") if pod in ends else None,
        common=common,
        tokens=tokens,
    )


def _by_pod(document: dict[str, object], key: str) -> dict[str, object]:
    found = document.get(key, {})
    if not isinstance(found, dict):
        what = {"pods": "schedule", "ends": "seconds"}[key]
        raise DepthDocumentError(f"{key} must be an object: pod name to {what}")
    return found


def _seconds(value: object, *, where: str) -> int:
    if not isinstance(value, int) or not _is_int(value) or not 1 <= value <= LONGEST_END_S:
        raise DepthDocumentError(
            f"{where} must be whole seconds from 1 to {LONGEST_END_S}, not {shortened(value)}"
        )
    return value


def _parse_schedule(value: object, *, where: str, max_depth: int) -> Schedule:
    if not isinstance(value, list) or not value:
        raise DepthDocumentError(f"{where} must be a non-empty list of [first, last, depth]")
    ranges: list[tuple[int, int, int]] = []
    previous_last = 0
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 3 or not all(map(_is_int, entry)):  # noqa: PLR2004 - a range is a triple
            raise DepthDocumentError(
                f"{where}: {shortened(entry)} is not [first, last, depth] in integers"
            )
        first, last, depth = entry
        if not ranges and first != 1:
            raise DepthDocumentError(
                f"{where}: the first range must start at 1, not {shortened(first)}"
            )
        if first <= previous_last:
            raise DepthDocumentError(
                f"{where}: {shortened(entry)} overlaps or precedes the range before it"
            )
        if last < first:
            raise DepthDocumentError(f"{where}: {shortened(entry)} ends before it starts")
        if not 0 <= depth <= max_depth:
            raise DepthDocumentError(
                f"{where}: depth {shortened(depth)} is outside 0..{max_depth}, "
                "what this engine is sized for"
            )
        ranges.append((first, last, depth))
        previous_last = last
    return tuple(ranges)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def schedule_hash(schedule: Iterable[Sequence[int]]) -> int:
    """The same number for the same ranges, in whichever process; never 0, which says nothing."""
    text = json.dumps([list(entry) for entry in schedule], separators=(",", ":"))
    return zlib.crc32(text.encode()) or 1


def depth_table(schedule: Schedule, max_batch: int) -> list[int]:
    """Expand a schedule into vLLM's own form: index = batch, entry = depth, index 0 unused.

    Gaps and the tail carry the depth before them, as vLLM's
    `build_dynamic_sd_schedule_lookup` does; a test holds the two equal.
    """
    table = [0] * (max_batch + 1)
    position = 0
    for batch in range(1, max_batch + 1):
        while position + 1 < len(schedule) and schedule[position + 1][0] <= batch:
            position += 1
        table[batch] = schedule[position][2]
    return table
