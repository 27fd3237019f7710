"""What an engine runs with: as it tells of itself, or as its arguments ask for it. Pure.

The plugin reads it of vLLM's own configuration (`fathom_vllm.engine_report`). So it holds what an
image, a webhook or a variable made of the arguments, and what vLLM chose where they say nothing.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pydantic import JsonValue

from fathom.api import names
from fathom.api.bounded_json import UnreadableJsonError, parsed_json
from fathom.api.spec import MAX_TOKENS_LIMIT
from fathom.engine.argument_parser import (
    MAX_NUM_SEQS,
    EngineArguments,
    is_count,
    token_budget,
    whole_number,
)
from fathom.engine.depth import DepthRange, Schedule
from fathom.engine.start import parsed_version

_WORD: Final = re.compile(r"[\w.+-]{1,64}", re.ASCII)
_DEVICE: Final = re.compile(r"[ -~]{1,64}")
"""What a pod shows is kept beyond its page, and stands in sentences."""
_LONGEST_LIST: Final = 1024
"""Characters; the plugin tells no longer one."""
_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9}):(\d{1,9})", re.ASCII)
"""First and last batch of a part of a startup schedule, and its depth."""
_SAID: Final = {"true": True, "false": False}
_DRAFTING: Final = "--speculative-config"
_SERVE: Final = "serve"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_DIGEST_LENGTH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """None and empty: it is not told."""

    version: str = ""
    """vLLM's."""
    runner: str = ""
    """`V1` or `V2`, of vLLM's model runners."""
    graph_mode: str = ""
    """vLLM's `cudagraph_mode`, before the attention backend has its say."""
    capture_sizes: tuple[int, ...] = ()
    """Sizes of its CUDA graphs, in tokens."""
    depths: tuple[int, ...] = ()
    """That its startup schedule names, ascending; (0,): it has no speculation."""
    schedule: Schedule = ()
    """Its startup schedule, as vLLM was given it; empty, too: it was given one depth or none."""
    method: str = ""
    max_num_seqs: int | None = None
    token_budget: int | None = None
    asynchronous: bool | None = None
    """Whether it schedules a step while the one before it runs."""
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    devices: int | None = None
    """That all its ranks take."""


NOTHING_TOLD: Final = EngineReport()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPair:
    """Which target and draft an engine was told to load, by digests: only to tell them from others.

    No depth is chosen by it, so that it may rest on arguments, which an engine need not follow.
    """

    target: str
    draft: str
    engine: str
    """Digest of its image and of all that it was started with."""
    commits: bool
    """Whether both are named by commits, so that the same names are the same weights."""

    def has_models_of(self, other: "ServedPair") -> bool:
        """Whether target and draft have the same names."""
        return (self.target, self.draft) == (other.target, other.draft)


def device_in(labels: Mapping[str, str]) -> str:
    """The accelerator's name in the labels of `fathom_engine_info`; empty: it is not told."""
    return _matched(_DEVICE, labels.get("device", ""))


def report_in(labels: Mapping[str, str]) -> EngineReport:
    """The rest of these labels. What cannot be read, as of a later plugin, is not told."""

    def word(label: str) -> str:
        return _matched(_WORD, labels.get(label, ""))

    def number(label: str) -> int | None:
        return _count(labels.get(label, ""))

    return EngineReport(
        version=word("vllm_version"),
        runner=word("runner"),
        graph_mode=word("graph_mode"),
        capture_sizes=_counts(labels.get("capture_sizes", "")),
        depths=_depths(_counts(labels.get("depths", ""))),
        schedule=_schedule(labels.get("schedule", "")),
        method=word("method"),
        max_num_seqs=number("max_num_seqs"),
        token_budget=number("token_budget"),
        asynchronous=_SAID.get(labels.get("asynchronous", "")),
        tensor_parallel=number("tensor_parallel"),
        pipeline_parallel=number("pipeline_parallel"),
        data_parallel=number("data_parallel"),
        devices=number("devices"),
    )


def served_by(containers: Mapping[str, tuple[str, Sequence[str]]]) -> ServedPair | None:
    """What the engine of a pod was told to load; None: which container that is, is not known.

    Args:
        containers: image, and command with arguments, by name.
    """
    read = {name: EngineArguments.of(words) for name, (_, words) in containers.items()}
    found = [name for name, each in read.items() if each.has(_DRAFTING)]
    found += [name for name in containers if name == names.ENGINE_CONTAINER]
    found += containers if len(containers) == 1 else ()
    return _pair(*containers[found[0]], read[found[0]]) if found else None


def served_by_all(pairs: Iterable[ServedPair | None]) -> ServedPair | None:
    """What several pods were told to load; None: not the same models, or not known of each."""
    found = {*pairs}
    first = next(iter(found), None)
    if first is None or not all(each and each.has_models_of(first) for each in found):
        return None
    engines = sorted(each.engine for each in found if each)
    return first if len(engines) == 1 else replace(first, engine=_digest(*engines))


