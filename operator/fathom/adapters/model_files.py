"""Models that lie on this machine."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from fathom.api.bounded_json import UnreadableJsonError, parsed_json
from fathom.model_facts import Absence, ModelConfig, ModelFacts, ModelRef, Weights

MAX_CONFIG_BYTES: Final = 1 << 20
SINGLE_FILE: Final = "model.safetensors"
_SUFFIX: Final = ".safetensors"
_LARGEST_BYTES: Final = 1 << 53
"""Size of one file; a hub that reports more, or no whole number, reports nothing."""


class UnreadableConfigError(Exception):
    """A config.json that cannot be read; the message says why, as half a sentence."""


def is_directory(ref: ModelRef) -> bool:
    """Whether a model is given as an absolute directory, and not as a Hugging Face id."""
    return Path(ref.id).is_absolute()


def local_facts(ref: ModelRef) -> ModelFacts:
    """What is known of a model in an absolute directory of this machine.

    Of the weights only sizes and one header are read. Reads from the disk; call it in a thread
    from asynchronous code.
    """
    directory = Path(ref.id)
    if not directory.is_absolute():
        return ModelFacts(
            absence=Absence.NOT_LOCAL, explanation="it is no directory of this machine"
        )
    if not directory.is_dir():
        return ModelFacts(
            absence=Absence.NOT_LOCAL, explanation="there is no such directory on this machine"
        )
    try:
        document = parse_config(read_bytes(directory / "config.json"))
    except UnreadableConfigError as error:
        return ModelFacts(absence=Absence.UNREADABLE, explanation=str(error))
    return ModelFacts(config=ModelConfig.from_json(document), weights=_weights(directory))


def read_bytes(path: Path) -> bytes:
    """A config.json as it lies on the disk.

    Raises:
        UnreadableConfigError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(MAX_CONFIG_BYTES)
    except OSError as error:
        raise UnreadableConfigError(f"it cannot be read: {error.strerror}") from error


def parse_config(content: bytes) -> Mapping[str, JsonValue]:
    """The JSON object in a config.json.

    Raises:
        UnreadableConfigError: there is none.
    """
    try:
        document = parsed_json(content)
    except UnreadableJsonError as error:
        raise UnreadableConfigError(str(error)) from error
    if not isinstance(document, dict):
        raise UnreadableConfigError("it is no JSON object")
    return document


def _weights(directory: Path) -> Weights:
    try:
        sizes: dict[str, int | None] = {
            path.name: path.stat().st_size for path in directory.glob("*.safetensors")
        }
    except OSError:
        return Weights()
    return Weights(weight_bytes(sizes), _has_d2t(directory / SINGLE_FILE))


def _has_d2t(file: Path) -> bool | None:
    if not file.is_file():
        return None
    # It takes long to import, and most who call have no such file.
    from huggingface_hub import parse_local_safetensors_file_metadata  # noqa: PLC0415
    from huggingface_hub.errors import SafetensorsParsingError  # noqa: PLC0415

    try:
        return holds_d2t(parse_local_safetensors_file_metadata(file).tensors)
    except (OSError, ValueError, SafetensorsParsingError):
        return None


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
