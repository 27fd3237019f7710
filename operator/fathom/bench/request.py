"""What a user asks of a bench: depths, load, and where prompts come from.

A source is `random`, `pvc:CLAIM/PATH` or `configmap:NAME/KEY`. A path that ends in `.json` is a
ShareGPT-shaped file; any other is a folder of SPEED-Bench, which holds `SUBSET.jsonl`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from pydantic import JsonValue

from fathom.resource import SpeculativeDeployment

RANDOM: Final = "random"
DATA_DIRECTORY: Final = "/data/fathom-bench"
SUBSETS: Final = (
    "qualitative",
    *(f"throughput_{size}" for size in ("1k", "2k", "8k", "16k", "32k")),
)
"""Subsets of SPEED-Bench, as vLLM's loader names them."""
_CHAT: Final = (
    *("--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
    # The engine applies it, as to every client's messages.
    "--skip-chat-template",
)
_COMPLETIONS: Final = ("--backend", "openai", "--endpoint", "/v1/completions")


class BenchRefusedError(Exception):
    """It cannot be measured; the message is a sentence that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """As it stands on the command line."""

    concurrency: tuple[int, ...] = (1, 4, 16)
    depths: tuple[int, ...] | None = None
    """None: all that the engine has."""
    prompts: tuple[str, ...] = ("random",)
    """Sources: see `fathom.bench.request`."""
    input_tokens: tuple[int, ...] = (1024,)
    """Lengths of random prompts; a series for each."""
    output_tokens: int = 256
    num_prompts: int | None = None
    """Prompts of each run; None: 8 for each request in flight."""
    subset: str = "qualitative"
    """Subset of SPEED-Bench."""
    categories: tuple[str, ...] = ()
    """Categories of SPEED-Bench, a series for each; empty: all as one."""
    temperature: float = 0.0
    true_off: bool = True
    deadline_minutes: int = 240
    """After which the Job is ended, whatever it is at."""

    def prompts_at(self, concurrency: int) -> int:
        """How many requests a run has."""
        return self.num_prompts or 8 * concurrency


def asked_depths(sd: SpeculativeDeployment, asked: Sequence[int] | None) -> tuple[int, ...]:
    """The depths to measure, ascending.

    Args:
        sd: whose engine.
        asked: by the user; None: all that the engine has.

    Raises:
        BenchRefusedError: the engine cannot be held at them, or in one pod.
    """
    spec = sd.spec
    nodes = sd.engine.layout.nodes
    if nodes > 1:
        raise BenchRefusedError(
            f"A bench is one pod, and a replica of {sd.metadata.name} is {nodes}: measure a spec "
            "whose replica fits one node."
        )
    if not spec.drafts:
        raise BenchRefusedError(
            "spec.speculation.drafting is Disabled, so there is no depth to measure: set it to "
            "Enabled."
        )
    has = _depths_of(sd)
    missing = sorted(set(asked or ()) - set(has))
    if missing:
        refusal = sd.engine.not_live
        why = f" {refusal.sentence}" if refusal else ""
        raise BenchRefusedError(
            f"The engine has no depth {', '.join(map(str, missing))}, only "
            f"{', '.join(map(str, has))}.{why}"
        )
    return tuple(sorted(set(asked if asked is not None else has)))


def _depths_of(sd: SpeculativeDeployment) -> tuple[int, ...]:
    return sd.engine.depths if sd.engine.live else (sd.spec.speculation.tokens,)


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
