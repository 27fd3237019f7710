"""Arguments of `vllm serve`, read as vLLM's parser reads them, and what they state. Pure.

vLLM's FlexibleArgumentParser is argparse with three additions: underscores count as dashes,
`--config.key value` sets one key of a JSON option, and any unambiguous beginning of a long option
stands for it (argparse's own rule). A test compares these rules with the real parser.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from types import MappingProxyType
from typing import Final, Self

from pydantic import JsonValue

from fathom.api.accelerators import preset_for
from fathom.api.bounded_json import DEEPEST, json_or_text
from fathom.api.choices import Accelerator
from fathom.api.spec import NodePoolSpec

_WITH_SUFFIX: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_NEGATIVE_NUMBER: Final = re.compile(r"-\d+|-\d*\.\d+")

_VARIABLE: Final = re.compile(r"(?<!\$)(?:\$\$)*\$\([^()]+\)")
_MOST_DIGITS: Final = 7
"""Digits of a number that is gone through one by one, or made a number at all."""

SHORTEST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "--compilation-config": "--compi",
        "--cpu-offload-gb": "--cpu-offload-g",
        "--cudagraph-capture-sizes": "--cudagraph-c",
        "--distributed-executor-backend": "--distributed-e",
        "--download-dir": "--dow",
        "--enable-batch-sharded-sampling": "--enable-ba",
        "--enable-dbo": "--enable-db",
        "--enable-lora": "--enable-lor",
        "--enable-return-routed-experts": "--enable-ret",
        "--gpu-memory-utilization": "--gpu-m",
        "--host": "--ho",
        "--kv-cache-dtype": "--kv-cache-d",
        "--kv-offloading-backend": "--kv-offloading-b",
        "--kv-offloading-size": "--kv-offloading-s",
        "--kv-transfer-config": "--kv-t",
        "--load-format": "--load",
        "--mamba-cache-dtype": "--mamba-cache-d",
        "--mamba-ssm-cache-dtype": "--mamba-s",
        "--max-cudagraph-capture-size": "--max-cu",
        "--max-model-len": "--max-mo",
        "--max-num-batched-tokens": "--max-num-b",
        "--max-num-seqs": "--max-num-se",
        "--performance-mode": "--perf",
        "--return-sampling-mask": "--return-s",
        "--speculative-config": "--speculative-config",
        "--ubatch-size": "--ub",
    }
)
"""Options whose value is read, and the shortest beginning of each that vLLM takes for it alone."""
_SHORT: Final[Mapping[str, str]] = MappingProxyType(
    {"--compilation-config": "-cc", "--speculative-config": "-sc"}
)
"""Those of them that have another name, which vLLM takes as a whole only."""
MAX_NUM_SEQS: Final = "--max-num-seqs"
MAX_NUM_BATCHED_TOKENS: Final = "--max-num-batched-tokens"
_MAX_NUM_SEQS: Final = 1024
_MAX_NUM_SEQS_OF_SMALL_GPUS: Final = 256
_MAX_NUM_SEQS_WITHOUT_GPUS: Final = 128
_SMALL_BYTES: Final = 70 << 30
"""vLLM's own defaults, with so much memory and more, but for the A100, and below
(`get_batch_defaults` in vllm/engine/arg_utils.py, 0.32)."""
_LOADED_AS_THE_HUB_HAS_THEM: Final = frozenset({"", "auto", "hf", "mistral"})
_LOADED_FROM_ALL_FILES: Final = frozenset(
    {"safetensors", "fastsafetensors", "instanttensor", "runai_streamer", "bitsandbytes"}
)
"""Values of --load-format with which vLLM reads a hub's files, and picks among them differently."""
_NAMING_OTHER_REPOSITORIES: Final = (
    "--tokenizer",
    "--hf-config-path",
    "--generation-config",
    "--lora-modules",
    "--enable-lora",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOption:
    """One option as vLLM's parser would see it."""

    name: str
    """Normalised: `--tensor-parallel-size` for `--tensor_parallel_size=8`; without dotted keys."""
    keys: tuple[str, ...]
    """Dotted keys, such as `("method",)` for `-sc.method`."""
    value: str | None
    """What follows `=` or, where it is no option itself, the next argument."""
    index: int
    """Position among the arguments."""
    spelling: str
    """As the user wrote it, without the value."""


@dataclass(frozen=True, slots=True)
class EngineArguments:
    """Arguments of `vllm serve`, parsed once. Names are spelled out: each is one of `SHORTEST`."""

    words: tuple[str, ...]
    """As they are written."""
    options: tuple[EngineOption, ...]
    """Every argument that argparse would take for an option, in order."""

    @classmethod
    def of(cls, words: Sequence[str]) -> Self:
        return cls(tuple(words), tuple(_read(words)))

    def spelled(self, name: str) -> Iterator[EngineOption]:
        """The options that mean this one, as JSON or key by key."""
        shortest = SHORTEST[name]
        for option in self.options:
            long = option.name.startswith(shortest) and name.startswith(option.name)
            if long or option.name == _SHORT.get(name):
                yield option

    def has(self, name: str) -> bool:
        """Whether an option is there, with a value or without."""
        return self.value(name) is not None

    def value(self, name: str) -> str | None:
        """The value that wins for an option, in whatever spelling; None: the option is absent."""
        values = [option.value or "" for option in self.spelled(name) if not option.keys]
        return values[-1] if values else None

    def numbers(self, name: str) -> tuple[int, ...]:
        """The whole numbers that an option names which takes several; none: it is absent."""
        stated: Sequence[str] = ()
        for option in self.spelled(name):
            behind = takewhile(str.isdecimal, self.words[option.index + 1 :])
            stated = [option.value or ""] if "=" in self.words[option.index] else [*behind]
        return tuple(int(each) for each in stated if is_count(each))

    def object(self, name: str) -> Mapping[str, JsonValue]:
        """What an option says that takes an object, written as JSON or key by key.

        Empty: nothing, or nothing that can be read. vLLM makes one object of the keys behind each
        spelling of the option, and puts them behind all other arguments in the order in which they
        began. The last argument is what counts: so, whatever the order, keys take the place of JSON
        (`parse_args` in vllm/utils/argparse_utils.py).
        """
        by_spelling: dict[str, dict[str, JsonValue]] = {}
        for option in self.spelled(name):
            if option.keys and len(option.keys) <= DEEPEST:
                *above, last = option.keys
                text = option.value or ""
                # `key+` takes a list without brackets.
                stated: JsonValue = [*text.split(",")] if last.endswith("+") else json_or_text(text)
                for key in (last.removesuffix("+"), *reversed(above)):
                    stated = {key: stated}
                _add(by_spelling.setdefault(option.name, {}), stated)
        keyed = next(reversed(by_spelling.values()), None)
        whole = keyed or json_or_text(self.value(name) or "")
        return whole if isinstance(whole, dict) else {}

    def beginning(self, *beginnings: str) -> Sequence[EngineOption]:
        """Options whose names begin so, in order: no other option of vLLM's does."""
        return [option for option in self.options if option.name.startswith(beginnings)]


def _read(args: Sequence[str]) -> Iterator[EngineOption]:
    for index, argument in enumerate(args):
        # argparse takes a negative number, or an argument with a space in it, for a value.
        spelling, has_value, attached = argument.partition("=")
        if not spelling.startswith("-") or " " in spelling or _is_number(argument):
            continue
        name, *keys = spelling.split(".")
        if name.startswith("--"):
            name = "--" + name[2:].replace("_", "-")
        following = args[index + 1] if index + 1 < len(args) else None
        if following is not None and following.startswith("-") and not _is_number(following):
            following = None
        yield EngineOption(
            name=name,
            keys=tuple(keys),
            value=attached if has_value else following,
            index=index,
            spelling=spelling,
        )


def has_variable(text: str) -> bool:
    """Whether the kubelet may replace a part of it: `$(NAME)`, but not `$$(NAME)`."""
    return _VARIABLE.search(text) is not None


def is_count(text: str) -> bool:
    """Whether a text is a whole number of a size that any engine has."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _add(stated: dict[str, JsonValue], more: JsonValue) -> None:
    """Put one object into another: objects go into each other, and lists behind each other."""
    for key, value in more.items() if isinstance(more, dict) else ():
        there = stated.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            _add(there, value)
        elif isinstance(there, list) and isinstance(value, list):
            there += value
        else:
            stated[key] = value


def whole_number(text: str) -> int | None:
    """A number as vLLM reads it where it takes `1k` and `2M` too; None: it takes none.

    Small letters stand for powers of 1,000 and may follow a fraction, capitals for those of 1,024
    (`human_readable_int` in vllm/engine/arg_utils.py).
    """
    found = _WITH_SUFFIX.fullmatch(text.strip())
    if found is None:
        try:
            return int(text)
        except ValueError:
            return None
    number, suffix = found.groups()
    power = "kmgt".index(suffix.lower()) + 1
    if suffix.islower():
        return int(float(number) * 1000**power)
    return int(number) * 1024**power if number.isdecimal() else None


def _is_number(argument: str) -> bool:
    return _NEGATIVE_NUMBER.fullmatch(argument) is not None


def max_num_seqs(arguments: EngineArguments, pool: NodePoolSpec) -> int:
    """The largest number of requests in one engine step, where depth is live.

    Where the arguments say nothing, what vLLM would choose by itself on these GPUs, or without any.
    Where their memory is not known, the lower default is taken.
    """
    stated = arguments.value(MAX_NUM_SEQS)
    with suppress(ValueError):
        if stated is not None:
            return max(1, int(stated))
    own = _max_num_seqs_of(pool)
    if performance_mode(arguments) == "throughput":
        own *= 2
    tokens = token_budget(arguments)
    return min(own, tokens) if tokens is not None and tokens > 0 else own


def _max_num_seqs_of(pool: NodePoolSpec) -> int:
    preset = preset_for(pool)
    if not preset.has_gpus:
        return _MAX_NUM_SEQS_WITHOUT_GPUS
    small = pool.accelerator is Accelerator.A100 or preset.memory_bytes < _SMALL_BYTES
    return _MAX_NUM_SEQS_OF_SMALL_GPUS if small else _MAX_NUM_SEQS


def token_budget(arguments: EngineArguments) -> int | None:
    """The most tokens of one step; None: not stated, or no number."""
    return whole_number(arguments.value(MAX_NUM_BATCHED_TOKENS) or "")


def performance_mode(arguments: EngineArguments) -> str:
    """What is preferred; `balanced`, vLLM's default, for nothing."""
    return arguments.value("--performance-mode") or "balanced"


def kv_cache_dtype(arguments: EngineArguments) -> str:
    """The KV cache's type; `auto`, vLLM's default, for nothing."""
    return arguments.value("--kv-cache-dtype") or "auto"


def graphs_of_each_kind(arguments: EngineArguments) -> int:
    """How often vLLM captures each graph of the target: without adapters, and with them.

    Or with 1, 2, 4 and so on, up to one more than --max-loras, as --specialize-active-lora asks
    (`get_lora_capture_cases` in vllm/v1/worker/gpu/lora_utils.py). `cudagraph_specialize_lora`
    off spares none there.
    """
    if not has_adapters(arguments):
        return 1
    specialized = arguments.beginning("--specialize-", "--no-specialize-")
    stated = [option.value or "" for option in arguments.beginning("--max-loras")]
    if not specialized or specialized[-1].name.startswith("--no-"):
        return 2
    adapters = max(1, whole_number(stated[-1]) or 1) if stated else 1
    return 2 + adapters.bit_length()


def has_adapters(arguments: EngineArguments) -> bool:
    """Whether LoRA is on."""
    spellings = {"--enable-lora", "--no-enable-lora", "--disable-lora"}
    stated = [each.name for each in arguments.options if each.name in spellings]
    return bool(stated) and stated[-1] == "--enable-lora"


class Loading(Enum):
    """Which files of a repository's weights the engine reads, and where it looks for them."""

    CHOSEN = "those that vLLM chooses by default, in the hub's cache"
    ALL = "one format's, whichever there are, in the hub's cache"
    ELSEWHERE = "none, or not in the hub's cache"


def loading(arguments: EngineArguments) -> Loading:
    """How the weights are loaded."""
    if arguments.has("--download-dir"):
        return Loading.ELSEWHERE
    stated = arguments.value("--load-format") or ""
    if stated in _LOADED_AS_THE_HUB_HAS_THEM:
        return Loading.CHOSEN
    return Loading.ALL if stated in _LOADED_FROM_ALL_FILES else Loading.ELSEWHERE


def names_other_repositories(arguments: EngineArguments) -> bool:
    """Whether the engine may look for more than target and draft."""
    return any(option.name in _NAMING_OTHER_REPOSITORIES for option in arguments.options)
