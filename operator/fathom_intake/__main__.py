"""`python -m fathom_intake`: the program of an intake's pod."""

import argparse
import json
import re
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from fathom_intake.folder import File, Folder, Incoming, incoming, require_values
from fathom_intake.model_weights import (
    TYPE_BYTES,
    Tensor,
    WantedWeights,
    faults_of,
    layout_of,
    tensors_of,
    weight_map,
)
from fathom_intake.verdict import (
    LONGEST_MESSAGE,
    SCHEMA,
    Code,
    Refusal,
    RefusedError,
    Target,
    facts_of,
    parsed_object,
    wanted_of,
    without_code,
)

_RESULT: Final = "result.json"
_CONFIG: Final = "config.json"
_INDEX: Final = "model.safetensors.index.json"
_SUFFIX: Final = ".safetensors"
_MOST_RESULT_BYTES: Final = 1 << 16
_MOST_CONFIG_BYTES: Final = 1 << 20
_MOST_HEADER_BYTES: Final = 1 << 24
"""A hundred thousand tensors. The format allows 100 MB, of which Python would make gigabytes."""
_LENGTH_BYTES: Final = 8
_MOST_FILES: Final = 64
"""With weights in them."""
_MOST_ENTRIES: Final = 10_000
"""That are counted in the trainer's folder."""
_REST_OF_MESSAGE: Final = 512
"""Characters besides what is reported of config.json and tensors."""
_PLAIN_NAME: Final = re.compile(r"\w[\w.-]{0,63}", re.ASCII)
_TENSOR_NAME: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_HUB_ID: Final = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_REPORTED: Final = re.compile(
    r"d2t|(embed_tokens|lm_head|fc|input_norm|fc_norm(\.\d{1,2})?)\.(weight|bias)", re.ASCII
)
"""Names of tensors that preflight asks for. Any other is text of the trainer's."""
_TABLE: Final = "d2t"


def main(arguments: Sequence[str] | None = None) -> int:
    """Take a draft in, and leave a message: what was stored, or why nothing was.

    Returns:
        Exit code: 0, or 1 where nothing was taken.
    """
    parser = argparse.ArgumentParser(prog="fathom_intake", allow_abbrev=False)
    parser.add_argument("--output", type=Path, required=True, help="the trainer's folder")
    parser.add_argument("--store", type=Path, required=True, help="folder of stored drafts")
    parser.add_argument("--max-bytes", type=int, required=True, help="of the draft's files")
    parser.add_argument("--eagle3", action="store_true", help="it is to be a draft of EAGLE 3")
    parser.add_argument("--target-hidden-size", type=int)
    parser.add_argument("--target-vocab-size", type=int)
    parser.add_argument("--table-unread", action="store_true", help="as vLLM from 0.30 on")
    parser.add_argument("--known", nargs="*", default=[], help="names a config.json may have")
    parser.add_argument("--message", type=Path, default=Path("/dev/termination-log"))
    options = parser.parse_args(arguments)
    target = Target(
        hidden_size=options.target_hidden_size,
        vocab_size=options.target_vocab_size,
        eagle3=options.eagle3,
        table_unread=options.table_unread,
        known=frozenset(options.known),
    )
    message, refusal = "", None
    try:
        message = taken_in(
            options.output,
            options.store,
            most_bytes=options.max_bytes,
            target=target,
            now_s=time.time(),
        )
    except RefusedError as error:
        refusal = error.refusal
    except Exception as error:  # noqa: BLE001 - its text may be the trainer's, and is not repeated
        refusal = Refusal(Code.BROKEN)
        for frame in traceback.extract_tb(error.__traceback__):
            sys.stderr.write(f"{type(error).__name__} {frame.filename}:{frame.lineno}\n")
    if refusal is not None:
        sys.stderr.write(f"{refusal.sentence}\n")
    options.message.write_text(message if refusal is None else refusal.to_json(), encoding="utf-8")
    return 0 if refusal is None else 1


