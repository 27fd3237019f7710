"""Three drafts of the constructed pair, trained by the template that users have.

`hard` has seen hard traffic alone: better there than the constructed draft, and worse on easy
traffic. `both` has seen both. `early` is `both` after few steps: worse than
the constructed draft.
"""

import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local_cluster.engine.environment import locked
from local_cluster.engine.language import CYCLE_TOKENS, TRAFFIC_CLASSES
from local_cluster.engine.model_pair import ModelPair
from local_cluster.paths import cache_dir
from training.environment import PINNED, SHIMS, TrainingEnvironment
from training.pod import TEMPLATE, TRAIN, Ended, Pod, cpu_env, new_port

TARGET: Final = "fathom/pair"
"""The pair's target by an id of the Hub, as its snapshot in a cache."""
_COMMIT: Final = "f" * 40
_SEQUENCE: Final = 128
"""Tokens: what is asked for in `make demo` and the tests, and what is answered."""
_LEARNING: Final = "--lr 5e-3 --scheduler-type none --log-freq 10 --epochs 1"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One training."""

    classes: tuple[str, ...]
    sequences: int
    """In each class. The cycle has a thousand tokens, so each is seen about ten times."""
    train_args: str = _LEARNING
    states: str = "online"


RECIPES: Final[Mapping[str, Recipe]] = {
    "early": Recipe(("hard", "easy"), 72, f"{_LEARNING} --max-steps 6"),
    "hard": Recipe(("hard",), 96, states="kept"),
    "both": Recipe(("hard", "easy"), 72),
}


def data_line(generator: random.Random, name: str) -> str:
    """One conversation as speculators reads it: every token is an answer's."""
    traffic = TRAFFIC_CLASSES[name]
    first = traffic.first_token + generator.randrange(CYCLE_TOKENS)
    tokens = [first, *traffic.walk(first, _SEQUENCE - 1)]
    return json.dumps({"input_ids": tokens, "loss_mask": [1] * _SEQUENCE})


def write_data(folder: Path, recipe: Recipe) -> None:
    """A data claim's files, the same on every machine."""
    folder.mkdir(parents=True)
    generator = random.Random("-".join(recipe.classes))
    lines = [data_line(generator, name) for name in recipe.classes for _ in range(recipe.sequences)]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")


@dataclass(frozen=True, slots=True)
class Drafts:
    """What the three trainings left, each as its `FATHOM_OUTPUT`."""

    directory: Path
    trainings: Mapping[str, Ended]
    """Those that were run just now; empty where all were in the cache."""

    def output(self, name: str) -> Path:
        """The folder with `result.json` and `draft`."""
        return self.directory / name


async def ensure_drafts(environment: TrainingEnvironment, pair: ModelPair) -> Drafts:
    """The drafts of this pair, template and versions, trained if they are not in the cache.

    Raises:
        RuntimeError: a training failed; with the end of what it printed.
    """
    directory = cache_dir() / "trained-drafts" / _key(pair)
    with locked(directory.with_name(f"{directory.name}.lock")):
        if directory.is_dir():
            return Drafts(directory, {})
        with tempfile.TemporaryDirectory(prefix="fathom-training-") as folder:
            trainings = await _trained(environment, pair, Path(folder))
            shutil.copytree(Path(folder) / "outputs", directory)
    return Drafts(directory, trainings)


def _key(pair: ModelPair) -> str:
    digest = hashlib.sha256(f"{pair.target}{RECIPES}{cpu_env('')}".encode())
    for source in (TEMPLATE, PINNED, *sorted(SHIMS.rglob("*.py"))):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


async def _trained(
    environment: TrainingEnvironment, pair: ModelPair, work: Path
) -> Mapping[str, Ended]:
    """Run all recipes with one vLLM, which would be each pod's own."""
    hub = write_hub(work / "hub", pair.target)
    port = new_port()
    found: dict[str, Ended] = {}
    server = Pod(environment, work / "states", {**contract(work, hub), **cpu_env("")}, port)
    async with server.states():
        for name, recipe in RECIPES.items():
            write_data(work / "data" / name, recipe)
            variables = {
                **contract(work, hub, name),
                **cpu_env(recipe.train_args),
                "STATES": recipe.states,
            }
            pod = Pod(environment, work / "scratch" / name, variables, port)
            pod.scratch.mkdir(parents=True)
            shutil.copy(server.scratch / "target.env", pod.scratch)
            found[name] = pod.train()
            if found[name].code:
                raise RuntimeError(f"training {name} failed: {pod.log(TRAIN)[-3000:]}")
            require_no_text(pod)
    return found


def write_hub(hub: Path, target: Path) -> Path:
    """A cache of the Hub with one snapshot and no branch, as a fetch of a commit leaves it."""
    snapshot = hub / f"models--{TARGET.replace('/', '--')}" / "snapshots" / _COMMIT
    snapshot.mkdir(parents=True)
    for file in target.iterdir():
        (snapshot / file.name).symlink_to(file)
    return hub


def contract(work: Path, hub: Path, name: str = "") -> dict[str, str]:
    """What the operator gives a trainer, docs/training.md, with folders of this machine."""
    evidence = work / "evidence.json"
    evidence.write_text(json.dumps({"schema": 1, "run": name}))
    return {
        "FATHOM_RUN": name,
        "FATHOM_TARGET": TARGET,
        "FATHOM_TARGET_COMMIT": _COMMIT,
        "FATHOM_DRAFT": "fathom/constructed",
        "FATHOM_DRAFT_COMMIT": "",
        "FATHOM_METHOD": "eagle3",
        "FATHOM_VLLM_VERSION": "0.32.0",
        "FATHOM_EVIDENCE": str(evidence),
        "FATHOM_DATA": str(work / "data" / name),
        "FATHOM_OUTPUT": str(work / "outputs" / name),
        "HF_HUB_CACHE": str(hub),
        "HF_HOME": str(work / "home" / "huggingface"),
        "HF_DATASETS_CACHE": str(work / "home" / "datasets"),
    }


def require_no_text(pod: Pod) -> None:
    """What a pod prints is kept by others than the data's owner.

    Raises:
        RuntimeError: it printed text of the data.
    """
    words = [f"{name}-" for name in TRAFFIC_CLASSES]
    if not any(each in pod.log("prepare") for each in words):
        raise RuntimeError("prepare-data prints no sample any more: the template need not hide it.")
    if any(each in pod.log(TRAIN) for each in words):
        raise RuntimeError(f"the trainer printed text of its data: {pod.scratch / 'train.log'}")
