"""Arguments of `vllm serve`, read as vLLM's parser reads them: the pure rules, without vLLM.

vLLM's FlexibleArgumentParser is argparse with three additions: underscores count as dashes,
`--config.key value` sets one key of a JSON option, and any unambiguous beginning of a long option
stands for it (argparse's own rule). A test compares these rules with the real parser.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType
from typing import Final, Self

from pydantic import JsonValue

from fathom.api.foreign_json import DEEPEST, json_or_text

_WITH_SUFFIX: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_NEGATIVE_NUMBER: Final = re.compile(r"-\d+|-\d*\.\d+")

_MOST_DIGITS: Final = 7
"""Of a number that is gone through one by one, or made a number at all."""

SHORTEST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "--compilation-config": "--compi",
        "--cudagraph-capture-sizes": "--cudagraph-c",
        "--download-dir": "--dow",
        "--enable-batch-sharded-sampling": "--enable-ba",
        "--enable-dbo": "--enable-db",
        "--enable-lora": "--enable-lor",
        "--enable-return-routed-experts": "--enable-ret",
        "--gpu-memory-utilization": "--gpu-m",
        "--host": "--ho",
        "--kv-cache-dtype": "--kv-cache-d",
        "--kv-transfer-config": "--kv-t",
        "--load-format": "--load",
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
_SHORT: Final[Mapping[str, str]] = MappingProxyType({"--compilation-config": "-cc"})
"""Those of them that have another name, which vLLM takes as a whole only."""


@dataclass(frozen=True, slots=True)
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
            if 0 < len(option.keys) <= DEEPEST:
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
        yield EngineOption(name, tuple(keys), attached if has_value else following, index, spelling)


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