def taken_in(output: Path, store: Path, *, most_bytes: int, target: Target, now_s: float) -> str:
    """Copy, verify and store the draft that a trainer left; or say where it is to be fetched.

    Idempotent: the same draft again is found where it is.

    Args:
        output: the folder that the trainer wrote to.
        store: the folder that the draft is stored in, by its content.
        most_bytes: of its files.
        target: what it is for.
        now_s: Unix seconds.

    Returns:
        The message: JSON.

    Raises:
        RefusedError: it is not taken. Nothing of it stays.
    """
    with Folder.at(output) as trainers:
        named = _named(trainers)
        if isinstance(named, str):
            with trainers.folder(named) as folder:
                found = {"draft": _stored(folder, store, most_bytes, target, now_s)}
        else:
            found = {"hub": named}
    return json.dumps({"schema": SCHEMA, **found}, separators=(",", ":"))


def _named(trainers: Folder) -> str | dict[str, str]:
    """What result.json names: a folder, or id and revision of a repository."""
    if _RESULT not in trainers.entries(_MOST_ENTRIES):
        raise RefusedError(Code.NO_RESULT)
    text = trainers.content(_RESULT, _MOST_RESULT_BYTES, Code.BAD_RESULT)
    result = parsed_object(text, Code.BAD_RESULT)
    draft, hub = result.get("draft"), result.get("hub")
    if type(result.get("schema")) is not int or result["schema"] != SCHEMA:
        raise RefusedError(Code.BAD_RESULT)
    if hub is None and isinstance(draft, str):
        if not _PLAIN_NAME.fullmatch(draft):
            raise RefusedError(Code.BAD_FOLDER)
        return draft
    if draft is not None or not isinstance(hub, dict):
        raise RefusedError(Code.BAD_RESULT)
    name, revision = hub.get("id"), hub.get("revision")
    if not isinstance(name, str) or not _HUB_ID.fullmatch(name) or ".." in name or "--" in name:
        raise RefusedError(Code.BAD_RESULT)
    if not isinstance(revision, str) or not _COMMIT.fullmatch(revision):
        raise RefusedError(Code.NOT_A_COMMIT)
    return {"id": name, "revision": revision}


def _stored(
    folder: Folder, store: Path, most_bytes: int, target: Target, now_s: float
) -> dict[str, Any]:
    names = folder.entries(_MOST_ENTRIES)
    if _CONFIG not in names:
        raise RefusedError(Code.BAD_CONFIG)
    config, facts = _config(folder, target)
    wanted = wanted_of(facts, target)
    index = _index(folder) if _INDEX in names else None
    files = _weight_files(names, index)
    with ExitStack() as held:
        sources = [held.enter_context(folder.file(each)) for each in files]
        for each in sources:
            _data_begin(each)  # before gigabytes are copied
        size = len(config) + sum(each.size for each in sources)
        if size > most_bytes:
            raise RefusedError(Code.TOO_LARGE, found=size, most=most_bytes)
        new = held.enter_context(incoming(store, now_s))
        copies = dict(zip(files, _stored_names(len(files)), strict=True))
        for source, copy in zip(sources, copies.values(), strict=True):
            new.copy(source, copy)
        new.write(_CONFIG, [config])
        tensors = _verified(new, copies, index, wanted, target)
        reported = {"config": facts, "tensors": tensors}
        if len(json.dumps(reported)) + _REST_OF_MESSAGE > LONGEST_MESSAGE:
            raise RefusedError(Code.BAD_CONFIG)
        kept = new.keep(_MOST_FILES + 2)
    taken = len(files) + (2 if index is not None else 1)
    return {
        "folder": kept.name,
        "digest": kept.digest,
        "bytes": kept.total_bytes,
        "files": kept.files,
        "leftBehind": len(names) - taken,
        **reported,
    }


def _config(folder: Folder, target: Target) -> tuple[bytes, dict[str, Any]]:
    """The config.json to store, and what is reported of it.

    Written again: what was verified is what every reader finds in it.
    """
    text = folder.content(_CONFIG, _MOST_CONFIG_BYTES, Code.BAD_CONFIG)
    try:
        document = without_code(parsed_object(text, Code.BAD_CONFIG))
        return json.dumps(document, indent=2).encode(), facts_of(document, target.known)
    except (RecursionError, ValueError):
        raise RefusedError(Code.BAD_CONFIG) from None


