"""Which of a repository's files hold the weights that vLLM loads, and what their names tell."""

from collections.abc import Iterable, Mapping
from typing import Final

SINGLE_FILE: Final = "model.safetensors"
_SUFFIX: Final = ".safetensors"
_LARGEST_BYTES: Final = 1 << 53
"""Of one file; a hub that tells of more, or of no whole number, tells nothing."""


def weight_bytes(sizes: Mapping[str, int | None]) -> int | None:
    """Bytes of the weights that vLLM loads by default; None: unknown.

    Taken from sizes of files and not from the hub's count of parameters, which is of numbers
    before quantisation. Beside `model-*.safetensors` some repositories hold the same weights once
    more as `consolidated.safetensors`, which vLLM leaves out
    (`filter_duplicate_safetensors_files` in vllm/model_executor/model_loader/weight_utils.py).

    Args:
        sizes: in bytes, by path within the repository; None: unknown.
    """
    found = {path for path in sizes if path.endswith(_SUFFIX) and "/" not in path}
    loaded = {path for path in found if path.startswith("model")} or found
    total = 0
    for path in loaded:
        size = sizes[path]
        if type(size) is not int or not 0 <= size <= _LARGEST_BYTES:
            return None
        total += size
    return total or None


def holds_d2t(tensors: Iterable[str]) -> bool:
    """Whether there is a table from draft tokens to target tokens.

    vLLM takes any tensor for it whose name has `d2t` in it (`load_weights` in llama_eagle3.py).
    """
    return any("d2t" in name for name in tensors)
