"""Where prompts come from: at random, or from a volume of the user's. Nothing is shipped.

A source is `random`, `pvc:CLAIM/PATH` or `configmap:NAME/KEY`. A path that ends in `.json` is a
ShareGPT-shaped file; any other is a folder of SPEED-Bench, which holds `SUBSET.jsonl`.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from pydantic import JsonValue

from fathom.bench.asked import BenchRefusedError, BenchRequest

RANDOM: Final = "random"
DATA_DIRECTORY: Final = "/data/fathom-bench"
SUBSETS: Final = (
    "qualitative",
    *(f"throughput_{size}" for size in ("1k", "2k", "8k", "16k", "32k")),
)
"""Of SPEED-Bench, as vLLM's loader names them."""
_CHAT: Final = (
    *("--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
    # The engine applies it, as to every client's messages.
    "--skip-chat-template",
)
_COMPLETIONS: Final = ("--backend", "openai", "--endpoint", "/v1/completions")


@dataclass(frozen=True, slots=True)
class DataVolume:
    """A volume that the user named; it is mounted to be read."""

    kind: str
    """`pvc` or `configmap`."""
    name: str

    @property
    def mount_path(self) -> str:
        return f"{DATA_DIRECTORY}/{self.kind}/{self.name}"

    def source(self) -> dict[str, JsonValue]:
        """As a pod's volume has it."""
        if self.kind == "pvc":
            return {"persistentVolumeClaim": {"claimName": self.name, "readOnly": True}}
        return {"configMap": {"name": self.name}}


@dataclass(frozen=True, slots=True)
class BenchData:
    """One series of prompts."""

    label: str
    """As it stands in the table."""
    arguments: tuple[str, ...]
    """What `vllm bench serve` gets for it."""
    volume: DataVolume | None = None
    """None: it needs none."""


def data_of(request: BenchRequest) -> tuple[BenchData, ...]:
    """All series that are asked for.

    Raises:
        BenchRefusedError: a source is none.
    """
    return tuple(each for source in request.prompts for each in _series(source, request))


def _series(source: str, request: BenchRequest) -> tuple[BenchData, ...]:
    output = str(request.output_tokens)
    if source == RANDOM:
        return tuple(
            BenchData(
                f"random {tokens}",
                (
                    *_COMPLETIONS,
                    *("--dataset-name", "random", "--random-input-len", str(tokens)),
                    *("--random-output-len", output),
                ),
            )
            for tokens in request.input_tokens
        )
    volume, path = _place(source)
    if path.endswith(".json"):
        arguments = (
            *(*_CHAT, "--dataset-name", "sharegpt", "--dataset-path", path),
            *("--sharegpt-output-len", output),
        )
        return (BenchData(PurePosixPath(path).stem, arguments, volume),)
    if request.subset not in SUBSETS:
        raise BenchRefusedError(
            f"SPEED-Bench has no subset {request.subset!r}: choose one of {', '.join(SUBSETS)}."
        )
    folder = (
        *(*_CHAT, "--dataset-name", "speed_bench", "--dataset-path", path),
        *("--speed-bench-dataset-subset", request.subset, "--speed-bench-output-len", output),
    )
    if not request.categories:
        return (BenchData(request.subset, folder, volume),)
    return tuple(
        BenchData(
            f"{request.subset}/{category}", (*folder, "--speed-bench-category", category), volume
        )
        for category in request.categories
    )


def _place(source: str) -> tuple[DataVolume, str]:
    kind, colon, rest = source.partition(":")
    name, _, path = rest.partition("/")
    if not colon or kind not in {"pvc", "configmap"} or not name or ".." in path.split("/"):
        raise BenchRefusedError(
            f"{source!r} is no source of prompts: write random, pvc:CLAIM/PATH or "
            "configmap:NAME/KEY, where a file that ends in .json is ShareGPT-shaped and a folder "
            "is SPEED-Bench's."
        )
    volume = DataVolume(kind, name)
    return volume, str(PurePosixPath(volume.mount_path, path))