def _index(folder: Folder) -> Mapping[str, str]:
    """From each tensor to the trainer's file that holds it."""
    text = folder.content(_INDEX, _MOST_HEADER_BYTES, Code.BAD_INDEX)
    index = weight_map(parsed_object(text, Code.BAD_INDEX))
    if not index:
        raise RefusedError(Code.BAD_INDEX)
    return index


def _weight_files(names: frozenset[str], index: Mapping[str, str] | None) -> list[str]:
    """The files that vLLM would load: those that an index names, else all."""
    found = {each for each in names if each.endswith(_SUFFIX)}
    if index is not None:
        named = {*index.values()}
        if not named <= found:
            raise RefusedError(Code.BAD_INDEX)
        found = named
    if not found:
        raise RefusedError(Code.NO_WEIGHTS)
    if len(found) > _MOST_FILES:
        raise RefusedError(Code.TOO_MANY_FILES, most=_MOST_FILES)
    return sorted(found)


def _stored_names(count: int) -> list[str]:
    """Names of ours: one of the trainer's may hold anything."""
    if count == 1:
        return [f"model{_SUFFIX}"]
    return [f"model-{each + 1:05}-of-{count:05}{_SUFFIX}" for each in range(count)]


def _verified(
    new: Incoming,
    copies: Mapping[str, str],
    index: Mapping[str, str] | None,
    wanted: WantedWeights,
    target: Target,
) -> list[list[Any]]:
    """Verify the copies, and write their index where there are several.

    Args:
        new: the folder that they are in.
        copies: from the trainer's names to ours.
        index: the trainer's; None: it has none.
        wanted: what the weights should be.
        target: what the draft is for.

    Returns:
        Name, type and shape of each tensor that preflight asks for.
    """
    places: dict[str, str] = {}
    mattering: list[Tensor] = []
    vocabulary = target.vocab_size or wanted.vocab_size
    for name, copy in copies.items():
        with new.folder.file(copy) as file:
            found, matter = _tensors_of(file, vocabulary)
        if index is not None and found != {each for each in index if index[each] == name}:
            raise RefusedError(Code.BAD_INDEX)
        if not places.keys().isdisjoint(found):
            raise RefusedError(Code.BAD_NAME)
        places.update(dict.fromkeys(found, copy))
        mattering += matter
    if not places:
        raise RefusedError(Code.NO_WEIGHTS)
    if len(copies) > 1:
        index_text = json.dumps({"weight_map": places}, sort_keys=True)
        new.write(_INDEX, [index_text.encode()])
    fault = next((each for each in faults_of(mattering, wanted) if each.certain), None)
    if target.eagle3 and fault is not None:
        raise RefusedError(Code.BAD_WEIGHTS, fault.kind)
    reported = (each for each in mattering if _REPORTED.fullmatch(each.name))
    return [[each.name, each.dtype, [*(each.shape or ())]] for each in reported]


def _tensors_of(file: File, vocabulary: int | None) -> tuple[set[str], tuple[Tensor, ...]]:
    """Names of a file's tensors, all of which were read, and those that matter."""
    begin = _data_begin(file)
    header = parsed_object(file.content(_LENGTH_BYTES, begin), Code.BAD_HEADER)
    described = [each for each in header.values() if isinstance(each, dict) and "dtype" in each]
    if any(str(each["dtype"]) not in TYPE_BYTES for each in described):
        raise RefusedError(Code.BAD_TYPE)
    placed, matter = layout_of(header, file.size - begin), tensors_of(header)
    if placed is None or matter is None:
        raise RefusedError(Code.BAD_HEADER)
    if not all(_TENSOR_NAME.fullmatch(each.tensor.name) for each in placed):
        raise RefusedError(Code.BAD_NAME)
    for each in placed:
        table = vocabulary or 0 if _TABLE in each.tensor.name else None
        require_values(file, begin, each, table)
    return {each.tensor.name for each in placed}, matter


def _data_begin(file: File) -> int:
    """Where a file's header ends."""
    length = file.content(0, min(_LENGTH_BYTES, file.size))
    begin = _LENGTH_BYTES + int.from_bytes(length, "little")
    if begin > min(file.size, _LENGTH_BYTES + _MOST_HEADER_BYTES):
        raise RefusedError(Code.BAD_HEADER)
    return begin


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Process 1 of a pod ignores what it has no handler for; an exit removes what was copied."""
    del frame
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main())