def _pair(image: str, words: Sequence[str], arguments: EngineArguments) -> ServedPair:
    engine, drafting = _digest(image, *words), arguments.object(_DRAFTING)
    if not drafting:
        # As of a script: any change of it may be one of the draft.
        return ServedPair(target=engine, draft=engine, engine=engine, commits=False)
    stated = {each.name: each.value or "" for each in arguments.options if not each.keys}
    revision = stated.get("--revision", "")
    model, method, commit = (str(drafting.get(key, "")) for key in ("model", "method", "revision"))
    # A draft without weights of its own comes with the target.
    commits = [revision, commit] if model else [revision]
    return ServedPair(
        target=_digest(stated.get("--model") or _first_operand(words), revision),
        draft=_digest(model, method, commit),
        engine=engine,
        commits=all(map(_COMMIT.fullmatch, commits)),
    )


def _first_operand(words: Sequence[str]) -> str:
    """The model, where no option names it: what follows `serve`, or else comes first."""
    behind = words[words.index(_SERVE) + 1 :] if _SERVE in words else words
    return next(iter(behind), "")


def _digest(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:_DIGEST_LENGTH]


def asked_by(arguments: EngineArguments) -> EngineReport:
    """What arguments ask for that the spec has no field for, or that depends on who rendered them.

    What they leave to vLLM is not told.
    """
    drafting = _speculative_config(arguments)
    return EngineReport(
        depths=_named(drafting),
        method=_matched(_WORD, str(drafting.get("method", ""))),
        max_num_seqs=whole_number(arguments.value(MAX_NUM_SEQS) or ""),
        token_budget=token_budget(arguments),
        asynchronous=_asynchronous(arguments),
    )


class Difference(NamedTuple):
    """A part in which an engine is not what was asked for."""

    part: str
    """As vLLM calls it."""
    told: str
    asked: str


def differences(told: EngineReport, asked: EngineReport) -> Iterator[Difference]:
    """Where both are known and differ. Of versions a patch or a build makes no difference."""
    pairs = {
        "vLLM": (_minor(told.version), _minor(asked.version)),
        "method": (told.method, asked.method),
        "depths": (_listed(told.depths), _listed(asked.depths)),
        "max_num_seqs": (_said(told.max_num_seqs), _said(asked.max_num_seqs)),
        "max_num_batched_tokens": (_said(told.token_budget), _said(asked.token_budget)),
        "async_scheduling": (_said(told.asynchronous), _said(asked.asynchronous)),
        "tensor_parallel_size": (_said(told.tensor_parallel), _said(asked.tensor_parallel)),
    }
    for part, (ours, theirs) in pairs.items():
        if ours and theirs and ours != theirs:
            yield Difference(part, ours, theirs)


def _minor(version: str) -> str:
    """The first two numbers of a release: what engines can do goes by them."""
    found = parsed_version(version)
    return "" if found is None else ".".join(map(str, found.release[:2]))


def _said(value: int | None) -> str:
    return "" if value is None else str(value).lower()


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _matched(form: re.Pattern[str], text: str) -> str:
    return text if form.fullmatch(text) else ""


def _count(text: str) -> int | None:
    return int(text) if is_count(text) else None


def _counts(text: str) -> tuple[int, ...]:
    parts = text.split(",") if len(text) <= _LONGEST_LIST else []
    return tuple(map(int, parts)) if all(map(is_count, parts)) else ()


def _schedule(text: str) -> Schedule:
    parts = text.split(",") if len(text) <= _LONGEST_LIST else []
    found = [match for part in parts if (match := _RANGE.fullmatch(part))]
    ranges = tuple(DepthRange(*map(int, match.groups())) for match in found)
    starts = (1, *(each.last + 1 for each in ranges))
    ascend = all(
        start <= each.first <= each.last for start, each in zip(starts, ranges, strict=False)
    )
    known = len(ranges) == len(parts) and ranges and ranges[0].first == 1 and ascend
    return ranges if known and _depths({each.depth for each in ranges}) else ()


def _speculative_config(arguments: EngineArguments) -> Mapping[str, JsonValue]:
    try:
        config = parsed_json(arguments.value(_DRAFTING) or "")
    except UnreadableJsonError:
        return {}
    return config if isinstance(config, dict) else {}


def _named(drafting: Mapping[str, JsonValue]) -> tuple[int, ...]:
    ranges = drafting.get("num_speculative_tokens_per_batch_size")
    if not isinstance(ranges, list):
        ranges = [[drafting.get("num_speculative_tokens")]]
    last = (each[-1] for each in ranges if isinstance(each, list) and each)
    return _depths({each for each in last if isinstance(each, int)})


def _depths(found: Iterable[int]) -> tuple[int, ...]:
    depths = tuple(sorted(found))
    return depths if all(0 <= each <= MAX_TOKENS_LIMIT for each in depths) else ()


def _asynchronous(arguments: EngineArguments) -> bool | None:
    said = arguments.beginning("--async-s", "--no-async-s")
    return not said[-1].name.startswith("--no-") if said else None
