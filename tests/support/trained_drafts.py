"""What trainers hand back: small drafts in the safetensors format, with what honest ones leave."""

import json
import os
import pickle
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Final

from fathom_intake.__main__ import main
from fathom_intake.model_weights import TYPE_BYTES
from support.draft_weights import Shapes, shapes_of

CLASS: Final = "LlamaForCausalLMEagle3"
CONFIG: Final[Mapping[str, Any]] = {
    "architectures": [CLASS],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 32,
    "draft_vocab_size": 16,
    "max_position_embeddings": 64,
}
ANOTHER_USER: Final = 2000
MARK: Final = "ch4tty-pr0mpt"
"""Text of the trainer's, which nobody is to read."""
_TYPES: Final = {"d2t": "I64", "t2d": "BOOL"}


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


class _Marking:
    """Leaves a file where its pickle is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.marker), "w"))


def tensors_file(
    shapes: Shapes,
    *,
    dtypes: Mapping[str, str] | None = None,
    values: Mapping[str, bytes] | None = None,
    header: Mapping[str, Any] | None = None,
) -> bytes:
    """A file in the safetensors format, all zeros.

    Args:
        shapes: of its tensors, in their order.
        dtypes: those that are not BF16.
        values: those that are not zeros.
        header: what else its header says, or says instead.
    """
    described: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, shape in shapes.items():
        dtype = {**_TYPES, **(dtypes or {})}.get(name, "BF16")
        size = prod(shape) * TYPE_BYTES.get(dtype, 1)
        offsets = [len(data), len(data) + size]
        described[name] = {"dtype": dtype, "shape": [*shape], "data_offsets": offsets}
        data += (values or {}).get(name, bytes(size))
    text = json.dumps({**described, **(header or {})}).encode()
    return len(text).to_bytes(8, "little") + text + data


@dataclass
class Output:
    """A trainer's folder."""

    path: Path
    config: dict[str, Any] = field(default_factory=lambda: dict(CONFIG))

    @property
    def draft(self) -> Path:
        return self.path / "draft"

    @property
    def weights(self) -> Path:
        return self.draft / "model.safetensors"

    @property
    def shapes(self) -> Shapes:
        return shapes_of(self.config)

    def write(self) -> "Output":
        """A whole one, with nothing besides."""
        self.draft.mkdir(parents=True)
        self.result({"schema": 1, "draft": "draft"})
        self.write_config()
        self.weights.write_bytes(tensors_file(self.shapes))
        return self

    def result(self, document: Any) -> None:
        (self.path / "result.json").write_text(json.dumps(document))

    def write_config(self, **changes: Any) -> None:
        (self.draft / "config.json").write_text(json.dumps({**self.config, **changes}))

    def tensors(self, shapes: Shapes | None = None, **changes: Any) -> None:
        """Other tensors: arguments as those of `tensors_file`."""
        self.weights.write_bytes(tensors_file(self.shapes if shapes is None else shapes, **changes))

    def leave_what_trainers_leave(self, marker: Path) -> int:
        """As speculators does: pickles, code, links, and weights that only their writer may read.

        Returns:
            How many entries.
        """
        before = len(names_in(self.draft))
        code = f"open({str(marker)!r}, 'w')\n"
        (self.draft / "config.py").write_text(code)
        (self.draft / "sitecustomize.py").write_text(code)
        (self.draft / "optimizer_state_dict.pt").write_bytes(pickle.dumps(_Marking(marker)))
        (self.draft / "pytorch_model.bin").write_bytes(pickle.dumps(_Marking(marker)))
        (self.draft / "val_metrics.json").write_text(json.dumps({MARK: MARK}))
        (self.draft / "checkpoint_best").symlink_to("0")
        (self.draft / "logs" / "deep").mkdir(parents=True)
        os.mkfifo(self.draft / "progress")
        self.write_config(auto_map={"": "config.Eagle3SpeculatorConfig"}, verifier=MARK)
        return len(names_in(self.draft)) - before


@contextmanager
def as_user(user: int) -> Iterator[None]:
    """Does what is within as this user, where root runs the tests; else as who runs them."""
    if os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@dataclass(frozen=True)
class Taken:
    """How an intake ended."""

    exit_code: int
    text: str

    @property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text)
        return found

    @property
    def refused(self) -> str:
        """The code; empty: it was not refused."""
        return str(self.message.get("refused", ""))


@dataclass(frozen=True)
class Intake:
    """The program, with folders where any user gets to."""

    directory: Path

    @property
    def output(self) -> Output:
        return Output(self.directory / "output")

    @property
    def store(self) -> Path:
        return self.directory / "store"

    @property
    def marker(self) -> Path:
        """There once something of the trainer's has been run."""
        return self.directory / "marker"

    @property
    def stored(self) -> list[str]:
        return names_in(self.store) if self.store.exists() else []

    def run(self, *options: str, most_bytes: int = 1 << 20) -> Taken:
        message = self.directory / "message"
        code = main(
            [
                *("--output", str(self.output.path), "--store", str(self.store)),
                *("--max-bytes", str(most_bytes), "--message", str(message), "--eagle3"),
                *("--target-hidden-size", "8", "--target-vocab-size", "32"),
                *("--known", CLASS, "llama", "eagle3", *options),
            ]
        )
        return Taken(code, message.read_text())


@contextmanager
def new_intake() -> Iterator[Intake]:
    """One with an honest output, and all that another user needs to run it."""
    with tempfile.TemporaryDirectory() as directory:
        intake = Intake(Path(directory))
        intake.output.write()
        intake.store.mkdir()
        for each in (intake.directory, intake.store):
            each.chmod(0o777)
        yield intake
        # What is stored is read-only, for those who are not root too.
        for folder in intake.store.iterdir():
            folder.chmod(0o700)
