"""From a hub, or a mirror of it, into the cache.

HF_ENDPOINT, HF_TOKEN, HF_HOME and the like are read by huggingface_hub itself. A fetch that was
killed is simply run again: files that are there are not fetched once more.

The rules are vLLM's own: `_prepare_weights` in vllm/model_executor/model_loader/default_loader.py,
`download_weights_from_hf` in weight_utils.py beside it, and `_WEIGHT_FILE_PATTERNS` in
vllm/transformers_utils/repo_utils.py.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download

from fathom_fetch.cache import CachedModel
from fathom_fetch.reasons import NoCommitError, reason

INDEX: Final = "model.safetensors.index.json"
"""Names the files that hold a model's tensors, where there are several."""

_MISTRALS_OWN: Final = "consolidated*.safetensors"
_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt")
"""The formats of weights in vLLM's order: the first that is there is the one that is loaded."""
_NEITHER: Final = (
    *("*.pth", "*.ckpt", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.onnx_data"),
    *("*.png", "*.jpg", "*.jpeg", "*.gif", "*.webp", "*.mp3", "*.mp4", "*.wav", "*.flac"),
    *("*.parquet", "*.arrow", "*.ipynb", "*.zip", "*.tar*"),
)
"""Neither loaded by default nor read by a tokenizer or a processor."""
_CONFIGS: Final = ("config.json", "tokenizer_config.json", "preprocessor_config.json")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
"""What huggingface_hub takes for one: nothing else can be looked up offline."""


def wanted_files(
    files: Collection[str], indexed: Collection[str] = (), *, all_weights: bool = False
) -> frozenset[str]:
    """The files to fetch.

    Args:
        files: paths within the repository.
        indexed: what the file called `INDEX` names, if it was read.
        all_weights: take every file of the format that is loaded, wherever it lies.
    """
    weights = _weights(files, everywhere=all_weights)
    if not all_weights:
        weights = weights & frozenset(indexed) or _at_the_top(weights)
    others = {each for each in files if not _matches(each, (*_WEIGHTS, *_NEITHER))}
    return weights | others


def _weights(files: Collection[str], *, everywhere: bool) -> frozenset[str]:
    for pattern in _WEIGHTS if everywhere else (_MISTRALS_OWN, *_WEIGHTS):
        if found := frozenset(each for each in files if _matches(each, (pattern,))):
            return found
    return frozenset()


def _at_the_top(weights: frozenset[str]) -> frozenset[str]:
    """Without the copies that some repositories keep in folders, unless there is nothing else."""
    return frozenset(each for each in weights if "/" not in each) or weights


def _matches(path: str, patterns: Collection[str]) -> bool:
    name = PurePosixPath(path).name
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One model to fetch."""

    role: str
    id: str
    revision: str
    """Branch, tag or commit; empty: the repository's default."""
    whole: bool = False
    """Whether to fetch also weights that vLLM leaves alone by default."""


@dataclass(frozen=True)
class Resolved:
    """The same, with what its revision means now."""

    wanted: Wanted
    commit: str
    sizes: Mapping[str, int | None]
    """Bytes of the files to fetch, by path within the repository; None: unknown."""

    @property
    def total_bytes(self) -> int:
        """Bytes of the files whose size is known."""
        return sum(size or 0 for size in self.sizes.values())


class NotFetchedError(Exception):
    """A model cannot be fetched; the message says which, why, and what to do."""


def fetch(
    models: Sequence[Wanted], show: Callable[[dict[str, CachedModel]], None]
) -> list[Resolved]:
    """Fetch all files that vLLM reads of these models.

    Args:
        models: which.
        show: told what to measure, as soon as all sizes are known and before the first large file.

    Raises:
        NotFetchedError: one of them could not be fetched. What was, stays.
    """
    resolved = [_resolved(each) for each in models]
    cache = Path(constants.HF_HUB_CACHE)
    cached = {
        each.wanted.role: CachedModel(cache, each.wanted.id, each.commit, each.sizes)
        for each in resolved
    }
    show(cached)
    for each in resolved:
        with _explained(each.wanted):
            cached[each.wanted.role].tidy()
            names = [_literally(path) for path in sorted(each.sizes)]
            found = snapshot_download(each.wanted.id, revision=each.commit, allow_patterns=names)
            for repository in _lending_code(Path(found)):
                snapshot_download(repository, allow_patterns="*.py")
    return resolved


def _resolved(wanted: Wanted) -> Resolved:
    with _explained(wanted):
        info = HfApi().model_info(wanted.id, revision=wanted.revision or None, files_metadata=True)
        commit = info.sha or ""
        if not _COMMIT.fullmatch(commit):
            raise NoCommitError
        sizes = {file.rfilename: file.size for file in info.siblings or ()}
        indexed = _indexed(wanted.id, commit) if INDEX in sizes else frozenset()
        chosen = wanted_files(sizes, indexed, all_weights=wanted.whole)
        return Resolved(wanted, commit, {path: sizes[path] for path in chosen})


def _indexed(model_id: str, commit: str) -> frozenset[str]:
    """The weight files that the model's own index names."""
    path = hf_hub_download(model_id, INDEX, revision=commit)
    weight_map = json.loads(Path(path).read_text(encoding="utf-8")).get("weight_map")
    return frozenset(weight_map.values()) if isinstance(weight_map, dict) else frozenset()


def _lending_code(snapshot: Path) -> frozenset[str]:
    """Other repositories whose code a model's configuration refers to, as `org/name--file.Class`.

    Only fetched: whether it is run is the engine's to decide.
    """
    configs = (snapshot / name for name in _CONFIGS)
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in configs if path.exists()]
    maps = [each.get("auto_map") for each in documents if isinstance(each, dict)]
    named = [value for each in maps if isinstance(each, dict) for value in each.values()]
    flat = [part for value in named for part in (value if isinstance(value, list) else [value])]
    return frozenset(part.split("--")[0] for part in flat if isinstance(part, str) and "--" in part)


def _literally(path: str) -> str:
    """A pattern that means this path and no other."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


@contextmanager
def _explained(wanted: Wanted) -> Iterator[None]:
    """Turns whatever goes wrong into a sentence about this model."""
    try:
        yield
    except Exception as error:  # what huggingface_hub's transport raises varies
        why = reason(error, role=wanted.role, revision=wanted.revision)
        raise NotFetchedError(f"{wanted.id} cannot be fetched: {why}.") from error
