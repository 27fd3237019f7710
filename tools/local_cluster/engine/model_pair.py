"""The constructed models as directories that vLLM loads. Needs no torch itself."""

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from local_cluster.engine import language
from local_cluster.engine.language import PairShape
from local_cluster.paths import PYTHON_PATH

_BUILD_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Where target and EAGLE 3.1 draft lie; beside them, in `draft-eagle3`, an EAGLE 3 draft."""

    target: Path
    draft: Path


class ModelPairError(RuntimeError):
    """The pair cannot be written; the message carries the end of the output."""


SMALL: Final = PairShape()
"""For engines on a CPU."""


def pair_directory(cache_dir: Path, shape: PairShape = SMALL) -> Path:
    """Where the pair of this version of the code lies, or will."""
    return cache_dir / "models" / f"pair-{_content_hash(shape)}"


def ensure_model_pair(cache_dir: Path, engine_python: Path, shape: PairShape = SMALL) -> ModelPair:
    """The pair under `<cache_dir>/models`, written by the engine's own Python if it is not there.

    The directory's name follows from the code that writes it, so a change of shape or classes makes
    a new one. Idempotent, and safe to interrupt.

    Raises:
        ModelPairError: the engine's Python could not write it.
    """
    directory = pair_directory(cache_dir, shape)
    pair = ModelPair(target=directory / "target", draft=directory / "draft")
    if directory.is_dir():
        return pair
    temporary = directory.with_name(f"{directory.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        subprocess.run(
            [
                *(str(engine_python), "-m", "local_cluster.engine.weights", str(temporary)),
                json.dumps(asdict(shape)),
            ],
            env={**os.environ, "PYTHONPATH": PYTHON_PATH},
            check=True,
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
        )
        temporary.rename(directory)
    except subprocess.CalledProcessError as error:
        raise ModelPairError(
            f"{engine_python} could not write the model pair: {error.stderr[-2000:]}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        if not directory.is_dir():  # else another process was faster
            raise ModelPairError(f"the model pair cannot be written: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return pair


def _content_hash(shape: PairShape) -> str:
    digest = hashlib.sha256(repr(shape).encode())
    for source in (Path(__file__), Path(__file__).with_name("weights.py"), Path(language.__file__)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]
