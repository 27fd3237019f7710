"""Which files of a repository vLLM reads. Pure.

The rules are vLLM's own: `_prepare_weights` in vllm/model_executor/model_loader/default_loader.py,
`download_weights_from_hf` in weight_utils.py beside it, and `_WEIGHT_FILE_PATTERNS` in
vllm/transformers_utils/repo_utils.py.
"""

from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

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
