"""Models that lie on this machine."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from fathom.api.bounded_json import UnreadableJsonError, parsed_json
from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom_intake.model_weights import Tensor, Weights, tensors_of, weight_map

CONFIG: Final = "config.json"
MAX_CONFIG_BYTES: Final = 1 << 20
SINGLE_FILE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
LENGTH_BYTES: Final = 8
"""A safetensors file begins with the length of its header, 64 bits, little endian
(https://huggingface.co/docs/safetensors/index#format)."""
LONGEST_HEADER_BYTES: Final = 1 << 20
"""Limit for a header, and for an index: some ten thousand tensors."""
_MOST_FILES: Final = 64
"""Whose headers are read."""
_SUFFIX: Final = ".safetensors"
_PICKLES: Final = (".bin", ".pt")
_NO_WEIGHTS: Final = (
    *("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt"),
)
"""`filter_files_not_needed_for_inference` in vllm/model_executor/model_loader/weight_utils.py."""
_LARGEST_BYTES: Final = 1 << 53
"""Size of one file; a hub that reports more, or no whole number, reports nothing."""


class UnreadableConfigError(Exception):
    """A config.json that cannot be read; the message says why, as half a sentence."""


def is_directory(ref: ModelRef) -> bool:
    """Whether a model is given as an absolute directory, and not as a Hugging Face id."""
    return Path(ref.id).is_absolute()


def local_facts(ref: ModelRef) -> ModelFacts:
    """What is known of a model in an absolute directory of this machine.

    Of the weights only sizes and headers are read. Reads from the disk; call it in a thread from
    asynchronous code.
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
        document = parse_config(read_bytes(directory / CONFIG))
    except UnreadableConfigError as error:
        return ModelFacts(absence=Absence.UNREADABLE, explanation=str(error))
    config = ModelConfig.from_json(document)
    return ModelFacts(config=config, weights=_weights(directory, config))


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


def _weights(directory: Path, config: ModelConfig) -> Weights:
    try:
        sizes: dict[str, int | None] = {
            path.name: path.stat().st_size for path in directory.iterdir() if path.is_file()
        }
        index = read_index(_beginning(directory / INDEX)) if INDEX in sizes else None
        return Weights(
            total_bytes=weight_bytes(sizes),
            tensors=_tensors(directory, sizes, index) if config.named_eagle3 else None,
            pickled=only_pickles(sizes),
            index_lacks=lacking(index or {}, sizes),
            link=_link_out(directory),
        )
    except OSError:
        return Weights()


def _tensors(
    directory: Path, sizes: Collection[str], index: Mapping[str, str] | None
) -> tuple[Tensor, ...] | None:
    """Read all files that vLLM loads; None: which ones is not known, or one cannot be read."""
    files = weight_files(sizes)
    if index is not None and {SINGLE_FILE} != files:
        files = {*index.values()} & files
    elif files != {SINGLE_FILE}:
        return None
    if len(files) > _MOST_FILES:
        return None
    found = [tensors_of(_header(directory / each)) for each in sorted(files)]
    if any(each is None for each in found):
        return None
    return tuple(tensor for each in found if each is not None for tensor in each)


def _header(file: Path) -> JsonValue:
    """None: it has none that can be read."""
    with file.open("rb") as opened:
        size = header_bytes(opened.read(LENGTH_BYTES))
        return parsed_header(opened.read(size), size) if size else None


def _beginning(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(LONGEST_HEADER_BYTES)


def _link_out(directory: Path) -> str:
    """A file of a model that is a link to somewhere else; empty: none is.

    In a cache of huggingface_hub a snapshot is made of links to the blobs of its repository.
    """
    real = directory.resolve()
    within = [real]
    if real.parent.name == "snapshots":
        within.append((real.parent.parent / "blobs").resolve())
    for path in sorted(directory.iterdir()):
        if path.is_symlink() and (path.suffix == _SUFFIX or path.name in (CONFIG, INDEX)):
            try:
                target = path.resolve()
            except RuntimeError:  # links in a circle
                return path.name
            if not any(target.is_relative_to(each) for each in within):
                return path.name
    return ""


def header_bytes(beginning: bytes) -> int:
    """Length of a header by the first bytes of its file; 0: it is not to be read."""
    size = int.from_bytes(beginning, "little")
    return size if len(beginning) == LENGTH_BYTES and size <= LONGEST_HEADER_BYTES else 0


def parsed_header(text: bytes, size: int) -> JsonValue:
    """What a header of so many bytes says; None: it cannot be read, as where its file ends."""
    return _parsed(text) if len(text) == size else None


def read_index(text: bytes) -> Mapping[str, str] | None:
    """From each tensor to the file that holds it; None: it cannot be read."""
    return weight_map(_parsed(text))


def _parsed(text: bytes) -> JsonValue:
    try:
        return parsed_json(text)
    except UnreadableJsonError:
        return None


def weight_files(paths: Collection[str]) -> set[str]:
    """Files in the safetensors format beside a model's config.json, where alone vLLM looks."""
    return {path for path in paths if path.endswith(_SUFFIX) and "/" not in path}


def lacking(index: Mapping[str, str], paths: Collection[str]) -> str:
    """A file that an index names and that is not there; empty: none is.

    With another file or a path elsewhere in it vLLM stops at start, once it heeds the index
    (`filter_duplicate_safetensors_files` in weight_utils.py).
    """
    return min({*index.values()} - weight_files(paths), default="")


def only_pickles(paths: Collection[str]) -> bool:
    """Whether vLLM would read pickles, for want of anything else."""
    pickles = (path for path in paths if path.endswith(_PICKLES) and "/" not in path)
    return not weight_files(paths) and any(not each.endswith(_NO_WEIGHTS) for each in pickles)


def weight_bytes(sizes: Mapping[str, int | None]) -> int | None:
    """Bytes of the weights that vLLM loads by default; None: unknown.

    Taken from sizes of files and not from the hub's count of parameters, which is of numbers
    before quantisation. Beside `model-*.safetensors` some repositories hold the same weights once
    more as `consolidated.safetensors`, which vLLM leaves out
    (`filter_duplicate_safetensors_files` in vllm/model_executor/model_loader/weight_utils.py).

    Args:
        sizes: in bytes, by path within the repository; None: unknown.
    """
    found = weight_files(sizes)
    loaded = {path for path in found if path.startswith("model")} or found
    total = 0
    for path in loaded:
        size = sizes[path]
        if type(size) is not int or not 0 <= size <= _LARGEST_BYTES:
            return None
        total += size
    return total or None
